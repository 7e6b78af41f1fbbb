"""Ints of which only the lowest 64 bits are wanted, as by hashes and generators of numbers, and ints from 2**63 up to 2**64.

``h * K & (2**64 - 1)`` passes 64 bits at each turn.  Where a mask or a remainder comes within the same expression, sums, products
and shifts are computed modulo 2**64 first; an expression that turns out to want all its bits is computed again, with its exit.
"""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import Program
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import (
    F64,
    MOST,
    NotNative,
    apply,
    as_int,
    compare,
    describe,
    ints,
    number,
    operands_fit,
)
from dynagraph.frontend.loops.operators import binary as general
from dynagraph.frontend.loops.types import FLOAT, Bool, Float, Int, Known, Type, Value, int_value
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, cast, const
from dynagraph.ir.regions import VariableType
from dynagraph.lazy_dataclasses import dataclass
from dynagraph.python_operators import COMPARISONS

U64 = dtypes.uint64
WRAPS = {"+": "add", "-": "sub", "*": "mul", "<<": "left_shift", "|": "or", "^": "xor"}
FAR = 16  # instructions, within which a mask is looked for
WITHIN = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "BINARY_OP", "COPY", "SWAP", "NOP", "CACHE")


@dataclass(frozen=True)
class UInt(Type):
    """A Python int from 0 up to 2**64."""

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return (("u", U64),)


@dataclass(frozen=True)
class Wide(Type):
    """``left symbol right`` of ints, which may not fit: its lowest 64 bits, and the operands.  It only lies on the stack."""

    symbol: str
    left: Type
    right: Type

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        sides = (("l", self.left), ("r", self.right))
        return (("w", U64), *((f"{name}{suffix}", part) for name, kind in sides for suffix, part in kind.parts))


UINT = UInt()


def operands_of(value: Value) -> tuple[Value, Value]:
    kind = value.type
    assert isinstance(kind, Wide)
    n = 1 + len(kind.left.parts)
    return Value(kind.left, value.parts[1:n]), Value(kind.right, value.parts[n:])


def unsigned(value: int) -> Value:
    """A constant."""
    return Value(UINT, (const(value, U64),))


def _word(value: Value) -> Expr:
    """The lowest 64 bits."""
    if isinstance(value.type, (UInt, Wide)):
        return value.parts[0]
    if value.number is not None:
        return const(value.number % 2**64, U64)
    return cast(as_int(value), U64)


def _is_int(kind: Type) -> bool:
    return isinstance(kind, (Int, Bool, UInt, Wide))


@means("whole", Wide)
def forced(b: Builder, value: Value) -> Value:
    """A value of all its bits; the exit where they are more than 64."""
    if not isinstance(value.type, Wide):
        return value
    left, right = (_signed(b, forced(b, v)) for v in operands_of(value))
    return ints(b, value.type.symbol, left, right)


def _signed(b: Builder, value: Value) -> Value:
    if not isinstance(value.type, UInt):
        return value
    b.require(call("le", value.only, const(MOST, U64)))
    return int_value(b.temporary(cast(value.only, dtypes.int64)), 0, MOST)


def is_masked_soon(program: Program, ip: int) -> bool:
    """Whether a mask or a remainder may come within the expression."""
    for i in program.instructions[ip : ip + FAR]:
        if i.op not in WITHIN:
            return False
        if i.op == "BINARY_OP" and str(i.value).removesuffix("=") in ("&", "%"):
            return True
    return False


def wrapped(b: Builder, symbol: str, left: Value, right: Value) -> Value | None:
    """An operation of ints, modulo 2**64 for now; None where that is not needed."""
    if symbol not in WRAPS or not (_is_int(left.type) and _is_int(right.type)):
        return None
    if isinstance(left.type, (Int, Bool)) and isinstance(right.type, (Int, Bool)) and operands_fit(symbol, left, right):
        return None
    if symbol == "<<" and not (isinstance(right.type, Int) and right.bounds[0] >= 0 and right.bounds[1] < 64):
        return None
    x, y = _word(left), _word(right)
    made = apply("left_shift", x, y) if symbol == "<<" else call(WRAPS[symbol], x, y)
    return Value(Wide(symbol, left.type, right.type), (b.temporary(made), *left.parts, *right.parts))


