"""What the functions that transformations are made of (tape.py) mean to a capture: gradients are nodes of the captured graph.

The variable of a gradient is a node of its own, so that gradients within gradients keep apart what each is taken by.
"""

from __future__ import annotations

from typing import Any

from dynagraph.errors import GradientError
from dynagraph.frontend import tape
from dynagraph.frontend.calls import SPECIAL_FUNCTIONS
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Executor, Frame
from dynagraph.frontend.iterators import items_of
from dynagraph.frontend.numpy_door.layout import copy_order
from dynagraph.frontend.values import Array, Const, Number, Sequence, Value
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import memory_of
from dynagraph.ir.passes.backward import append_gradients, append_tangents


def _node_of(ex: Executor, value: Any) -> Node:
    value = ex.resolve(value)
    if not isinstance(value, (Array, Number, Const)):
        refuse("UNSUPPORTED_VALUE", f"a {type(value).__name__.lower()} in a gradient")
    return ex.builder.as_node(ex.to_door(value))


def _is_scalar(ex: Executor, value: Any) -> bool:
    value = ex.resolve(value)
    return not isinstance(value, Array) or value.is_scalar


def _level(frame: Frame) -> Value:
    return Const(None)


def _variable(frame: Frame, level: Value, x: Value) -> Value:
    ex, scalar = frame.ex, _is_scalar(frame.ex, x)
    node = _node_of(ex, x)
    made = ex.builder.call("variable", node)
    if not scalar:
        ex.builder.lay(made, copy_order(ex.builder.layout(node)))
    return ex.from_door(made, "value" if scalar else "array")


def _pull_back(frame: Frame, level: Value, values: Value, cotangents: Value, variables: Value) -> Value:
    ex = frame.ex
    seeds = [(_node_of(ex, v), _node_of(ex, c)) for v, c in zip(items_of(frame, values), items_of(frame, cotangents))]
    taken_by = [_variable_of(ex, v) for v in items_of(frame, variables)]
    try:
        found = append_gradients(ex.graph, seeds, [v.node for v in taken_by])
    except GradientError as error:
        throw(error)
    return Sequence(tuple, [_result(ex, node, v.node, v.is_scalar) for node, v in zip(found, taken_by)])


def _push_forward(frame: Frame, level: Value, values: Value, variables: Value, tangents: Value) -> Value:
    ex = frame.ex
    changed = [_variable_of(ex, v).node for v in items_of(frame, variables)]
    given = list(zip(changed, (_node_of(ex, t) for t in items_of(frame, tangents))))
    results = items_of(frame, values)
    of = [_node_of(ex, v) for v in results]
    try:
        found = append_tangents(ex.graph, given, of)
    except GradientError as error:
        throw(error)
    return Sequence(tuple, [_result(ex, node, like, _is_scalar(ex, v)) for node, like, v in zip(found, of, results)])


def _variable_of(ex: Executor, value: Any) -> Array:
    array = ex.resolve(value)
    assert isinstance(array, Array) and array.node.is_op("variable")
    return array


def _result(ex: Executor, node: Node | None, like: Node, scalar: bool) -> Value:
    """A gradient as a value of its own."""
    if node is None:
        node = ex.builder.call("full", shape=like.shape, value=0, dtype=like.dtype)
    if node in ex.arrays or node in ex.scalars or node.kind != "call_function" or memory_of(node) is not None:
        node = ex.builder.call("copy", node)
    return ex.from_door(node, "value" if scalar else "array")


def _stop_gradient(frame: Frame, x: Value) -> Value:
    ex, value = frame.ex, frame.ex.resolve(x)
    if not isinstance(value, (Array, Number)):
        return value
    made = ex.builder.call("stop_gradient", _node_of(ex, value))
    return Number(made) if isinstance(value, Number) else ex.from_door(made, "value" if value.is_scalar else "array")


SPECIAL_FUNCTIONS |= {
    tape.level: _level,
    tape.variable: _variable,
    tape.pull_back: _pull_back,
    tape.push_forward: _push_forward,
    tape.released: lambda frame, level, value: frame.ex.resolve(value),
    tape.stop_gradient_of: _stop_gradient,
}
