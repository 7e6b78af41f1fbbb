"""Numbers of one of several types, as items of lists: a tag tells of which.

Such a value lies in a list, or on the stack between two instructions; native code then goes on in a version for each of its types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import F64, NotNative, apply, as_float, describe, dtype_of, number
from dynagraph.frontend.loops.types import INT, Complex, Float, Int, Scalar, Tuple, Type, Value, is_number, tuple_of
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, const
from dynagraph.ir.regions import VariableType
from dynagraph.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from dynagraph.frontend.loops.builder import Builder

MOST_KINDS = 3
OF_FLOATS = {"+": "add", "-": "subtract", "*": "multiply"}


@dataclass(frozen=True)
class Either(Type):
    """A number of one of `kinds`.  Parts: which, and a value for each C type that these have."""

    kinds: tuple[Type, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(dict.fromkeys(map(dtype_of, self.kinds)))

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("tag", dtypes.int64), *(part for dtype in self.dtypes for part in Scalar(dtype).parts))

    def at(self, kind: Type) -> int:
        """The part that has a number of this type."""
        return 1 + self.dtypes.index(dtype_of(kind))


FLOATS = Either((Float(), Scalar(F64)))  # its tag: whether it is NumPy's


def common(one: Type | None, other: Type | None) -> Type | None:
    """The type of what is of either type; None: there is none."""
    if one == other or other is None:
        return one
    if isinstance(one, Tuple) and isinstance(other, Tuple) and len(one.items) == len(other.items):
        items = tuple(map(common, one.items, other.items))
        return Tuple(tuple(i for i in items if i is not None)) if None not in items else None
    kinds = {k for kind in (one, other) for k in (kind.kinds if isinstance(kind, Either) else (kind,))}
    if len(kinds) > MOST_KINDS or not all(k is not None and is_number(k) and not _is_complex(k) for k in kinds):
        return None
    return Either(tuple(sorted((k for k in kinds if k is not None), key=repr)))


def common_of(kinds: Iterable[Type]) -> Type | None:
    first, *others = kinds
    found: Type | None = first
    for kind in others:
        found = None if found is None else common(found, kind)
    return found


def _is_complex(kind: Type) -> bool:
    return isinstance(kind, Complex) or (isinstance(kind, Scalar) and kind.dtype.is_complex)


def is_mixed(kind: Type) -> bool:
    return isinstance(kind, Either) or (isinstance(kind, Tuple) and any(map(is_mixed, kind.items)))


def held(value: Value, kind: Type) -> Value:
    """A value as one of a type that includes its own."""
    if isinstance(kind, Tuple) and is_mixed(kind):
        return tuple_of([held(v, k) for v, k in zip(value.items(), kind.items)])
    if not isinstance(kind, Either) or value.type == kind:
        return value
    own = INT if isinstance(value.type, Int) else value.type
    if own not in kind.kinds:
        raise NotNative("a number of several types")
    at = kind.at(own)
    parts = (value.only if k == at else const(dtype.numpy.type(0).item(), dtype) for k, dtype in enumerate(kind.dtypes, 1))
    return Value(kind, (number(kind.kinds.index(own)), *parts))


def alternatives(value: Value) -> tuple[list[Expr], list[Value]]:
    """What a value with a number of several types may be, and the tests for all but the last."""
    kind = value.type
    if isinstance(kind, Either):
        tests = [call("eq", value.parts[0], number(k)) for k in range(len(kind.kinds) - 1)]
        return tests, [Value(k, (value.parts[kind.at(k)],)) for k in kind.kinds]
    items = value.items()
    at = next(k for k, item in enumerate(items) if is_mixed(item.type))
    tests, found = alternatives(items[at])
    return tests, [tuple_of([*items[:at], one, *items[at + 1 :]]) for one in found]


@means("binary", Either)
def binary(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    """Where Python's floats and NumPy's give the same bits, and raise nothing: a number is NumPy's where an operand is."""
    if symbol not in OF_FLOATS:
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    made = b.temporary(apply(OF_FLOATS[symbol], *map(_as_float, (left, right))))
    if Scalar(F64) in (left.type, right.type):
        return Value(Scalar(F64), (made,))
    tags = [v.parts[0] for v in (left, right) if v.type == FLOATS]
    return Value(FLOATS, (tags[0] if len(tags) == 1 else b.temporary(call("or", *tags)), made))


def bits_of(value: Value) -> Expr:
    """A float of either type as a number."""
    return value.parts[1]


def _as_float(value: Value) -> Expr:
    if value.type == FLOATS:
        return bits_of(value)
    if isinstance(value.type, (Int, Float)):
        return as_float(value)
    if value.type != Scalar(F64):
        raise NotNative(f"an operator of {describe(value.type)} and a number of several types")
    return value.only
