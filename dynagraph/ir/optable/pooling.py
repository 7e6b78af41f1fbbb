"""Rows of pools: greatest elements and means of windows along the last dimensions, and the ways back.

Whatever dimensions stand before those that windows lie in, each of their elements is a box of its own.  Of several equal elements
the first one is the greatest, and of NaNs the last.  Where an element stood is its number in its box, in C order; -1: nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.errors import DTypeError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import REQUIRED, Attrs, Library, Metas, define_op
from dynagraph.ir.shapes import Shape, numel, same_shape
from dynagraph.ir.terms import Differentiated, Term, counted

Sizes = tuple[int, ...]
MOST_DIMENSIONS = 3
# in the order of their numbers (dg_pooling in runtime.h)
ROUTINES = ("max_pool", "max_pool_back", "adaptive_max_pool", "adaptive_mean", "adaptive_mean_back", "avg_pool", "avg_pool_back")
AVERAGES = ROUTINES[-2:]  # which kernels can compute, too


# -- arrays -----------------------------------------------------------------------------------------------------------


def max_pool(x: np.ndarray, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, places: Sizes) -> tuple[Any, Any]:
    """The greatest elements of windows of the last dimensions, and where they stood.

    `places`: how many windows there are; they may reach beyond the array, where there is nothing.
    """
    return _dispatch.max_pool(x, kernel, stride, padding, dilation, places)


def max_pool_back(g: np.ndarray, places: np.ndarray, sizes: Sizes) -> np.ndarray:
    """The elements of `g` added up at places in boxes of these sizes."""
    return _dispatch.put_places(g, places, sizes)


def avg_pool(
    x: np.ndarray, kernel: Sizes, stride: Sizes, padding: Sizes, places: Sizes, whole: bool, divisor: int | None
) -> np.ndarray:
    """The means of windows of the last dimensions: their sums divided by `divisor`, or by how many elements each has.

    `places`: how many windows there are; they may reach beyond the array, where zeros are.  `whole`: elements of the border count,
    which is as wide at the end, but not those beyond it.
    """
    return _dispatch.avg_pool(x, kernel, stride, padding, places, whole, divisor or 0, False)  # type: ignore[no-any-return]


def avg_pool_back(
    g: np.ndarray, kernel: Sizes, stride: Sizes, padding: Sizes, sizes: Sizes, whole: bool, divisor: int | None
) -> np.ndarray:
    """The transpose of `avg_pool`; `sizes`: the last ones of its operand."""
    return _dispatch.avg_pool(g, kernel, stride, padding, sizes, whole, divisor or 0, True)  # type: ignore[no-any-return]


def adaptive_max_pool(x: np.ndarray, counts: Sizes) -> tuple[Any, Any]:
    """The greatest elements of as many windows as are asked for along the last dimensions, and where they stood."""
    n = len(counts)
    flat, front = (1,) * (MOST_DIMENSIONS - n), x.shape[: x.ndim - n]
    found = _dispatch.adaptive_maxima(x, (*flat, *x.shape[x.ndim - n :]), (*flat, *counts))  # type: ignore[arg-type]
    return tuple(a.reshape(*front, *counts) for a in found)  # type: ignore[return-value]


def adaptive_mean(x: np.ndarray, axis: int, count: int) -> np.ndarray:
    """The means of as many windows as are asked for along an axis."""
    found = _dispatch.adaptive_means(x, x.shape[axis], math.prod(x.shape[axis + 1 :]), count)
    return found.reshape(_along(x.shape, axis, count))  # type: ignore[no-any-return]


def adaptive_mean_back(g: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The transpose of `adaptive_mean`; `size`: of its operand along the axis."""
    found = _dispatch.adaptive_means_back(g, size, math.prod(g.shape[axis + 1 :]), g.shape[axis])
    return found.reshape(_along(g.shape, axis, size))  # type: ignore[no-any-return]


def _along(shape: Any, axis: int, size: Any) -> Any:
    return (*shape[:axis], size, *shape[axis + 1 :])


# -- dtypes and shapes --------------------------------------------------------------------------------------------------


