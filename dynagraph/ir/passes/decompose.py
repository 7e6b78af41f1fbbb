"""Decompose composite ops, and give every reduction one run of neighbouring axes.

Comes first: the passes after it see primitive ops only.
"""

from __future__ import annotations

from itertools import count, groupby

from dynagraph.driver import deadline
from dynagraph.errors import GraphError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite, Elementwise, Reduction, Walk, strided_of, view_of
from dynagraph.ir.rewrite import replace
from dynagraph.ir.shapes import hint_of, same_dim, same_shape

Axes = tuple[int, ...]

MAX_DEPTH = 50  # decompositions within decompositions; more means that rows are made of each other in a circle
_IN_ORDER = frozenset({"sum", "prod"})
_SUCCESSIVE = frozenset({"sum", "prod", "max", "min", "any", "all", "all_bits", "any_bits", "odd_bits"})


def decompose(graph: Graph) -> Graph:
    """Write every Composite op in terms of others, and reductions over scattered axes as successive reductions.

    Needs: nothing.  Leaves: no Composite; the axes of every reduction are one contiguous run.
    Raises GraphError where a decomposition changes shape or dtype, or never ends.
    """
    for _ in range(MAX_DEPTH):
        composites = [n for n in graph.nodes if n.kind == "call_function" and isinstance(n.op.lowering, Composite)]
        if not composites:
            break
        for node in composites:
            deadline.check()
            _expand(node)
    else:
        names = ", ".join(sorted({n.op.name for n in composites}))
        raise GraphError(f"the decompositions of {names} never come to an end")
    for node in list(graph.nodes):
        if node.kind == "call_function" and isinstance(node.op.lowering, Reduction):
            _split_axes(node)
    return graph


def _expand(node: Node) -> None:
    with node.graph.inserting_before(node):
        new = expansion(node)
    replace(node, new)


def expansion(node: Node) -> Node:
    """The value of a Composite node, made of other ops at the place where new nodes go."""
    assert isinstance(node.op.lowering, Composite)
    new = node.op.lowering.decompose(node.graph, *node.args, **node.attrs)
    if new.dtype is not node.dtype or not same_shape(new.shape, node.shape):
        raise GraphError(f"the decomposition of {node.op.name} changes {node.meta} into {new.meta}")
    return new


def _split_axes(node: Node) -> None:
    """max over (0, 2) is the max over 2, then over 0: loops reduce one run of axes at a time."""
    if node.is_op("sum_where"):
        _reduce_last(node)
        return
    runs, in_order = contiguous_runs(node.attrs["axis"]), node.op.name in _IN_ORDER and node.dtype.is_inexact
    if (len(runs) < 2 and not (in_order and _is_across(node))) or node.op.name not in _SUCCESSIVE:
        return
    value = node.args[0]
    with node.graph.inserting_before(node):
        if in_order:
            value = _over_one_run(node)
        else:
            for axes in reversed(runs):  # the last first: the axes before it keep their numbers
                value = node.graph.call(OPS[node.op.name], value, axis=axes, keepdims=node.attrs["keepdims"])
    replace(node, value)


def _reduce_last(node: Node) -> None:
    """Have the reduced axes be the last ones, in their order."""
    *wide, start = node.args
    axes, rank = node.attrs["axis"], wide[0].ndim
    last = tuple(range(rank - len(axes), rank))
    if axes == last:
        return
    order = tuple(k for k in range(rank) if k not in axes) + axes
    with node.graph.inserting_before(node):
        turned = [node.graph.call(OPS["transpose"], a, axes=order) for a in wide]
        value = node.graph.call(node.op, *turned, start, axis=last, keepdims=False, walk=node.attrs["walk"])
        if node.attrs["keepdims"]:
            value = node.graph.call(OPS["reshape"], value, shape=node.shape)
    replace(node, value)


def _over_one_run(node: Node) -> Node:
    """The axes of a sum, whose order tells, brought together without another order: to the end if the innermost one is reduced."""
    (operand,), axes = node.args, node.attrs["axis"]
    kept = tuple(k for k in range(operand.ndim) if k not in axes)
    last = max((k for k in kept if not same_dim(operand.shape[k], 1)), default=-1)
    inside = sum(k > last for k in axes)
    is_innermost = any(k > last and not same_dim(operand.shape[k], 1) for k in axes)
    walk = node.attrs["walk"] or Walk(inside if is_innermost else 0)
    columns = kept if walk.axes else _by_memory(operand, kept)
    order = columns + axes if walk.axes else axes + columns
    turned = node.graph.call(OPS["transpose"], operand, axes=order)
    run = tuple(sorted(map(order.index, axes)))
    total = node.graph.call(node.op, turned, axis=run, keepdims=False, walk=walk)
    if columns != kept:
        total = node.graph.call(OPS["transpose"], total, axes=tuple(map(columns.index, kept)))
    return node.graph.call(OPS["reshape"], total, shape=node.shape) if node.attrs["keepdims"] else total


def _is_across(node: Node) -> bool:
    """Whether a sum in turn is of rows that lie side by side in memory: it adds up whole columns where the last axis is kept."""
    (operand,), axes, walk = node.args, node.attrs["axis"], node.attrs["walk"]
    if walk is None or walk.axes:
        return False
    long = [k for k in range(operand.ndim) if not same_dim(operand.shape[k], 1)]
    kept = _by_memory(operand, tuple(k for k in long if k not in axes))
    return bool(kept) and len(kept) < len(long) and kept[-1] != long[-1]


def _by_memory(operand: Node, axes: Axes) -> Axes:
    """Axes by falling strides in the memory of the first array, as large as the operand, that it is computed from."""
    node, found = operand, view_of(operand)
    while found is None and node.kind == "call_function":
        as_large = [a for a in node.args if same_shape(a.shape, operand.shape)]
        if not isinstance(node.op.lowering, Elementwise) or not as_large:
            return axes
        node = as_large[0]
        found = view_of(node)
    strides = (strided_of(node) if found is None else found[1]).strides
    return tuple(sorted(axes, key=lambda k: -abs(hint_of(strides[k]))))


def contiguous_runs(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Runs of neighbouring axes.

    >>> contiguous_runs((0, 2, 3))
    [(0,), (2, 3)]
    """
    distance = count()
    return [tuple(run) for _, run in groupby(axes, key=lambda axis: axis - next(distance))]
