"""Sums of arrays each of which is zero where the others are not: the gradients of slices of one array."""

from __future__ import annotations

from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import Movement
from dynagraph.ir.optable import OPS
from dynagraph.ir.rewrite import convert, replace, same_scalar, scalar, uniform_value
from dynagraph.ir.shapes import Shape, SymInt, same_dim, same_shape

MOST = 8  # pieces with values: each is a loop of its own in kernels

Piece = tuple[int, int, Node | None]  # from where to where along the axis; None: zeros


def join_pieces(graph: Graph) -> Graph:
    """Join what is added up of pieces of one array: a gradient of three slices is written once, not six times.

    Needs: nothing.  Leaves: the same values bit for bit.  A piece meets zeros of the other arrays: it becomes the piece plus 0,
    which for -0.0 is 0.0.
    """
    for node in list(graph.nodes):
        deadline.check()
        if node.is_op("add") and node.dtype is not dtypes.bool_ and node.users:
            with graph.inserting_before(node):
                joined = _joined(node)
            if joined is not None:
                replace(node, joined)
    return graph


def _joined(root: Node) -> Node | None:
    """One array joined of the pieces of both operands, if these are cut along one axis, and one is zero where the other is not."""
    x, y = root.args
    first, second = pieces_of(x), pieces_of(y)
    if first is None or second is None or first[0] != second[0] or not same_shape(x.shape, y.shape):
        return None
    merged = _merged(first[1], second[1])
    if merged is None or sum(part is not None for _, _, part in merged) > MOST:
        return None
    axis = first[0]
    parts = [_zeros(root, axis, end - start) if part is None else _plus_zero(part) for start, end, part in merged]
    return root.graph.call(OPS["concatenate"], *parts, axis=axis)


def pieces_of(node: Node) -> tuple[int, list[Piece]] | None:
    """The axis along which an array is cut into values and zeros, and its pieces; None if it has no zeros."""
    if node.is_op("update_slice"):
        return _updated(node)
    if not node.is_op("concatenate"):
        return None
    axis, start, pieces = node.attrs["axis"], 0, []
    for part in node.args:
        size = part.shape[axis]
        if isinstance(size, SymInt):
            return None
        pieces.append((start, start + size, None if _is_zero(part) else part))
        start += size
    return (axis, pieces) if any(part is None for _, _, part in pieces) else None


def _updated(node: Node) -> tuple[int, list[Piece]] | None:
    """Of zeros in which one stretch along one axis is replaced."""
    whole, part = node.args
    if not _is_zero(whole) or not all(same_dim(step, 1) for step in node.attrs["steps"]):
        return None
    cut = [k for k, (n, size) in enumerate(zip(part.shape, node.shape)) if not same_dim(n, size)]
    if len(cut) != 1:
        return None
    axis = cut[0]
    start, size, end = node.attrs["starts"][axis], part.shape[axis], node.shape[axis]
    if isinstance(start, SymInt) or isinstance(size, SymInt) or isinstance(end, SymInt):
        return None
    pieces: list[Piece] = [(0, start, None), (start, start + size, part), (start + size, end, None)]
    return axis, [piece for piece in pieces if piece[0] < piece[1]]


def _is_zero(node: Node) -> bool:
    value = uniform_value(node)
    return value is not None and same_scalar(value, convert(0, node.dtype))


def _merged(first: list[Piece], second: list[Piece]) -> list[Piece] | None:
    """The pieces of both; None if two with values overlap."""
    valued = sorted((piece for piece in (*first, *second) if piece[2] is not None), key=lambda piece: piece[0])
    merged: list[Piece] = []
    at, size = 0, first[-1][1]
    for start, end, part in valued:
        if start < at:
            return None
        if at < start:
            merged.append((at, start, None))
        merged.append((start, end, part))
        at = end
    return [*merged, (at, size, None)] if at < size else merged


def _zeros(root: Node, axis: int, size: int) -> Node:
    shape: Shape = tuple(size if k == axis else n for k, n in enumerate(root.shape))
    return root.graph.call(OPS["full"], shape=shape, value=convert(0, root.dtype), dtype=root.dtype)


def _plus_zero(part: Node) -> Node:
    if not part.dtype.is_inexact or _has_positive_zeros(part):
        return part
    return part.graph.call(OPS["add"], part, scalar(part.graph, 0, part.dtype))


def _has_positive_zeros(node: Node) -> bool:
    """Whether no element is -0.0 for sure; views and other movements of one array have the zeros of that."""
    while node.kind == "call_function" and isinstance(node.op.lowering, Movement) and len(node.args) == 1:
        if node.is_op("pad"):
            return False
        (node,) = node.args
    if node.is_op("add"):
        return any(_is_zero(operand) for operand in node.args)
    return node.is_op("external_call") and node.attrs["call"].has_positive_zeros


__all__ = ["join_pieces", "pieces_of"]
