"""Programs for several devices: each segment of a placement is compiled for its device; values are copied in between.

The order of all steps is fixed beforehand (`schedule`): what does not keep the host waiting comes before what does, so that devices
work at the same time, and a value is let go of after its last use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Union

import numpy as np

from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.native_call import native_call
from dynagraph.errors import BackendError
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import bind_sizes
from dynagraph.ir.placement import Copy, Placement, Segment

Move = Callable[[Any, str, str], Any]  # (array, source, destination) -> a new array in C order


class Arriving(Protocol):
    """An array on the host that a copy is still filling."""

    def wait(self) -> np.ndarray:
        """The array in C order, once the copy is done."""


Fetch = Callable[[Any, str], Arriving]  # (array, source)


@dataclass(frozen=True)
class RunStep:
    """A segment: operands and results are positions in the table of values; `dead`: what nothing needs any more."""

    segment: Segment
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoveStep:
    """A copy to another device; `fetched`: to the host, for segments there and not for the caller."""

    copy: Copy
    operand: int
    result: int
    dead: tuple[int, ...] = ()
    fetched: bool = False


Step = Union[RunStep, MoveStep]


@dataclass(frozen=True)
class Schedule:
    """Steps in order over a table of values, whose first entries are the graph's inputs, then the sizes of symbols."""

    steps: tuple[Step, ...]
    symbols: tuple[str, ...]
    outputs: tuple[int, ...]
    size: int


def schedule(placement: Placement) -> Schedule:
    """The order in which segments run and values move; each copy of the placement is one step, but for outputs that stand twice."""
    return _Scheduler(placement).run()


class _Scheduler:
    def __init__(self, placement: Placement):
        self.placement = placement
        self.segments = placement.segments()
        self.symbols = tuple(sorted({name for segment in self.segments for name in segment.symbols}))
        inputs = placement.graph.placeholders
        self.size = len(inputs) + len(self.symbols)
        self.symbol_at = {name: len(inputs) + k for k, name in enumerate(self.symbols)}
        self.at: dict[tuple[Node, str], int] = {}  # a value on a device
        self.own: dict[Node, list[int]] = {}  # positions of a value where it is made that no output has taken yet
        self.input_at = {node: k for k, node in enumerate(inputs)}
        self.steps: list[Step] = []

    def run(self) -> Schedule:
        for node, home in self.placement.homes.items():
            self.at[node, home] = self.input_at[node]
            self._move(node)
        for segment in self.segments:
            operands = [self._operand(node, segment.device) for node in segment.inputs]
            operands += [self.symbol_at[name] for name in segment.symbols]
            results = [self._new() for _ in segment.outputs]
            self.steps.append(RunStep(segment, tuple(operands), tuple(results)))
            for node, result in zip(segment.outputs, results):
                self.own.setdefault(node, []).append(result)
                self.at.setdefault((node, segment.device), result)
            for node in dict.fromkeys(segment.outputs):
                if node.kind != "placeholder":
                    self._move(node)
        outputs = self._outputs()
        self._note_what_is_fetched(outputs)
        self.steps = self._in_turn()
        return Schedule(self._letting_go(outputs), self.symbols, outputs, self.size)

    def _new(self) -> int:
        self.size += 1
        return self.size - 1

    def _operand(self, node: Node, device: str) -> int:
        return self.input_at[node] if node in self.placement.everywhere else self.at[node, device]

    def _move(self, node: Node) -> None:
        """To all devices that want it."""
        for copy in self.placement.copies:
            if copy.value is node:
                self.at[node, copy.destination] = self._moved(copy)

    def _moved(self, copy: Copy) -> int:
        result = self._new()
        self.steps.append(MoveStep(copy, self.at[copy.value, copy.source], result))
        return result

    def _outputs(self) -> tuple[int, ...]:
        """Where each output is: no two in the same array."""
        taken: list[int] = []
        for node, device in zip(self.placement.graph.outputs, self.placement.delivered):
            if device == self.placement.device[node]:
                position = self.own[node].pop(0)
            else:
                position = self.at[node, device]
                if position in taken:
                    same = next(c for c in self.placement.copies if c.value is node and c.destination == device)
                    position = self._moved(same)
            taken.append(position)
        return tuple(taken)

    def _note_what_is_fetched(self, outputs: Sequence[int]) -> None:
        host = self.placement.machine.host
        for k, step in enumerate(self.steps):
            if isinstance(step, MoveStep) and step.copy.destination == host and step.result not in outputs:
                self.steps[k] = replace(step, fetched=True)

    def _in_turn(self) -> list[Step]:
        """The steps with those first that keep the host least: each device and each link keeps its order.

        A segment of a device is launched, and what is fetched or copied between devices is queued.  Copying from the host takes its
        time, and so do its own segments; copies for the caller are waited for.
        """
        queues: dict[object, deque[Step]] = {}
        for step in self.steps:
            queues.setdefault(self._resource(step), deque()).append(step)
        there = set(range(len(self.placement.graph.placeholders) + len(self.symbols)))
        number = {id(step): k for k, step in enumerate(self.steps)}
        ordered: list[Step] = []
        while any(queues.values()):
            ready = [q[0] for q in queues.values() if q and there.issuperset(_read(q[0]))]
            step = min(ready, key=lambda s: (self._holds_up(s), number[id(s)]))
            queues[self._resource(step)].popleft()
            there.update(_made(step))
            ordered.append(step)
        return ordered

    def _resource(self, step: Step) -> object:
        return step.segment.device if isinstance(step, RunStep) else (step.copy.source, step.copy.destination)

    def _holds_up(self, step: Step) -> int:
        """How long the host is busy with a step: larger is longer."""
        host = self.placement.machine.host
        if isinstance(step, RunStep):
            return 2 if step.segment.device == host else 0
        if step.copy.source == host:
            return 1
        return 3 if step.copy.destination == host and not step.fetched else 0

    def _letting_go(self, outputs: Sequence[int]) -> tuple[Step, ...]:
        last: dict[int, int] = {}
        for k, step in enumerate(self.steps):
            last.update(dict.fromkeys((*_read(step), *_made(step)), k))
        dead: list[list[int]] = [[] for _ in self.steps]
        for position, k in last.items():
            if position not in outputs:
                dead[k].append(position)
        return tuple(replace(step, dead=tuple(sorted(gone))) for step, gone in zip(self.steps, dead))


