"""Types of native values: what a loop compiled to machine code may hold in its variables.

A value is a type and its parts: expressions over the region's variables, as many as the type's `parts` names.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dynagraph.frontend.kinds.values import Cell, Const
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const
from dynagraph.ir.regions import OWNED, POINTER, VariableType, slots_of_variable
from dynagraph.lazy_dataclasses import dataclass

SMALL = 2**52  # bounds of ints whose sums and differences with small ints cannot leave 64 bits


@dataclass(frozen=True)
class Type:
    """A kind of value.  `parts`: the suffix and the C type of each variable that holds a part of it."""

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return ()


@dataclass(frozen=True)
class Int(Type):
    """A Python int of 64 bits; `small`: between -2**52 and 2**52."""

    small: bool = False

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("i", dtypes.int64),)


@dataclass(frozen=True)
class Float(Type):
    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("d", dtypes.float64),)


@dataclass(frozen=True)
class Complex(Type):
    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("c128", dtypes.complex128),)


@dataclass(frozen=True)
class Bool(Type):
    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("b", dtypes.bool_),)


@dataclass(frozen=True)
class Scalar(Type):
    """A NumPy scalar."""

    dtype: DType

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        known = {dtypes.float64: "d", dtypes.int64: "i", dtypes.bool_: "b"}.get(self.dtype)
        return ((known or self.dtype.suffix, self.dtype),)


@dataclass(frozen=True)
class Nothing(Type):
    """None."""


@dataclass(frozen=True)
class Null(Type):
    """The interpreter's NULL."""


@dataclass(frozen=True)
class Held(Type):
    """Any object, which the region owns: it only takes it to where it is left."""

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("r", POINTER),)


@dataclass(frozen=True)
class Array(Type):
    """An array by reference.  Parts: the object, whether this is a view of it, the data, sizes, strides in bytes, writeable.

    `packed`: neighbours along the last axis are neighbours in memory.  `made`: its memory is the region's own, and stands for the
    object.  `turned`: its axes are in Fortran's order, it seems.
    """

    dtype: DType
    ndim: int
    packed: bool
    is_view: bool = False
    made: bool = False
    turned: bool = False

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        owner: tuple[str, VariableType] = ("m", OWNED) if self.made else ("o", POINTER)
        sizes = tuple((f"n{k}", dtypes.int64) for k in range(self.ndim))
        strides = tuple((f"s{k}", dtypes.int64) for k in range(self.ndim))
        return (owner, ("p", POINTER), *sizes, *strides, ("w", dtypes.int64))


@dataclass(frozen=True)
class Tuple(Type):
    items: tuple[Type, ...]

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return tuple((f"{k}{suffix}", kind) for k, item in enumerate(self.items) for suffix, kind in item.parts)


@dataclass(frozen=True)
class Slice(Type):
    """``slice(start, stop, step)`` on its way into a subscript."""

    items: tuple[Type, ...]

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return Tuple(self.items).parts


@dataclass(frozen=True, eq=False)
class Known(Type):
    """An object that is known while the loop is compiled: a function, a module, a string.  `value`: the executor's."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and _key(other.value) == _key(self.value)

    def __hash__(self) -> int:
        return hash(_key(self.value))


@dataclass(frozen=True, eq=False)
class PythonList(Type):
    """A list that stays Python's: the loop appends to it, by calls out, and does nothing else with it.  `value`: the executor's."""

    value: Any
    site: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PythonList) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _key(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Const):
        return "value", id(value)
    held = value.value
    return (type(held), held) if type(held) in (str, bytes) else ("object", id(held))


@dataclass(frozen=True)
class Bound(Type):
    """A method of a native value."""

    name: str
    owner: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return self.owner.parts


@dataclass(frozen=True, eq=False)
class List(Type):
    """A list whose items are of one type, by reference.  `item` is None while none is known: `site` then says which list it is."""

    item: Type | None
    site: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, List) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (type(self), self.item, self.site if self.item is None else None)

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("l", POINTER),)


class Deque(List):
    """A deque without bounds, likewise."""


@dataclass(frozen=True)
class Char(Type):
    """A string of one character: its code point."""

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("ch", dtypes.int64),)


@dataclass(frozen=True)
class Text(Type):
    """A string.  Parts: the object, its code points, of 32 bits each, and how many there are."""

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("o", POINTER), ("p", POINTER), ("n", dtypes.int64))


@dataclass(frozen=True)
class Bytes(Text):
    """Likewise, of 8 bits each."""


@dataclass(frozen=True)
class CellOf(Type):
    """A cell that holds a value."""

    held: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return self.held.parts


@dataclass(frozen=True)
class Comprehension(Type):
    """The function that a comprehension is: its code, and its cells."""

    code: Any
    closure: Tuple
    globals: Any = field(default=None, compare=False)

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return self.closure.parts


@dataclass(frozen=True)
class Generator(Type):
    """A generator expression that has not begun: its function and the iterator that it goes through."""

    function: Comprehension
    iterator: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (*self.function.parts, *((f"g{s}", kind) for s, kind in self.iterator.parts))


# -- iterators ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range(Type):
    """``iter(range(...))``: the next number, how many are left, and the step, which `step` is where that is known."""

    step: int | None

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("next", dtypes.int64), ("left", dtypes.int64), ("step", dtypes.int64))


@dataclass(frozen=True)
class RangeObject(Type):
    """``range(...)``: start, stop, step."""

    step: int | None

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("start", dtypes.int64), ("stop", dtypes.int64), ("step", dtypes.int64))


@dataclass(frozen=True)
class Rows(Type):
    """``iter(array)``: the array and the next position."""

    array: Array

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (*self.array.parts, ("at", dtypes.int64))


@dataclass(frozen=True)
class ListItems(Type):
    """``iter(list)``: the list and the next position."""

    owner: List

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (*self.owner.parts, ("at", dtypes.int64))


@dataclass(frozen=True)
class TextItems(Type):
    """``iter`` of a string or bytes: it and the next position."""

    owner: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (*self.owner.parts, ("at", dtypes.int64))


@dataclass(frozen=True)
class Items(Type):
    """``iter`` of a tuple, which is gone through one after the other: `at` is the next one.

    `given`: the list of somebody's whose items these are, if it is none of the region's own tuples.
    """

    owner: Tuple
    at: int = 0
    given: Known | None = None

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return self.owner.parts


@dataclass(frozen=True)
class Enumerate(Type):
    """``enumerate``: the next number, and the iterator."""

    inner: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("count", dtypes.int64), *((f"e{s}", kind) for s, kind in self.inner.parts))


@dataclass(frozen=True)
class Zip(Type):
    inner: tuple[Type, ...]

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return tuple((f"z{k}{suffix}", kind) for k, item in enumerate(self.inner) for suffix, kind in item.parts)


@dataclass(frozen=True)
class Composite(Type):
    """What `range`, `enumerate`, `zip` and `reversed` give, before ``iter`` is asked: `made` is the iterator's type."""

    made: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return self.made.parts


