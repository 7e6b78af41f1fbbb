"""What `vmap` means to a capture: the function is followed for one example, of which nothing is known, and the nodes that this
makes are made again for all examples at once (ir/passes/batch.py).

A loop over the examples would repeat what the function does besides: what changes anything outside of it is refused, and the loop
is run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dynagraph import config
from dynagraph.array_libraries import NUMPY
from dynagraph.autodiff.mapping import of_all_examples
from dynagraph.autodiff.primitive_meanings import InCapture
from dynagraph.doors.numpy.layout import c_order, copy_order
from dynagraph.errors import GraphError
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.kinds.values import (
    Cell,
    Dict,
    DictView,
    Function,
    Getter,
    Iterator,
    Method,
    Object,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
    Value,
)
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import OPS, memory_of
from dynagraph.ir.passes.batch import append_batched, erase_dependents
from dynagraph.ir.shapes import Dim


@meaning(of_all_examples)
def _of_all_examples(frame: Frame, who: Value, of_one: Value, given: Value, along: Value, n: Value) -> Value:
    ex, on = frame.ex, InCapture(frame)
    location = ex.graph.location
    before = _Before(ex, of_one)
    over: dict[Node, Node] = {}  # what stands for one example, and where all of them lie
    values = []
    for leaf, axis in zip(on.items(given), map(ex.resolve, on.items(along))):
        values.append(leaf if axis.value is None else _example(on, leaf, axis.value, over))
    result, leaves, axes = on.items(on.call(of_one, on.tuple_of(values)))
    before.check()
    found = _of_all(on, over, ex.resolve(n).value, on.items(leaves), [ex.resolve(a).value for a in on.items(axes)])
    ex.graph.location = location
    return on.tuple_of([result, on.tuple_of(found)])


def _example(on: InCapture, leaf: Value, axis: int, over: dict[Node, Node]) -> Value:
    """One example of an array.  It is a variable, so that it is not written to, and nothing is known of it."""
    ex, node = on.ex, on.node_of(leaf)
    shape = node.shape[:axis] + node.shape[axis + 1 :]
    made = ex.builder.call("variable", ex.builder.call("full", shape=shape, value=0, dtype=node.dtype))
    order = copy_order(ex.builder.layout(node))
    ex.builder.lay(made, tuple(k - (k > axis) for k in order if k != axis))
    over[made] = _moved(ex, node, (axis, *(k for k in range(node.ndim) if k != axis)))
    return ex.from_door(made, "array" if made.ndim or ex.library is not NUMPY else "value")


def _moved(ex: Executor, node: Node, axes: tuple[int, ...]) -> Node:
    return node if axes == tuple(range(node.ndim)) else ex.graph.call(OPS["transpose"], node, axes=axes)


def _of_all(on: InCapture, over: dict[Node, Node], n: Dim, leaves: list[Value], axes: list[int | None]) -> list[Value]:
    """The leaves of the result for all examples, each along its axis."""
    ex = on.ex
    nodes = [on.node_of(leaf) for leaf in leaves]
    varying = _dependents(ex, over)
    for node, axis in zip(nodes, axes):
        if axis is None and node in varying:
            refuse("DATA_DEPENDENT", "out_axes is None for a result of vmap that depends on the example")
    _check_gradients(ex, varying, over.values())
    checks = [k for k, check in enumerate(ex.builder.checks) if check in varying]
    stacked = [node for node, axis in zip(nodes, axes) if axis is not None]
    try:
        made = iter(append_batched(ex.graph, [*stacked, *(ex.builder.checks[k] for k in checks)], over, config.unroll_limit))
    except GraphError as refusal:
        refuse("UNSUPPORTED_FUNCTION", str(refusal))
    found = [leaf if axis is None else _result(on, next(made), axis) for leaf, axis in zip(leaves, axes)]
    for k, check in zip(checks, made):
        ex.builder.checks[k] = ex.builder.call("any", check, axis=(0,), keepdims=False)
    erase_dependents(ex.graph, over)
    return found


def _result(on: InCapture, node: Node, axis: int) -> Value:
    """The values for all examples as NumPy stacks them: a new array in C order."""
    ex = on.ex
    order = list(range(1, node.ndim))
    order.insert(axis, 0)
    node = _moved(ex, node, tuple(order))
    if node in ex.arrays or node in ex.scalars or node.kind != "call_function" or memory_of(node) is not None:
        node = ex.builder.copy(node, c_order(node.ndim))
    return ex.from_door(node, "array")


def _dependents(ex: Executor, keys: Iterable[Node]) -> set[Node]:
    found = set(keys)
    for node in ex.graph.nodes:
        if any(a in found for a in node.args):
            found.add(node)
    return found


def _check_gradients(ex: Executor, varying: Collection[Node], wholes: Iterable[Node]) -> None:
    """Refuse parts whose gradient comes in another way, where one may be taken of the whole: it would not come so."""
    if not any(node in varying for node in ex.graph.custom):
        return
    taken = {*wholes, *(a for node in varying for a in node.args if a not in varying)}
    for node in reversed(list(ex.graph.nodes)):
        if node in taken:
            taken.update(node.args)
    if any(node.is_op("variable") for node in taken):
        refuse("UNSUPPORTED_FUNCTION", "the gradient of a vmap of a function with a gradient of its own")


# -- what a function changes ------------------------------------------------------------------------------------------------------


class _Before:
    """What a function may change, as it was before a call of it."""

    def __init__(self, ex: Executor, function: Value):
        self.ex = ex
        self.state = self._state()
        self.nodes = set(ex.graph.nodes)
        self.memories = {memory: memory.value for memory in ex.memories}
        self.held = [(value, _contents(value)) for value in _reachable(ex, function)]

    def _state(self) -> tuple[Any, ...]:
        ex = self.ex
        return len(ex.prologue), len(ex.effects), dict(ex.stored), dict(ex.class_attributes), dict(ex.error_state), len(ex.caches)

    def check(self) -> None:
        """Refuse what a loop over the examples would do again and again."""
        ex = self.ex
        changed = self._state() != self.state or any(not _is_same(held, _contents(value)) for value, held in self.held)
        if changed or ex.caches:
            refuse("SIDE_EFFECT", "in a function that vmap maps")
        for memory in ex.memories:
            is_outside = memory.base in self.nodes or memory.base.kind == "placeholder"
            if is_outside and self.memories.get(memory, memory.base) is not memory.value:
                refuse("IN_PLACE_WRITE", "of the caller's, in a function that vmap maps")


def _contents(value: Any) -> tuple[Any, ...]:
    """What a value holds that captured code can change; what is written to the caller's objects is an effect."""
    if isinstance(value, Function):
        return tuple(value.fields.values())
    if getattr(value, "source", None) is not None:
        return ()
    if isinstance(value, Sequence):
        return (*value.items, *value.fields.values())
    if isinstance(value, Dict):
        return (*value.items, *value.items.values(), *value.fields.values())
    if isinstance(value, Set):
        return tuple(value.items)
    if isinstance(value, Cell):
        return (value.value,)
    return (*value.fields, *value.fields.values()) if isinstance(value, (Object, Partial)) else ()


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other))


