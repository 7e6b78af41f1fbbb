"""Replace ops that are made of others, and give every reduction one run of neighbouring axes.

Comes first: the passes after it see primitive ops only.
"""

from __future__ import annotations

from itertools import count, groupby

from dynagraph import deadline
from dynagraph.errors import GraphError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite, Reduction, Walk
from dynagraph.ir.rewrite import replace
from dynagraph.ir.shapes import same_dim, same_shape

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
    runs = contiguous_runs(node.attrs["axis"])
    if len(runs) < 2 or node.op.name not in _SUCCESSIVE:
        return
    value = node.args[0]
    with node.graph.inserting_before(node):
        if node.op.name in _IN_ORDER and node.dtype.is_inexact:
            value = _over_one_run(node)
        else:
            for axes in reversed(runs):  # the last first: the axes before it keep their numbers
                value = node.graph.call(OPS[node.op.name], value, axis=axes, keepdims=node.attrs["keepdims"])
    replace(node, value)


def _over_one_run(node: Node) -> Node:
    """The axes of a sum, whose order tells, brought together without another order: to the end if the innermost one is reduced."""
    (operand,), axes = node.args, node.attrs["axis"]
    kept = tuple(k for k in range(operand.ndim) if k not in axes)
    last = max((k for k in kept if not same_dim(operand.shape[k], 1)), default=-1)
    inside = sum(k > last for k in axes)
    is_innermost = any(k > last and not same_dim(operand.shape[k], 1) for k in axes)
    order = kept + axes if is_innermost else axes + kept
    turned = node.graph.call(OPS["transpose"], operand, axes=order)
    run = tuple(sorted(map(order.index, axes)))
    walk = node.attrs["walk"] or Walk(inside if is_innermost else 0)
    total = node.graph.call(node.op, turned, axis=run, keepdims=False, walk=walk)
    return node.graph.call(OPS["reshape"], total, shape=node.shape) if node.attrs["keepdims"] else total


def contiguous_runs(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Runs of neighbouring axes.

    >>> contiguous_runs((0, 2, 3))
    [(0,), (2, 3)]
    """
    distance = count()
    return [tuple(run) for _, run in groupby(axes, key=lambda axis: axis - next(distance))]
