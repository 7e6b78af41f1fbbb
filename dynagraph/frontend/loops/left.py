"""Variables whose type where turns of a loop begin depends on how many there were: they have a tag that says which, and one type.

- What each turn sets before it reads it, so that what a turn leaves there is for what follows the loop.  In
  ``for i in range(n): s = x[i]; y[i] = s`` and ``return i, s`` both `i` and `s` are such.  They may be unbound, what the code had
  in them before the loop, or what a turn has left, and no turn cares.
- Sums, as in ``s = 0.0`` and ``for ...: s += x[i]``: Python's float before the first turn, and NumPy's after it.

So the first turn needs no version of its own, and loops within one another stay that way.  What reads such a variable goes on in a
version for each type that it turned out to have, when all else is compiled; in one, where these are the two types of floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from dynagraph.frontend.bytecode.liveness import left_by_loops, live_names_of
from dynagraph.frontend.loops.operators import F64, number
from dynagraph.frontend.loops.types import BOOL, COMPLEX, INT, NOTHING, NULL, SMALL_INT, Items, Null, Scalar, Type, Value
from dynagraph.frontend.loops.unions import FLOATS
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, const
from dynagraph.ir.regions import Block, Branch, Jump, Region, Set, VariableType
from dynagraph.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from dynagraph.frontend.loops.builder import Builder, Frame

MOST_UNBOUND = 4  # at an exit: Python goes on elsewhere for each way in which some of them are bound
Variable = tuple[int, str]  # by code and name
SCALARS = tuple(Scalar(dtype) for dtype in dtypes.ALL if dtype is not F64)
KINDS: tuple[Type, ...] = (*FLOATS.kinds, NULL, SMALL_INT, INT, NOTHING, BOOL, COMPLEX, *SCALARS)  # tags count them
OF_SUMS = (FLOATS, *FLOATS.kinds)
TAGS = {kind: tag for tag, kind in enumerate(KINDS)}
UNUSED = {dtype: const(dtype.numpy.type(0).item(), dtype) for dtype in dtypes.ALL}  # what parts hold that the tag does not mean


@dataclass(frozen=True)
class Left(Type):
    """One of the types that the variable has been seen to have where turns begin.  Parts: which one, and a value for each C type.

    `sums`: turns add to it, so that it is a float of either type.
    """

    variable: Variable
    sums: bool = False

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return PARTS


def _parts_of(dtype: DType) -> tuple[str, VariableType]:
    ((suffix, kind),) = Scalar(dtype).parts
    return suffix, kind


PARTS: tuple[tuple[str, VariableType], ...] = (("tag", dtypes.int64), *map(_parts_of, dtypes.ALL))
AT = {kind: k for k, (suffix, kind) in enumerate(PARTS) if suffix != "tag"}


class Seen:
    """The types that variables have where turns begin."""

    def __init__(self) -> None:
        self.kinds: dict[Left, dict[Type, None]] = {}
        self.sums_left: set[Variable] = set()  # sums that loops around these leave

    def of(self, kind: Left) -> list[Type]:
        found = dict(self.kinds.get(kind, {}))
        if kind.variable in self.sums_left and not kind.sums:
            found |= self.kinds.get(Left(kind.variable, True), {})
        return list(found)

    def held(self, kind: Left, value: Value) -> Value:
        """A value as one of a variable's types."""
        kinds = self.kinds.setdefault(kind, {})
        if isinstance(value.type, Left):
            if value.type != kind:
                self.sums_left.add(kind.variable)
            return Value(kind, value.parts)
        if value.type == FLOATS:
            kinds |= dict.fromkeys(FLOATS.kinds)
            tag, of_parts = value.parts[0], [(F64, value.parts[1])]
        else:
            one = INT if value.type == SMALL_INT and INT in kinds else value.type
            kinds[one] = None
            tag, of_parts = number(TAGS[one]), [(part, e) for (_, part), e in zip(one.parts, value.parts)]  # type: ignore[misc]
        parts: list[Expr] = [tag, *(UNUSED[dtype] for dtype in dtypes.ALL)]
        for part, e in of_parts:
            parts[AT[part]] = e
        return Value(kind, tuple(parts))

    def as_one(self, value: Value, kind: Type) -> Value:
        """The value where the tag says this type."""
        if kind == FLOATS:
            return Value(FLOATS, (value.parts[0], value.parts[AT[F64]]))
        return Value(kind, tuple(value.parts[AT[part]] for _, part in kind.parts))

    def may_be_unbound(self, kind: Type) -> bool:
        return isinstance(kind, Left) and NULL in self.of(kind)


