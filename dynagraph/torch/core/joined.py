"""A compiled call as one node of the autograd graph.

A capture that recorded several operations gives their results one node in place of theirs
(`dynagraph/frontend/library/joined.py`).  The call keeps what a minimum cut chose of all that the operations save.  Backward is a
compiled function of its own, made when it is first needed: it computes again what was not kept, makes the operations' nodes, and
runs them.  The same code does so as plain Python where gradients are recorded themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynagraph.api import compile_as
from dynagraph.autodiff.primitives import spliced
from dynagraph.driver.decorated import Options
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import at_sizes, concrete
from dynagraph.markers import at_capture
from dynagraph.torch.core.arrays import as_array
from dynagraph.torch.core.engine import pull_tensors
from dynagraph.torch.core.nodes import Node, changed
from dynagraph.torch.core.primitives import primitive
from dynagraph.torch.core.tensor import Tensor, apply, wrap

MOST_SIZES = 8  # for which backward is compiled; a function whose sizes change more often goes back step by step
_new = object.__new__


class Held(NamedTuple):
    """Stands in an operation's attributes for an array."""

    value: int


# where a step reads what was saved: its position, and the number of an operand, -1 - k for result k, or None for an attribute
Place = tuple[int, int | None]
FREED = "freed"


class Step(NamedTuple):
    """An operation that was recorded.

    `ways`: for each operand where its gradient goes: the position of a step and the number of the output there, -1 and the number
    of an input, or None.  `saved`: for each operand None, or the number of a value and that of a tensor, -1 if it is of none.
    `results`: numbers of results, and of values.  `age`: how many nodes were made after it.  `is_gone`: what it saved was freed.
    """

    kind: type[Node]
    attrs: dict[str, Any]
    holds_arrays: bool
    ways: tuple[tuple[int, int] | None, ...]
    metas: tuple[Any, ...]
    output_metas: tuple[Any, ...]
    saved: tuple[tuple[int, int] | None, ...]
    results: tuple[tuple[int, int], ...]
    age: int
    is_gone: bool


class SavedTensor(NamedTuple):
    """A tensor that steps save: one of the caller's (`outer`), or a value.

    The value is output `number` of the step at `position`, or an `input`; else the tensor has no history.
    """

    outer: int = -1
    value: int = -1
    position: int = -1
    number: int = 0
    input: int = -1


class Joined:
    """What one program's nodes have in common.  `graph`: takes what a call keeps, and gives the values that steps save.

    `steps`: the latest first.  `outputs`: the step and the number there of each output.
    """

    __dynagraph_constant__ = True

    def __init__(
        self, graph: Graph, steps: tuple[Step, ...], tensors: tuple[SavedTensor, ...], outputs: tuple[tuple[int, int], ...],
        n_inputs: int, symbols: tuple[str, ...], options: Options, is_compiled: bool = True,
    ):  # fmt: skip
        self.is_compiled = is_compiled
        self.graph, self.steps, self.tensors, self.outputs, self.n_inputs = graph, steps, tensors, outputs, n_inputs
        self.symbols, self.options = symbols, options
        self.gone = frozenset(k for k, step in enumerate(steps) if step.is_gone)
        self.saving = self.gone.union(k for k, step in enumerate(steps) if any(step.saved) or step.results)
        self.holds_arrays = any(step.holds_arrays for step in steps)  # which are never freed
        self._runs: dict[tuple[bool, ...], frozenset[int]] = {}
        self._by_sizes: dict[tuple[int, ...], Joined] = {}
        self._program: Any = None

    def __dynagraph_parts__(self) -> tuple[Any, ...]:
        """What the constructor is given to make it in another process."""
        return self.graph, self.steps, self.tensors, self.outputs, self.n_inputs, self.symbols, self.options, self.is_compiled

    def at(self, sizes: tuple[int, ...]) -> Joined:
        """The same for sizes that are known."""
        if not self.symbols:
            return self
        found = self._by_sizes.get(sizes)
        if found is None:
            known = dict(zip(self.symbols, sizes))
            steps = tuple(
                step._replace(
                    attrs=_at_sizes(step.attrs, known), metas=concrete(step.metas, known),
                    output_metas=concrete(step.output_metas, known),
                )
                for step in self.steps
            )  # fmt: skip
            graph, is_compiled = at_sizes(self.graph, known), len(self._by_sizes) < MOST_SIZES
            found = Joined(graph, steps, self.tensors, self.outputs, self.n_inputs, (), self.options, is_compiled)
            if is_compiled:
                self._by_sizes[sizes] = found
        return found

    def runs(self, pattern: tuple[bool, ...]) -> frozenset[int]:
        """The steps that read what was saved, of those that run where there are gradients of some of the outputs."""
        found = self._runs.get(pattern)
        if found is None:
            reached = {position for (position, _), is_there in zip(self.outputs, pattern) if is_there}
            for position, step in enumerate(self.steps):
                if position in reached:
                    reached.update(way[0] for way in step.ways if way is not None and way[0] >= 0)
            found = self._runs[pattern] = self.saving & reached
        return found

    @property
    def program(self) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
        """The gradients by the inputs, from what was kept and the gradients of the outputs; None is zero."""
        if self._program is None:
            joined, graph = self, self.graph

            def backward(kept: Any, grads: Any) -> Any:
                return gradients(steps_of(joined), outputs_of(joined), spliced(graph, kept), grads, n_inputs_of(joined))

            self._program = compile_as(backward, dataclasses.replace(self.options, dynamic=False, whole=True, fullgraph=False))
        return self._program  # type: ignore[no-any-return]


