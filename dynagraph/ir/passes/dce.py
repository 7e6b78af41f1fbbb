"""Dead code elimination: drop what no output depends on.

Ops have no effects, so everything unused may go; inputs stay, they are the signature.
"""

from __future__ import annotations

from dynagraph.ir.graph import Graph


def eliminate_dead_code(graph: Graph) -> Graph:
    """Needs: nothing.  Leaves: every node but the placeholders has a user."""
    graph.eliminate_dead_code()
    return graph
