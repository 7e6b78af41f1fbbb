"""Arrays that a native loop makes, in memory of its own: results of expressions, products and NumPy's constructors; reductions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dynagraph.frontend.loops.arrays import MAX_NDIM, Pending, arrays_in, copy_elements, is_one, refuse_elsewhere, sizes_of
from dynagraph.frontend.loops.builder import Builder, variable
from dynagraph.frontend.loops.operators import NotNative, apply, as_stored, describe, exact, index_of, number
from dynagraph.frontend.loops.types import NOTHING, Array, Bool, Float, Int, Known, Scalar, Value
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, call
from dynagraph.ir.regions import OWNED, POINTER, Address, NewMemory, Place, Set

I64 = dtypes.int64
BLAS = (dtypes.float64, dtypes.float32)


def new(b: Builder, dtype: DType, sizes: Sequence[Expr], turned: bool = False) -> Value:
    """A new array in C order, or Fortran's, whose elements are not set."""
    if not 1 <= len(sizes) <= MAX_NDIM or dtype.is_half:
        raise NotNative("a new array of many dimensions, or of this dtype")
    if any(f.whole for f in b.frames):
        raise NotNative("a new array within a comprehension, or a function that calls itself")
    memory, data = b.fresh(OWNED), b.fresh(POINTER)
    sizes = [b.temporary(n) for n in sizes]
    b.emit(NewMemory(memory, dtype, tuple(sizes), b.way_out(), turned))
    owner = variable(memory, OWNED)
    b.emit(Set(data, Expr("data_of", (owner,), I64)))
    strides = [number(dtype.itemsize)]
    for n in sizes[:-1] if turned else sizes[:0:-1]:
        strides.append(b.temporary(exact("mul", strides[-1], n)))
    kind = Array(dtype, len(sizes), packed=not turned, made=True, turned=turned)
    return Value(kind, (owner, variable(data, POINTER), *sizes, *(strides if turned else strides[::-1]), number(1)))


def settled(b: Builder, value: Value) -> Value:
    """An array in the place of an expression that is not computed yet."""
    if not isinstance(value.type, Pending):
        return value
    of_axes = [a.type for a in arrays_in(value) if a.type.ndim > 1]  # type: ignore[attr-defined]
    turned = bool(of_axes) and all(kind.turned for kind in of_axes)  # type: ignore[attr-defined]
    _require_order(b, value, turned)
    made = new(b, value.type.dtype, sizes_of(value), turned)
    copy_elements(b, made, value)
    return made


def settle_stacks(b: Builder) -> None:
    """No expression waits on a stack: what comes now may write to its operands."""
    for frame in b.frames:
        frame.stack = [settled(b, v) for v in frame.stack]


def copied(b: Builder, array: Value, dtype: DType | None = None) -> Value:
    """A copy in C order."""
    kind = array.type
    assert isinstance(kind, Array)
    if kind.dtype.is_complex or (dtype is not None and dtype.is_complex):
        raise NotNative("a copy of an array of complex numbers")
    made = new(b, dtype or kind.dtype, array.sizes)
    copy_elements(b, made, array)
    return made


def filled(b: Builder, dtype: DType, sizes: Sequence[Expr], item: Value) -> Value:
    if dtype.is_complex:
        raise NotNative("a new array of complex numbers")
    stored = b.temporary(as_stored(b, item, dtype))
    made = new(b, dtype, sizes)
    copy_elements(b, made, Value(Scalar(dtype), (stored,)))
    return made


def _require_order(b: Builder, value: Value, turned: bool = False) -> None:
    """Of the axes, else what NumPy makes has another order, too."""
    for array in arrays_in(value):
        strides = [stride for size, stride in zip(array.sizes, array.strides) if not is_one(size)]
        for outer, inner in itertools.pairwise(strides):
            b.require(call("lt" if turned else "ge", outer, inner))
        for n in array.sizes if turned and len(array.sizes) > 1 else ():
            b.require(call("ne", n, number(1)))  # an axis of one element has no order


# -- constructors --------------------------------------------------------------------------------------------------------


def sizes_from(b: Builder, shape: Value) -> list[Expr]:
    items = shape.items() if hasattr(shape.type, "items") else [shape]
    return [index_of(b, n).only for n in items]


