"""Elementwise functions that are not ufuncs: where, clip, round, isclose, nan_to_num, sinc, angle and their kin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import flag, numpy_error, only, order_named
from dynagraph.doors.numpy.builder import LIMITS, Builder, Unsupported
from dynagraph.doors.numpy.elementwise import _CLIP, _DOORS, apply, arrays_out, complex_parts, laid_as_ufunc, result_type, strong
from dynagraph.doors.numpy.layout import copy_order
from dynagraph.doors.numpy.table import Door, numpy_function, numpy_method, register_function
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import same_shape
from dynagraph.where import where as own_where


def where(b: Builder, condition: Any, x: Any, y: Any) -> Node:
    """``np.where`` with all three arguments."""
    if x is None or y is None:
        raise numpy_error("where: takes both x and y, or neither")
    choices = strong(b, x), strong(b, y)
    dtype = result_type(choices, "where")
    chosen = b.call("where", b.as_node(condition, dtypes.bool_), *(b.as_node(held(c, dtype), dtype) for c in choices))
    return laid_as_ufunc(b, chosen, (condition, *choices))


register_function(own_where, Door("where", where, returns="array"))


def held(x: Any, dtype: DType) -> Any:
    """Python ints beyond the dtype's range wrap around in NumPy 2.4 and are an error in 2.5."""
    if type(x) is int and dtype.is_integer:
        low, high = LIMITS[dtype]
        only(low <= x <= high, "where", "choice", x, f"{dtype} holds {low} to {high}")
    return x


@numpy_function(np.clip, takes_out=True)
def clip(b: Builder, a: Any, a_min: Any, a_max: Any, out: Any, min: Any, max: Any, **ufunc_arguments: Any) -> Node:
    if a_min is np._NoValue and a_max is np._NoValue:
        a_min, a_max = (None if m is np._NoValue else m for m in (min, max))
    elif min is not np._NoValue or max is not np._NoValue:
        raise numpy_error("clip: a_min and a_max cannot be given together with min and max")
    if a_min is np._NoValue or a_max is np._NoValue:
        raise numpy_error("clip: a_min and a_max must be given together")
    return _clip(b, a, a_min, a_max, {"out": out, **ufunc_arguments})


@numpy_method("clip", takes_out=True)
def _clip_method(b: Builder, a: Any, min: Any, max: Any, out: Any, **ufunc_arguments: Any) -> Node:
    return _clip(b, a, min, max, {"out": out, **ufunc_arguments})


def _clip(b: Builder, a: Any, low: Any, high: Any, options: dict[str, Any]) -> Node:
    """Bounds that are Python ints beyond the dtype's range bound nothing, or too much: NumPy drops the former."""
    x = b.as_node(a)
    if x.dtype.is_integer:
        least, greatest = LIMITS[x.dtype]
        low = None if type(low) is int and low <= least else low
        high = None if type(high) is int and high >= greatest else high
    bounds = tuple(bound for bound in (low, high) if bound is not None)
    ufunc = np.positive if not bounds else _CLIP if len(bounds) == 2 else np.minimum if low is None else np.maximum
    return _DOORS[ufunc](b, x, *bounds, **options)  # type: ignore[no-any-return]


@numpy_function(np.round, np.around, method="round", takes_out=True)
def round_(b: Builder, a: Any, decimals: Any, out: Any) -> Node:
    """NumPy scales by a power of ten; integers to negative decimals in float64, which it does not store in integers."""
    x, (target,) = b.as_node(a), arrays_out(out, 1, "round")
    result = _rounded(b, x, int(decimals))
    if target is None:
        return result
    scaled = x.dtype.is_integer and int(decimals) < 0
    only(target.dtype is x.dtype and not scaled, "round", "out", target.dtype, "it must have the dtype in which NumPy rounds")
    if not same_shape(result.shape, target.shape):
        raise numpy_error(f"round: a result of shape {result.shape} for an array of shape {target.shape}")
    return result


def _rounded(b: Builder, x: Node, digits: int) -> Node:
    if x.dtype.is_bool:
        raise Unsupported("UNSUPPORTED_DTYPE", f"round: {x.dtype} is not captured; cast to float64 first")
    if x.dtype.is_integer and digits >= 0:
        return b.copy(x)
    if x.dtype.is_complex:
        return b.lay(b.call("complex", *(_rounded(b, part, digits) for part in complex_parts(b, x))), copy_order(b.layout(x)))
    if digits == 0:
        return b.call("rint", x)
    y = b.cast(x, dtypes.float64) if x.dtype.is_integer else x
    scale = b.scalar(math.prod([10.0] * abs(digits)), y.dtype)  # as NumPy has it, which is not rounded once
    there, back = ("multiply", "divide") if digits > 0 else ("divide", "multiply")
    made = b.cast(b.call(back, b.call("rint", b.call(there, y, scale)), scale), x.dtype)
    return b.lay(made, order_named(b, "A", x, "round"))


@numpy_function(np.fix)
def fix(b: Builder, x: Any) -> Node:
    return apply(b, np.trunc, x)


