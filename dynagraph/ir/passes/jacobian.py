"""Jacobians: append gradients or tangents of all directions at once."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.backward import append_gradients, append_tangents
from dynagraph.ir.passes.batch import append_batched, erase_dependents
from dynagraph.ir.shapes import Dim, numel


def append_jacobian_rows(graph: Graph, value: Node, by: Sequence[Node]) -> list[Node]:
    """The derivatives of `value` by each of the nodes `by`, of shape ``value.shape + node.shape``: a gradient for each element.

    Needs and raises what `append_gradients` and `append_batched` do.
    """
    seed = _zeros(graph, value)
    found = append_gradients(graph, [(value, seed)], by)
    rows = iter(_in_all_directions(graph, [g for g in found if g is not None], seed))
    return [_of_shape(graph, None if g is None else next(rows), value.shape + node.shape, value) for g, node in zip(found, by)]


def append_jacobian_columns(graph: Graph, values: Sequence[Node], by: Node) -> list[Node]:
    """As `append_jacobian_rows`, of several nodes by one: a tangent for each element of `by`."""
    tangent = _zeros(graph, by)
    found = append_tangents(graph, [(by, tangent)], values)
    columns = iter(_in_all_directions(graph, [t for t in found if t is not None], tangent))
    derivatives = []
    for t, value in zip(found, values):
        column = None if t is None else next(columns)
        if column is not None:
            with graph.before_output():
                column = graph.call(OPS["transpose"], column, axes=(*range(1, column.ndim), 0))
        derivatives.append(_of_shape(graph, column, value.shape + by.shape, value))
    return derivatives


def _in_all_directions(graph: Graph, outputs: Sequence[Node], direction: Node) -> list[Node]:
    """The outputs for each direction along an element of a node, along a first axis."""
    if not outputs:
        erase_dependents(graph, [direction])
        return []
    n: Dim = numel(direction.shape)
    with graph.before_output():
        unit = graph.call(OPS["eye"], shape=(n, n), k=0, dtype=direction.dtype)
        units = graph.call(OPS["reshape"], unit, shape=(n, *direction.shape))
    found = append_batched(graph, outputs, {direction: units})
    erase_dependents(graph, [direction])
    return found


def _zeros(graph: Graph, like: Node) -> Node:
    with graph.before_output():
        return graph.call(OPS["full"], shape=like.shape, value=0, dtype=like.dtype)


def _of_shape(graph: Graph, node: Node | None, shape: tuple[Dim, ...], value: Node) -> Node:
    with graph.before_output():
        if node is None:
            return graph.call(OPS["full"], shape=shape, value=0, dtype=value.dtype)
        return graph.call(OPS["reshape"], node, shape=shape)


__all__ = ["append_jacobian_columns", "append_jacobian_rows"]
