"""Questions about a graph as a whole: what reaches what, and whether nodes can be computed together.

The one module of the IR that needs networkx (slow to import): passes that ask such questions import it, nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import networkx as nx

from dynagraph.errors import GraphError
from dynagraph.ir.graph import Graph, Node


def to_networkx(graph: Graph) -> "nx.DiGraph[Node]":
    """Nodes with edges from operand to user, in program order; attributes: kind, op, dtype and shape as text, nbytes.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> from dynagraph.ir.ops import OPS
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> _ = g.output([g.call(OPS["exp"], x)])
    >>> list(to_networkx(g).edges)
    [(x, exp), (exp, output)]
    """
    digraph: nx.DiGraph[Node] = nx.DiGraph(name=graph.name)
    for node in graph.nodes:
        named = node.op.name if node.kind == "call_function" else node.kind
        value = {} if node.meta is None else {
            "dtype": node.dtype.name, "shape": str(tuple(node.shape)), "nbytes": node.meta.hint_nbytes
        }
        digraph.add_node(node, kind=node.kind, op=named, **value)
        digraph.add_edges_from((arg, node) for arg in node.args)
    return digraph


class Reachability:
    """Which nodes depend on which, for a graph that does not change meanwhile.  Every answer is one test of bits."""

    def __init__(self, graph: Graph):
        self._bit: dict[Node, int] = {}
        self._above: dict[Node, int] = {}  # the node itself and all it depends on
        for position, node in enumerate(graph.nodes):
            self._bit[node] = 1 << position
            above = self._bit[node]
            for arg in node.args:
                above |= self._above[arg]
            self._above[node] = above

    def depends(self, node: Node, on: Node) -> bool:
        """Whether `node` is computed from `on`, at whatever distance (a node does not depend on itself)."""
        return node is not on and bool(self._above[node] & self._bit[on])

    def ancestors(self, node: Node) -> list[Node]:
        """All that a node depends on, in program order."""
        return [n for n in self._bit if self.depends(node, n)]

    def can_merge(self, nodes: Iterable[Node]) -> bool:
        """Whether the nodes can run as one unit: no path leaves them and comes back through another node."""
        inside = list(nodes)
        members = 0
        for node in inside:
            members |= self._bit[node]
        # outside nodes that depend on a member: a member that depends on one of them closes a cycle
        below = 0
        for node, above in self._above.items():
            if above & members and not self._bit[node] & members:
                below |= self._bit[node]
        return not any(self._above[node] & below for node in inside)


def quotient(digraph: "nx.DiGraph[Node]", groups: Sequence[Collection[Node]]) -> "nx.DiGraph[int]":
    """Groups as nodes 0, 1, ...; an edge where a member of one uses a member of another.

    Nodes of no group are left out, with paths through them kept.
    """
    home: Mapping[Node, int] = {node: k for k, group in enumerate(groups) for node in group}
    result: nx.DiGraph[int] = nx.DiGraph()
    result.add_nodes_from(range(len(groups)))
    reached: dict[Node, frozenset[int]] = {}  # groups whose values come to a node without passing another group
    for node in nx.topological_sort(digraph):
        incoming: set[int] = set()
        for operand in digraph.predecessors(node):
            incoming |= {home[operand]} if operand in home else reached[operand]
        reached[node] = frozenset(incoming)
        if node in home:
            result.add_edges_from((k, home[node]) for k in incoming if k != home[node])
    return result


def schedule(graph: Graph, groups: Sequence[Collection[Node]]) -> list[int]:
    """An order in which groups can run, by number; earlier groups first where the graph leaves a choice.

    Raises GraphError that names the groups where they wait for each other.
    """
    order = quotient(to_networkx(graph), groups)
    try:
        return list(nx.lexicographical_topological_sort(order))
    except nx.NetworkXUnfeasible:
        cycle = " -> ".join(str(a) for a, _ in nx.find_cycle(order))
        raise GraphError(f"graph {graph.name!r}: groups wait for each other: {cycle}") from None


def critical_path(graph: Graph) -> list[Node]:
    """The longest chain of dependent ops, inputs and output left out."""
    digraph = to_networkx(graph)
    digraph.remove_nodes_from([n for n in graph.nodes if n.kind != "call_function"])
    return list(nx.dag_longest_path(digraph))


__all__ = ["Reachability", "critical_path", "quotient", "schedule", "to_networkx"]
