"""Whole-graph questions: dependence, what may run as one unit, the order of groups."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings

from dynagraph.errors import GraphError
from dynagraph.ir import dtypes, optable
from dynagraph.ir.analysis import Reachability, critical_path, quotient, schedule, to_networkx
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.ops import OPS

from .programs import programs

assert optable.__all__


def diamond() -> tuple[Graph, dict[str, Node]]:
    """x -> exp -> (sin, cos) -> add"""
    graph = Graph("diamond")
    x = graph.placeholder("x", Meta(dtypes.float64, (3,)))
    exp = graph.call(OPS["exp"], x)
    sin, cos = graph.call(OPS["sin"], exp), graph.call(OPS["cos"], exp)
    graph.output([graph.call(OPS["add"], sin, cos)])
    return graph, {n.name: n for n in graph.nodes}


def test_networkx_graph_has_the_nodes_in_order_and_their_facts() -> None:
    graph, nodes = diamond()
    digraph = to_networkx(graph)
    assert list(digraph.nodes) == list(graph.nodes)
    facts = {"kind": "call_function", "op": "exp", "dtype": "float64", "shape": "(3,)", "nbytes": 24}
    assert digraph.nodes[nodes["exp"]] == facts
    assert nx.is_directed_acyclic_graph(digraph)


def test_dependence_is_transitive_and_not_reflexive() -> None:
    graph, n = diamond()
    reach = Reachability(graph)
    assert reach.depends(n["add"], n["x"])
    assert not reach.depends(n["sin"], n["cos"])
    assert not reach.depends(n["x"], n["add"])
    assert not reach.depends(n["x"], n["x"])
    assert reach.ancestors(n["add"]) == [n["x"], n["exp"], n["sin"], n["cos"]]


def test_nodes_with_a_path_around_them_cannot_be_merged() -> None:
    graph, n = diamond()
    reach = Reachability(graph)
    assert not reach.can_merge([n["exp"], n["add"]])
    assert reach.can_merge([n["exp"], n["sin"], n["cos"], n["add"]])
    assert reach.can_merge([n["sin"], n["cos"]])
    assert not reach.can_merge([n["exp"], n["sin"], n["add"]])  # cos is in between


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs())
def test_merging_agrees_with_networkx(program: Graph) -> None:
    digraph, reach = to_networkx(program), Reachability(program)
    for pair in itertools.combinations(list(program.nodes)[:8], 2):
        merged = nx.DiGraph(quotient(digraph, [pair, *([n] for n in program.nodes if n not in pair)]))
        assert reach.can_merge(pair) == nx.is_directed_acyclic_graph(merged)


def test_groups_run_after_what_they_use() -> None:
    graph, n = diamond()
    assert schedule(graph, [[n["add"]], [n["sin"], n["cos"]], [n["exp"]]]) == [2, 1, 0]


def test_order_is_kept_through_nodes_of_no_group() -> None:
    graph, n = diamond()
    assert list(quotient(to_networkx(graph), [[n["add"]], [n["exp"]]]).edges) == [(1, 0)]


def test_groups_that_wait_for_each_other_are_named() -> None:
    graph, n = diamond()
    with pytest.raises(GraphError, match=r"^graph 'diamond': groups wait for each other: 0 -> 1$"):
        schedule(graph, [[n["exp"], n["add"]], [n["sin"]]])


def test_critical_path_is_the_longest_chain() -> None:
    graph, n = diamond()
    assert critical_path(graph) in ([n["exp"], n["sin"], n["add"]], [n["exp"], n["cos"], n["add"]])
