"""Graphs as ONNX's operators are looked for in them."""

from __future__ import annotations

from dynagraph.ir.graph import Graph
from dynagraph.ir.ops import Composite
from dynagraph.ir.optable.pooling import AVERAGES
from dynagraph.ir.passes.average_windows import as_slices
from dynagraph.ir.passes.cse import eliminate_common_subexpressions, remove_barriers
from dynagraph.ir.passes.decompose import MAX_DEPTH, expansion
from dynagraph.ir.passes.fold import fold_constants
from dynagraph.ir.passes.simplify import simplify
from dynagraph.ir.rewrite import replace
from dynagraph.onnx.pools import fits_average_pool

KEPT = ("mean",)  # composite ops that ONNX has


def prepared(graph: Graph) -> Graph:
    """The graph as operators are looked for: simplified, with those composite ops that ONNX has."""
    graph = graph.copy()
    for _ in range(MAX_DEPTH):
        composites = [n for n in graph.nodes if n.kind == "call_function" and isinstance(n.op.lowering, Composite)]
        composites = [n for n in composites if n.op.name not in KEPT]
        for node in composites:
            with graph.inserting_before(node):
                new = expansion(node)
            replace(node, new)
    for node in list(graph.nodes):
        if node.kind == "call_function" and node.is_op(*AVERAGES) and not fits_average_pool(node):
            with graph.inserting_before(node):
                new = as_slices(node)
            replace(node, new)
    for apply in (fold_constants, simplify, eliminate_common_subexpressions, remove_barriers):
        graph = apply(graph)
    graph.eliminate_dead_code()
    return graph


__all__ = ["KEPT", "prepared"]
