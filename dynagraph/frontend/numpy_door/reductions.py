"""Reduction doors: sums, extremes, statistics and scans, with NumPy's rules for the dtype of the accumulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.frontend.numpy_door.arguments import flag, numpy_error, one_axis, only, ravel, reduced_axes, reshape
from dynagraph.frontend.numpy_door.builder import Builder, Unsupported, known_dtype
from dynagraph.frontend.numpy_door.elementwise import apply
from dynagraph.frontend.numpy_door.table import Door, numpy_function, numpy_method, register_ufunc_method
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import numel

_FIXED = ("out", "initial", "where")


def _accumulator(x: Node, dtype: object, who: str) -> DType:
    """Sums and products of bools and integers are of NumPy's largest integer of the kind."""
    if dtype is not None:
        return known_dtype(dtype, who)
    return x.dtype if x.dtype.is_float else dtypes.uint64 if x.dtype.kind == "u" else dtypes.int64


def reduce(b: Builder, op: str, x: Node, axis: object, keepdims: object) -> Node:
    return _strict_reduce(b, op, x, _loose_axis(axis, x), keepdims)


def _loose_axis(axis: object, x: Node) -> object:
    """Ufuncs' reductions, positions and scans let 0-d arrays have the axes 0 and -1."""
    return None if x.ndim == 0 and type(axis) is int and axis in (0, -1) else axis


def _strict_reduce(b: Builder, op: str, x: Node, axis: object, keepdims: object) -> Node:
    return b.call(op, x, axis=reduced_axes(axis, x.ndim, op), keepdims=flag(keepdims, op))


def _accumulate(b: Builder, op: str, a: Any, axis: object, dtype: object, keepdims: object) -> Node:
    x = b.as_node(a)
    return reduce(b, op, b.cast(x, _accumulator(x, dtype, op)), axis, keepdims)


