"""Programs of several devices: each segment of a placement compiled by the backend of its device, values moved in between.

The order of all steps is fixed beforehand (`schedule`): a value is moved as soon as it is there, so that moves that do not wait run
while others compute, and let go of after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.native_call import native_call
from dynagraph.errors import BackendError
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import bind_sizes
from dynagraph.ir.placement import Copy, Placement, Segment

Move = Callable[[Any, str, str], Any]  # (array, source, destination) -> a new array in C order


@dataclass(frozen=True)
class RunStep:
    """A segment: operands and results are positions in the table of values; `dead`: what nothing needs any more."""

    segment: Segment
    operands: tuple[int, ...]
    results: tuple[int, ...]
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoveStep:
    """A copy to another device."""

    copy: Copy
    operand: int
    result: int
    dead: tuple[int, ...] = ()


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

    def _letting_go(self, outputs: Sequence[int]) -> tuple[Step, ...]:
        last: dict[int, int] = {}
        for k, step in enumerate(self.steps):
            used = (*step.operands, *step.results) if isinstance(step, RunStep) else (step.operand, step.result)
            last.update(dict.fromkeys(used, k))
        dead: list[list[int]] = [[] for _ in self.steps]
        for position, k in last.items():
            if position not in outputs:
                dead[k].append(position)
        return tuple(replace(step, dead=tuple(sorted(gone))) for step, gone in zip(self.steps, dead))


def compile_placed(placement: Placement, backends: Mapping[str, Backend], move: Move) -> Executable:
    """A program for the placement's graph.  It takes the inputs where they lie, and gives each output where it is delivered.

    backends: by the names of devices.  They are given the graphs of `Placement.segment_graph`, and their programs arrays of their
        device, but 0-d ones that lie on the host (scalars and symbolic sizes), which come as they are
    move: ``move(array, source, destination)`` gives a new array there, in C order; it may return before the copy is done, if what
        uses the array on its device, and what reads it on the host, waits for it

    Raises BackendError where a device of a segment has no backend.

    >>> import numpy as np
    >>> from dynagraph.backends.reference import reference
    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Graph, Meta
    >>> from dynagraph.ir.machines import on_paper
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

    def call(*arrays: Any) -> tuple[Any, ...]:
        sizes = bind_sizes(graph, arrays)
        values: list[Any] = [None] * plan.size
        values[: len(arrays)] = arrays
        for k, name in enumerate(plan.symbols, start=len(arrays)):
            values[k] = np.array(sizes[name], np.int64)
        for step in plan.steps:
            if isinstance(step, MoveStep):
                values[step.result] = move(values[step.operand], step.copy.source, step.copy.destination)
            else:
                _run(functions[step.segment.number], step, values)
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


def _run(function: Callable[..., tuple[Any, ...]], step: RunStep, values: list[Any]) -> None:
    """In a frame of its own: no variable holds a result any longer."""
    for position, result in zip(step.results, function(*(values[k] for k in step.operands))):
        values[position] = result


def _backend(backends: Mapping[str, Backend], device: str) -> Backend:
    if device not in backends:
        known = ", ".join(sorted(backends)) or "none"
        raise BackendError(f"placed: there is no backend for {device!r}; there are some for: {known}")
    return backends[device]


def _artifacts(placement: Placement, plan: Schedule, programs: Mapping[int, Executable]) -> dict[str, str]:
    """The placement, and what the segments' programs have to show, one behind another."""
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        if isinstance(step, RunStep):
            for name, text in programs[step.segment.number].artifacts.items():
                found.setdefault(name, []).append(f"segment {step.segment.number} on {step.segment.device}:\n{text}")
    return {"placement": placement.describe(), **{name: "\n\n".join(texts) for name, texts in found.items()}}


__all__ = ["Move", "MoveStep", "RunStep", "Schedule", "Step", "compile_placed", "schedule"]
