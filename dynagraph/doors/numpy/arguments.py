"""Argument parsing as NumPy does it: axes, shapes, sizes, sequences of arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dynagraph.doors.numpy.builder import Builder, Unsupported
from dynagraph.doors.numpy.layout import Order, c_order, copy_order, f_order, is_packed
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Strided, memory_of
from dynagraph.ir.optable.movement import reshape_groups
from dynagraph.ir.passes.fold import known_value
from dynagraph.ir.shapes import Dim, Shape, SymInt, normalize_axis, numel

MAX_ROWS = 4096  # each is a node


def numpy_error(detail: str) -> Unsupported:
    """NumPy itself raises here: the eager run gives the user its message."""
    return Unsupported("NUMPY_ERROR", detail)


def as_dim(value: object, who: str) -> Dim:
    """A size or count: an int, a NumPy integer or a symbolic size."""
    value = python_value(value)
    if isinstance(value, SymInt):
        return value
    if isinstance(value, Node):
        raise Unsupported("DATA_DEPENDENT", f"{who}: a size or position that is the value of an array is not known at capture")
    if isinstance(value, (bool, np.bool_)):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: {value} was given where an integer is expected")
    return operator.index(value)  # type: ignore[arg-type]  # TypeError: NumPy raises too


def python_value(value: object) -> object:
    """Integers of an array that depends on no input, as Python's; anything else as it is."""
    known = known_value(value) if isinstance(value, Node) and value.dtype.is_integer else None
    return value if known is None else known.tolist()


def as_index(value: object, who: str) -> int:
    """A position that must be a plain int: an axis, a rank."""
    return int(as_dim(value, who))


def as_shape(value: object, who: str) -> Shape:
    """A shape given as one size or as a sequence of sizes."""
    value = python_value(value)
    if isinstance(value, (tuple, list)):
        return tuple(as_dim(v, who) for v in value)
    return (as_dim(value, who),)


def nonnegative(shape: Shape, who: str) -> Shape:
    if any(d < 0 for d in shape):
        raise numpy_error(f"{who}: negative dimensions are not allowed, got {shape}")
    return shape


def flag(value: object, who: str) -> bool:
    """A switch: its truth must be known."""
    if isinstance(value, Node):
        raise Unsupported("DATA_DEPENDENT", f"{who}: a switch that is the value of an array is not known at capture")
    return bool(value)


def one_axis(axis: object, rank: int, who: str) -> int:
    return normalize_axis(as_index(axis, who), rank, who)


def several_axes(axis: object, rank: int, who: str) -> tuple[int, ...]:
    """Axes in the order given; an axis may be named once."""
    axis = python_value(axis)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(one_axis(a, rank, who) for a in given)
    if len(set(axes)) != len(axes):
        raise numpy_error(f"{who}: axis {axis} names an axis twice")
    return axes


def reduced_axes(axis: object, rank: int, who: str) -> tuple[int, ...]:
    """The sorted axes of a reduction; None means all."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, list):
        raise numpy_error(f"{who}: axis must be None, an integer or a tuple of integers, got {axis}")
    return tuple(sorted(several_axes(axis, rank, who)))


def nodes_of(b: Builder, arrays: object, who: str) -> list[Node]:
    """A sequence of arrays; of one array, its rows."""
    if isinstance(arrays, Node):
        return rows_of(b, arrays, who)
    if not isinstance(arrays, (list, tuple)):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: takes a sequence of arrays, got {type(arrays).__name__}")
    return [b.as_node(a) for a in arrays]


def rows_of(b: Builder, node: Node, who: str) -> list[Node]:
    if node.ndim == 0:
        raise numpy_error(f"{who}: iteration over a 0-d array")
    only(node.shape[0] <= MAX_ROWS, who, "rows", node.shape[0], f"at most {MAX_ROWS} are taken apart")
    return [reshape(b, take(b, node, 0, i, 1), node.shape[1:]) for i in range(int(node.shape[0]))]


def reshape(b: Builder, node: Node, shape: Sequence[Dim]) -> Node:
    made = b.call("reshape", node, shape=tuple(shape))
    if memory_of(b.placed(made)) is not None:
        return made
    ones = [type(d) is not int and d == 1 for d in node.shape]  # along these the elements lie nowhere apart: it may be a view
    if any(ones):
        sizes = tuple(1 if one else d for one, d in zip(ones, node.shape))
        known = b.call("slice", node, starts=(0,) * node.ndim, steps=(1,) * node.ndim, shape=sizes)
        return reshape(b, known, shape)
    if not _is_copied(b.layout(node), tuple(shape)):
        raise Unsupported("UNSUPPORTED_ARGUMENT", "reshape: whether it is a view depends on sizes that change")
    return made


def _is_copied(x: Strided, shape: Shape) -> bool:
    """Whether NumPy has to copy, whatever the sizes; what is not known of them is decided, and guarded."""
    if all(type(d) is int for d in (*x.shape, *x.strides)):
        return True
    for axes, made in reshape_groups(x.shape, shape):
        apart = any(x.strides[i] != x.strides[k] * x.shape[k] for i, k in pairwise(axes))
        if apart:
            return all(d != e for d in _inner_sizes(x.shape, axes) for e in _inner_sizes(shape, made))
    return False


def _inner_sizes(shape: Shape, axes: Sequence[int]) -> list[Dim]:
    return [numel(shape[k] for k in axes[:n]) for n in range(1, len(axes))]


def ravel(b: Builder, node: Node) -> Node:
    return reshape(b, node, (numel(node.shape),))


def take(b: Builder, node: Node, axis: int, start: Dim, size: Dim, step: Dim = 1) -> Node:
    """A slice along one axis."""
    return b.call(
        "slice",
        node,
        starts=tuple(start if k == axis else 0 for k in range(node.ndim)),
        steps=tuple(step if k == axis else 1 for k in range(node.ndim)),
        shape=tuple(size if k == axis else d for k, d in enumerate(node.shape)),
    )


def is_contiguous(b: Builder, node: Node) -> bool:
    """Whether the value lies in C order in memory."""
    return is_packed(b.layout(node), c_order(node.ndim))


def is_fortran(b: Builder, node: Node) -> bool:
    """Whether the value lies in Fortran order in memory."""
    return is_packed(b.layout(node), f_order(node.ndim))


def order_named(b: Builder, name: Any, like: Node, who: str) -> Order:
    """The order that ``order=`` asks of a copy of `like`, or of a new array of its shape."""
    rank = like.ndim
    if name in ("K", None):
        return copy_order(b.layout(like))
    if name == "A":
        return f_order(rank) if is_fortran(b, like) and not is_contiguous(b, like) else c_order(rank)
    return order_of_new(name, rank, who)


def order_of_new(name: Any, rank: int, who: str) -> Order:
    """The order that ``order=`` asks of an array that is like no other."""
    only(name in ("C", "F", None), who, "order", name, "one of 'C' and 'F'")
    return f_order(rank) if name == "F" else c_order(rank)


def only(condition: bool, who: str, argument: str, given: Any, rule: str) -> None:
    """Decline an argument value that the graph has no node for."""
    if not condition:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: {argument}={given!r} is not captured; {rule}")
