"""Reductions of arrays in native loops, of all elements and along axes, with NumPy's bits.

NumPy adds up pairwise along the axis whose elements lie next to one another, and row by row along others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from dynagraph.frontend.loops import arrays, new_arrays
from dynagraph.frontend.loops.arrays import refuse_elsewhere
from dynagraph.frontend.loops.builder import Builder, variable
from dynagraph.frontend.loops.new_arrays import BLAS
from dynagraph.frontend.loops.operators import NotNative, apply, describe, exact, number
from dynagraph.frontend.loops.types import NOTHING, Array, Bool, Scalar, Tuple, Value
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const
from dynagraph.ir.regions import POINTER, Address, Branch, Jump, Load, Place, Store

I64 = dtypes.int64


def _flat(b: Builder, array: Value) -> tuple[Expr, Expr, Expr]:
    """Address, number and distance of the elements of a vector, or of an array in C order without gaps."""
    kind = array.type
    assert isinstance(kind, Array)
    if kind.ndim == 1:
        return array.data, array.sizes[0], array.strides[0]
    total = number(kind.dtype.itemsize)
    count = number(1)
    for n, stride in zip(array.sizes[::-1], array.strides[::-1]):
        b.require(call("eq", stride, total))
        total, count = b.temporary(exact("mul", total, n)), b.temporary(exact("mul", count, n))
    return array.data, count, number(kind.dtype.itemsize)


def _sum_dtype(dtype: DType) -> DType:
    if dtype.is_bool or dtype.kind == "i":
        return I64
    return dtypes.uint64 if dtype.is_integer else dtype


REDUCTIONS = ("sum", "max", "min", "argmax", "argmin", "any", "all", "mean")


def reduction(b: Builder, name: str, array: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
    refuse_elsewhere(b)
    kind = array.type
    if not isinstance(kind, Array) or not kind.ndim:
        raise NotNative(f"np.{name} of {describe(kind)}")
    if kind.dtype.is_complex or kind.dtype.is_half or (name == "mean" and kind.dtype not in BLAS):
        raise NotNative(f"np.{name} of {kind.dtype}")
    axes, keeps = _axes(axis, kind.ndim, name), _is_true(keepdims)
    if len(axes) == kind.ndim and not keeps:
        return _whole(b, name, array)
    return _along(b, name, array, axes, keeps)


def _axes(axis: Value | None, ndim: int, name: str) -> tuple[int, ...]:
    """In order, counted from the first."""
    if axis is None or axis.type == NOTHING:
        return tuple(range(ndim))
    numbers = [v.number for v in (axis.items() if isinstance(axis.type, Tuple) else [axis])]
    found = sorted({k % ndim for k in numbers if k is not None and -ndim <= k < ndim})
    if len(found) != len(numbers) or not found or (name.startswith("arg") and isinstance(axis.type, Tuple)):
        raise NotNative(f"np.{name} along such an axis")
    return tuple(found)


def _is_true(keepdims: Value | None) -> bool:
    if keepdims is None:
        return False
    if not isinstance(keepdims.type, Bool) or keepdims.only.op != "const":
        raise NotNative("keepdims that is not known")
    return bool(keepdims.only.value)


# -- of all elements -----------------------------------------------------------------------------------------------------


def _result_dtype(name: str, dtype: DType) -> DType:
    if name in ("max", "min", "mean"):
        return dtype
    if name == "sum":
        return _sum_dtype(dtype)
    return I64 if name.startswith("arg") else dtypes.bool_


def _whole(b: Builder, name: str, array: Value) -> Value:
    given = _flat(b, array)
    assert isinstance(array.type, Array)
    dtype = array.type.dtype
    if name not in ("sum", "any", "all"):
        b.require(call("gt", given[1], number(0)))
    made = b.temporary(_reduced(name, dtype, given))
    return Value(Scalar(made.dtype), (made,))


def _reduced(name: str, dtype: DType, given: tuple[Expr, Expr, Expr]) -> Expr:
    """Of elements at an address, so many, with that distance."""
    if name == "mean":
        return call("div", _reduced("sum", dtype, given), cast(given[1], dtype))
    return Expr("reduction", given, _result_dtype(name, dtype), (name, dtype.suffix))


# -- along axes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Along:
    """An array of three kinds of axes: those in front, one that is reduced, and those behind, and what is made of it.

    `made` has no axes in the places of those that were reduced; `count`, `step`: of the reduced one.
    """

    name: str
    array: Value
    made: Value
    front: int
    behind: int
    count: Expr
    step: Expr

    @property
    def dtype(self) -> DType:
        return self.array.type.dtype  # type: ignore[attr-defined, no-any-return]

    def view(self, b: Builder, at: Expr) -> Value:
        """Of the array, where the index on the reduced axis is `at`."""
        kind, n = self.array.type, self.array.type.ndim - self.behind  # type: ignore[attr-defined]
        assert isinstance(kind, Array)
        data = b.fresh(POINTER)
        b.emit(Address(data, Place(self.array.data, ((at, self.step),), kind.dtype)))
        sizes, strides = ((*part[: self.front], *part[n:]) for part in (self.array.sizes, self.array.strides))
        view = replace(kind, ndim=len(sizes), packed=kind.packed and self.behind > 0, is_view=True)
        return Value(view, (self.array.owner, variable(data, POINTER), *sizes, *strides, self.array.writeable))


def _along(b: Builder, name: str, array: Value, axes: tuple[int, ...], keeps: bool) -> Value:
    kind = array.type
    assert isinstance(kind, Array)
    first, last = axes[0], axes[-1]
    if axes != tuple(range(first, last + 1)):
        raise NotNative(f"np.{name} along axes that are no neighbours")
    in_numpys_order = name in ("sum", "mean") and kind.dtype.is_inexact
    if in_numpys_order and not kind.packed:
        raise NotNative(f"np.{name} along an axis of an array that may lie in another order")
    _require_layout(b, array, axes, in_numpys_order)
    count = number(1)
    for k in axes:
        count = b.temporary(exact("mul", count, array.sizes[k]))
    if name not in ("sum", "any", "all"):
        b.require(call("gt", count, number(0)))
    sizes = [number(1) if k in axes else n for k, n in enumerate(array.sizes) if keeps or k not in axes]
    whole = new_arrays.new(b, _result_dtype(name, kind.dtype), sizes)
    made = _without(whole, axes) if keeps else whole
    of = _Along(name, array, made, first, kind.ndim - 1 - last, count, array.strides[last])
    if name in ROW_BY_ROW and of.behind:
        _rows(b, of, in_numpys_order)
    else:
        _lanes(b, of)
    return whole


def _require_layout(b: Builder, array: Value, axes: tuple[int, ...], in_numpys_order: bool) -> None:
    """That the axes which are reduced are as one; that NumPy goes through the array in the order of its axes, where that tells."""
    pairs = list(itertools.pairwise(zip(array.sizes, array.strides)))
    for k, ((_, outer), (n, inner)) in enumerate(pairs):
        if k in axes and k + 1 in axes:
            b.require(call("eq", outer, b.temporary(exact("mul", inner, n))))
    if in_numpys_order or array.type.ndim - len(axes) > 1:  # type: ignore[attr-defined]
        for (m, outer), (n, inner) in pairs:
            ordered = call("and", call("gt", outer, number(0)), call("ge", outer, inner))
            single = call("or", call("eq", m, number(1)), call("eq", n, number(1)))
            b.require(call("or", ordered, single))


def _without(array: Value, axes: tuple[int, ...]) -> Value:
    """A view without axes that have one element."""
    kind = array.type
    assert isinstance(kind, Array)
    sizes, strides = ([n for k, n in enumerate(part) if k not in axes] for part in (array.sizes, array.strides))
    view = replace(kind, ndim=len(sizes), packed=kind.ndim - 1 not in axes, is_view=True)
    return Value(view, (array.owner, array.data, *sizes, *strides, array.writeable))


def _lanes(b: Builder, of: _Along) -> None:
    """Each result by itself."""
    view = of.view(b, number(0))
    turns = arrays.nest(b, of.made.sizes)
    at = b.fresh(POINTER)
    b.emit(Address(at, arrays.element_place(view, turns, len(turns))))
    found = b.temporary(_reduced(of.name, of.dtype, (variable(at, POINTER), of.count, of.step)))
    b.emit(Store(arrays.element_place(of.made, turns, len(turns)), found))
    arrays.end_nest(b, turns, True)


ROW_BY_ROW = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}


def _rows(b: Builder, of: _Along, in_numpys_order: bool) -> None:
    """All results of a row at once, as they lie in memory; NumPy does so unless rows have one element."""
    by_rows, by_lanes, behind = b.new_block(), b.new_block(), b.new_block()
    width = number(1)
    for n in of.made.sizes[of.front :]:
        width = b.temporary(exact("mul", width, n))
    b.end(Branch(call("ne", width, number(1)), by_rows, by_lanes))
    b.block = by_lanes
    _lanes(b, of)
    b.end(Jump(behind))
    b.block = by_rows
    _each_row(b, of)
    b.end(Jump(behind))
    b.block = behind


def _each_row(b: Builder, of: _Along) -> None:
    result = of.made.type
    assert isinstance(result, Array)
    begins = of.name in ("max", "min")
    zero = Value(Scalar(result.dtype), (const(0, result.dtype),))
    arrays.copy_elements(b, of.made, of.view(b, number(0)) if begins else zero)
    own, inner = of.made.sizes[: of.front], of.made.sizes[of.front :]
    turns = arrays.nest(b, (*own, of.count, *inner), {of.front: number(int(begins))})
    ends = [t for k, t in enumerate(turns) if k != of.front]
    row = of.view(b, turns[of.front].index)
    place, given, found = arrays.element_place(of.made, ends, len(ends)), b.fresh(of.dtype), b.fresh(result.dtype)
    b.emit(Load(found, place))
    b.emit(Load(given, arrays.element_place(row, ends, len(ends))))
    more = variable(given, of.dtype)
    more = more if of.dtype is result.dtype else cast(more, result.dtype)
    b.emit(Store(place, apply(ROW_BY_ROW[of.name], variable(found, result.dtype), more)))
    arrays.end_nest(b, turns, True)
    if of.name == "mean":
        count = Value(Scalar(result.dtype), (b.temporary(cast(of.count, result.dtype)),))
        arrays.copy_elements(b, of.made, arrays.binary(b, "/", of.made, count))