@means("binary", UInt, Wide)
def binary(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    for value, other in ((left, right), (right, left)):
        if isinstance(other.type, Float):
            value = forced(b, value)
            if isinstance(value.type, UInt):
                value = Value(FLOAT, (b.temporary(cast(value.only, F64)),))
            return general(b, symbol, *((value, other) if other is right else (other, value)))
    if symbol == "%" and isinstance(right.type, Known) and getattr(right.type.value, "value", None) == 2**64:
        return Value(UINT, (_word(left),))
    if not (_is_int(left.type) and _is_int(right.type)):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    found = _of_words(b, symbol, left, right)
    if found is not None:
        return found
    left, right = forced(b, left), forced(b, right)
    if isinstance(left.type, UInt) or isinstance(right.type, UInt):
        found = _of_words(b, symbol, left, right)
        if found is not None:
            return found
    return ints(b, symbol, _signed(b, left), _signed(b, right))


def _of_words(b: Builder, symbol: str, left: Value, right: Value) -> Value | None:
    """What the lowest 64 bits decide."""
    if symbol == "&":
        for value, mask in ((left, right), (right, left)):
            if isinstance(mask.type, (Int, Bool)) and mask.bounds[0] >= 0:
                made = b.temporary(cast(call("and", _word(value), _word(mask)), dtypes.int64))
                return int_value(made, 0, mask.bounds[1])
        for value, mask in ((left, right), (right, left)):
            if isinstance(mask.type, UInt):
                return Value(UINT, (b.temporary(call("and", _word(value), mask.only)),))
        return None
    if symbol == "%" and right.number is not None and right.number > 0 and right.number & (right.number - 1) == 0:
        made = b.temporary(cast(call("and", _word(left), const(right.number - 1, U64)), dtypes.int64))
        return int_value(made, 0, right.number - 1)
    if not isinstance(left.type, UInt):
        return _both_unsigned(b, symbol, left, right)
    if symbol in ("%", "//") and isinstance(right.type, Int) and right.bounds[0] >= 2:
        op = "c_mod" if symbol == "%" else "c_div"
        made = b.temporary(cast(Expr(op, (left.only, _word(right)), U64), dtypes.int64))
        return int_value(made, 0, right.bounds[1] - 1 if symbol == "%" else MOST)
    if symbol == ">>" and isinstance(right.type, Int) and right.bounds[0] >= 0 and right.bounds[1] < 64:
        made = apply("right_shift", left.only, _word(right))
        if right.bounds[0] == 0:
            return Value(UINT, (b.temporary(made),))
        return int_value(b.temporary(cast(made, dtypes.int64)), 0, 2 ** (64 - right.bounds[0]) - 1)
    return _both_unsigned(b, symbol, left, right)


def _both_unsigned(b: Builder, symbol: str, left: Value, right: Value) -> Value | None:
    """``|`` and ``^`` of numbers that are not below zero, as a byte is not; the exit where one is."""
    if symbol not in ("|", "^") or isinstance(left.type, Wide) or isinstance(right.type, Wide):
        return None
    given = [v for v in (left, right) if isinstance(v.type, Int) and v.bounds[0] < 0]
    if any(v.bounds[1] < 0 for v in given):
        return None
    for v in given:
        b.require(call("ge", v.only, number(0)))
    return Value(UINT, (b.temporary(call("or" if symbol == "|" else "xor", _word(left), _word(right))),))


@means("compare", UInt)
def compare_words(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    if not all(isinstance(v.type, (UInt, Int, Bool)) for v in (left, right)):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    if any(isinstance(v.type, Int) and v.bounds[0] < 0 for v in (left, right)):
        return compare(b, symbol, _signed(b, left), _signed(b, right))
    name = COMPARISONS[symbol].ufunc.__name__
    from_words = apply(name, _word(left), _word(right))
    return Value(Bool(), (b.temporary(from_words),))


@means("truth", UInt)
def truth(b: Builder, value: Value) -> Expr:
    return call("ne", value.only, const(0, U64))


__all__ = ["UINT", "UInt", "Wide", "forced", "is_masked_soon", "operands_of", "unsigned", "wrapped"]
