"""The passes that every backend starts with.

Reading the list `PASSES` is reading the target-independent half of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from dynagraph.ir.graph import Graph
from dynagraph.ir.passes.cse import eliminate_common_subexpressions, remove_barriers
from dynagraph.ir.passes.dce import eliminate_dead_code
from dynagraph.ir.passes.decompose import decompose
from dynagraph.ir.passes.fold import fold_constants
from dynagraph.ir.passes.pieces import join_pieces
from dynagraph.ir.passes.simplify import simplify

Pass = Callable[[Graph], Graph]
Observer = Callable[[str, Graph], None]

PASSES: list[tuple[str, Pass]] = [
    ("decompose", decompose),
    ("fold-constants", fold_constants),
    ("simplify", simplify),
    ("join-pieces", join_pieces),
    ("eliminate-common-subexpressions", eliminate_common_subexpressions),
    ("remove-barriers", remove_barriers),
    ("eliminate-dead-code", eliminate_dead_code),
]


def run(graph: Graph, observer: Observer | None = None, lint: bool = False) -> Graph:
    """A simplified and decomposed copy of `graph`, which itself stays as it is.

    `observer` is called with the name of each pass and the graph after it, first with ``"captured"`` and the graph as
    it came. `lint` checks the graph after every pass: GraphError names the node.
    """
    graph = graph.copy()
    observe = observer or (lambda name, after: None)
    observe("captured", graph)
    for name, apply in PASSES:
        graph = apply(graph)
        if lint:
            graph.lint()
        observe(name, graph)
    return graph


__all__ = ["PASSES", "Observer", "Pass", "run"]