@dataclass(eq=False)
class Choice:
    """Where control goes on by a variable's type, which is not known before: `arms` are the ways on."""

    block: Block
    frames: list[Frame]
    name: str
    arms: dict[Type, Block] = field(default_factory=dict)


def carry(b: Builder, frame: Frame, chosen: str = "") -> str | None:
    """At a loop's head: give variables that only what follows the loop reads their common type.

    Gives a variable that has such a type from a loop before, and that this one reads: its type has to be chosen first.
    `chosen` has been: where the first instruction of a turn reads it, the head would be come to for ever.
    """
    if not b.carries:
        return None
    program = frame.program
    here = left_by_loops(program).get(frame.ip)
    if here is None or (frame.stack and isinstance(frame.stack[-1].type, Items)):
        return None
    live = live_names_of(program)[frame.ip]
    for name in sorted(here.read & live):
        kind = frame.locals[name].type if name in frame.locals else None
        if isinstance(kind, Left) and not (kind.sums and name in here.sums):
            return name
    unbound = sum(b.seen.may_be_unbound(v.type) for v in frame.locals.values())
    for name in sorted((here.left | here.sums) & live - {*program.code.co_cellvars, chosen}):
        value, kind = frame.locals.get(name), Left((id(program.code), name), name in here.sums)
        if value is None and not kind.sums:
            unbound += 1
            value = Value(NULL) if unbound <= MOST_UNBOUND else None
        if value is not None and (isinstance(value.type, Left) or value.type in (OF_SUMS if kind.sums else (FLOATS, *KINDS))):
            frame.locals[name] = b.seen.held(kind, value)
    return None


def settle(b: Builder, name: str) -> None:
    """The current instruction is done once more, in a version for each type of a variable."""
    assert b.block is not None
    b.frames = [f.copy() for f in b.before]
    b.choices.append(Choice(b.block, b.frames, name))
    b.block = None


def choose(b: Builder) -> bool:
    """Go on for types that have not been met before.  Whether there were any."""
    found = False
    for choice in list(b.choices):
        value = choice.frames[-1].locals[choice.name]
        assert isinstance(value.type, Left)
        kinds = _together(b.seen.of(value.type))
        for kind in kinds:
            if kind not in choice.arms:
                b.frames, found = [f.copy() for f in choice.frames], True
                if isinstance(kind, Null):
                    del b.top.locals[choice.name]
                else:
                    b.top.locals[choice.name] = b.seen.as_one(value, kind)
                choice.arms[kind] = b.edge(chosen=choice.name)
        choice.arms = {kind: choice.arms[kind] for kind in kinds}
    return found


def _together(kinds: list[Type]) -> list[Type]:
    """With one type in the place of those of floats."""
    if not set(FLOATS.kinds) <= set(kinds):
        return kinds
    return [FLOATS, *(kind for kind in kinds if kind not in FLOATS.kinds)]


def finish(b: Builder) -> None:
    """End the blocks from which control goes on by types, and drop what sets parts that no type has."""
    for choice in b.choices:
        tag, block = choice.frames[-1].locals[choice.name].parts[0], choice.block
        *arms, (_, last) = choice.arms.items()
        for kind, arm in arms:
            following = b.new_block()
            test = call("lt", tag, number(len(FLOATS.kinds))) if kind == FLOATS else call("eq", tag, number(TAGS[kind]))
            block.end, block = Branch(test, arm, following), following
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
