"""Value ranges of integer nodes, from their dtypes and how they are computed."""

from __future__ import annotations

import numpy as np

from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node

Range = tuple[int, int]  # both ends included

DEPTH = 8  # how many nodes back a question looks
# these give elements of their operands
_CHOOSING = ("copy", "reshape", "transpose", "broadcast_to", "slice", "roll", "repeat", "tile", "concatenate")


def range_of_dtype(dtype: DType) -> Range:
    if dtype.is_bool:
        return 0, 1
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def known_range(node: Node, depth: int = DEPTH) -> Range:
    """Bounds of all elements of a node of integers or bools."""
    widest = range_of_dtype(node.dtype)
    found = _computed_range(node, depth) if depth and node.kind == "call_function" else None
    return found if found is not None and widest[0] <= found[0] and found[1] <= widest[1] else widest


def _computed_range(node: Node, depth: int) -> Range | None:
    """The bounds of what is computed, without wrapping; None: nothing is known."""
    if node.is_op("constant"):
        value = node.attrs["value"]
        return (int(value), int(value)) if isinstance(value, (bool, int)) else None
    if node.is_op("iota"):
        return _of_iota(node)
    if not node.args or any(a.dtype.is_inexact for a in node.args):
        return None
    if node.is_op("cast"):
        return known_range(node.args[0], depth - 1)
    if node.is_op(*_CHOOSING):
        return _union([known_range(a, depth - 1) for a in node.args])
    if node.is_op("where"):
        return _union([known_range(a, depth - 1) for a in node.args[1:]])
    if node.is_op("minimum", "maximum", "bitwise_and", "remainder", "add", "multiply"):
        left, right = (known_range(a, depth - 1) for a in node.args)
        return _of_two(node.op.name, left, right)
    return None


def _of_iota(node: Node) -> Range | None:
    start, step, (n,) = node.attrs["start"], node.attrs["step"], node.shape
    if not all(isinstance(v, int) for v in (start, step, n)) or n == 0:
        return None
    last = start + (n - 1) * step
    return min(start, last), max(start, last)


def _union(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _of_two(name: str, left: Range, right: Range) -> Range | None:
    if name == "minimum":
        return min(left[0], right[0]), min(left[1], right[1])
    if name == "maximum":
        return max(left[0], right[0]), max(left[1], right[1])
    if name == "add":
        return left[0] + right[0], left[1] + right[1]
    if name == "multiply":
        products = [a * b for a in left for b in right]
        return min(products), max(products)
    if name == "remainder":
        return (0, right[1] - 1) if right[0] > 0 else None
    masks = [r[1] for r in (left, right) if r[0] >= 0]  # a bitwise "and" is no greater than either that is not negative
    return (0, min(masks)) if masks else None


__all__ = ["Range", "known_range", "range_of_dtype"]
