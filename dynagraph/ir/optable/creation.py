"""Rows of creation ops: arrays made of static attributes and sizes, each element a function of its index."""

from __future__ import annotations

import math
from typing import Any, Union

import numpy as np

from dynagraph.errors import DTypeError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const, index
from dynagraph.ir.graph import Meta
from dynagraph.ir.ops import REQUIRED, Attrs, Creation, Index, Metas, define_op
from dynagraph.ir.shapes import Dim, Shape, SymInt, expr_of

Scalar = Union[bool, int, float, complex, SymInt]


def _dtype_attr(who: str, kinds: str = "biufc") -> Any:
    def rule(metas: Metas, attrs: Attrs) -> DType:
        dtype = attrs["dtype"]
        if not isinstance(dtype, DType) or dtype.kind not in kinds:
            allowed = ", ".join(d.name for d in dtypes.KNOWN if d.kind in kinds)
            raise DTypeError(f"{who}: dtype must be one of the IR's {allowed}, got {dtype!r}")
        return dtype

    return rule


def _shape_attr(who: str, rank: int | None = None) -> Any:
    def rule(metas: Metas, attrs: Attrs) -> Shape:
        shape = attrs["shape"]
        if not isinstance(shape, tuple) or (rank is not None and len(shape) != rank) or any(d < 0 for d in shape):
            wanted = "sizes" if rank is None else f"{rank} size{'s' if rank > 1 else ''}"
            raise ShapeError(f"{who}: shape must be a tuple of {wanted} of at least 0, got {shape!r}")
        return shape

    return rule


def _value(value: Scalar, dtype: DType) -> Expr:
    """A literal, or a symbolic size as a value."""
    if isinstance(value, SymInt):
        return cast(index(value.expr), dtype)
    return const(value, dtype)


# -- constant and full ----------------------------------------------------------------------------------------------

define_op(
    "constant",
    arity=0,
    attrs={"value": REQUIRED, "dtype": REQUIRED},
    dtype=_dtype_attr("constant"),
    shape=lambda metas, attrs: (),
    eager=lambda xp, value, dtype: xp.asarray(value, dtype=dtype.numpy),
    lowering=Creation(lambda position, attrs, out: _value(attrs["value"], out.dtype)),
    exact=True,
    doc="a 0-d array of one Python number or symbolic size",
)

define_op(
    "full",
    arity=0,
    attrs={"shape": REQUIRED, "value": REQUIRED, "dtype": REQUIRED},
    dtype=_dtype_attr("full"),
    shape=_shape_attr("full"),
    eager=lambda xp, shape, value, dtype: xp.full(shape, value, dtype=dtype.numpy),
    lowering=Creation(lambda position, attrs, out: _value(attrs["value"], out.dtype)),
    exact=True,
)


# -- iota -----------------------------------------------------------------------------------------------------------


def _iota_eager(xp: Any, shape: tuple[int], start: int | float, step: int | float, dtype: DType) -> Any:
    """np.arange's values for a known length: start + i*delta, where delta is the rounded second value - start."""
    if dtype.is_integer:
        return (start + xp.arange(shape[0], dtype=np.int64) * step).astype(dtype.numpy)
    scalar = dtype.numpy.type
    first, second = scalar(start), scalar(start + step)
    real = _of_steps(dtype).numpy.type
    result = real(first) + xp.arange(shape[0]).astype(real) * (real(second) - real(first))
    result[:1], result[1:2] = first, second
    return result.astype(dtype.numpy)


def _of_steps(dtype: DType) -> DType:
    """NumPy steps in float32 where it fills with halves."""
    return dtypes.float32 if dtype.is_half else dtype


def _iota_expr(position: Index, attrs: Attrs, out: Meta) -> Expr:
    start, step, dtype = attrs["start"], attrs["step"], out.dtype
    if dtype.is_integer:
        return cast(index(expr_of(start) + position[0] * expr_of(step)), dtype)
    first, second = (_as_step(_value(v, dtype)) for v in (start, start + step))
    dtype = _of_steps(dtype)
    delta = _value_of_difference(first, second, dtype) or call("sub", second, first)
    i = index(position[0])
    filled = call("add", first, call("mul", cast(i, dtype), delta))
    filled = _at(i, 1, second, filled) if _differs(first, delta, 1, second) else filled
    return cast(_at(i, 0, first, filled) if _differs(first, delta, 0, first) else filled, out.dtype)


def _as_step(value: Expr) -> Expr:
    dtype = _of_steps(value.dtype)
    return const(value.value, dtype) if value.op == "const" else cast(value, dtype)  # type: ignore[arg-type]


