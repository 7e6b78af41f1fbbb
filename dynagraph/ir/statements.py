"""The statement IR: loops that say who runs their iterations (one thread, lanes, a team...), conditions, variables, stores.

Kernels of `ir/loops.py` say what is reduced or scanned; lowering for a target writes that out as these statements, and the printers
in `backends/` only spell them.  Values are `Expr`; positions and counts are `IntExpr`, whose type is the target's index.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence, Set
from functools import reduce
from typing import Union

from dynagraph.ir.dtypes import DType, bool_, int32, int64
from dynagraph.ir.expr import Expr, call, cast
from dynagraph.ir.intexpr import IntExpr, IntLike
from dynagraph.ir.loops import Define, Store
from dynagraph.lazy_dataclasses import dataclass

Value = Union[Expr, IntExpr]


class AxisKind(enum.Enum):
    """Who takes the turns of a loop."""

    SERIAL = "one thread, in order"
    LANE = "the lanes of a vector: turns are independent, and few"
    UNROLLED = "one thread, each turn written out"
    PARALLEL = "all threads, `step` of them a block, in turn"
    WARP = "the threads of a team, in turn: each has its own start"
    BLOCK = "blocks of threads, in turn, each `step` neighbours at a time"


@dataclass(frozen=True, eq=False)
class Declare:
    """A variable, or with `size` an array of so many elements.  A `dtype` of None: a position.

    `shared`: one for all threads of a block.  `aligned`: at a multiple of the widest vector.  `pack`: each element is so many
    neighbours of memory, which one access moves.  `as_stored`: elements are as in memory.
    """

    name: str
    dtype: DType | None
    value: Value | None = None
    size: IntLike | None = None
    shared: bool = False
    aligned: bool = False
    pack: int | None = None
    as_stored: bool = False
    is_zeroed: bool = False


@dataclass(frozen=True, eq=False)
class Let:
    """A named position or count, which does not change.  (A value that does not change is a `Define`.)"""

    name: str
    value: IntExpr


@dataclass(frozen=True, eq=False)
class Assign:
    """``name = value``, or with an index ``name[index] = value``."""

    name: str
    value: Value
    index: IntExpr | None = None


@dataclass(frozen=True, eq=False)
class Move:
    """``name[index] = buffer[source]``, as it stands in memory."""

    name: str
    index: IntExpr
    buffer: str
    source: IntExpr


@dataclass(frozen=True, eq=False)
class LoadPack:
    """``name = buffer[index], buffer[index + 1]...``: `width` neighbours at once.  `declared`: the variable is there already."""

    name: str
    buffer: str
    index: IntExpr
    dtype: DType
    width: int
    declared: bool = False


@dataclass(frozen=True, eq=False)
class StorePack:
    """``buffer[index], buffer[index + 1]... = name`` at once."""

    name: str
    buffer: str
    index: IntExpr


@dataclass(frozen=True, eq=False)
class For:
    """``for name = start, start + step... below end``."""

    name: str
    start: IntExpr
    end: Value
    body: tuple["Code", ...]
    kind: AxisKind = AxisKind.SERIAL
    step: IntLike = 1
    unroll: int | None = None  # turns that the compiler writes out at a time; None: as it likes
    hoist: bool = False  # what is the same in each turn is computed before the first one, which there is


@dataclass(frozen=True, eq=False)
class Powers:
    """``for name = first`` that is halved, or doubled, until it is `last`: both are powers of two."""

    name: str
    first: int
    last: int
    body: tuple["Code", ...]
    kind: AxisKind = AxisKind.SERIAL


@dataclass(frozen=True, eq=False)
class While:
    """`test` is looked at before each turn; None: until something leaves the loop.  `further`: at the end of each turn."""

    test: Expr | None
    body: tuple["Code", ...]
    further: Assign | None = None
    unroll: int | None = None


@dataclass(frozen=True, eq=False)
class If:
    test: Expr
    then: tuple["Code", ...]
    otherwise: tuple["Code", ...] = ()
    is_rare: bool = False


@dataclass(frozen=True, eq=False)
class Block:
    """Statements whose variables nobody else sees."""

    body: tuple["Code", ...]


@dataclass(frozen=True, eq=False)
class Break:
    """Leave the innermost loop."""


@dataclass(frozen=True, eq=False)
class Safepoint:
    """Leave the kernel where a signal waits: what is left undone is dropped."""


@dataclass(frozen=True, eq=False)
class Opaque:
    """The compiler takes a variable's value for unknown from here on: an optimization barrier."""

    name: str


