"""Elements, rows and slices of arrays at places that are computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dynagraph.frontend.loops import arrays
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.operators import NotNative, as_stored, describe, exact, index_of, number
from dynagraph.frontend.loops.types import (
    FLOAT,
    NOTHING,
    SMALL,
    Array,
    Bool,
    Complex,
    Int,
    Known,
    RangeObject,
    Scalar,
    Slice,
    Tuple,
    Value,
    int_value,
    integer,
    is_number,
    tuple_of,
)
from dynagraph.frontend.loops.unions import FLOATS, bits_of
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call
from dynagraph.ir.regions import POINTER, Address, Load, Place, Position

I64 = dtypes.int64
LONGEST_STEP = 2**31


def index(b: Builder, value: Value) -> Value:
    if isinstance(value.type, Bool) or (isinstance(value.type, Scalar) and value.type.dtype.is_bool):
        raise NotNative("a bool as an index")
    return index_of(b, value)


def position(b: Builder, index: Value, extent: Expr) -> Value:
    """A place on an axis, counted from its beginning; the exit where there is none."""
    name = b.fresh(I64)
    b.emit(Position(name, index.only, extent, b.way_out()))
    return int_value(Expr("var", (), I64, name), 0, SMALL)


def _place(array: Value, positions: list[Value], dtype: DType) -> Place:
    """Of an element, or of a sub-array's first one."""
    kind = array.type
    assert isinstance(kind, Array)
    steps = []
    for axis, at in enumerate(positions):
        packed = kind.packed and axis == kind.ndim - 1
        steps.append((at.only, None if packed else array.strides[axis]))
    return Place(array.data, tuple(steps), dtype)


def at_places(b: Builder, array: Value, positions: list[Value]) -> Value:
    """The element, or the view, at places that are within bounds."""
    kind = array.type
    assert isinstance(kind, Array)
    if len(positions) == kind.ndim:
        name = b.fresh(kind.dtype)
        b.emit(Load(name, _place(array, positions, kind.dtype)))
        return Value(Scalar(kind.dtype), (Expr("var", (), kind.dtype, name),))
    name = b.fresh(POINTER)
    b.emit(Address(name, _place(array, positions, kind.dtype)))
    n = len(positions)
    made = replace(kind, ndim=kind.ndim - n, is_view=True)
    data = Expr("var", (), I64, name)
    return Value(made, (array.owner, data, *array.sizes[n:], *array.strides[n:], array.writeable))


def _keys(key: Value) -> list[Value]:
    return key.items() if isinstance(key.type, Tuple) else [key]


def item(b: Builder, owner: Value, key: Value) -> Value:
    """``owner[key]``."""
    kind = owner.type
    if isinstance(kind, Tuple):
        return _of_tuple(b, owner, key)
    found = meaning_of("item", kind)
    if found is not None:
        return found(b, owner, key)  # type: ignore[no-any-return]
    if not isinstance(kind, Array):
        raise NotNative(f"a subscript of {describe(kind)}")
    keys = _keys(key)
    if sum(k.type != NOTHING for k in keys) > kind.ndim:
        raise NotNative("too many subscripts")
    if all(is_number(k.type) for k in keys):
        indices = [index(b, k) for k in keys]
        return at_places(b, owner, [position(b, k, owner.sizes[axis]) for axis, k in enumerate(indices)])
    return replace(view(b, owner, keys), origin=(*owner.parts, *key.parts))


def _of_tuple(b: Builder, owner: Value, key: Value) -> Value:
    if not isinstance(key.type, (Int, Bool)):
        raise NotNative(f"a subscript of a tuple by {describe(key.type)}")
    place, items = index(b, key), owner.items()
    if place.number is not None and -len(items) <= place.number < len(items):
        return items[place.number]
    if not items or any(i.type != items[0].type for i in items):
        raise NotNative("a tuple of several types at a place that is computed")
    at = position(b, place, number(len(items)))
    parts = list(items[-1].parts)
    for k in range(len(items) - 2, -1, -1):
        test = call("eq", at.only, number(k))
        parts = [b.temporary(Expr("select", (test, x, y), x.dtype)) for x, y in zip(items[k].parts, parts)]
    return Value(items[0].type, tuple(parts))


