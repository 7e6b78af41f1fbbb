"""Replace ops that are made of others, and give every reduction one run of neighbouring axes.

Comes first: the passes after it see primitive ops only.
"""

from __future__ import annotations

from itertools import count, groupby

from dynagraph import deadline
from dynagraph.errors import GraphError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite, Reduction
from dynagraph.ir.rewrite import replace
from dynagraph.ir.shapes import same_shape

MAX_DEPTH = 50  # decompositions within decompositions; more means that rows are made of each other in a circle
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
    """sum over (0, 2) is the sum over 2, then over 0: loops reduce one run of axes at a time."""
    runs = contiguous_runs(node.attrs["axis"])
    if len(runs) < 2 or node.op.name not in _SUCCESSIVE:
        return
    value = node.args[0]
    with node.graph.inserting_before(node):
        for axes in reversed(runs):  # the last first: the axes before it keep their numbers
            value = node.graph.call(OPS[node.op.name], value, axis=axes, keepdims=node.attrs["keepdims"])
    replace(node, value)


def contiguous_runs(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Runs of neighbouring axes.

    >>> contiguous_runs((0, 2, 3))
    [(0,), (2, 3)]
    """
    distance = count()
    return [tuple(run) for _, run in groupby(axes, key=lambda axis: axis - next(distance))]