INT, SMALL_INT, FLOAT, COMPLEX, BOOL, NOTHING, NULL = Int(), Int(True), Float(), Complex(), Bool(), Nothing(), Null()
HELD = Held()


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Value:
    """`interval`: bounds of an int, where they are narrower than its type's.  `origin`: of which subscript this is the value."""

    type: Type
    parts: tuple[Expr, ...] = ()
    interval: tuple[int, int] | None = None
    origin: tuple[Expr, ...] = ()

    @property
    def only(self) -> Expr:
        (part,) = self.parts
        return part

    @property
    def number(self) -> int | None:
        """The int that it is, where that is known."""
        if isinstance(self.type, Int) and self.only.op == "const":
            return int(self.only.value)  # type: ignore[call-overload]
        return None

    @property
    def bounds(self) -> tuple[int, int]:
        """Of an int."""
        if self.number is not None:
            return self.number, self.number
        if self.interval is not None:
            return self.interval
        if self.type == SMALL_INT:
            return -SMALL, SMALL
        return -(2**63), 2**63 - 1

    # of arrays
    @property
    def owner(self) -> Expr:
        return self.parts[0]

    @property
    def data(self) -> Expr:
        return self.parts[1]

    @property
    def sizes(self) -> tuple[Expr, ...]:
        return self.parts[2 : 2 + self.type.ndim]  # type: ignore[attr-defined]

    @property
    def strides(self) -> tuple[Expr, ...]:
        n = self.type.ndim  # type: ignore[attr-defined]
        return self.parts[2 + n : 2 + 2 * n]

    @property
    def writeable(self) -> Expr:
        return self.parts[-1]

    def items(self) -> list["Value"]:
        """Of a tuple or slice."""
        found, at = [], 0
        for item in self.type.items:  # type: ignore[attr-defined]
            n = len(item.parts)
            found.append(Value(item, self.parts[at : at + n]))
            at += n
        return found


def integer(value: int) -> Value:
    return Value(SMALL_INT if -SMALL <= value <= SMALL else INT, (const(value, dtypes.int64),))


def int_value(part: Expr, low: int, high: int) -> Value:
    """An int of which the bounds are known."""
    return Value(SMALL_INT if low >= -SMALL and high <= SMALL else INT, (part,), (low, high))


def tuple_of(items: Sequence[Value], kind: type = Tuple) -> Value:
    return Value(kind(tuple(i.type for i in items)), tuple(p for i in items for p in i.parts))


def width_of(kind: Type | None) -> int:
    """How many slots a value takes."""
    return 0 if kind is None else sum(slots_of_variable(part) for _, part in kind.parts)


def is_cell(value: Value) -> bool:
    """Whether it is a cell, which others may set, and not what a cell holds."""
    return isinstance(value.type, Known) and isinstance(value.type.value, Cell)


def is_python_number(kind: Type) -> bool:
    return isinstance(kind, (Int, Float, Complex, Bool))


def is_number(kind: Type) -> bool:
    return is_python_number(kind) or isinstance(kind, Scalar)


@functools.cache
def sample_of(kind: Type) -> Any:
    """A number of a type, to ask NumPy what becomes of it."""
    if isinstance(kind, Scalar):
        return kind.dtype.numpy.type(1)
    return {Int: 1, Float: 1.0, Complex: 1j, Bool: True}[type(kind)]
