"""Average pools put together of slices: kernels fuse these with what is around them.

The runtime's routines add up the same numbers in the same order, as does `dynagraph.torch.functions.pooling`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.optable.pooling import AVERAGES
from dynagraph.ir.shapes import Dim, Shape, SymInt, same_dim
from dynagraph.ir.terms import Term

MOST_ELEMENTS = 16  # of a window that kernels add up where they want its mean: what is before the pool is computed there


def are_apart(node: Node) -> bool:
    """Whether an average pool is one of small windows within the array that have no element in common."""
    if not node.is_op("avg_pool") or math.prod(node.attrs["kernel"]) > MOST_ELEMENTS:
        return False
    about = zip(*(node.attrs[name] for name in ("kernel", "stride", "padding", "places")), _last(node.args[0].shape, node))
    return all(k <= s and p == 0 and _lie_within(size, k, s, count) for k, s, p, count, size in about)


def _lie_within(size: Dim, kernel: int, stride: int, count: Dim) -> bool:
    if isinstance(size, SymInt) or isinstance(count, SymInt):
        return same_dim(count, (size - kernel) // stride + 1)
    return (count - 1) * stride + kernel <= size


def as_slices(node: Node) -> Node:
    """The value of an average pool, or of its way back, made of other ops at the place where new nodes go."""
    assert node.is_op(*AVERAGES)
    return (_means if node.is_op("avg_pool") else _spread)(node, Term(node.args[0])).node


def _means(node: Node, x: Term) -> Term:
    sizes, counts = _last(x.shape, node), node.attrs["places"]
    first = x.ndim - len(sizes)
    widths = _border(node, sizes, counts)
    if any(not same_dim(width, 0) for pair in widths for width in pair):
        x = x.call("pad", widths=((0, 0),) * first + widths, value=0)
    for k in reversed(range(len(sizes))):
        x = _sum_along(x, first + k, node.attrs["kernel"][k], node.attrs["stride"][k], counts[k])
    return _divided(node, x, sizes, counts)


def _spread(node: Node, g: Term) -> Term:
    sizes, counts = node.attrs["sizes"], _last(g.shape, node)
    first = g.ndim - len(sizes)
    g = _divided(node, g, sizes, counts)
    for k, (before, after) in enumerate(_border(node, sizes, counts)):
        axis = first + k
        made = g.full(0, (*g.shape[:axis], sizes[k] + before + after, *g.shape[axis + 1 :]))
        for about in _parts(g, axis, node.attrs["kernel"][k], node.attrs["stride"][k]):
            made = made.call("update_slice", made.call("slice", shape=g.shape, **about) + g, **about)
        g = made.part(_on_axis(g.ndim, axis, before, 0), (*g.shape[:axis], sizes[k], *g.shape[axis + 1 :]))
    return g


def _last(shape: Shape, node: Node) -> Shape:
    return shape[len(shape) - len(node.attrs["kernel"]) :]


def _border(node: Node, sizes: Shape, counts: Shape) -> tuple[tuple[Dim, Dim], ...]:
    """The border that all windows lie in: it may be wider at the end."""
    about = zip(sizes, counts, *(node.attrs[name] for name in ("kernel", "stride", "padding")))
    return tuple((p, _end(size, count, k, s, p)) for size, count, k, s, p in about)


def _end(size: Dim, count: Dim, kernel: int, stride: int, padding: int) -> Dim:
    if isinstance(size, SymInt) or isinstance(count, SymInt):
        within = same_dim(count, (size + 2 * padding - kernel) // stride + 1)
        return padding if within else padding + stride  # there is room for all of them
    return max((count - 1) * stride + kernel - size - padding, 0)


def _on_axis(rank: int, axis: int, value: Dim, other: Dim) -> Shape:
    return tuple(value if k == axis else other for k in range(rank))


def _parts(x: Term, axis: int, kernel: int, stride: int) -> Iterator[dict[str, Shape]]:
    """For each element of windows, where it stands in all of them."""
    for k in range(kernel):
        yield {"starts": _on_axis(x.ndim, axis, k, 0), "steps": _on_axis(x.ndim, axis, stride, 1)}


def _sum_along(x: Term, axis: int, kernel: int, stride: int, count: Dim) -> Term:
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    total, *others = (x.call("slice", shape=shape, **about) for about in _parts(x, axis, kernel, stride))
    for other in others:
        total = total + other
    return total


def _divided(node: Node, total: Term, sizes: Shape, counts: Shape) -> Term:
    """By how many elements each window counts: ones are added up as the elements are."""
    if node.attrs["divisor"] is not None:
        return total / total.number(node.attrs["divisor"])  # type: ignore[no-any-return]
    whole, number, shares = node.attrs["whole"], 1, None
    about = zip(*(node.attrs[name] for name in ("kernel", "stride", "padding")), sizes, counts, _border(node, sizes, counts))
    for k, (kernel, stride, padding, size, count, (_, after)) in enumerate(about):
        begin, end = (0, size + 2 * padding) if whole else (padding, size + padding)
        if begin == 0 and _lie_within(end, kernel, stride, count):
            number *= kernel
            continue
        of_axis = _sum_along(_ones(total, begin, end, size + padding + after), 0, kernel, stride, count)
        of_axis = of_axis.reshape((count, *(1,) * (len(sizes) - k - 1)))
        shares = of_axis if shares is None else shares * of_axis
    divisor = total.number(number) if shares is None else (shares * number).cast(total.dtype)
    return total / divisor  # type: ignore[no-any-return]


def _ones(beside: Term, begin: Dim, end: Dim, size: Dim) -> Term:
    """Ones from `begin` to `end`, as float64."""
    places = beside.make("iota", shape=(size,), start=0, step=1, dtype=dtypes.int64)
    counted = places.call("less", end).call("logical_and", places.call("greater_equal", begin))
    return counted.cast(dtypes.float64)


__all__ = ["are_apart", "as_slices"]