def view(b: Builder, array: Value, keys: list[Value]) -> Value:
    """A view by ints, slices, Ellipsis and None."""
    kind = array.type
    assert isinstance(kind, Array)
    keys = _without_ellipsis(keys, kind.ndim)
    offsets: list[tuple[Expr, Expr | None]] = []
    sizes, strides = [], []
    packed = kind.packed
    axis = -1
    for k in keys:
        if k.type == NOTHING:
            sizes.append(number(1))
            strides.append(number(0))
            packed = packed and axis < kind.ndim - 1
            continue
        axis += 1
        extent, stride = array.sizes[axis], array.strides[axis]
        last = axis == kind.ndim - 1
        if isinstance(k.type, Slice):
            start, length, by = slice_of(b, k, extent)
            offsets.append((start, stride))
            sizes.append(length)
            strides.append(stride if by.value == 1 else b.temporary(exact("mul", stride, by)))
            packed = packed and (not last or by.value == 1)
        elif is_number(k.type):
            offsets.append((position(b, index(b, k), extent).only, stride))
            packed = packed and not last
        else:
            raise NotNative(f"a subscript by {describe(k.type)}")
    sizes += array.sizes[axis + 1 :]
    strides += array.strides[axis + 1 :]
    name = b.fresh(POINTER)
    b.emit(Address(name, Place(array.data, tuple(offsets), kind.dtype)))
    made = replace(kind, ndim=len(sizes), packed=packed and bool(sizes), is_view=True)
    return Value(made, (array.owner, Expr("var", (), I64, name), *sizes, *strides, array.writeable))


def _without_ellipsis(keys: list[Value], ndim: int) -> list[Value]:
    at = [k for k, v in enumerate(keys) if isinstance(v.type, Known) and getattr(v.type.value, "value", None) is Ellipsis]
    if not at:
        return keys
    full = tuple_of([Value(NOTHING), Value(NOTHING)], Slice)
    n = sum(k.type != NOTHING for k in keys)
    return [*keys[: at[0]], *[full] * (ndim - n + 1), *keys[at[0] + 1 :]]


def _step(b: Builder, key: Value) -> Value:
    """Of a slice; one that is not known is above zero, and not so large that a place would not fit in 64 bits."""
    parts = key.items()
    if len(parts) < 3 or parts[2].type == NOTHING:
        return integer(1)
    step = index(b, parts[2])
    if step.number == 0:
        raise NotNative("a slice whose step is zero")
    if step.number is None:
        b.require(call("gt", step.only, number(0)))
        b.require(call("lt", step.only, number(LONGEST_STEP)))
    return step


def slice_of(b: Builder, key: Value, extent: Expr) -> tuple[Expr, Expr, Expr]:
    """Start, length and step of a slice of an axis."""
    parts, step = key.items(), _step(b, key)
    by = 1 if step.number is None else step.number  # as far as its sign goes
    first, last = (None if p.type == NOTHING else index(b, p).only for p in parts[:2])
    low, high = (number(0), extent) if by > 0 else (number(-1), exact("sub", extent, number(1)))

    def clipped(index: Expr | None, default: Expr) -> Expr:
        if index is None:
            return default
        at = b.temporary(Expr("select", (call("lt", index, number(0)), call("add", index, extent), index), I64))
        at = Expr("select", (call("lt", at, low), low, at), I64)
        return b.temporary(Expr("select", (call("gt", at, high), high, at), I64))

    start = clipped(first, low if by > 0 else high)
    stop = clipped(last, high if by > 0 else low)
    span = exact("sub", stop, start) if by > 0 else exact("sub", start, stop)
    width = step.only if step.number is None else number(abs(by))
    if width.value != 1:
        span = Expr("c_div", (exact("add", span, exact("sub", width, number(1))), width), I64)
    span = b.temporary(span)
    return b.temporary(start), b.temporary(Expr("select", (call("gt", span, number(0)), span, number(0)), I64)), step.only


