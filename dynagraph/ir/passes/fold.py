"""Constant folding: compute at compile time what depends on no input.

The ops' eager meaning (NumPy) computes the values, so a folded value is what the plain call would have had.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import Creation
from dynagraph.ir.rewrite import filled, replace, uniform_value
from dynagraph.ir.shapes import SymInt, hint_numel

MAX_ELEMENTS = 4096  # larger results stay ops: computing them is cheaper than keeping them


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose operands are all known by their value: a filled array, or a constant of the graph.

    Needs: nothing.  Leaves: the same values; creation ops and results of more than `MAX_ELEMENTS` elements stay as they
    are, and so does everything that raises or would warn: it does so when the program runs.
    """
    values: dict[Node, np.ndarray] = {}
    for node in graph.nodes:
        deadline.check()
        value = _value(node, values)
        if value is None:
            continue
        values[node] = value
        if node.kind == "call_function" and not isinstance(node.op.lowering, Creation) and _is_worth_it(node):
            new = _known(node, value)
            values[new] = value
            replace(node, new)
    graph.eliminate_dead_code()
    return graph


def known_value(
    node: Node, values: dict[Node, np.ndarray] | None = None, most: int = MAX_ELEMENTS
) -> np.ndarray | None:
    """The value of a node that depends on no input and has at most that many elements; None of any other.

    `values`: those that are known already.
    """
    values = {} if values is None else values
    if node in values:
        return values[node]
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [a for a in top.args if a not in values]
        if top.kind == "placeholder" or not _is_small(top, most):
            return None
        if missing:
            stack += missing
            continue
        stack.pop()
        value = _value(top, values, most)
        if value is None:
            return None
        values[top] = value
    return values[node]


def _value(node: Node, values: dict[Node, np.ndarray], most: int = MAX_ELEMENTS) -> np.ndarray | None:
    if node.kind == "get_attr":
        return node.graph.constants[node.target] if _is_small(node, most) else None
    if node.kind != "call_function" or not _is_small(node, most) or any(a not in values for a in node.args):
        return None
    if node.may_raise or node.has_effect or node.is_op("variable"):
        return None
    if any(map(_is_symbolic, node.attrs.values())):
        return None
    return _evaluate(node, [values[a] for a in node.args])


def _evaluate(node: Node, operands: list[np.ndarray]) -> np.ndarray | None:
    """The value by the op's eager meaning; None where NumPy would raise or warn."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            result = np.asarray(node.op.eager(np, *operands, **node.attrs))
    except (FloatingPointError, ValueError):
        return None  # the node stays, and does the same at run time
    fits = dtypes.from_numpy(result.dtype) is node.dtype and result.shape == node.shape
    return result if fits else None


def _known(node: Node, value: np.ndarray) -> Node:
    with node.graph.inserting_before(node):
        first = value[(0,) * value.ndim].item() if value.size else None
        if first is not None and value.tobytes() == np.full(value.shape, first, value.dtype).tobytes():
            return filled(node, first)
        return node.graph.constant(value.copy(), node.name)


def _is_worth_it(node: Node) -> bool:
    """A copy or broadcast of a value that is known anyway is free inside kernels."""
    return not node.is_op("copy", "broadcast_to") or uniform_value(node) is not None


def _is_small(node: Node, most: int) -> bool:
    return not any(isinstance(d, SymInt) for d in node.shape) and hint_numel(node.shape) <= most


def _is_symbolic(attribute: Any) -> bool:
    if isinstance(attribute, (tuple, list)):
        return any(map(_is_symbolic, attribute))
    return isinstance(attribute, SymInt)


__all__ = ["MAX_ELEMENTS", "fold_constants", "known_value"]
