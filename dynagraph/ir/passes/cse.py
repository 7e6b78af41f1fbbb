"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from dynagraph.driver import deadline
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.rewrite import attribute_key, is_commutative, replace, uniform_value

MAX_ELEMENTS = 4096  # the contents of larger constants are not compared


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Merge nodes of the same op, attributes and operands; operands of commutative ops in any order.

    Needs: nothing.  Leaves: no two such nodes, except copies that give an output an array of its own.
    """
    known: dict[Any, Node] = {}
    position: dict[Node, int] = {}
    for node in graph.nodes:
        deadline.check()
        position[node] = len(position)
        key = _key(node, position)
        if key is None:
            continue
        first = known.setdefault(key, node)
        if first is not node and not _is_own_output(node):
            replace(node, first)
            if node.must_run:  # the first one raises
                first.attrs["call"] = node.attrs["call"]
                graph.erase(node)
    graph.eliminate_dead_code()
    return graph


def remove_barriers(graph: Graph) -> Graph:
    """Take what is to be computed again from the values themselves: there is no telling it from the first time any more.

    Needs: common subexpressions are merged.  Leaves: none of the ops that kept them apart.
    """
    for node in list(graph.nodes):
        if node.is_op("optimization_barrier"):
            replace(node, node.args[0])
    return graph


def _key(node: Node, position: dict[Node, int]) -> Any:
    """Equal for nodes of equal value; None for nodes that are never merged."""
    if node.kind == "get_attr":
        array = node.graph.constants[node.target]
        content = array.tobytes() if array.size <= MAX_ELEMENTS else node.target
        return ("get_attr", array.dtype.str, array.shape, content)
    if node.kind != "call_function" or node.has_effect:
        return None
    operands = tuple(position[a] for a in node.args)
    if len(operands) == 2 and is_commutative(node):
        operands = tuple(sorted(operands))
    attrs = {name: attribute_key(value) for name, value in sorted(node.attrs.items())}
    if node.is_op("constant", "full"):
        value = uniform_value(node)  # 3 and 3.0 are one float64
        attrs["value"] = attrs["value"] if value is None else attribute_key(value)
    return (node.op.name, operands, tuple(attrs.items()))


def _is_own_output(node: Node) -> bool:
    """A copy that only the output uses: the caller gets an array that nothing else is."""
    return node.is_op("copy") and all(user.kind == "output" for user in node.users)


__all__ = ["eliminate_common_subexpressions", "remove_barriers"]