@numpy_function(np.isposinf)
def isposinf(b: Builder, x: Any) -> Node:
    return _is_infinite(b, b.as_node(x), math.inf)


@numpy_function(np.isneginf)
def isneginf(b: Builder, x: Any) -> Node:
    return _is_infinite(b, b.as_node(x), -math.inf)


def _is_infinite(b: Builder, x: Node, which: float) -> Node:
    if x.dtype.is_complex:
        raise numpy_error("isposinf, isneginf: take no complex numbers")
    if not x.dtype.is_float:
        return laid_as_ufunc(b, b.call("full", shape=x.shape, value=False, dtype=dtypes.bool_), (x,))
    return b.call("equal", x, b.scalar(which, x.dtype))


@numpy_function(np.nan_to_num)
def nan_to_num(b: Builder, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    node = b.as_node(x)
    only(copy is True, "nan_to_num", "copy", copy, "it would write into the operand")
    if node.dtype.is_complex:
        return b.call("complex", *(nan_to_num(b, part, True, nan, posinf, neginf) for part in complex_parts(b, node)))
    if not node.dtype.is_float:
        return b.copy(node)
    greatest = float(np.finfo(node.dtype.numpy).max)
    result = node
    for found, value in (
        (b.call("isnan", node), nan),
        (_is_infinite(b, node, math.inf), greatest if posinf is None else posinf),
        (_is_infinite(b, node, -math.inf), -greatest if neginf is None else neginf),
    ):
        result = b.call("where", found, b.as_node(value, node.dtype), result)
    return b.lay(result, copy_order(b.layout(node)))


@numpy_function(np.isclose)
def isclose(builder: Builder, /, a: Any, b: Any, rtol: Any, atol: Any, equal_nan: Any) -> Node:
    x = strong(builder, a)
    return _isclose(builder, x, float(b) if type(b) in (int, bool) else strong(builder, b), rtol, atol, equal_nan)


def _isclose(b: Builder, x: Any, y: Any, rtol: Any, atol: Any, equal_nan: Any) -> Node:
    """NumPy's formula, in its order: |x - y| <= atol + rtol*|y| where y is finite, or x == y."""
    if isinstance(y, Node):
        y = b.cast(y, result_type((y, 1.0), "isclose"))
    limit = apply(b, np.add, atol, apply(b, np.multiply, rtol, apply(b, np.absolute, y)))
    near = apply(b, np.less_equal, apply(b, np.absolute, apply(b, np.subtract, x, y)), limit)
    result = b.call("logical_or", b.call("logical_and", near, apply(b, np.isfinite, y)), apply(b, np.equal, x, y))
    if flag(equal_nan, "isclose"):
        result = b.call("logical_or", result, b.call("logical_and", apply(b, np.isnan, x), apply(b, np.isnan, y)))
    return result


@numpy_function(np.allclose, np.array_equal, np.array_equiv)
def _python_bool(builder: Builder, /, *args: Any, **kwargs: Any) -> Node:
    raise Unsupported("DATA_DEPENDENT", "the result is a Python bool that depends on data; use np.isclose, == and np.all")


@numpy_function(np.sinc)
def sinc(b: Builder, x: Any) -> Node:
    node = b.as_node(x)
    node = node if node.dtype.is_inexact else b.cast(node, dtypes.float64)
    tiny = b.scalar(float(np.finfo(node.dtype.numpy).eps), node.dtype)
    y = b.call(
        "multiply",
        b.scalar(math.pi, node.dtype),
        b.call("where", b.call("equal", node, b.scalar(0.0, node.dtype)), tiny, node),
    )
    return b.call("divide", b.call("sin", y), y)


@numpy_function(np.angle)
def angle(b: Builder, z: Any, deg: Any) -> Node:
    """Of real numbers: 0, or pi for negative ones."""
    x = b.as_node(z)
    real, imag = complex_parts(b, x) if x.dtype.is_complex else (x, 0)
    found = apply(b, np.arctan2, imag, real)
    return apply(b, np.multiply, found, 180 / math.pi) if flag(deg, "angle") else found


@numpy_function(np.real_if_close, returns="array")
def real_if_close(b: Builder, a: Any, tol: Any) -> Node:
    """Real numbers are given back as they are; of complex ones the result's dtype depends on the values."""
    x = b.as_node(a)
    if not x.dtype.is_complex:
        return x
    value = b.observed(x)
    if value is None:
        raise Unsupported("DATA_DEPENDENT", "real_if_close: whether complex numbers are close to real ones depends on the data")
    return b.call("real", x) if np.isrealobj(np.real_if_close(value, tol)) else x


@numpy_method("conj", "conjugate", returns="same")
def _conjugate_method(b: Builder, a: Node) -> Node:
    """Of real numbers the array itself; of complex ones in an array without dimensions NumPy gives a scalar."""
    if not a.dtype.is_complex:
        return a
    only(a.ndim > 0 or b.is_scalar(a), "conj", "array", "without dimensions", "np.conj")
    return b.call("conjugate", a)