def _dtype(metas: Metas, attrs: Attrs) -> DType:
    dtype = metas[0].dtype
    if dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"pool: takes float32 or float64, got {dtype}; cast the operand first")
    return dtypes.int64 if attrs.get("result") else dtype


def _back_dtype(metas: Metas, attrs: Attrs) -> DType:
    if metas[1].dtype is not dtypes.int64:
        raise DTypeError(f"max_pool_back: places are int64, got {metas[1].dtype}")
    return _dtype(metas, attrs)


def _last(who: str, shape: Shape, sizes: Shape) -> Shape:
    """The shape with other last sizes."""
    if not 1 <= len(sizes) <= min(MOST_DIMENSIONS, len(shape)):
        raise ShapeError(f"{who}: {len(sizes)} sizes for the last dimensions of {shape}; there are one to {MOST_DIMENSIONS}")
    return (*shape[: len(shape) - len(sizes)], *sizes)


def _windows_shape(who: str, *names: str) -> Callable[[Metas, Attrs], Shape]:
    def shape(metas: Metas, attrs: Attrs) -> Shape:
        lengths = {len(attrs[name]) for name in names}
        if len(lengths) > 1:
            raise ShapeError(f"{who}: sizes for {' and '.join(map(str, sorted(lengths)))} dimensions")
        return _last(who, metas[0].shape, attrs[names[-1]])

    return shape


def _max_back_shape(metas: Metas, attrs: Attrs) -> Shape:
    g, places = (m.shape for m in metas)
    if not same_shape(g, places):
        raise ShapeError(f"max_pool_back: {g} numbers at {places} places")
    return _last("max_pool_back", g, attrs["sizes"])


def _axis_shape(who: str, size: str) -> Callable[[Metas, Attrs], Shape]:
    def shape(metas: Metas, attrs: Attrs) -> Shape:
        rank = metas[0].ndim
        if not 0 <= attrs["axis"] < rank:
            raise ShapeError(f"{who}: axis {attrs['axis']} of an operand of {rank} dimensions")
        return _along(metas[0].shape, attrs["axis"], attrs[size])  # type: ignore[no-any-return]

    return shape


# -- gradients --------------------------------------------------------------------------------------------------------


def _maxima_vjp(name: str, counts: str) -> Callable[[Differentiated, Term], Term | None]:
    def vjp(d: Differentiated, g: Term) -> Term | None:
        if d.attrs["result"]:
            return None
        places = d.x.call(name, **{**d.attrs, "result": 1})
        return g.call("max_pool_back", places, sizes=d.x.shape[d.x.ndim - len(d.attrs[counts]) :])  # type: ignore[no-any-return]

    return vjp


def _taken(d: Differentiated, g: Term) -> Term:
    """What stands at the places; what stood nowhere is 0."""
    places, n = d.y, len(d.attrs["sizes"])
    rows = numel(g.shape[: g.ndim - n])
    flat = places.reshape((rows, numel(places.shape[places.ndim - n :])))
    at = flat.call("maximum", 0)
    numbers = counted(at, rows).reshape((rows, 1)).call("broadcast_to", shape=at.shape)
    found = g.reshape((rows, numel(g.shape[g.ndim - n :]))).call("gather", numbers, at, axes=(0, 1), at=0)
    return found.where(flat.call("greater_equal", 0), 0).reshape(places.shape)  # type: ignore[no-any-return]


def _renamed(attrs: Attrs, old: str, new: str, shape: Shape) -> dict[str, Any]:
    """The attributes of the way back: the last sizes of a result are those of what comes to it."""
    about = {name: value for name, value in attrs.items() if name != old}
    return {**about, new: shape[len(shape) - len(attrs["kernel"]) :]}


# -- rows -------------------------------------------------------------------------------------------------------------

_WINDOWS = ("kernel", "stride", "padding", "dilation", "places")
_MEANS, _MEANS_BACK = (("kernel", "stride", "padding", last) for last in ("places", "sizes"))

