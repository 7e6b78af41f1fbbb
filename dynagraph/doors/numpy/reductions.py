"""Reduction doors: sums, extremes, statistics and scans, with NumPy's rules for the dtype of the accumulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import (
    flag,
    numpy_error,
    one_axis,
    only,
    ravel,
    reduced_axes,
    reshape,
    several_axes,
    take,
)
from dynagraph.doors.numpy.builder import Builder, Unsupported, known_dtype
from dynagraph.doors.numpy.elementwise import apply, mask_of, result_type, strong
from dynagraph.doors.numpy.layout import copy_order
from dynagraph.doors.numpy.table import numpy_function, numpy_method
from dynagraph.doors.numpy.ufunc_methods import UNSET, accumulate_by, loose_axis, reduce_by
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.optable.reductions import divide_by_count
from dynagraph.ir.shapes import numel, same_shape

# -- sums, products, extremes, truths -----------------------------------------------------------------------------------


def _by(ufunc: np.ufunc, dtype: Any = None, instead_of_nan: float | None = None) -> Callable[..., Node]:
    """The door of a reduction by a ufunc."""

    def door(
        b: Builder, a: Any, axis: Any = None, dtype: Any = dtype, out: Any = None, keepdims: Any = UNSET, initial: Any = UNSET,
        where: Any = UNSET,
    ) -> Node:  # fmt: skip
        x = a if instead_of_nan is None else _without_nan(b, a, instead_of_nan)
        return reduce_by(b, ufunc, x, axis, dtype, out, keepdims, initial, _everywhere(where))

    return door


sum_ = numpy_function(np.sum, method="sum", takes_out=True)(_by(np.add))
numpy_function(np.prod, method="prod", takes_out=True)(_by(np.multiply))
numpy_function(np.max, np.amax, method="max", takes_out=True)(_by(np.maximum))
numpy_function(np.min, np.amin, method="min", takes_out=True)(_by(np.minimum))
for _truth, _ufunc in {np.any: np.logical_or, np.all: np.logical_and}.items():
    numpy_function(_truth, takes_out=True)(_by(_ufunc, bool))
    numpy_method(_truth.__name__, takes_out=True)(_by(_ufunc, bool))
numpy_function(np.nansum, takes_out=True)(_by(np.add, instead_of_nan=0.0))
numpy_function(np.nanprod, takes_out=True)(_by(np.multiply, instead_of_nan=1.0))


def _everywhere(where: Any) -> Any:
    return True if where is UNSET else where


def _kept(keepdims: Any, who: str) -> bool:
    return False if keepdims is UNSET else flag(keepdims, who)


def reduce(b: Builder, op: str, x: Node, axis: object, keepdims: object) -> Node:
    """A reduction of the graph, over axes as ufuncs' reductions take them."""
    axes = reduced_axes(loose_axis(axis, x), x.ndim, op)
    return b.call(op, x, axis=axes, keepdims=_kept(keepdims, op))


def _position(b: Builder, op: str, x: Node, axis: object, keepdims: object) -> Node:
    axis = loose_axis(axis, x)
    keeps = _kept(keepdims, op)
    if axis is not None:
        return b.call(op, x, axis=(one_axis(axis, x.ndim, op),), keepdims=keeps)
    found = b.call(op, ravel(b, x), axis=(0,), keepdims=False)
    return reshape(b, found, (1,) * x.ndim) if keeps else found


@numpy_function(np.argmax, method="argmax")
def argmax(b: Builder, a: Any, axis: Any, keepdims: Any) -> Node:
    return _position(b, "argmax", b.as_node(a), axis, keepdims)


@numpy_function(np.argmin, method="argmin")
def argmin(b: Builder, a: Any, axis: Any, keepdims: Any) -> Node:
    return _position(b, "argmin", b.as_node(a), axis, keepdims)


@numpy_function(np.ptp)
def ptp(b: Builder, a: Any, axis: Any, keepdims: Any) -> Node:
    x = b.as_node(a)
    return apply(b, np.subtract, reduce(b, "max", x, axis, keepdims), reduce(b, "min", x, axis, keepdims))


@numpy_function(np.count_nonzero)
def count_nonzero(b: Builder, a: Any, axis: Any, keepdims: Any) -> Node:
    x = b.as_node(a)
    truth = b.lay(b.cast(x, dtypes.bool_), copy_order(b.layout(x))) if not x.dtype.is_bool else x
    return reduce(b, "sum", b.cast(truth, dtypes.int64), axis, keepdims)


