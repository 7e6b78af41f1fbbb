"""What our own functions mean to a capture, above all those that transformations are made of (primitives.py): gradients
are nodes of the captured graph.

The variable of a gradient is a node of its own, so that gradients within gradients keep apart what each is taken by.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dynagraph import differentiation, markers, primitives
from dynagraph.errors import GradientError
from dynagraph.frontend.calls import SPECIAL_FUNCTIONS, call
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Executor, Frame
from dynagraph.frontend.iterators import items_of
from dynagraph.frontend.numpy_door.layout import copy_order
from dynagraph.frontend.operations import entries_of
from dynagraph.frontend.tape_primitives import Kept
from dynagraph.frontend.values import Array, Const, Dict, Number, Opaque, Sequence, Value
from dynagraph.ir.graph import Node, copy_into
from dynagraph.ir.ops import OPS, memory_of
from dynagraph.ir.passes.backward import CustomGradient, append_gradients, append_tangents, recompute
from dynagraph.ir.passes.batch import erase_dependents
from dynagraph.ir.passes.jacobian import append_jacobian_columns, append_jacobian_rows
from dynagraph.ir.passes.partition import split


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


def _called(frame: Frame, level: Value, f: Value, args: Value, kwargs: Value) -> Value:
    named = frame.ex.resolve(kwargs)
    assert isinstance(named, Dict)
    return call(frame, f, items_of(frame, args), entries_of(frame, named))


def _check_apart(frame: Frame, results: Value, before: Value, after: Value) -> Value:
    ex = frame.ex
    what = "of a function that is differentiated as one step"
    seen: set[Node] = set()
    for value in map(ex.resolve, items_of(frame, results)):
        if not isinstance(value, (Array, Number, Const)):
            refuse("UNSUPPORTED_VALUE", f"a result, no number and no array, {what}")
        if not isinstance(value, Array) or value.is_scalar:
            continue
        node = ex.memories.present(value)
        if node in seen or node.kind != "call_function" or node.is_op("variable") or memory_of(node) is not None:
            refuse("UNSUPPORTED_VALUE", f"a result that shares memory, {what}")
        seen.add(node)
    if ex.effects or ex.stored or ex.written or ex.memories.written_inputs():
        refuse("UNSUPPORTED_VALUE", f"effects {what}")
    if not _are_same(frame, before, after):
        refuse("UNSUPPORTED_VALUE", f"changes of an argument {what}")
    return Const(None)


def _are_same(frame: Frame, before: Value, after: Value) -> bool:
    """Whether two lists of names and values are the same."""
    pairs = [[items_of(frame, frame.ex.resolve(item)) for item in items_of(frame, side)] for side in (before, after)]
    flat = [[frame.ex.resolve(part) for pair in side for part in pair] for side in pairs]
    return len(flat[0]) == len(flat[1]) and all(
        a is b or (isinstance(a, Const) and isinstance(b, Const) and (a.value is b.value or a.value == b.value))
        for a, b in zip(*flat)
    )


def _pull_back(frame: Frame, level: Value, values: Value, cotangents: Value, variables: Value) -> Value:
    ex = frame.ex
    seeds = [(_node_of(ex, v), _node_of(ex, c)) for v, c in zip(items_of(frame, values), items_of(frame, cotangents))]
    taken_by = [_variable_of(ex, v) for v in items_of(frame, variables)]
    found = _tried(append_gradients, ex.graph, seeds, [v.node for v in taken_by])
    return Sequence(tuple, [_result(ex, node, v.node, v.is_scalar) for node, v in zip(found, taken_by)])


def _push_forward(frame: Frame, level: Value, values: Value, variables: Value, tangents: Value) -> Value:
    ex = frame.ex
    changed = [_variable_of(ex, v).node for v in items_of(frame, variables)]
    given = list(zip(changed, (_node_of(ex, t) for t in items_of(frame, tangents))))
    results = items_of(frame, values)
    of = [_node_of(ex, v) for v in results]
    found = _tried(append_tangents, ex.graph, given, of)
    return Sequence(tuple, [_result(ex, node, like, _is_scalar(ex, v)) for node, like, v in zip(found, of, results)])


def _keep(frame: Frame, level: Value, values: Value, variables: Value) -> Value:
    ex = frame.ex
    of, by = items_of(frame, values), [_variable_of(ex, v) for v in items_of(frame, variables)]
    if frame is not ex.main or ex.env.values:  # a part of another program is differentiated in that
        given = [Const(None), Sequence(tuple, list(of)), Sequence(tuple, list(by))]
        return Sequence(tuple, [Sequence(tuple, given), Const(None)])
    nodes = [_node_of(ex, v) for v in of]
    seeds = [ex.builder.call("full", shape=n.shape, value=0, dtype=n.dtype) for n in nodes]
    found = _tried(append_gradients, ex.graph, list(zip(nodes, seeds)), [v.node for v in by])
    gradients = [g for g in found if g is not None]
    backward = split(ex.graph, seeds, gradients)
    erase_dependents(ex.graph, seeds)
    position = itertools.count()
    places = tuple(
        (None if g is None else next(position), v.node.shape, v.node.dtype.numpy, v.is_scalar) for g, v in zip(found, by)
    )
    kept = Sequence(tuple, [_result(ex, node, node, False) for node in backward.kept])
    return Sequence(tuple, [kept, Const(Kept(backward.graph, places))])


def _spliced(frame: Frame, graph: Value, inputs: Value) -> Value:
    ex = frame.ex
    found = copy_into(ex.graph, ex.resolve(graph).value, [_node_of(ex, x) for x in items_of(frame, inputs)])
    return Sequence(tuple, [_result(ex, node, node, False) for node in found])


def _jacobian_rows(frame: Frame, level: Value, value: Value, variables: Value) -> Value:
    ex = frame.ex
    by = [_variable_of(ex, v).node for v in items_of(frame, variables)]
    found = _tried(append_jacobian_rows, ex.graph, _node_of(ex, value), by)
    return Sequence(tuple, [_result(ex, node, node, False) for node in found])


def _jacobian_columns(frame: Frame, level: Value, values: Value, variable: Value) -> Value:
    ex = frame.ex
    of = [_node_of(ex, v) for v in items_of(frame, values)]
    found = _tried(append_jacobian_columns, ex.graph, of, _variable_of(ex, variable).node)
    return Sequence(tuple, [_result(ex, node, node, False) for node in found])


def _tried(append: Callable[..., list[Any]], *args: Any) -> list[Any]:
    """What a pass gives; the captured code raises what it raises."""
    try:
        return append(*args)
    except GradientError as error:
        return throw(error)


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


@dataclass(eq=False)
class _Part(Opaque):
    """Where a part began whose gradient comes in another way."""

    latest: Node | None = None


def _begin_part(frame: Frame) -> Value:
    return _Part("the beginning of a part", frame.ex.graph.latest)


def _end_part(frame: Frame, begun: Any, name: Value, results: Value, args: Value, pull: Value) -> Value:
    ex, graph = frame.ex, frame.ex.graph
    values = [ex.resolve(v) for v in items_of(frame, results)]
    part = [node for node in graph.since(ex.resolve(begun).latest) if node.kind == "call_function"]
    made = [graph.call(OPS["copy"], _node_of(ex, v)) for v in values]
    pull = ex.resolve(pull)
    if isinstance(pull, Const):
        custom = recompute(made, part)
    else:
        given = [ex.resolve(a) for a in items_of(frame, args)]
        operands = [_node_of(ex, a) for a in given]
        captured = frozenset(a for node in part for a in node.args) - {*part, *operands}

        def pulled(operands: Iterable[Node], cotangents: Iterable[Node | None]) -> list[Node]:
            again = [_result(ex, n, n, _is_scalar(ex, a)) for n, a in zip(operands, given)]
            seeds = [_result(ex, c, n, _is_scalar(ex, v)) for c, n, v in zip(cotangents, made, values)]
            found = call(frame, pull, [Sequence(tuple, again), Sequence(tuple, seeds)], {})
            return [_node_of(ex, g) for g in items_of(frame, found)]

        custom = CustomGradient(ex.resolve(name).value, made, operands, captured, pulled)
    graph.custom.update(dict.fromkeys(made, custom))
    return Sequence(tuple, [ex.from_door(n, "value" if _is_scalar(ex, v) else "array") for n, v in zip(made, values)])


SPECIAL_FUNCTIONS |= {
    primitives.begin_part: _begin_part,
    primitives.is_part: lambda frame, begun: Const(True),
    primitives.end_part: _end_part,
    primitives.level: _level,
    primitives.called: _called,
    primitives.is_captured: lambda frame: Const(True),
    primitives.check_apart: _check_apart,
    primitives.variable: _variable,
    primitives.pull_back: _pull_back,
    primitives.push_forward: _push_forward,
    primitives.keep: _keep,
    primitives.spliced: _spliced,
    primitives.jacobian_rows: _jacobian_rows,
    primitives.jacobian_columns: _jacobian_columns,
    primitives.gathered: lambda frame, level, value: frame.ex.resolve(value),
    primitives.released: lambda frame, level, value: frame.ex.resolve(value),
    primitives.stop_gradient_of: _stop_gradient,
    differentiation.compiled_plan: lambda frame, plan, f, *key, **options: plan,
    differentiation.presented: lambda frame, made, *rest: made,
    differentiation.check_callable: lambda frame, who, f: frame.ex.constant(None),
    markers.graph_break: lambda frame: refuse("GRAPH_BREAK", ""),
    markers.is_compiling: lambda frame: Const(True),
}