def _at_sizes(spec: Any, known: dict[str, int]) -> Any:
    if type(spec) is dict:
        return {name: _at_sizes(part, known) for name, part in spec.items()}
    if type(spec) in (tuple, list):
        return type(spec)(_at_sizes(part, known) for part in spec)
    if type(spec) is slice:
        return slice(*(_at_sizes(part, known) for part in (spec.start, spec.stop, spec.step)))
    return concrete(spec, known) if type(spec) is not Held else spec


@at_capture
def of_sizes(joined: Joined, sizes: tuple[int, ...]) -> Joined:
    return joined.at(sizes)


@at_capture
def program_of(joined: Joined) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    return joined.program


@at_capture
def steps_of(joined: Joined) -> tuple[Step, ...]:
    return joined.steps


@at_capture
def outputs_of(joined: Joined) -> tuple[tuple[int, int], ...]:
    return joined.outputs


@at_capture
def runs_of(joined: Joined, pattern: tuple[bool, ...]) -> frozenset[int]:
    return joined.runs(pattern)


@at_capture
def n_inputs_of(joined: Joined) -> int:
    return joined.n_inputs


def gradients(steps: Any, outputs: Any, values: Any, grads: Sequence[Any], n_inputs: int, lost: Any = ()) -> list[Any]:
    """The gradients by the inputs as arrays."""
    nodes = []
    for step in steps:
        node = _node(step, values)
        node.edges = step.ways
        node.saved = [None if entry is None else (values[entry[0]], None, 0) for entry in step.saved]
        nodes.append(node)
    if lost:
        _lose(nodes, lost)
    return pulled(steps, nodes, outputs, grads, n_inputs, Node.pull, _sum)


class _Lost:
    """What was saved for a step, of which some must not be read: reading it raises an error."""

    def __init__(self, entries: dict[int, Any], errors: dict[int, RuntimeError]):
        self.entries, self.errors = entries, errors

    def __getitem__(self, k: int) -> Any:
        entry = self.entries.get(k)
        if entry is not None and k in self.errors:
            raise self.errors[k]
        return entry

    get = __getitem__


def _lose(nodes: Sequence[Node], lost: dict[Place, Any]) -> None:
    of_operands: dict[int, dict[int, RuntimeError]] = {}
    of_results: dict[int, dict[int, RuntimeError]] = {}
    for (position, slot), error in lost.items():
        if error is FREED:
            nodes[position].saved = nodes[position].saved_out = None
        elif slot is None:
            raise error
        elif slot >= 0:
            of_operands.setdefault(position, {})[slot] = error
        else:
            of_results.setdefault(position, {})[-1 - slot] = error
    for position, errors in of_operands.items():
        nodes[position].saved = _Lost(dict(enumerate(nodes[position].saved)), errors)
    for position, errors in of_results.items():
        nodes[position].saved_out = _Lost(nodes[position].saved_out or {}, errors)  # type: ignore[assignment]


def _node(step: Step, values: Sequence[Any]) -> Node:
    node: Node = _new(step.kind)
    node.attrs = _filled(step.attrs, values) if step.holds_arrays else step.attrs
    node.metas, node.output_metas = step.metas, step.output_metas
    node.saved_out = {number: (values[k], None, 0) for number, k in step.results}
    return node


def _filled(spec: Any, values: Sequence[Any]) -> Any:
    if type(spec) is Held:
        return values[spec.value]
    if type(spec) is dict:
        return {name: _filled(part, values) for name, part in spec.items()}
    if type(spec) is tuple:
        return tuple([_filled(part, values) for part in spec])
    return [_filled(part, values) for part in spec] if type(spec) is list else spec


def pulled(steps: Any, nodes: Any, outputs: Any, grads: Any, n_inputs: int, pull: Any, add: Any) -> list[Any]:
    """The gradients by the inputs, of the nodes of some steps: as backward runs nodes, the latest first."""
    found: list[Any] = [None] * n_inputs
    buffers = [[None] * len(step.output_metas) for step in steps]
    for (position, number), grad in zip(outputs, grads):
        buffers[position][number] = grad
    for step, node, buffer in zip(steps, nodes, buffers):
        if all(grad is None for grad in buffer):
            continue
        for way, grad in zip(step.ways, pull(node, buffer)):
            if way is None or grad is None:
                continue
            row = found if way[0] < 0 else buffers[way[0]]
            before = row[way[1]]
            row[way[1]] = grad if before is None else add(before, grad)
    return found