# -- statistics ---------------------------------------------------------------------------------------------------------


def _wanted(x: Node, dtype: object, who: str) -> DType:
    """The dtype in which the elements are summed: those of integers and bools in float64."""
    if dtype is None:
        return dtypes.float64 if x.dtype.kind in "biu" else x.dtype
    wanted = known_dtype(dtype, who)
    only(wanted.is_inexact, who, "dtype", wanted, "statistics are captured in floating point")
    return wanted


def _check_real(x: Node, who: str, *others: DType) -> None:
    """Decline dtypes for which NumPy goes another way."""
    if x.dtype.is_complex or x.dtype in others:
        raise Unsupported("UNSUPPORTED_DTYPE", f"{who}: of {x.dtype} with these arguments is not captured")


def _n_elements(x: Node, axes: Sequence[int]) -> Any:
    return numel(x.shape[k] for k in axes)


def check_count(x: Node, axes: Sequence[int], ddof: float, who: str) -> None:
    """Decline too few elements: NumPy warns, by other means than its floating-point errors, and the plain run gives the warning."""
    if _n_elements(x, axes) <= math.floor(ddof):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: NumPy warns of too few elements")


def _counted(b: Builder, chosen: Node, x: Node, axes: tuple[int, ...], keepdims: bool, who: str) -> Node:
    """How many elements are chosen, as float64."""
    whole = chosen if same_shape(chosen.shape, x.shape) else b.call("broadcast_to", chosen, shape=x.shape)
    count = b.call("sum", b.cast(whole, dtypes.int64), axis=axes, keepdims=keepdims)
    return b.cast(count, dtypes.float64)


def _divided(b: Builder, total: Node, count: Node) -> Node:
    """By counts: in float64, rounded to the dtype of the total."""
    return b.cast(b.call("divide", b.cast(total, dtypes.float64), count), total.dtype)


@dataclass(frozen=True)
class _Chosen:
    """The elements that are taken: where a mask is true, and where there is a number, of functions that leave out NaN."""

    mask: Node | None
    present: Node | None

    def all_of(self, b: Builder) -> Node | None:
        if self.mask is None or self.present is None:
            return self.mask if self.present is None else self.present
        return b.call("logical_and", self.present, self.mask)


def _total(b: Builder, x: Node, dtype: DType, chosen: _Chosen, axes: tuple[int, ...], keepdims: bool) -> Node:
    """The sum of the chosen elements, as NumPy casts and adds them."""
    given = [b.layout(n) for n in (x, chosen.mask) if n is not None]
    casts, x, taken = x.dtype is not dtype, b.cast(x, dtype), chosen.all_of(b)
    by_runs = chosen.mask is not None and axes and b.check_op is None
    if by_runs:
        taken = chosen.present
    if taken is not None:
        x = b.call("where", taken, x, b.scalar(0, x.dtype))
    if by_runs:
        return b.sum_where(x, chosen.mask, None, axes, keepdims, given, casts)
    return b.accumulate("sum", x, axes, keepdims, given, casts)


def _mean(b: Builder, a: Any, axis: Any, dtype: Any, keepdims: Any, where: Any, present: Node | None = None) -> Node:
    x, mask = b.as_node(a), mask_of(b, _everywhere(where), "mean")
    chosen = _Chosen(mask, present)
    wanted = _wanted(x, dtype, "mean")
    axes, keeps = reduced_axes(axis, x.ndim, "mean"), _kept(keepdims, "mean")
    check_count(x, axes, 0, "mean")
    taken = chosen.all_of(b)
    if taken is None:
        casts = x.dtype is not wanted or (x.dtype is dtypes.float16 and dtype is None)
        return b.accumulate("mean", b.cast(x, wanted), axes, keeps, [b.layout(x)], casts)
    given, x = x, b.cast(x, wanted)
    _check_real(x, "mean", dtypes.float16)
    count = _counted(b, taken, x, axes, keeps, "mean")
    b.bail_out_where(b.call("equal", count, b.scalar(0.0, count.dtype)))
    return _divided(b, _total(b, given, wanted, chosen, axes, keeps), count)


