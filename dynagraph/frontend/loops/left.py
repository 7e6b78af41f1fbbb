"""Variables that each turn of a loop sets before it reads them: what a turn leaves in them is for what follows the loop.

In ``for i in range(n): s = x[i]; y[i] = s`` and ``return i, s`` both `i` and `s` are such.  Where a turn begins they may be unbound,
what the code had in them before the loop, or what a turn has left, and no turn cares.  They have a tag that says which, and so one
type: the first turn needs no version of its own, and loops within one another stay that way.

What reads such a variable goes on in a version for each type that it turned out to have, when all else is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynagraph.frontend.bytecode.liveness import left_by_loops, live_names_of
from dynagraph.frontend.loops.operators import number
from dynagraph.frontend.loops.types import BOOL, COMPLEX, FLOAT, INT, NOTHING, NULL, SMALL_INT, Items, Null, Scalar, Type, Value
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, const
from dynagraph.ir.regions import Block, Branch, Jump, Region, Set, VariableType

if TYPE_CHECKING:
    from dynagraph.frontend.loops.builder import Builder, Frame

MOST_UNBOUND = 4  # at an exit: Python goes on elsewhere for each way in which some of them are bound
Variable = tuple[int, str]  # by code and name
KINDS: frozenset[Type] = frozenset((NULL, INT, SMALL_INT, FLOAT, BOOL, COMPLEX, NOTHING, *map(Scalar, dtypes.ALL)))
UNUSED = {dtype: const(dtype.numpy.type(0).item(), dtype) for dtype in dtypes.ALL}  # what parts hold that the tag does not mean


@dataclass(frozen=True)
class Left(Type):
    """One of the types that the variable has been seen to have where turns begin.  Parts: which one, and a value for each C type."""

    variable: Variable

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return PARTS


def _parts_of(dtype: DType) -> tuple[str, VariableType]:
    ((suffix, kind),) = Scalar(dtype).parts
    return suffix, kind


PARTS: tuple[tuple[str, VariableType], ...] = (("tag", dtypes.int64), *map(_parts_of, dtypes.ALL))
AT = {kind: k for k, (suffix, kind) in enumerate(PARTS) if suffix != "tag"}


class Seen:
    """The types that variables have where turns begin; tags count them."""

    def __init__(self) -> None:
        self.kinds: dict[Variable, list[Type]] = {}

    def of(self, kind: Left) -> list[Type]:
        return self.kinds[kind.variable]

    def held(self, variable: Variable, value: Value) -> Value:
        """A value as one of a variable's types."""
        kinds = self.kinds.setdefault(variable, [])
        kind = INT if value.type == SMALL_INT and INT in kinds else value.type
        if kind not in kinds:
            kinds.append(kind)
        parts: list[Expr] = [number(kinds.index(kind)), *(UNUSED[dtype] for dtype in dtypes.ALL)]
        for (_, of_c), part in zip(kind.parts, value.parts):
            parts[AT[of_c]] = part
        return Value(Left(variable), tuple(parts))

    def as_one(self, value: Value, kind: Type) -> Value:
        """The value where the tag says this type."""
        return Value(kind, tuple(value.parts[AT[part]] for _, part in kind.parts))

    def tag_of_unbound(self, kind: Type) -> int | None:
        kinds = self.of(kind) if isinstance(kind, Left) else []
        return kinds.index(NULL) if NULL in kinds else None


@dataclass(eq=False)
class Choice:
    """Where control goes on by a variable's type, which is not known before: `arms` are the ways on, by tags."""

    block: Block
    frames: list[Frame]
    name: str
    arms: list[Block]


def carry(b: Builder, frame: Frame) -> str | None:
    """At a loop's head: give variables that only what follows the loop reads their common type.

    Gives a variable that has such a type from a loop before, and that this one reads: its type has to be chosen first.
    """
    if not b.carries:
        return None
    program = frame.program
    here = left_by_loops(program).get(frame.ip)
    if here is None or (frame.stack and isinstance(frame.stack[-1].type, Items)):
        return None
    live = live_names_of(program)[frame.ip]
    for name in sorted(here.read & live):
        if name in frame.locals and isinstance(frame.locals[name].type, Left):
            return name
    unbound = sum(b.seen.tag_of_unbound(v.type) is not None for v in frame.locals.values())
    for name in sorted(here.left & live - set(program.code.co_cellvars)):
        value = frame.locals.get(name)
        if value is None:
            unbound += 1
            if unbound > MOST_UNBOUND:
                continue
            value = Value(NULL)
        if value.type in KINDS:
            frame.locals[name] = b.seen.held((id(program.code), name), value)
    return None


def settle(b: Builder, name: str) -> None:
    """The current instruction is done once more, in a version for each type of a variable."""
    assert b.block is not None
    b.frames = [f.copy() for f in b.before]
    b.choices.append(Choice(b.block, b.frames, name, []))
    b.block = None


def choose(b: Builder) -> bool:
    """Go on for types that have not been met before.  Whether there were any."""
    found = False
    for choice in list(b.choices):
        value = choice.frames[-1].locals[choice.name]
        assert isinstance(value.type, Left)
        for kind in b.seen.of(value.type)[len(choice.arms) :]:
            b.frames, found = [f.copy() for f in choice.frames], True
            if isinstance(kind, Null):
                del b.top.locals[choice.name]
            else:
                b.top.locals[choice.name] = b.seen.as_one(value, kind)
            choice.arms.append(b.edge())
    return found


def finish(b: Builder) -> None:
    """End the blocks from which control goes on by types, and drop what sets parts that no type has."""
    for choice in b.choices:
        tag, block = choice.frames[-1].locals[choice.name].parts[0], choice.block
        *arms, last = choice.arms
        for k, arm in enumerate(arms):
            following = b.new_block()
            block.end, block = Branch(call("eq", tag, number(k)), arm, following), following
        block.end = Jump(last)
    used = {name for (stored, kind), value in b.stored.items() if isinstance(kind, Left) for name in _used(b, kind, value)}
    _drop_unused(b.region, used)


def _used(b: Builder, kind: Left, value: Value) -> Iterator[str]:
    for one in b.seen.of(kind):
        yield from (str(p.value) for p in b.seen.as_one(value, one).parts)


def _drop_unused(region: Region, used: set[str]) -> None:
    unused = {id(e) for e in UNUSED.values()}
    for block in region.blocks:
        block.body = [i for i in block.body if not (isinstance(i, Set) and id(i.value) in unused and i.name not in used)]


__all__ = ["Left", "Seen", "carry", "choose", "finish", "settle"]
