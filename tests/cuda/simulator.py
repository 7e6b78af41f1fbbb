"""Run a placement on paper: devices and links work at the same time, each on one thing after another.

Takes the very steps of the executor (`backends/multi_device.py`), and refuses what could not run: operands that have not arrived,
lie on another device, or were let go of, and more memory than a device has.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from dynagraph.backends.multi_device import MoveStep, RunStep, Schedule, Step, schedule
from dynagraph.ir.graph import Node
from dynagraph.ir.placement import Placement


class CannotRun(AssertionError):
    """A step whose operands are not there, or whose results have no room."""


@dataclass(frozen=True)
class Event:
    """A step: `on` is a device, or a pair of them for a copy."""

    step: Step
    on: str | tuple[str, str]
    start: float
    end: float


@dataclass
class Timeline:
    """When everything happened, and the most memory that was needed at a time on each device."""

    events: list[Event] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)

    @property
    def makespan(self) -> float:
        return max((event.end for event in self.events), default=0.0)


@dataclass
class _Array:
    device: str
    nbytes: int
    ready: float
    gone: float = float("inf")


def simulate(placement: Placement, plan: Schedule | None = None) -> Timeline:
    """The timeline of a placement.  Raises CannotRun."""
    return _Simulation(placement, schedule(placement) if plan is None else plan).run()


class _Simulation:
    def __init__(self, placement: Placement, plan: Schedule):
        self.placement, self.plan, self.machine = placement, plan, placement.machine
        self.arrays: dict[int, _Array] = {}
        self.free: dict[str | tuple[str, str], float] = defaultdict(float)  # when a device or link has nothing to do
        self.timeline = Timeline()
        inputs = placement.graph.placeholders
        for k, node in enumerate(inputs):
            self.arrays[k] = _Array(placement.homes.get(node, self.machine.host), node.meta.hint_nbytes, 0.0)
        for k in range(len(plan.symbols)):
            self.arrays[len(inputs) + k] = _Array(self.machine.host, 8, 0.0)

    def run(self) -> Timeline:
        for step in self.plan.steps:
            if isinstance(step, RunStep):
                self._segment(step)
            else:
                self._copy(step)
        self._memory()
        return self.timeline

    def _segment(self, step: RunStep) -> None:
        segment = step.segment
        n_values = len(segment.inputs)
        ready = [self._ready(k, segment.device, node, step) for k, node in zip(step.operands, segment.inputs)]
        ready += [self._ready(k, self.machine.host, None, step) for k in step.operands[n_values:]]
        members = set(segment.nodes)
        seconds = sum(g.seconds[segment.device] for g in self.placement.groups if members.issuperset(g.nodes))
        end = self._take(step, segment.device, max(ready, default=0.0), seconds)
        for position, node in zip(step.results, segment.outputs, strict=True):
            self.arrays[position] = _Array(segment.device, node.meta.hint_nbytes, end)
        self._let_go(step, end)

    def _copy(self, step: MoveStep) -> None:
        copy = step.copy
        ready = self._ready(step.operand, copy.source, copy.value, step)
        end = self._take(step, (copy.source, copy.destination), ready, copy.seconds)
        self.arrays[step.result] = _Array(copy.destination, copy.nbytes, end)
        self._let_go(step, end)

    def _ready(self, position: int, device: str, node: Node | None, step: Step) -> float:
        array = self.arrays.get(position)
        if array is None:
            raise CannotRun(f"{step}: operand {position} was never made")
        if array.gone < float("inf"):
            raise CannotRun(f"{step}: operand {position} was let go of")
        if array.device != device and node is not None and node not in self.placement.everywhere:
            raise CannotRun(f"{step}: operand {position} lies on {array.device}")
        return array.ready

    def _take(self, step: Step, on: str | tuple[str, str], ready: float, seconds: float) -> float:
        start = max(ready, self.free[on])
        self.free[on] = start + seconds
        self.timeline.events.append(Event(step, on, start, start + seconds))
        return start + seconds

    def _let_go(self, step: Step, end: float) -> None:
        for position in step.dead:
            self.arrays[position].gone = end

    def _memory(self) -> None:
        """What lies on each device over time; a result has its memory from the start of the step that makes it."""
        starts = {}
        for event in self.timeline.events:
            made = event.step.results if isinstance(event.step, RunStep) else (event.step.result,)
            starts.update(dict.fromkeys(made, event.start))
        changes: dict[str, list[tuple[float, int, int]]] = {name: [] for name in self.machine.names}
        for position, array in self.arrays.items():
            changes[array.device] += [(starts.get(position, 0.0), 1, array.nbytes), (array.gone, 0, -array.nbytes)]
        for name, of_device in changes.items():
            held = self.timeline.peak[name] = 0
            for _, _, change in sorted(of_device):
                held += change
                self.timeline.peak[name] = max(self.timeline.peak[name], held)
            if self.timeline.peak[name] > self.machine.device(name).memory:
                raise CannotRun(f"{name}: {self.timeline.peak[name]} bytes at a time, of {self.machine.device(name).memory:.0f}")


__all__ = ["CannotRun", "Event", "Timeline", "simulate"]