@dataclass(frozen=True, eq=False)
class Barrier:
    """The threads of a warp, or of a block, wait for each other, and see what they wrote."""

    of: AxisKind


@dataclass(frozen=True, eq=False)
class Address:
    """Of a variable, or of an element of a buffer or array whose numbers have the dtype, if that is given."""

    name: str
    index: IntExpr | None = None
    dtype: DType | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A function of the target's support code; what it gives is a new variable, if that has a name."""

    function: str
    args: tuple[Value | Address, ...]
    result: str = ""
    dtype: DType | None = None


Code = Union[
    Define, Store, Declare, Let, Assign, Move, LoadPack, StorePack, For, Powers, While, If, Block, Break, Safepoint, Opaque,
    Barrier, Call,
]  # fmt: skip
Plain = (Define, Store, Declare, Let, Assign)  # one line each: what they compute in common is computed once


# -- building -----------------------------------------------------------------------------------------------------------


def position(name: str, low: int = 0) -> IntExpr:
    """A variable that holds a position."""
    return IntExpr.symbol(name, low, None)


def divided(number: IntExpr, extent: IntExpr) -> tuple[IntExpr, IntExpr]:
    """Quotient and remainder of an iteration's number by an extent; where that is 0 there are no iterations."""
    extent = IntExpr.of(1) if extent.constant == 0 else extent
    return number // extent, number % extent


def value_of(e: IntLike) -> Expr:
    """A position as an operand of a comparison."""
    return Expr("position", (), int64, IntExpr.of(e))


def compare(op: str, left: IntLike, right: IntLike) -> Expr:
    """A test of two positions: `op` is lt, le, gt, ge, eq or ne."""
    return Expr(op, (value_of(left), value_of(right)), bool_)


def as_int(count: IntExpr) -> Expr:
    """A count that is known to be small."""
    return cast(value_of(count), int32)


def both(tests: Sequence[Expr]) -> Expr | None:
    """Whether all tests hold; None without any."""
    return reduce(lambda left, right: call("and", left, right), tests) if tests else None


def where(tests: Sequence[Expr], body: Sequence[Code], otherwise: Sequence[Code] = ()) -> tuple[Code, ...]:
    """Statements where all tests hold."""
    test = both(tests)
    return tuple(body) if test is None or not body else (If(test, tuple(body), tuple(otherwise)),)


def element(name: str, index: IntLike, dtype: DType) -> Expr:
    """An element of an array."""
    return Expr("load", (), dtype, (name, IntExpr.of(index)))


# -- walking ------------------------------------------------------------------------------------------------------------


def nested(s: Code) -> tuple[tuple[Code, ...], ...]:
    """The bodies within a statement."""
    if isinstance(s, (For, Powers, While, Block)):
        return (s.body,)
    return (s.then, s.otherwise) if isinstance(s, If) else ()


def values(s: Code) -> Iterator[Expr]:
    """What a plain statement computes."""
    if isinstance(s, (Define, Declare, Assign, Store)) and isinstance(s.value, Expr):
        yield s.value
    if isinstance(s, Store):
        yield from (e for e in (s.place, s.where) if e is not None)


def assigned(body: Sequence[Code]) -> set[str]:
    """The variables and arrays that statements change."""
    found: set[str] = set()
    for s in body:
        if isinstance(s, (Assign, Move)):
            found.add(s.name)
        elif isinstance(s, Call):
            found |= {arg.name for arg in s.args if isinstance(arg, Address) and arg.index is None}
        for inner in nested(s):
            found |= assigned(inner)
    return found


def depends(e: Expr, names: Set[str]) -> bool:
    """Whether an expression reads one of these variables or arrays."""
    return any(_reads(part, names) for part in e.walk())


def _reads(e: Expr, names: Set[str]) -> bool:
    if e.op in ("var", "gather"):
        return e.value in names
    if e.op == "load":
        buffer: str
        index: IntExpr
        buffer, index = e.value  # type: ignore[misc]
        return buffer in names or any(s.name in names for s in index.symbols())
    return e.op in ("index", "position") and any(s.name in names for s in e.value.symbols())  # type: ignore[attr-defined]