class CompiledFunctionBackward(Node):
    """`grad_fn` of what a compiled function returns: its operations as one node.

    `saved`: the arrays that the call has kept.  `outer`: tensors of the caller's that it has saved.  `versions`: of memory that the
    caller can write to and that gradients read: a storage, the version that was saved, how errors call it, and who reads it.
    """

    __slots__ = ("joined", "outer", "sizes", "versions")
    joined: Joined
    outer: Sequence[Tensor]
    sizes: tuple[int, ...]
    versions: Sequence[tuple[Any, int, tuple[str, tuple[int, ...], int], tuple[Place, ...]]]
    ran: frozenset[int] = frozenset()  # steps that read what was saved, of the last backward
    freed: frozenset[int] = frozenset()  # those of all that have not retained the graph

    def short_name(self) -> str:
        return self.name()

    def lost(self, grads: Sequence[Any]) -> dict[Place, Any]:
        """What was freed, or written to, of what steps may read that run for these gradients: the errors that reading it raises."""
        ran = self.ran = runs_of(self.joined, tuple([grad is not None for grad in grads]))
        found: dict[Place, Any] = dict.fromkeys([(position, None) for position in ran & self.freed], FREED)
        for storage, version, what, places in self.versions:
            if storage.version != version:
                error = changed(_described(what), self, storage.version, version)
                found.update((place, error) for place in places if place[0] in ran and place[0] not in self.freed)
        return found

    def pull(self, grads: Sequence[Any]) -> list[Any]:
        lost = self.lost(grads)
        joined, kept = of_sizes(self.joined, self.sizes), self.saved
        is_plain = kept is not None and not lost and all(grad is None or type(grad) is np.ndarray for grad in grads)
        if is_plain and joined.is_compiled:
            return program_of(joined)(kept, grads)  # type: ignore[return-value]
        return gradients(joined.steps, joined.outputs, self._values(joined), grads, joined.n_inputs, lost)

    def _values(self, joined: Joined) -> Sequence[Any]:
        """What the steps have saved; after that was freed, steps may run that saved nothing."""
        return [None] * len(joined.graph.outputs) if self.saved is None else spliced(joined.graph, self.saved)

    def pull_tensors(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """As `pull`, recorded: by the nodes of the operations, which now stand in the graph themselves."""
        lost, joined = self.lost(grads), of_sizes(self.joined, self.sizes)
        values, steps = self._values(joined), joined.steps
        nodes = [_node(step, values) for step in steps]
        tensors = [self._tensor(about, nodes, values) for about in joined.tensors]
        for step, node in zip(steps, nodes):
            node.edges = [None if w is None else self.edges[w[1]] if w[0] < 0 else (nodes[w[0]], w[1]) for w in step.ways]
            node.saved = [None if entry is None else self._entry(entry, values, tensors) for entry in step.saved]
            node.sequence = self.sequence + step.age
        _lose(nodes, lost)
        return pulled(steps, nodes, joined.outputs, grads, joined.n_inputs, pull_tensors, _add)

    def _tensor(self, about: SavedTensor, nodes: Sequence[Node], values: Sequence[Any]) -> Tensor:
        if about.outer >= 0 and self.saved is not None:
            return self.outer[about.outer]
        made = wrap(values[about.value])
        if about.position >= 0:
            made._grad_fn, made._output_nr, made._requires_grad = nodes[about.position], about.number, True
        elif about.input >= 0:
            made._grad_fn, made._output_nr = self.edges[about.input]
            made._requires_grad = True
        return made

    def _entry(self, entry: tuple[int, int], values: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
        value, k = entry
        return (values[value], None, 0) if k < 0 else (tensors[k], tensors[k]._storage.version)

    def release(self) -> None:
        self.freed = self.freed | self.ran
        if self.freed >= self.joined.saving and not self.joined.holds_arrays:
            self.saved, self.outer, self.versions = None, (), ()


def _described(what: tuple[str, tuple[int, ...], int]) -> str:
    dtype, shape, output = what
    text = f"[torch.{dtype} {list(shape)}]"
    return text if output < 0 else f"{text}, which is output {output} of {CompiledFunctionBackward.__name__},"


def _sum(left: Any, right: Any) -> Any:
    return as_array(np.add(left, right))


def _add(left: Tensor, right: Tensor) -> Tensor:
    return apply(primitive("add"), left, right)  # type: ignore[no-any-return]


__all__ = ["CompiledFunctionBackward", "Held", "Joined", "SavedTensor", "Step"]