@numpy_function(np.sum, method="sum", at_default=_FIXED)
def sum_(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Node:
    return _accumulate(b, "sum", a, axis, dtype, keepdims)


@numpy_function(np.prod, method="prod", at_default=_FIXED)
def prod(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Node:
    return _accumulate(b, "prod", a, axis, dtype, keepdims)


@numpy_function(np.max, np.amax, method="max", at_default=_FIXED)
def max_(
    b: Builder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None
) -> Node:
    return reduce(b, "max", b.as_node(a), axis, keepdims)


@numpy_function(np.min, np.amin, method="min", at_default=_FIXED)
def min_(
    b: Builder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None
) -> Node:
    return reduce(b, "min", b.as_node(a), axis, keepdims)


@numpy_function(np.any, at_default=("out", "where"))
def any_(b: Builder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None) -> Node:
    return reduce(b, "any", b.as_node(a, dtypes.bool_), axis, keepdims)


@numpy_function(np.all, at_default=("out", "where"))
def all_(b: Builder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None) -> Node:
    return reduce(b, "all", b.as_node(a, dtypes.bool_), axis, keepdims)


numpy_method("any", at_default=("out", "where"))(any_)
numpy_method("all", at_default=("out", "where"))(all_)


def _position(b: Builder, op: str, a: Any, axis: object, keepdims: object) -> Node:
    x = b.as_node(a)
    axis = _loose_axis(axis, x)
    if axis is not None:
        return b.call(op, x, axis=(one_axis(axis, x.ndim, op),), keepdims=flag(keepdims, op))
    found = b.call(op, ravel(b, x), axis=(0,), keepdims=False)
    return reshape(b, found, (1,) * x.ndim) if flag(keepdims, op) else found


@numpy_function(np.argmax, method="argmax", at_default=("out",))
def argmax(b: Builder, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Node:
    return _position(b, "argmax", a, axis, keepdims)


@numpy_function(np.argmin, method="argmin", at_default=("out",))
def argmin(b: Builder, a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Node:
    return _position(b, "argmin", a, axis, keepdims)


# -- statistics -------------------------------------------------------------------------------------------------------


def _as_float(b: Builder, a: Any, dtype: object, who: str) -> Node:
    """Statistics of integers and bools are computed in float64."""
    x = b.as_node(a)
    if dtype is None:
        return x if x.dtype.is_float else b.cast(x, dtypes.float64)
    wanted = known_dtype(dtype, who)
    only(wanted.is_float, who, "dtype", wanted, "statistics are captured in float32 and float64")
    return b.cast(x, wanted)


@numpy_function(np.mean, method="mean", at_default=("out", "where"))
def mean(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    *,
    where: Any = None,
) -> Node:
    x = _as_float(b, a, dtype, "mean")
    check_count(x, reduced_axes(axis, x.ndim, "mean"), 0, "mean")
    return _strict_reduce(b, "mean", x, axis, keepdims)


def check_count(x: Node, axes: Sequence[int], ddof: float, who: str) -> None:
    """Decline what NumPy warns of: a statistic of no elements, or of no more than its degrees of freedom."""
    count = numel(x.shape[k] for k in axes)
    if isinstance(count, int) and count <= ddof:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: NumPy warns of a statistic of so few elements")


def _spread(b: Builder, op: str, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, correction: Any) -> Node:
    if correction is not None:
        if ddof != 0:
            raise numpy_error(f"{op}: ddof and correction cannot be given together")
        ddof = correction
    only(type(ddof) in (int, float), op, "ddof", ddof, "it must be a Python number")
    x = _as_float(b, a, dtype, op)
    axes = reduced_axes(axis, x.ndim, op)
    check_count(x, axes, ddof, op)
    return b.call(op, x, axis=axes, keepdims=flag(keepdims, op), ddof=ddof)


@numpy_function(np.var, at_default=("out", "where", "mean"))
def var(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Node:
    return _spread(b, "var", a, axis, dtype, ddof, keepdims, correction)


@numpy_function(np.std, at_default=("out", "where", "mean"))
def std(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Node:
    return _spread(b, "std", a, axis, dtype, ddof, keepdims, correction)


@numpy_method("var", at_default=("out", "where", "mean"))
def _var_method(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
) -> Node:
    return _spread(b, "var", a, axis, dtype, ddof, keepdims, None)


@numpy_method("std", at_default=("out", "where", "mean"))
def _std_method(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = None,
    mean: Any = None,
) -> Node:
    return _spread(b, "std", a, axis, dtype, ddof, keepdims, None)


@numpy_function(np.average, at_default=("returned",))
def average(b: Builder, a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = False) -> Node:
    if weights is not None:
        raise Unsupported(
            "DATA_DEPENDENT",
            "average: NumPy raises where the weights sum to zero, which depends on data; write (a * w).sum() / w.sum()",
        )
    result = mean(b, a, axis, keepdims=keepdims)
    if any(d == 0 for d in result.shape):
        raise numpy_error("average: an average without elements divides by zero")
    return result


@numpy_function(np.ptp, at_default=("out",))
def ptp(b: Builder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Node:
    x = b.as_node(a)
    return apply(b, np.subtract, reduce(b, "max", x, axis, keepdims), reduce(b, "min", x, axis, keepdims))


@numpy_function(np.count_nonzero)
def count_nonzero(b: Builder, a: Any, axis: Any = None, *, keepdims: Any = False) -> Node:
    truth = b.as_node(a, dtypes.bool_)
    return reduce(b, "sum", b.cast(truth, dtypes.int64), axis, keepdims)


def _without_nan(b: Builder, a: Any, instead: float) -> Node:
    x = b.as_node(a)
    return b.call("where", b.call("isnan", x), b.scalar(instead, x.dtype), x) if x.dtype.is_float else x


@numpy_function(np.nansum, at_default=_FIXED)
def nansum(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Node:
    return _accumulate(b, "sum", _without_nan(b, a, 0.0), axis, dtype, keepdims)


@numpy_function(np.nanprod, at_default=_FIXED)
def nanprod(
    b: Builder,
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Node:
    return _accumulate(b, "prod", _without_nan(b, a, 1.0), axis, dtype, keepdims)


# -- scans ------------------------------------------------------------------------------------------------------------


def _scan(b: Builder, op: str, a: Any, axis: Any, dtype: Any) -> Node:
    x = b.as_node(a)
    x = b.cast(x, _accumulator(x, dtype, op))
    axis = _loose_axis(axis, x)
    if axis is None:
        x, axis = ravel(b, x), 0
    return b.call(op, x, axis=one_axis(axis, x.ndim, op))


@numpy_function(np.cumsum, method="cumsum", at_default=("out",))
def cumsum(b: Builder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Node:
    return _scan(b, "cumsum", a, axis, dtype)


@numpy_function(np.cumprod, method="cumprod", at_default=("out",))
def cumprod(b: Builder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Node:
    return _scan(b, "cumprod", a, axis, dtype)


@numpy_function(np.diff, at_default=("prepend", "append"))
def diff(b: Builder, a: Any, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Node:
    x = b.as_node(a)
    k = one_axis(axis, x.ndim, "diff")
    only(type(n) is int and 1 <= n <= 64, "diff", "n", n, "it must be a Python int from 1 to 64")
    for _ in range(n):
        size = x.shape[k] - 1 if x.shape[k] > 0 else 0
        later, earlier = (
            b.call(
                "slice",
                x,
                starts=tuple(start if j == k else 0 for j in range(x.ndim)),
                steps=(1,) * x.ndim,
                shape=tuple(size if j == k else d for j, d in enumerate(x.shape)),
            )
            for start in (1, 0)
        )
        x = apply(b, np.not_equal if x.dtype.is_bool else np.subtract, later, earlier)
    return x


# -- methods of ufuncs ------------------------------------------------------------------------------------------------

Reduce = Callable[[Builder, Any, Any, Any, Any], Node]


def _plain(op: str) -> Reduce:
    def reduce_(b: Builder, a: Any, axis: Any, dtype: Any, keepdims: Any) -> Node:
        x = b.as_node(a)
        return reduce(b, op, x if dtype is None else b.cast(x, known_dtype(dtype, op)), axis, keepdims)

    return reduce_


def _truth(op: str) -> Reduce:
    def reduce_(b: Builder, a: Any, axis: Any, dtype: Any, keepdims: Any) -> Node:
        only(dtype is None or known_dtype(dtype, op) is dtypes.bool_, op, "dtype", dtype, "the result is bool")
        return reduce(b, op, b.as_node(a, dtypes.bool_), axis, keepdims)

    return reduce_


def _widening(op: str) -> Reduce:
    return lambda b, a, axis, dtype, keepdims: _accumulate(b, op, a, axis, dtype, keepdims)


_REDUCE: dict[np.ufunc, Reduce] = {
    np.add: _widening("sum"),
    np.multiply: _widening("prod"),
    np.maximum: _plain("max"),
    np.minimum: _plain("min"),
    np.logical_and: _truth("all"),
    np.logical_or: _truth("any"),
}


def _reduce_door(reduce_: Reduce) -> Callable[..., Node]:
    def door(
        b: Builder,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        return reduce_(b, array, axis, dtype, keepdims)

    return door


def _accumulate_door(op: str) -> Callable[..., Node]:
    def door(b: Builder, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Node:
        if axis is None:
            raise numpy_error("accumulate: axis must be an integer")
        return _scan(b, op, array, axis, dtype)

    return door


for _ufunc, _reduce in _REDUCE.items():
    _name = f"{_ufunc.__name__}.reduce"
    register_ufunc_method(_ufunc, "reduce", Door(_name, _reduce_door(_reduce), "value", frozenset(_FIXED)))
for _ufunc, _op in {np.add: "cumsum", np.multiply: "cumprod"}.items():
    _name = f"{_ufunc.__name__}.accumulate"
    register_ufunc_method(_ufunc, "accumulate", Door(_name, _accumulate_door(_op), "value", frozenset(("out",))))

__all__ = ["reduce"]
