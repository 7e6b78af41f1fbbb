"""Split a graph with its gradients in two: what runs first, and what runs when the cotangents are there.

The second part starts from values that the first one keeps for it.  Which ones is a minimum cut: keeping a value costs memory
traffic, and computing it again costs arithmetic.  `split` has both parts; `kept_for` and `computed_again` are for a second part
that is captured later, and reads some values of the first.
"""

from __future__ import annotations

import importlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import symbols_in
from dynagraph.ir.ops import Composite, Creation, Elementwise, Movement
from dynagraph.ir.passes.fuse import op_cost
from dynagraph.ir.shapes import hint_numel

KEEPING = 1.0  # what writing and reading a byte costs, in additions


@dataclass(frozen=True)
class Backward:
    """The second part: a graph whose inputs are the kept values and then the cotangents."""

    graph: Graph
    kept: tuple[Node, ...]  # of the first part's graph


def split(graph: Graph, seeds: Sequence[Node], gradients: Sequence[Node]) -> Backward:
    """The part of a graph that the gradients need beyond what is known without the seeds, as a graph of its own.

    Needs: static sizes.  Leaves: the first graph as it is.
    """
    nodes = list(graph.nodes)
    late = set(seeds)
    for node in nodes:
        if any(a in late for a in node.args):
            late.add(node)
    wanted = set(gradients)
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(node.args)
    needed = [node for node in nodes if node in wanted and node not in late]
    read = [node for node in needed if node in gradients or any(user in late and user in wanted for user in node.users)]
    kept = cheapest_to_keep(needed, read)
    return Backward(_second_part(graph, kept, seeds, [n for n in nodes if n in wanted], gradients), tuple(kept))


def cheapest_to_keep(
    nodes: Sequence[Node], read: Sequence[Node], free: Container[Node] = (), changing: Container[str] = ()
) -> list[Node]:
    """Those nodes from which all that are `read` can be computed, for the least of keeping and computing again.

    `nodes`: what the read ones depend on, themselves included, in order.  `free`: those that are kept anyway.  `changing`: names
    of ints that are not known when something is computed again.
    """
    if not read:
        return []
    networkx = importlib.import_module("networkx")  # takes longer to import than all of this package
    flow = networkx.DiGraph()
    for node in nodes:
        flow.add_edge((node, "in"), (node, "out"), capacity=(0 if node in free else KEEPING * node.meta.hint_nbytes) + 1)
        again = _cost_again(node, changing)
        flow.add_edge("start", (node, "in"), **({} if again is None else {"capacity": again}))  # no capacity: without limit
        for arg in node.args:
            flow.add_edge((arg, "out"), (node, "in"))
    for node in read:
        flow.add_edge((node, "out"), "end")
    _, (early, _) = networkx.minimum_cut(flow, "start", "end")
    return [node for node in nodes if (node, "in") in early and (node, "out") not in early]


def kept_for(
    graph: Graph, values: Sequence[Node], free: Container[Node] = (), changing: Container[str] = ()
) -> list[Node]:
    """The nodes of a graph from which some values are computed again for the least cost; `free` and `changing` as above."""
    reached: set[Node] = set()
    waiting = list(values)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            if _cost_again(node, changing) is not None:  # what lies before others is of no use to them
                waiting += node.args
    return cheapest_to_keep([node for node in graph.nodes if node in reached], values, free, changing)


def computed_again(graph: Graph, kept: Sequence[Node], values: Sequence[Node]) -> Graph:
    """A graph that takes the kept nodes' values and gives other values of a graph, which depend on these."""
    return _second_part(graph, kept, (), list(graph.nodes), values)


def _cost_again(node: Node, changing: Container[str] = ()) -> float | None:
    """What computing a value again costs, in additions; None: that is never done."""
    if node.kind == "get_attr":
        return 0.0
    if node.kind != "call_function" or node.may_raise or node.has_effect or isinstance(node.op.lowering, Composite):
        return None
    if changing and any(symbol.name in changing for value in node.attrs.values() for symbol in symbols_in(value)):
        return None
    if isinstance(node.op.lowering, Creation):
        return 0.0
    if isinstance(node.op.lowering, (Elementwise, Movement)):
        return op_cost(node) * hint_numel(node.shape)
    return None


def _second_part(
    graph: Graph, kept: Sequence[Node], seeds: Sequence[Node], nodes: Sequence[Node], gradients: Sequence[Node]
) -> Graph:
    new = Graph(f"{graph.name}_backward")
    made: dict[Node, Node] = {}
    for name, inputs in (("kept", kept), ("cotangent", seeds)):
        for k, node in enumerate(inputs):
            made[node] = new.placeholder(f"{name}_{k}", _in_c_order(node))
    needed, waiting = set(), [g for g in gradients if g not in made]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [a for a in node.args if a not in made]
    for node in nodes:
        if node in needed:
            new.location = node.location
            if node.kind == "get_attr":
                made[node] = new.constant(graph.constants[node.target], node.name)
            else:
                made[node] = new.call(node.op, *(made[a] for a in node.args), **node.attrs)
    new.location = None
    new.output([made[g] for g in gradients])
    return new


def _in_c_order(node: Node) -> Any:
    return type(node.meta)(node.dtype, node.shape)


__all__ = ["Backward", "cheapest_to_keep", "computed_again", "kept_for", "split"]