def _reachable(ex: Executor, start: Any) -> list[Any]:
    """What a value refers to, as far as the capture has followed it."""
    found: dict[int, Any] = {}
    waiting = [start]
    while waiting:
        value = waiting.pop()
        if type(value) is Lazy or id(value) in found:
            continue
        if isinstance(value, Iterator):
            refuse("SIDE_EFFECT", "vmap maps a function that holds an iterator")
        found[id(value)] = value
        waiting += _parts(value)
    return list(found.values())


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Function):
        return [*value.defaults, *value.kwdefaults.values(), *value.closure, *value.fields.values()]
    if isinstance(value, Sequence):
        return [*value.items, *value.fields.values()]
    if isinstance(value, Dict):
        return [*value.items.values(), *value.fields.values()]
    if isinstance(value, Cell):
        return [value.value]
    if isinstance(value, (Method, Super)):
        return [value.owner, *([value.function] if isinstance(value, Method) else [])]
    if isinstance(value, Partial):
        return [value.function, *value.args, *value.kwargs.values(), *value.fields.values()]
    if isinstance(value, Getter):
        return [*value.args, *value.kwargs.values()]
    if isinstance(value, Object):
        return [*value.fields.values(), *([value.entries] if value.entries is not None else [])]
    if isinstance(value, DictView):
        return [value.owner]
    return list(value.parts) if isinstance(value, Slice) else []


__all__: list[str] = []
