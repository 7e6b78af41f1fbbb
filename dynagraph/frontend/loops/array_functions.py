"""NumPy's functions of arrays, and the methods of these, that make arrays or reduce them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.frontend.loops import arrays, calls, displays, elements, new_arrays, reductions
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, describe, number, to_dtype
from dynagraph.frontend.loops.types import FLOAT, Array, Float, Scalar, Tuple, Value, integer, is_number, sample_of, tuple_of
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, const

F64, I64 = dtypes.float64, dtypes.int64
MOST_DIGITS = 22  # powers of ten up to this one are floats


def with_names(function: Any) -> Any:
    """A meaning whose arguments may be given by their names."""
    function.takes_names = True
    return function


# -- constructors --------------------------------------------------------------------------------------------------------


@calls.meaning(np.zeros)
@with_names
def zeros(b: Builder, shape: Value, dtype: Value | None = None) -> Value:
    return new_arrays.filled(b, new_arrays.dtype_from(dtype, F64), new_arrays.sizes_from(b, shape), integer(0))


@calls.meaning(np.ones)
@with_names
def ones(b: Builder, shape: Value, dtype: Value | None = None) -> Value:
    return new_arrays.filled(b, new_arrays.dtype_from(dtype, F64), new_arrays.sizes_from(b, shape), integer(1))


@calls.meaning(np.full)
@with_names
def full(b: Builder, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
    kind = new_arrays.dtype_from(dtype, new_arrays.dtype_of_item(fill_value))
    return new_arrays.filled(b, kind, new_arrays.sizes_from(b, shape), fill_value)


@calls.meaning(np.empty)
@with_names
def empty(b: Builder, shape: Value, dtype: Value | None = None) -> Value:
    return new_arrays.new(b, new_arrays.dtype_from(dtype, F64), new_arrays.sizes_from(b, shape))


def _like(function: Any, item: int | None) -> None:
    @calls.meaning(function)
    @with_names
    def implementation(b: Builder, prototype: Value, dtype: Value | None = None) -> Value:
        kind, sizes = new_arrays.like(b, prototype, dtype)
        return new_arrays.new(b, kind, sizes) if item is None else new_arrays.filled(b, kind, sizes, integer(item))


for _function, _item in ((np.zeros_like, 0), (np.ones_like, 1), (np.empty_like, None)):
    _like(_function, _item)


@calls.meaning(np.copy)
def copy(b: Builder, array: Value) -> Value:
    return array_of(b, array)


@calls.meaning(np.array)
@with_names
def array_of(b: Builder, object: Value, dtype: Value | None = None) -> Value:
    if not isinstance(object.type, Array):
        return displays.array(b, object, dtype)
    kind, _ = new_arrays.like(b, object, dtype)  # in the order of its axes
    return new_arrays.copied(b, object, kind)


@calls.meaning(np.asarray)
@with_names
def as_array(b: Builder, a: Value, dtype: Value | None = None) -> Value:
    kind = a.type
    if isinstance(kind, Array) and new_arrays.dtype_from(dtype, kind.dtype) is kind.dtype:
        return a
    return array_of(b, a, dtype)


@calls.meaning(np.concatenate, np.hstack)
def concatenate(b: Builder, parts: Value) -> Value:
    if not isinstance(parts.type, (Tuple, displays.Display)):
        raise NotNative(f"arrays of {describe(parts.type)} are joined")
    return new_arrays.joined(b, [new_arrays.settled(b, v) for v in parts.items()])


@calls.meaning(np.where)
def where(b: Builder, condition: Value, then: Value, otherwise: Value) -> Value:
    return arrays.where(b, condition, then, otherwise)


# -- rounding and searching ---------------------------------------------------------------------------------------------


@calls.meaning(np.round, np.around)
@with_names
def rounded(b: Builder, a: Value, decimals: Value | None = None) -> Value:
    """To whole numbers, or by way of a power of ten."""
    kind = a.type
    if not (isinstance(kind, Float) or getattr(getattr(kind, "dtype", None), "is_float", False)):
        raise NotNative(f"np.round of {describe(kind)}")
    digits = 0 if decimals is None else decimals.number
    if digits is None or abs(digits) > MOST_DIGITS:
        raise NotNative("np.round to digits that are not known")
    scale = Value(FLOAT, (const(10.0 ** abs(digits), F64),))
    there, back = (np.multiply, np.divide) if digits > 0 else (np.divide, np.multiply)
    made = _ufunc(b, there, a, scale) if digits else a
    made = _ufunc(b, np.rint, made)
    return _ufunc(b, back, made, scale) if digits else made


def _ufunc(b: Builder, function: np.ufunc, *args: Value) -> Value:
    of_arrays = any(arrays.is_array(a.type) for a in args)
    return arrays.elementwise(b, function, function.__name__, list(args)) if of_arrays else calls.ufunc(b, function, list(args), {})


@calls.meaning(np.searchsorted)
@with_names
def searched(b: Builder, a: Value, v: Value, side: Value | None = None) -> Value:
    """Where a number belongs in a vector that is sorted."""
    kind = a.type
    if not isinstance(kind, Array) or kind.ndim != 1 or not is_number(v.type):
        raise NotNative(f"np.searchsorted of {describe(kind)} and {describe(v.type)}")
    which = "left" if side is None else getattr(getattr(side.type, "value", None), "value", None)
    common = np.result_type(kind.dtype.numpy, np.asarray(sample_of(v.type)).dtype)
    if which not in ("left", "right") or common != kind.dtype.numpy or kind.dtype.is_complex or kind.dtype.is_half:
        raise NotNative(f"np.searchsorted of {kind.dtype} and {describe(v.type)}")
    given = (a.data, a.sizes[0], a.strides[0], b.temporary(to_dtype(b, v, kind.dtype)), number(int(which == "right")))
    return Value(Scalar(I64), (b.temporary(Expr("search", given, I64, kind.dtype.suffix)),))


# -- products and reductions ---------------------------------------------------------------------------------------------


@calls.meaning(np.matmul)
def product(b: Builder, left: Value, right: Value) -> Value:
    return new_arrays.product(b, left, right)


@calls.meaning(np.dot)
def dot(b: Builder, left: Value, right: Value) -> Value:
    return new_arrays.product(b, left, right, "positive")


def _of_vectors(function: Any, copies: str | None) -> None:
    @calls.meaning(function)
    def inner(b: Builder, left: Value, right: Value) -> Value:
        if not all(isinstance(v.type, Array) and v.type.ndim == 1 for v in (left, right)):
            raise NotNative(f"an inner product of {describe(left.type)} and {describe(right.type)}")
        return new_arrays.product(b, left, right, copies)


_of_vectors(np.inner, "positive")
_of_vectors(np.vdot, None)


calls.meaning(np.linalg.norm)(new_arrays.norm)


def _reduction(name: str) -> None:
    @calls.meaning(getattr(np, name))
    @with_names
    def implementation(b: Builder, a: Value, axis: Value | None = None, *, keepdims: Value | None = None) -> Value:
        return reductions.reduction(b, name, a, axis, keepdims)


for _name in reductions.REDUCTIONS:
    _reduction(_name)


# -- methods -------------------------------------------------------------------------------------------------------------


@means("method", Array)
def method(b: Builder, owner: Value, name: str, args: list[Value], named: dict[str, Value] | None = None) -> Value:
    kind = owner.type
    assert isinstance(kind, Array)
    args = [new_arrays.settled(b, a) for a in args]
    if name in reductions.REDUCTIONS and len(args) <= 1 and not set(named or ()) - {"axis", "keepdims"}:
        return reductions.reduction(b, name, owner, *args, **(named or {}))
    if named:
        raise NotNative(f".{name} with keywords")
    if name == "round" and len(args) <= 1:
        return rounded(b, owner, *args)
    if name == "searchsorted" and len(args) == 1:
        return searched(b, owner, *args)
    if name == "copy" and not args:
        return new_arrays.copied(b, owner)
    if name == "dot" and len(args) == 1:
        return new_arrays.product(b, owner, args[0], "positive")
    if name == "item" and len(args) == kind.ndim and all(is_number(a.type) for a in args):
        return calls.method(b, "item", elements.item(b, owner, tuple_of(args)), [], {})
    raise NotNative(f".{name} of {describe(kind)}")