@numpy_function(np.mean, method="mean")
def mean(b: Builder, a: Any, axis: Any, dtype: Any, keepdims: Any = UNSET, where: Any = UNSET) -> Node:
    return _mean(b, a, axis, dtype, keepdims, where)


def _ddof(ddof: Any, correction: Any, who: str) -> int | float:
    if correction is not UNSET:
        if ddof != 0:
            raise numpy_error(f"{who}: ddof and correction cannot be given together")
        ddof = correction
    only(type(ddof) in (int, float), who, "ddof", ddof, "it must be a Python number")
    return ddof  # type: ignore[no-any-return]


def _variance(
    b: Builder,
    op: str,
    a: Any,
    axis: Any,
    dtype: Any,
    ddof: int | float,
    keepdims: Any,
    where: Any,
    mean: Any,
    present: Node | None = None,
) -> Node:
    """By its definition, in NumPy's steps; of another library by the op of that name."""
    x, mask = b.as_node(a), mask_of(b, _everywhere(where), op)
    wanted = _wanted(x, dtype, op)
    axes, keeps = reduced_axes(axis, x.ndim, op), _kept(keepdims, op)
    only(dtype is None or not wanted.is_complex, op, "dtype", dtype, "the result would be complex")
    chosen = _Chosen(mask, present)
    if mask is None and present is None:
        check_count(x, axes, ddof, op)
        if b.check_op is not None and (mean is UNSET or mean is None):
            return b.call(op, b.cast(x, wanted), axis=axes, keepdims=keeps, ddof=ddof)
    else:
        _check_real(x, op, dtypes.float16)
    return _spread(b, op, x, wanted, chosen, axes, keeps, ddof, None if mean is UNSET else mean)


def _spread(
    b: Builder,
    op: str,
    x: Node,
    dtype: DType,
    chosen: _Chosen,
    axes: tuple[int, ...],
    keeps: bool,
    ddof: int | float,
    mean: Any,
) -> Node:
    """Of the chosen elements.  The program bails out where there are too few: NumPy warns."""
    taken = chosen.all_of(b)
    if mean is not None:
        center = b.as_node(mean)
        only(center.dtype is dtype, op, "mean", center.dtype, "it must have the dtype of the result")
    else:
        total = _total(b, x, dtype, chosen, axes, True)
        center = _over_count(b, total, x, axes) if taken is None else _divided(b, total, _counted(b, taken, x, axes, True, op))
    squares = _squares(b, apply(b, np.subtract, x, center))
    only(same_shape(squares.shape, x.shape), op, "mean", center.shape, "it must broadcast to the array")
    total = _total(b, squares, dtype.real, chosen, axes, keeps)
    if taken is None:
        result = _over_count(b, total, x, axes, ddof)
    else:
        count = _counted(b, taken, x, axes, keeps, op)
        freedom = b.call("subtract", count, b.scalar(float(ddof), count.dtype))
        b.bail_out_where(b.call("less_equal", freedom, b.scalar(0.0, count.dtype)))
        result = _divided(b, total, freedom)
    return b.call("sqrt", result) if op == "std" else result


def _squares(b: Builder, deviation: Node) -> Node:
    if not deviation.dtype.is_complex:
        return b.call("square", deviation)
    return b.call("add", *(b.call("square", b.call(part, deviation)) for part in ("real", "imag")))


def _over_count(b: Builder, total: Node, x: Node, axes: tuple[int, ...], ddof: int | float = 0) -> Node:
    result = divide_by_count(b.graph, total, _n_elements(x, axes), ddof)
    return result if result.ndim < 2 else b.lay(result, copy_order(b.layout(total)))


def _variance_door(op: str) -> Callable[..., Node]:
    def door(
        b: Builder, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any = UNSET, where: Any = UNSET, mean: Any = UNSET,
        correction: Any = UNSET,
    ) -> Node:  # fmt: skip
        return _variance(b, op, a, axis, dtype, _ddof(ddof, correction, op), keepdims, where, mean)

    return door


for _function in (np.var, np.std):
    _door = _variance_door(_function.__name__)
    numpy_function(_function)(_door)
    numpy_method(_function.__name__)(_door)