def _value_of_difference(first: Expr, second: Expr, dtype: DType) -> Expr | None:
    if first.op != "const" or second.op != "const":
        return None
    scalar = dtype.numpy.type
    return const(float(scalar(second.value) - scalar(first.value)), dtype)


def _differs(first: Expr, delta: Expr, i: int, wanted: Expr) -> bool:
    """Whether the formula may miss the value that NumPy computes apart, by rounding or by the sign of a zero."""
    if any(e.op != "const" for e in (first, delta, wanted)):
        return True
    scalar = first.dtype.numpy.type
    return repr(scalar(first.value) + scalar(i) * scalar(delta.value)) != repr(scalar(wanted.value))


def _at(i: Expr, position: int, value: Expr, otherwise: Expr) -> Expr:
    return call("select", call("eq", i, const(position, i.dtype)), value, otherwise)


define_op(
    "iota",
    arity=0,
    attrs={"shape": REQUIRED, "start": 0, "step": 1, "dtype": REQUIRED},
    dtype=_dtype_attr("iota", "iuf"),
    shape=_shape_attr("iota", 1),
    eager=_iota_eager,
    lowering=Creation(_iota_expr),
    exact=True,
    doc="np.arange's values: start + step*i",
)


# -- eye ------------------------------------------------------------------------------------------------------------


def _eye_expr(position: Index, attrs: Attrs, out: Meta) -> Expr:
    row, column = position
    on_diagonal = call("eq", index(column - row - expr_of(attrs["k"])), const(0, dtypes.int64))
    return cast(on_diagonal, out.dtype)


define_op(
    "eye",
    arity=0,
    attrs={"shape": REQUIRED, "k": 0, "dtype": REQUIRED},
    dtype=_dtype_attr("eye"),
    shape=_shape_attr("eye", 2),
    eager=lambda xp, shape, k, dtype: xp.eye(*shape, k=k, dtype=dtype.numpy),
    lowering=Creation(_eye_expr),
    exact=True,
)


# -- linspace -------------------------------------------------------------------------------------------------------


def _linspace_eager(xp: Any, shape: tuple[int], start: float, stop: float, endpoint: bool, dtype: DType) -> Any:
    return xp.linspace(start, stop, shape[0], endpoint=endpoint, dtype=dtype.numpy)


def _linspace_expr(position: Index, attrs: Attrs, out: Meta) -> Expr:
    """NumPy's steps in NumPy's order, in float64, so that every bit agrees."""
    start, stop, endpoint = float(attrs["start"]), float(attrs["stop"]), attrs["endpoint"]
    n: Dim = out.shape[0]
    i, last = index(position[0]), expr_of(n) - 1
    value = call(
        "add", _scaled(cast(i, dtypes.float64), stop - start, n - 1 if endpoint else n), const(start, dtypes.float64)
    )
    if endpoint and last != 0:
        value = call("select", call("eq", i, index(last)), const(stop, dtypes.float64), value)
    if out.dtype.is_integer:
        value = call("floor", value)
    return cast(value, out.dtype)


def _scaled(i: Expr, delta: float, parts: Dim) -> Expr:
    """``i * (delta / parts)``; NumPy divides first where that step would underflow to zero."""
    whole = const(delta, dtypes.float64)
    if isinstance(parts, SymInt):
        count = cast(index(parts.expr), dtypes.float64)
        step = call("div", whole, count)
        vanished = call("eq", step, const(0.0, dtypes.float64))
        return call("select", vanished, call("mul", call("div", i, count), whole), call("mul", i, step))
    if parts <= 0:
        return call("mul", i, whole)
    if delta / parts == 0:
        return call("mul", call("div", i, const(parts, dtypes.float64)), whole)
    return call("mul", i, const(delta / parts, dtypes.float64))


def _linspace_shape(metas: Metas, attrs: Attrs) -> Shape:
    for name in ("start", "stop"):
        if isinstance(attrs[name], SymInt) or not math.isfinite(attrs[name]):
            raise ShapeError(f"linspace: {name} must be a finite number, got {attrs[name]!r}")
    return _shape_attr("linspace", 1)(metas, attrs)


define_op(
    "linspace",
    arity=0,
    attrs={"shape": REQUIRED, "start": REQUIRED, "stop": REQUIRED, "endpoint": True, "dtype": REQUIRED},
    dtype=_dtype_attr("linspace", "iuf"),
    shape=_linspace_shape,
    eager=_linspace_eager,
    lowering=Creation(_linspace_expr),
    exact=True,
)