define_op(
    "max_pool",
    arity=1,
    dtype=_dtype,
    shape=_windows_shape("max_pool", *_WINDOWS),
    eager=lambda xp, x, result, **about: max_pool(x, **about)[result],
    lowering=Library("max_pool"),
    attrs={**dict.fromkeys(_WINDOWS, REQUIRED), "result": 0},
    vjp=(_maxima_vjp("max_pool", "places"),),
    exact=True,
    cupy=False,
    doc="the greatest elements of windows (result 0), and where in their boxes they stood (1)",
)
define_op(
    "max_pool_back",
    arity=2,
    dtype=_back_dtype,
    shape=_max_back_shape,
    eager=lambda xp, g, places, sizes: max_pool_back(g, places, sizes),
    lowering=Library("max_pool_back"),
    attrs={"sizes": REQUIRED},
    vjp=(_taken, lambda d, g: None),
    exact=True,
    cupy=False,
    doc="the first operand's elements added up at places (the second operand) in boxes of these sizes",
)
define_op(
    "adaptive_max_pool",
    arity=1,
    dtype=_dtype,
    shape=lambda metas, attrs: _last("adaptive_max_pool", metas[0].shape, attrs["counts"]),
    eager=lambda xp, x, counts, result: adaptive_max_pool(x, counts)[result],
    lowering=Library("adaptive_max_pool"),
    attrs={"counts": REQUIRED, "result": 0},
    vjp=(_maxima_vjp("adaptive_max_pool", "counts"),),
    exact=True,
    cupy=False,
    doc="as max_pool, of as many windows as are asked for",
)
define_op(
    "adaptive_mean",
    arity=1,
    dtype=_dtype,
    shape=_axis_shape("adaptive_mean", "count"),
    eager=lambda xp, x, axis, count: adaptive_mean(x, axis, count),
    lowering=Library("adaptive_mean"),
    attrs={"axis": REQUIRED, "count": REQUIRED},
    vjp=(lambda d, g: g.call("adaptive_mean_back", axis=d.attrs["axis"], size=d.x.shape[d.attrs["axis"]]),),
    cupy=False,
    doc="the means of as many windows as are asked for along an axis",
)
define_op(
    "adaptive_mean_back",
    arity=1,
    dtype=_dtype,
    shape=_axis_shape("adaptive_mean_back", "size"),
    eager=lambda xp, g, axis, size: adaptive_mean_back(g, axis, size),
    lowering=Library("adaptive_mean_back"),
    attrs={"axis": REQUIRED, "size": REQUIRED},
    vjp=(lambda d, g: g.call("adaptive_mean", axis=d.attrs["axis"], count=d.x.shape[d.attrs["axis"]]),),
    cupy=False,
    doc="the gradient of adaptive_mean by its operand, from that by its result",
)
define_op(
    "avg_pool",
    arity=1,
    dtype=_dtype,
    shape=_windows_shape("avg_pool", *_MEANS),
    eager=lambda xp, x, **about: avg_pool(x, **about),
    lowering=Library("avg_pool"),
    attrs={**dict.fromkeys(_MEANS, REQUIRED), "whole": True, "divisor": None},
    vjp=(lambda d, g: g.call("avg_pool_back", **_renamed(d.attrs, "places", "sizes", d.x.shape)),),
    cupy=False,
    doc="the means of windows, or their sums divided by `divisor`; the border counts if `whole`",
)
define_op(
    "avg_pool_back",
    arity=1,
    dtype=_dtype,
    shape=_windows_shape("avg_pool_back", *_MEANS_BACK),
    eager=lambda xp, g, **about: avg_pool_back(g, **about),
    lowering=Library("avg_pool_back"),
    attrs={**dict.fromkeys(_MEANS_BACK, REQUIRED), "whole": True, "divisor": None},
    vjp=(lambda d, g: g.call("avg_pool", **_renamed(d.attrs, "sizes", "places", d.x.shape)),),
    cupy=False,
    doc="the gradient of avg_pool by its operand, from that by its result",
)

__all__ = [
    "AVERAGES", "ROUTINES", "adaptive_max_pool", "adaptive_mean", "adaptive_mean_back", "avg_pool", "avg_pool_back", "max_pool",
    "max_pool_back",
]  # fmt: skip