@numpy_function(np.average)
def average(b: Builder, a: Any, axis: Any, weights: Any, returned: Any, keepdims: Any) -> Any:
    """The program bails out if the weights sum to zero: NumPy raises."""
    x = b.as_node(a)
    given = axis
    if axis is not None:
        axis = several_axes(axis, x.ndim, "average")
    if weights is None:
        result = _mean(b, x, axis, None, keepdims, UNSET)
        if any(d == 0 for d in result.shape):
            raise numpy_error("average: an average without elements divides by zero")
        count = _n_elements(x, reduced_axes(axis, x.ndim, "average"))
        scale = b.scalar(count, result.dtype)
    else:
        w = _fitting_weights(b, b.as_node(weights), x, axis, given)
        dtype = result_type((x, w, b.scalar(0.0, dtypes.float64)) if x.dtype.kind in "biu" else (x, w), "average")
        scale = sum_(b, w, axis, dtype, None, keepdims)
        b.bail_out_where(b.call("equal", scale, b.scalar(0, dtype)))
        total = sum_(b, apply(b, np.multiply, x, w, dtype=dtype), axis, None, None, keepdims)
        result = apply(b, np.divide, total, scale)
    if not flag(returned, "average"):
        return result
    if not same_shape(scale.shape, result.shape):
        scale = b.call("copy", b.call("broadcast_to", scale, shape=result.shape))
    return result, scale


def _fitting_weights(b: Builder, weights: Node, x: Node, axes: tuple[int, ...] | None, axis: Any) -> Node:
    """Weights of the array's shape, or of the shape of the axes, which they are then laid along."""
    if same_shape(weights.shape, x.shape):
        return weights
    if axes is None or not same_shape(weights.shape, tuple(x.shape[k] for k in axes)):
        raise numpy_error(f"average: weights of shape {weights.shape} for an array of shape {x.shape} and axis {axis}")
    order = tuple(sorted(range(len(axes)), key=lambda k: axes[k]))
    turned = b.call("transpose", weights, axes=order)
    return reshape(b, turned, tuple(d if k in axes else 1 for k, d in enumerate(x.shape)))


# -- without NaN --------------------------------------------------------------------------------------------------------


def _without_nan(b: Builder, a: Any, instead: float) -> Node:
    x = b.as_node(a)
    if not x.dtype.is_inexact:
        return x
    return b.lay(b.call("where", b.call("isnan", x), b.scalar(instead, x.dtype), x), copy_order(b.layout(x)))