def set_item(b: Builder, owner: Value, key: Value, value: Value) -> None:
    """``owner[key] = value``."""
    kind = owner.type
    found = meaning_of("set_item", kind)
    if found is not None:
        found(b, owner, key, value)
        return
    if not isinstance(kind, Array):
        raise NotNative(f"an item is set of {describe(kind)}")
    if value.type == FLOATS and kind.dtype.is_inexact:
        value = Value(FLOAT, (bits_of(value),))
    keys = _keys(key)
    if len(keys) != kind.ndim or not all(is_number(k.type) for k in keys):
        if value.origin and value.origin == (*owner.parts, *key.parts):
            return  # x[i:] += y, which has changed it in place
        arrays.store(b, view(b, owner, keys), value)
        return
    if not is_number(value.type):
        raise NotNative(f"{describe(value.type)} is stored")
    indices = [index(b, k) for k in keys]
    positions = [position(b, k, owner.sizes[axis]) for axis, k in enumerate(indices)]
    stored = as_stored(b, value, kind.dtype)
    b.require(call("ne", owner.writeable, number(0)))
    b.store(_place(owner, positions, kind.dtype), stored, given=not kind.made)


def unpacked(b: Builder, value: Value, n: int) -> list[Value]:
    """``a, b = value``."""
    kind = value.type
    if isinstance(kind, Tuple):
        if len(kind.items) != n:
            raise NotNative("a tuple of another length is unpacked")
        return value.items()
    if isinstance(kind, Array) and kind.ndim > 0:
        b.require(call("eq", value.sizes[0], number(n)))
        return [at_places(b, value, [int_value(number(k), k, k)]) for k in range(n)]
    found = meaning_of("unpack", kind)
    if found is not None:
        return found(b, value, n)  # type: ignore[no-any-return]
    raise NotNative(f"{describe(kind)} is unpacked")


def attribute(b: Builder, owner: Value, name: str) -> Value | None:
    """An attribute of a native value; None: a method."""
    kind = owner.type
    if isinstance(kind, Array):
        if name == "shape":
            return tuple_of([int_value(n, 0, SMALL) for n in owner.sizes])
        if name == "ndim":
            return int_value(number(kind.ndim), kind.ndim, kind.ndim)
        if name == "size":
            found = int_value(number(1), 1, 1)
            for n in owner.sizes:
                found = int_value(b.temporary(exact("mul", found.only, n)), 0, SMALL)
            return found
        if name == "dtype":
            return Value(Known(b.ex.constant(kind.dtype.numpy)))
        if name == "T":
            packed = kind.packed and kind.ndim == 1
            made = replace(kind, packed=packed, is_view=True, turned=kind.ndim > 1 and not kind.turned)
            return Value(made, (owner.owner, owner.data, *owner.sizes[::-1], *owner.strides[::-1], owner.writeable))
        if hasattr(np.ndarray, name):
            return None
        raise NotNative(f".{name} of an array")
    if meaning_of("method", kind) is not None:
        return None
    of_complex = isinstance(kind, Complex) or (isinstance(kind, Scalar) and kind.dtype.is_complex)
    if of_complex and name in ("real", "imag"):
        part = call(name, owner.only)
        return Value(FLOAT if isinstance(kind, Complex) else Scalar(part.dtype), (b.temporary(part),))
    if isinstance(kind, (RangeObject, Tuple)) or not is_number(kind):
        raise NotNative(f".{name} of {describe(kind)}")
    return None


__all__ = ["at_places", "attribute", "item", "position", "set_item", "unpacked", "view"]
