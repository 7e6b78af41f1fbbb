"""Array expressions in native loops: slices that are computed element by element and stored, or multiplied and added up.

An expression is pending while it lies on the stack: its operands are arrays and numbers, and nothing is computed before it is
stored.  Where what is stored to overlaps what is read, so that the order of elements matters, it goes through memory of its own.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from dynagraph.frontend.loops.builder import Builder, Way
from dynagraph.frontend.loops.operators import NotNative, apply, as_stored, describe, exact, inner_dtypes, number, to_dtype
from dynagraph.frontend.loops.types import (
    Array,
    Scalar,
    Type,
    Value,
    is_number,
    sample_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, call, cast
from dynagraph.ir.ops import OPS, Elementwise
from dynagraph.ir.regions import POINTER, Branch, Interruptible, Jump, Load, Place, Set, VariableType
from dynagraph.lazy_dataclasses import dataclass
from dynagraph.python_operators import BINARY, COMPARISONS, UNARY

I64 = dtypes.int64
MAX_NDIM = 8  # DG_AXES
NOT_BY_ELEMENT = ("matmul", "power", "divmod", "vecdot", "float_power", "ldexp")


@dataclass(frozen=True)
class Pending(Type):
    """``op(*operands)``, of `ndim` dimensions, that nobody has computed yet.

    `dtype`: of the result; `inners`: which the operands are cast to.
    """

    op: str
    dtype: DType
    inners: tuple[DType, ...]
    ndim: int
    operands: tuple[Type, ...]

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return tuple((f"o{k}{suffix}", kind) for k, item in enumerate(self.operands) for suffix, kind in item.parts)


def is_array(kind: Type) -> bool:
    return isinstance(kind, (Array, Pending))


def _ndim(kind: Type) -> int:
    return kind.ndim if isinstance(kind, (Array, Pending)) else 0


def operands_of(value: Value) -> list[Value]:
    """Of a pending expression."""
    assert isinstance(value.type, Pending)
    found, at = [], 0
    for kind in value.type.operands:
        n = len(kind.parts)
        found.append(Value(kind, value.parts[at : at + n]))
        at += n
    return found


# -- building expressions -------------------------------------------------------------------------------------------------


@functools.cache
def _array_sample(dtype: DType, ndim: int) -> Any:
    return np.ones((1,) * ndim, dtype.numpy)


def _sample(kind: Type) -> Any:
    return _array_sample(kind.dtype, kind.ndim) if isinstance(kind, (Array, Pending)) else sample_of(kind)


@functools.cache
def _resolved(ufunc: np.ufunc, kinds: tuple[Type, ...]) -> tuple[DType, DType]:
    """The dtypes of the result, and in which it is computed."""
    samples = [_sample(k) for k in kinds]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            made = ufunc(*samples)
            inner = np.result_type(*samples) if made.dtype == np.bool_ else made.dtype
        except (TypeError, OverflowError) as error:
            raise NotNative(str(error)) from None
    result, computed = from_numpy(made.dtype), from_numpy(inner)
    if result is None or computed is None or computed.is_complex or computed.is_half:
        raise NotNative(f"np.{ufunc.__name__} of arrays of this dtype")
    return result, computed


def elementwise(b: Builder, ufunc: np.ufunc, name: str, values: list[Value]) -> Value:
    """A ufunc of arrays and numbers."""
    row = OPS.get(name)
    by_row = row is not None and isinstance(row.lowering, Elementwise) and name not in NOT_BY_ELEMENT and ufunc.nout == 1
    if not by_row and not (name == "power" and _is_square(values)):
        raise NotNative(f"np.{ufunc.__name__} of arrays")
    if len(values) != ufunc.nin or not all(is_array(v.type) or is_number(v.type) for v in values):
        raise NotNative(f"np.{ufunc.__name__} of {', '.join(describe(v.type) for v in values)}")
    ndim = max(_ndim(v.type) for v in values)
    if not 1 <= ndim <= MAX_NDIM:
        raise NotNative("arrays of many dimensions")
    dtype, inner = _resolved(ufunc, tuple(v.type for v in values))
    if name == "power":
        if not inner.is_float:
            raise NotNative("powers of ints")
        name, values = "square", values[:1]
    of = (v.type.dtype if isinstance(v.type, (Array, Pending)) else v.only.dtype for v in values)
    return _pending(b, name, dtype, inner_dtypes(name, inner, *of), values)


def where(b: Builder, condition: Value, then: Value, otherwise: Value) -> Value:
    """``np.where(condition, then, otherwise)``."""
    values = [condition, then, otherwise]
    if not is_array(condition.type) or condition.type.dtype is not dtypes.bool_:  # type: ignore[attr-defined]
        raise NotNative(f"np.where of {describe(condition.type)}")
    if not all(is_array(v.type) or is_number(v.type) for v in values):
        raise NotNative(f"np.where of {', '.join(describe(v.type) for v in values)}")
    dtype = from_numpy(np.where(*(_sample(v.type) for v in values)).dtype)
    if dtype is None or dtype.is_complex or dtype.is_half:
        raise NotNative("np.where of arrays of this dtype")
    return _pending(b, "where", dtype, [dtypes.bool_, dtype, dtype], values)


def refuse_elsewhere(b: Builder, is_product: bool = False) -> None:
    """Operations of whole arrays are left to Python where these are placed on devices; `is_product`: of two matrices."""
    if b.ex.elsewhere == "all" or (b.ex.elsewhere == "products" and is_product):
        raise NotNative(f"{'a product' if is_product else 'an operation'} of whole arrays, which is placed on a device")


def _pending(b: Builder, name: str, dtype: DType, inners: list[DType], values: list[Value]) -> Value:
    refuse_elsewhere(b)
    made = []
    of_arrays = [a for v in values for a in arrays_in(v)]
    sizes = broadcast(of_arrays)
    for other in of_arrays:
        _require_same_sizes(b, sizes, other.sizes)  # else Python broadcasts, or raises
    for v, inner in zip(values, inners):
        if is_array(v.type):
            made.append(v)
        else:  # a number is cast once
            made.append(Value(Scalar(inner), (b.temporary(to_dtype(b, v, inner)),)))
    ndim = max(_ndim(v.type) for v in values)
    kind = Pending(name, dtype, tuple(inners), ndim, tuple(v.type for v in made))
    return Value(kind, tuple(p for v in made for p in v.parts))


def _is_square(values: list[Value]) -> bool:
    """``array ** 2``, which NumPy computes as a product."""
    return len(values) == 2 and is_array(values[0].type) and values[1].number == 2


def binary(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    row = (BINARY | COMPARISONS)[symbol]
    if symbol == "@":
        raise NotNative("@ of arrays")
    if symbol == "divmod":
        raise NotNative("divmod of arrays")
    return elementwise(b, row.ufunc, row.ufunc.__name__, [left, right])


def unary(b: Builder, name: str, value: Value) -> Value:
    ufunc = UNARY[name].ufunc
    if name == "pos":
        raise NotNative("+ of an array")
    return elementwise(b, ufunc, ufunc.__name__, [value])


# -- computing them -----------------------------------------------------------------------------------------------------------


def arrays_in(value: Value) -> list[Value]:
    if isinstance(value.type, Array):
        return [value]
    return [a for v in operands_of(value) for a in arrays_in(v)] if isinstance(value.type, Pending) else []


def store(b: Builder, target: Value, value: Value) -> None:
    """``target[...] = value``, element by element."""
    kind = target.type
    assert isinstance(kind, Array)
    if not 1 <= kind.ndim <= MAX_NDIM or kind.dtype.is_half or kind.dtype.is_complex:
        raise NotNative("a store to an array of many dimensions, or of this dtype")
    dtype = value.type.dtype if isinstance(value.type, (Array, Pending)) else None
    if dtype is not None and dtype.is_complex:
        raise NotNative(f"{dtype} is stored in an array of {kind.dtype}")
    if _ndim(value.type) > kind.ndim:
        raise NotNative("more dimensions are stored than there are")
    if dtype is None:
        if not is_number(value.type):
            raise NotNative(f"{describe(value.type)} is stored")
        value = Value(Scalar(kind.dtype), (b.temporary(as_stored(b, value, kind.dtype)),))
    b.require(call("ne", target.writeable, number(0)))
    for array in arrays_in(value):
        _require_same_sizes(b, target.sizes, array.sizes)
    in_order: Expr | None = None
    for array in arrays_in(value):
        one = _apart(target, array)
        in_order = one if in_order is None else call("and", in_order, one)
    if in_order is None:
        copy_elements(b, target, value)
        return
    memory, size = b.fresh(POINTER), number(kind.dtype.itemsize)
    for n in target.sizes:
        size = exact("mul", size, n)
    in_order = b.temporary(in_order)
    data = Expr("var", (), I64, memory)
    b.emit(Set(memory, Expr("memory", (in_order, size), I64)))  # none where it is not needed
    b.require(call("or", in_order, call("ne", data, number(0))))
    direct, by_way, behind = b.new_block(), b.new_block(), b.new_block()
    b.end(Branch(in_order, direct, by_way))
    b.block = direct
    copy_elements(b, target, value)
    b.end(Jump(behind))
    b.block = by_way
    temporary = _packed(b, target, data)
    copy_elements(b, temporary, value, given=False)
    copy_elements(b, target, temporary)
    b.emit(Set(b.fresh(dtypes.bool_), Expr("free", (data,), dtypes.bool_)))
    b.end(Jump(behind))
    b.block = behind


def _packed(b: Builder, like: Value, data: Expr) -> Value:
    """An array in C order in memory of its own."""
    kind = like.type
    assert isinstance(kind, Array)
    stride, strides = number(kind.dtype.itemsize), []
    for n in like.sizes[::-1]:
        strides.append(stride)
        stride = b.temporary(exact("mul", stride, n))
    made = replace(kind, packed=True, is_view=True)
    return Value(made, (like.owner, data, *like.sizes, *strides[::-1], number(1)))


def copy_elements(b: Builder, target: Value, value: Value, given: bool = True) -> None:
    """Compute and store one element after the other.  `given`: the target's memory is none of the region's own."""
    kind = target.type
    assert isinstance(kind, Array)
    turns = nest(b, target.sizes)
    place = element_place(target, turns, kind.ndim)
    found = _element(b, value, turns, kind.ndim)
    b.store(place, found if found.dtype is kind.dtype else cast(found, kind.dtype), given and not kind.made)
    end_nest(b, turns, kind.made and not kind.is_view)  # in memory that nobody has seen yet


def sizes_of(value: Value) -> tuple[Expr, ...]:
    """Of an array, or of what an expression gives."""
    return broadcast(arrays_in(value))


def is_one(size: Expr) -> bool:
    """Whether it is known that an axis has one element, which stands for as many as the others have."""
    return size.op == "const" and size.value == 1


def broadcast(arrays: list[Value]) -> tuple[Expr, ...]:
    """The sizes of an expression of arrays, which agree but for axes that are known to have one element."""
    found = list(max(arrays, key=lambda array: len(array.sizes)).sizes)
    for array in arrays:
        for k, size in enumerate(array.sizes[::-1], 1):
            if is_one(found[-k]):
                found[-k] = size
    return tuple(found)


def _require_same_sizes(b: Builder, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> None:
    """That nothing is broadcast but whole dimensions, and axes of `right` that are known to have one element."""
    for mine, its in zip(left[::-1], right[::-1]):
        if not is_one(its) and (mine.value != its.value or mine.op != "var"):
            b.require(call("eq", mine, its))


def _apart(target: Value, array: Value) -> Expr:
    """Whether each element may be stored as soon as it is computed."""
    n, m = target.type.ndim, array.type.ndim  # type: ignore[attr-defined]
    repeated = any(is_one(its) and not is_one(mine) for mine, its in zip(target.sizes[::-1], array.sizes[::-1]))
    size = number(target.type.dtype.itemsize)  # type: ignore[attr-defined]
    its = number(array.type.dtype.itemsize)  # type: ignore[attr-defined]
    args = [target.data, size, array.data, its, number(repeated), number(n), number(m)]
    args += [*target.sizes, *target.strides, *array.sizes, *array.strides]
    return Expr("in_order", tuple(args), dtypes.bool_)


@dataclass(eq=False)
class _Turn:
    """One loop of a nest."""

    name: str
    head: Any
    done: Any

    @property
    def index(self) -> Expr:
        return Expr("var", (), I64, self.name)


def nest(b: Builder, sizes: tuple[Expr, ...], starts: dict[int, Expr] | None = None) -> list[_Turn]:
    """Begin a loop for each axis; `starts`: of those that do not begin at 0."""
    turns = []
    for axis, size in enumerate(sizes):
        name = b.fresh(I64)
        b.emit(Set(name, (starts or {}).get(axis, number(0))))
        head, body, done = b.new_block(), b.new_block(), b.new_block()
        b.end(Jump(head))
        turn = _Turn(name, head, done)
        head.end = Branch(call("lt", turn.index, size), body, done)
        b.block = body
        turns.append(turn)
    return turns


def end_nest(b: Builder, turns: list[_Turn], is_interruptible: bool) -> None:
    for turn in reversed(turns):
        b.emit(Set(turn.name, exact("add", turn.index, number(1))))
        if is_interruptible and turn is turns[0]:
            b.emit(Interruptible(b.exit_of(Way([f.copy() for f in b.before])), within=True))
        b.end(Jump(turn.head))
        b.block = turn.done


def element_place(array: Value, turns: list[_Turn], ndim: int) -> Place:
    kind = array.type
    assert isinstance(kind, Array)
    own = turns[ndim - kind.ndim :]
    steps = []
    for axis, turn in enumerate(own):
        if is_one(array.sizes[axis]):
            continue
        packed = kind.packed and axis == kind.ndim - 1
        steps.append((turn.index, None if packed else array.strides[axis]))
    return Place(array.data, tuple(steps), kind.dtype)


def _element(b: Builder, value: Value, turns: list[_Turn], ndim: int) -> Expr:
    """The element of an expression at the present turn."""
    kind = value.type
    if isinstance(kind, Array):
        name = b.fresh(kind.dtype)
        b.emit(Load(name, element_place(value, turns, ndim)))
        return Expr("var", (), kind.dtype, name)
    if not isinstance(kind, Pending):
        return value.only
    given = [_element(b, v, turns, ndim) for v in operands_of(value)]
    given = [g if g.dtype is inner else cast(g, inner) for g, inner in zip(given, kind.inners)]
    try:
        made = apply(kind.op, *given)
    except (TypeError, KeyError) as error:
        raise NotNative(f"np.{kind.op}: {error}") from None
    return b.temporary(made if made.dtype is kind.dtype else cast(made, kind.dtype))


def in_place(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    """``left symbol= right`` of an array, which stays the same object."""
    kind = left.type
    assert isinstance(kind, Array)
    made = binary(b, symbol, left, right)
    result = made.type
    if not isinstance(result, Pending) or not np.can_cast(result.dtype.numpy, kind.dtype.numpy, "same_kind"):
        raise NotNative(f"{symbol}= of an array and {describe(right.type)}")
    store(b, left, made)
    return left