def _nan_extreme(ufunc: np.ufunc) -> Callable[..., Node]:
    def door(b: Builder, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Node:
        """The program bails out where nothing but NaN is left: NumPy warns."""
        _check_real(b.as_node(a), ufunc.__name__)
        result = reduce_by(b, ufunc, a, axis, None, out, keepdims, initial, _everywhere(where))
        if result.dtype.is_float:
            b.bail_out_where(b.call("isnan", result))
        return result

    return door


numpy_function(np.nanmax, takes_out=True)(_nan_extreme(np.fmax))
numpy_function(np.nanmin, takes_out=True)(_nan_extreme(np.fmin))


def _nan_position(op: str, instead: float) -> Callable[..., Node]:
    def door(b: Builder, a: Any, axis: Any, keepdims: Any) -> Node:
        """The program bails out where there is nothing but NaN: NumPy raises."""
        x = b.as_node(a)
        _check_real(x, op)
        if x.dtype.is_float and not any(d == 0 for d in x.shape):
            b.bail_out_where(reduce(b, "all", b.call("isnan", x), axis, False))
        return _position(b, op, _without_nan(b, x, instead), axis, keepdims)

    return door


numpy_function(np.nanargmax)(_nan_position("argmax", -math.inf))
numpy_function(np.nanargmin)(_nan_position("argmin", math.inf))


@numpy_function(np.nanmean)
def nanmean(b: Builder, a: Any, axis: Any, dtype: Any, keepdims: Any, where: Any) -> Node:
    """The program bails out where there is nothing but NaN: NumPy warns."""
    x = b.as_node(a)
    _check_real(x, "nanmean")
    if not x.dtype.is_float:
        return _mean(b, x, axis, dtype, keepdims, where)
    return _mean(b, _without_nan(b, x, 0.0), loose_axis(axis, x), dtype, keepdims, where, _present(b, x))


def _present(b: Builder, x: Node) -> Node:
    return b.call("logical_not", b.call("isnan", x))


def _nan_variance(op: str) -> Callable[..., Node]:
    def door(
        b: Builder, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean: Any, correction: Any = UNSET
    ) -> Node:
        x, freedom = b.as_node(a), _ddof(ddof, correction, f"nan{op}")
        _check_real(x, f"nan{op}")
        if not x.dtype.is_float:
            return _variance(b, op, x, axis, dtype, freedom, keepdims, where, mean)
        same = dtype is None or known_dtype(dtype, op) is x.dtype  # else NumPy rounds on the way
        only(same, f"nan{op}", "dtype", dtype, "cast the array first")
        values = _without_nan(b, x, 0.0)
        return _variance(b, op, values, loose_axis(axis, x), None, freedom, keepdims, where, mean, _present(b, x))

    return door


numpy_function(np.nanvar)(_nan_variance("var"))
numpy_function(np.nanstd)(_nan_variance("std"))


# -- scans --------------------------------------------------------------------------------------------------------------


def _scan(b: Builder, ufunc: np.ufunc, x: Node, axis: Any, dtype: Any, out: Any) -> Node:
    axis = loose_axis(axis, x)
    if axis is None:
        x, axis = ravel(b, x), 0
    return accumulate_by(b, ufunc, x, one_axis(axis, x.ndim, ufunc.__name__), dtype, out)


def _running(ufunc: np.ufunc, instead_of_nan: float | None = None) -> Callable[..., Node]:
    def door(b: Builder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Node:
        x = b.as_node(a) if instead_of_nan is None else _without_nan(b, a, instead_of_nan)
        return _scan(b, ufunc, x, axis, dtype, out)

    return door


cumsum = numpy_function(np.cumsum, method="cumsum", takes_out=True)(_running(np.add))
numpy_function(np.cumprod, method="cumprod", takes_out=True)(_running(np.multiply))
numpy_function(np.nancumsum, takes_out=True)(_running(np.add, instead_of_nan=0.0))
numpy_function(np.nancumprod, takes_out=True)(_running(np.multiply, instead_of_nan=1.0))


def _cumulative(b: Builder, ufunc: np.ufunc, a: Any, axis: Any, dtype: Any, out: Any, include_initial: Any) -> Node:
    x = b.as_node(a)
    x = reshape(b, x, (1,)) if x.ndim == 0 else x
    if axis is None and x.ndim != 1:
        raise numpy_error(f"cumulative {ufunc.__name__}: axis must be given for more than one dimension")
    along = 0 if axis is None else one_axis(axis, x.ndim, ufunc.__name__)
    if not flag(include_initial, "cumulative_sum"):
        return accumulate_by(b, ufunc, x, along, dtype, out)
    only(out is None, "cumulative_sum", "out", "an array", "it is not captured with include_initial")
    result = accumulate_by(b, ufunc, x, along, dtype)
    shape = tuple(1 if k == along else d for k, d in enumerate(result.shape))
    first = b.call("broadcast_to", b.scalar(ufunc.identity, result.dtype), shape=shape)
    return b.call("concatenate", first, result, axis=along)


def _cumulative_door(ufunc: np.ufunc) -> Callable[..., Node]:
    return lambda b, x, axis, dtype, out, include_initial: _cumulative(b, ufunc, x, axis, dtype, out, include_initial)


numpy_function(np.cumulative_sum, takes_out=True)(_cumulative_door(np.add))
numpy_function(np.cumulative_prod, takes_out=True)(_cumulative_door(np.multiply))


# -- differences --------------------------------------------------------------------------------------------------------


@numpy_function(np.diff)
def diff(b: Builder, a: Any, n: Any = 1, axis: Any = -1, prepend: Any = UNSET, append: Any = UNSET) -> Node:
    x = b.as_node(a)
    only(type(n) is int and n <= 64, "diff", "n", n, "it must be a Python int up to 64")
    if n == 0 and isinstance(a, Node):
        return a
    k = one_axis(axis, x.ndim, "diff")
    only(n >= 1, "diff", "n", n, "it must be at least 1")
    parts = [_as_rows(b, prepend, x, k), x, _as_rows(b, append, x, k)]
    given = [p for p in parts if p is not None]
    if len(given) > 1:
        dtype = result_type(given, "diff")
        x = b.call("concatenate", *(b.cast(p, dtype) for p in given), axis=k)
    for _ in range(n):
        size = x.shape[k] - 1 if x.shape[k] > 0 else 0
        later, earlier = (take(b, x, k, start, size) for start in (1, 0))
        x = apply(b, np.not_equal if x.dtype.is_bool else np.subtract, later, earlier)
    return x


def _as_rows(b: Builder, values: Any, x: Node, axis: int) -> Node | None:
    """What stands before or after an axis; one value stands for all rows."""
    if values is UNSET:
        return None
    rows = b.as_node(values)
    if rows.ndim > 0:
        return rows
    return b.call("broadcast_to", rows, shape=tuple(1 if k == axis else d for k, d in enumerate(x.shape)))


@numpy_function(np.ediff1d)
def ediff1d(b: Builder, ary: Any, to_end: Any, to_begin: Any) -> Node:
    x = ravel(b, b.as_node(ary))
    size = x.shape[0] - 1 if x.shape[0] > 0 else 0
    parts = [
        _end(b, to_begin, x.dtype),
        apply(b, np.subtract, take(b, x, 0, 1, size), take(b, x, 0, 0, size)),
        _end(b, to_end, x.dtype),
    ]
    given = [p for p in parts if p is not None]
    return given[0] if len(given) == 1 else b.call("concatenate", *given, axis=0)


def _end(b: Builder, values: Any, dtype: DType) -> Node | None:
    if values is None:
        return None
    node = b.as_node(values)
    if not np.can_cast(node.dtype.numpy, dtype.numpy, "same_kind"):
        raise numpy_error(f"ediff1d: {node.dtype} is not cast to {dtype}")
    return ravel(b, b.cast(node, dtype))


def trapezoid(builder: Builder, /, y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Node:
    """(d * (y[1:] + y[:-1]) / 2.0).sum(axis), d the distances of x."""
    b, values = builder, builder.as_node(y)
    k = one_axis(axis, values.ndim, "trapezoid")
    if x is None:
        widths = strong(b, dx)
    else:
        places = b.as_node(x)
        widths = diff(b, places, 1, axis=-1 if places.ndim == 1 else axis)
        if places.ndim == 1:
            widths = reshape(b, widths, tuple(widths.shape[0] if j == k else 1 for j in range(values.ndim)))
    size = values.shape[k] - 1 if values.shape[k] > 0 else 0
    sums = apply(b, np.add, take(b, values, k, 1, size), take(b, values, k, 0, size))
    return sum_(b, apply(b, np.divide, apply(b, np.multiply, widths, sums), 2.0), axis)


numpy_function(np.trapezoid)(trapezoid)


@numpy_function(np.unwrap, returns="array")
def unwrap(b: Builder, p: Any, discont: Any, axis: Any, period: Any) -> Node:
    """NumPy's steps, for periods that are Python numbers."""
    only(type(period) in (int, float), "unwrap", "period", period, "it must be a Python number")
    only(discont is None or type(discont) in (int, float), "unwrap", "discont", discont, "it must be a Python number")
    x = b.as_node(p)
    k = one_axis(axis, x.ndim, "unwrap")
    only(x.shape[k] != 0, "unwrap", "p", x.shape, "there is nothing to unwrap")
    steps = diff(b, x, 1, axis)
    dtype = result_type((steps, period), "unwrap")
    high, rest = divmod(period, 2) if dtype.is_integer else (period / 2, 0)
    turned = apply(b, np.add, apply(b, np.remainder, apply(b, np.subtract, steps, -high), period), -high)
    if rest == 0:
        half = b.call("logical_and", apply(b, np.equal, turned, -high), apply(b, np.greater, steps, 0))
        turned = b.call("where", half, b.as_node(high, turned.dtype), turned)
    correction = apply(b, np.subtract, turned, steps)
    small = apply(b, np.less, apply(b, np.absolute, steps), period / 2 if discont is None else discont)
    correction = b.call("where", small, b.scalar(0, correction.dtype), correction)
    rest_of_x = apply(b, np.add, take(b, x, k, 1, x.shape[k] - 1), cumsum(b, correction, axis))
    made = b.call("concatenate", take(b, b.cast(x, dtype), k, 0, 1), b.cast(rest_of_x, dtype), axis=k)
    return b.lay(made, copy_order(b.layout(x)))  # NumPy writes into a copy


__all__ = ["reduce"]