def _read(step: Step) -> tuple[int, ...]:
    return step.operands if isinstance(step, RunStep) else (step.operand,)


def _made(step: Step) -> tuple[int, ...]:
    return step.results if isinstance(step, RunStep) else (step.result,)


def compile_placed(placement: Placement, backends: Mapping[str, Backend], move: Move, fetch: Fetch | None = None) -> Executable:
    """A program for the placement's graph.  It takes the inputs where they lie, and gives each output where it is delivered.

    backends: by the names of devices.  They are given the graphs of `Placement.segment_graph`, and their programs arrays of their
        device, but 0-d ones that lie on the host (scalars and symbolic sizes), which come as they are
    move: ``move(array, source, destination)`` gives a new array there, in C order; it may return before the copy is done, if what
        uses the array on its device, and what reads it on the host, waits for it
    fetch: ``fetch(array, source)`` begins a copy to the host that only segments there read, and which is waited for before the
        first of these; None: `move` does it

    Raises BackendError where a device of a segment has no backend.

    >>> import numpy as np
    >>> from dynagraph.backends.reference import reference
    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Graph, Meta
    >>> from dynagraph.ir.machine_model import on_paper
    >>> from dynagraph.ir.ops import OPS
    >>> from dynagraph.ir.passes.place import place
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> _ = g.output([g.call(OPS["exp"], x)])
    >>> placement = place(g, on_paper(), outputs=["cuda:0"])
    >>> run = compile_placed(placement, {"cpu": reference}, lambda array, source, destination: array.copy())
    >>> run(np.zeros(3))
    (array([1., 1., 1.]),)
    """
    plan = schedule(placement)
    graph = placement.graph
    programs: dict[int, Executable] = {}
    functions: dict[int, Callable[..., tuple[Any, ...]]] = {}
    for step in plan.steps:
        if isinstance(step, RunStep):
            part = placement.segment_graph(step.segment)
            program = programs[step.segment.number] = _backend(backends, step.segment.device)(part)
            functions[step.segment.number] = native_call(part, program)
    scalars = graph.scalars
    arriving = {s.result for s in plan.steps if isinstance(s, MoveStep) and s.fetched} if fetch is not None else set()

    def call(*arrays: Any) -> tuple[Any, ...]:
        sizes = bind_sizes(graph, arrays)
        values: list[Any] = [None] * plan.size
        values[: len(arrays)] = arrays
        for k, name in enumerate(plan.symbols, start=len(arrays)):
            values[k] = np.array(sizes[name], np.int64)
        for step in plan.steps:
            if isinstance(step, RunStep):
                _run(functions[step.segment.number], step, values, arriving)
            elif step.fetched and fetch is not None:
                values[step.result] = fetch(values[step.operand], step.copy.source)
            else:
                values[step.result] = move(values[step.operand], step.copy.source, step.copy.destination)
            for position in step.dead:
                values[position] = None
        return tuple(values[k][()] if scalar else values[k] for k, scalar in zip(plan.outputs, scalars))

    return Executable(
        call,
        artifacts=_artifacts(placement, plan, programs),
        cached=bool(programs) and all(program.cached for program in programs.values()),
        checked=any(program.checked for program in programs.values()),
        repeatable=all(program.repeatable for program in programs.values()),
    )


def _run(function: Callable[..., tuple[Any, ...]], step: RunStep, values: list[Any], arriving: Collection[int]) -> None:
    """In a frame of its own: no variable holds a result any longer.  `arriving`: positions of what was fetched."""
    for k in step.operands:
        if k in arriving and not isinstance(values[k], np.ndarray):
            values[k] = values[k].wait()
    for position, result in zip(step.results, function(*(values[k] for k in step.operands))):
        values[position] = result


def _backend(backends: Mapping[str, Backend], device: str) -> Backend:
    if device not in backends:
        known = ", ".join(sorted(backends)) or "none"
        raise BackendError(f"placed: there is no backend for {device!r}; there are some for: {known}")
    return backends[device]


def _artifacts(placement: Placement, plan: Schedule, programs: Mapping[int, Executable]) -> dict[str, str]:
    """The placement, and what the segments' programs have to show, one after another."""
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        if isinstance(step, RunStep):
            for name, text in programs[step.segment.number].artifacts.items():
                found.setdefault(name, []).append(f"segment {step.segment.number} on {step.segment.device}:\n{text}")
    return {"placement": placement.describe(), **{name: "\n\n".join(texts) for name, texts in found.items()}}


__all__ = ["Arriving", "Fetch", "Move", "MoveStep", "RunStep", "Schedule", "Step", "compile_placed", "schedule"]