def dtype_from(value: Value | None, default: DType) -> DType:
    if value is None or value.type == NOTHING:
        return default
    held = getattr(value.type.value, "value", None) if isinstance(value.type, Known) else None
    found = None
    if isinstance(held, (type, np.dtype, str)):
        try:
            found = from_numpy(np.dtype(held))
        except TypeError:
            found = None
    if found is None:
        raise NotNative(f"{describe(value.type)} as a dtype")
    return found


def dtype_of_item(value: Value) -> DType:
    """Of an array that is filled with a number."""
    kind = value.type
    if isinstance(kind, Scalar):
        return kind.dtype
    found = {Int: I64, Float: dtypes.float64, Bool: dtypes.bool_}.get(type(kind))
    if found is None:
        raise NotNative(f"an array of {describe(kind)}")
    return found


def like(b: Builder, array: Value, dtype: Value | None) -> tuple[DType, Sequence[Expr]]:
    """Dtype and sizes of an array that is made like another one."""
    if not isinstance(array.type, Array):
        raise NotNative(f"an array like {describe(array.type)}")
    _require_order(b, array)
    return dtype_from(dtype, array.type.dtype), array.sizes


def joined(b: Builder, parts: Sequence[Value]) -> Value:
    """Vectors one after the other."""
    kinds = {v.type.dtype if isinstance(v.type, Array) and v.type.ndim == 1 else None for v in parts}
    dtype = next(iter(kinds), None)
    if len(kinds) != 1 or dtype is None or dtype.is_complex:
        raise NotNative(f"{', '.join(describe(v.type) for v in parts)} are joined")
    ends = [number(0)]
    for v in parts:
        ends.append(b.temporary(exact("add", ends[-1], v.sizes[0])))
    made = new(b, dtype, ends[-1:])
    place = Array(dtype, 1, packed=True, is_view=True, made=True)
    for v, start in zip(parts, ends):
        at = b.fresh(POINTER)
        b.emit(Address(at, Place(made.data, ((start, None),), dtype)))
        copy_elements(b, Value(place, (made.owner, variable(at, POINTER), v.sizes[0], *made.strides, number(1))), v)
    return made


# -- products ------------------------------------------------------------------------------------------------------------


def product(b: Builder, left: Value, right: Value, copies: str | None = None) -> Value:
    """``left @ right``, by NumPy's own BLAS and as NumPy calls it.

    `copies`: NumPy copies vectors first whose steps are not "positive" (np.dot), or that are not "packed" (np.linalg.norm).
    """
    left, right = settled(b, left), settled(b, right)
    kind, other = left.type, right.type
    refuse_elsewhere(b, getattr(kind, "ndim", 0) == getattr(other, "ndim", 0) == 2)
    if not (isinstance(kind, Array) and isinstance(other, Array)) or {kind.ndim, other.ndim} - {1, 2}:
        raise NotNative(f"a product of {describe(kind)} and {describe(other)}")
    if kind.dtype not in BLAS or kind.dtype is not other.dtype:
        raise NotNative(f"a product of arrays of {kind.dtype} and {other.dtype}")
    dtype = kind.dtype
    b.require(call("eq", left.sizes[-1], right.sizes[0]))
    if len(left.sizes) == len(right.sizes) == 1:
        vectors = (left.sizes[0], left.data, left.strides[0], right.data, right.strides[0])
        return Value(Scalar(dtype), (b.temporary(Expr("dot", vectors, dtype, copies)),))
    if copies is not None:
        for stride in (*left.strides, *right.strides):
            b.require(call("gt", stride, number(0)))
    rows, columns = left.sizes[:-1], right.sizes[1:]
    made = new(b, dtype, (*rows, *columns))
    args = (
        made.data, rows[0] if rows else number(1), columns[0] if columns else number(1), left.sizes[-1],
        number(len(left.sizes)), left.data, left.strides[0], left.strides[-1],
        number(len(right.sizes)), right.data, right.strides[0], right.strides[-1],
    )  # fmt: skip
    b.require(Expr("matmul", args, dtypes.bool_, dtype.suffix if copies is None else f"of_dot_{dtype.suffix}"))
    return made


def norm(b: Builder, vector: Value) -> Value:
    """``np.linalg.norm(vector)``: the root of its product with itself."""
    if not isinstance(vector.type, Array) or vector.type.ndim != 1 or vector.type.dtype not in BLAS:
        raise NotNative(f"np.linalg.norm of {describe(vector.type)}")
    squares = product(b, vector, vector, "packed")
    return Value(squares.type, (b.temporary(apply("sqrt", squares.only)),))
