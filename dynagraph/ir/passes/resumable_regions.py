"""Regions that are done piece by piece: they pause at the heads of their loops, and go on there with what variables held.

A gradient whose tape would be too large is taken in such pieces (frontend/loops/loop_pieces.py).  The loops are those with loops
within, and others that are no part of such a one: what the turns of the innermost ones compute is kept on tapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const, var
from dynagraph.ir.passes.active_regions import ActiveRegion, NotReversible
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.region_liveness import Names, Reads, live_variables
from dynagraph.ir.region_loops import Loop, natural_loops
from dynagraph.ir.region_memory import Roots
from dynagraph.ir.regions import (
    OWNED,
    POINTER,
    Block,
    Branch,
    Exit,
    Hold,
    Interruptible,
    Jump,
    Leave,
    NewMemory,
    Region,
    Set,
    assigned,
)

I64 = dtypes.int64
WHERE, TURNS, LEFT = "where_from", "turns_from", "turns_left"


@dataclass(frozen=True)
class Carried:
    """A variable that goes on with what it held.

    `given`: the parameter with that; `dtype`: of a number, or of a new array's elements; `is_active`: it depends on what gradients
    are taken by.
    """

    name: str
    given: str
    dtype: DType
    is_active: bool


@dataclass(eq=False)
class Pause:
    """A head of a loop, the exit by which the region pauses there, and what it then goes on with: `read` of this is read, the rest
    holds the memory of that.
    """

    exit: int
    carried: Names
    read: Names


@dataclass(eq=False)
class Resumable:
    """`region`: its first parameters are those of the given one; then an int: 0 where it begins, or k where it goes on at pause k,
    counted from 1; an int: it pauses when it comes to a loop's head for that time; then what is carried: `numbers`, addresses
    (`pointers`), and `owners` of new arrays, of which each has parameters for its kind (0: none), and for it as an array.

    At a pause the state is: the numbers, the addresses, and for each owner whether it has an array, and that.
    `constants`: active numbers that are parameters and are set nowhere.
    """

    region: Region
    pauses: list[Pause]
    numbers: list[Carried]
    pointers: list[Carried]
    owners: list[Carried]
    constants: list[str]


def resumable(region: Region, varied: Iterable[str]) -> Resumable:
    """A region that can be done piece by piece.  Raises NotReversible.

    `varied`: the parameters by which gradients are taken.
    """
    return _Pieces(tidied(region), set(varied)).made()


@dataclass(eq=False)
class _Pieces:
    region: Region
    varied: set[str]
    roots: dict[str, Roots] = field(default_factory=dict)  # of carried addresses

    def made(self) -> Resumable:
        region = self.region
        if region.functions or region.holds_gil or region.has_tape or region.turns:
            raise NotReversible("it works on lists, or calls itself")
        heads = heads_of(region)
        if not heads:
            raise NotReversible("it has no loop")
        activity = ActiveRegion(region, self.varied)
        activity.find_activity()
        self.memory = activity.memory
        live = live_variables(region.blocks[0], Reads())
        changed = {name for i in region.instructions() if (name := assigned(i))}
        read = [live[head] & changed for head in heads]
        found = [self._carried(head, names) for head, names in zip(heads, read)]
        names = sorted(frozenset().union(*found))
        numbers = [Carried(n, f"{n}_from", kind, n in activity.active) for n in names if isinstance(kind := self._kind(n), DType)]
        pointers = [self._address(n, activity) for n in names if self._kind(n) == POINTER]
        owners = [self._address(n, activity) for n in names if self._kind(n) == OWNED]
        constants = [p for p in region.parameters if p in activity.active and p not in changed]
        made = Resumable(region, [], numbers, pointers, owners, constants)
        self._cut(made, [(head, names, of) for head, names, of in zip(heads, found, read)])
        return made

    def _kind(self, name: str) -> DType | str:
        return self.region.variables[name]

    # -- what is carried ------------------------------------------------------------------------------------------------------
    def _carried(self, head: Block, live: Names) -> Names:
        """What is live at a head, and what holds the memory that this points into."""
        at = self.memory.before[head]
        pointed = frozenset().union(*(at[n] for n in live if n in at))
        for name in live & at.keys():
            self.roots[name] = self.roots.get(name, frozenset()) | at[name]
        holders = {n for n in at if self._kind(n) == OWNED and not pointed.isdisjoint(at[n])}
        for name in holders:
            self.roots[name] = self.roots.get(name, frozenset()) | at[name]
        unknown = {n for n in live if self._kind(n) in (POINTER, OWNED) and n not in at}
        if unknown:
            raise NotReversible(f"an address that is not known at a loop's head: {min(unknown)}")
        return live | holders

    def _address(self, name: str, activity: ActiveRegion) -> Carried:
        """Of what it points to the elements have one dtype."""
        roots = self.roots[name]
        dtype = dtypes.float64
        if self._kind(name) == OWNED:
            makers = {f"made for {i.name}": i.dtype for i in self.region.instructions() if isinstance(i, NewMemory)}
            found = {makers.get(root) for root in roots}
            if len(found) != 1 or None in found:
                raise NotReversible(f"memory of several kinds: {name}")
            dtype = found.pop() or dtype
        return Carried(name, f"{name}_from", dtype, not activity.active_roots.isdisjoint(roots))

    # -- control --------------------------------------------------------------------------------------------------------------
    def _cut(self, made: Resumable, heads: list[tuple[Block, Names, Names]]) -> None:
        region = self.region
        kinds = {WHERE: I64, TURNS: I64}
        for c in made.numbers:
            kinds[c.given] = c.dtype
        for c in made.pointers:
            kinds[c.given] = POINTER  # type: ignore[assignment]
        for c in made.owners:
            kinds |= {f"{c.given}_k": I64, c.given: POINTER, f"{c.given}_a": POINTER}  # type: ignore[dict-item]
            kinds |= {f"{c.given}_{part}": I64 for part in ("n", "s", "w")}
        region.variables |= {**kinds, LEFT: I64}
        region.parameters += kinds
        region.roots = {c.given: tuple(sorted(self.roots[c.name])) for c in (*made.pointers, *made.owners)}
        entry, old = Block(0), region.blocks[0]
        onward = Block(0)
        entry.body = [Set(LEFT, var(TURNS, I64))]
        entry.end = Branch(call("eq", var(WHERE, I64), const(0, I64)), old, onward)
        onward.body = [
            *(Set(c.name, var(c.given, c.dtype)) for c in made.numbers),
            *(Set(c.name, var(c.given, I64)) for c in made.pointers),
            *(Hold(c.name, var(c.given, I64)) for c in made.owners),
        ]
        more = [entry, onward]
        for k, (head, names, read) in enumerate(heads):
            looks, pauses = Block(0, head.line), Block(0, head.line)
            exit = Exit(len(region.exits), _state(made, names))
            region.exits.append(exit)
            pauses.end = Leave(exit)
            looks.body = [Set(LEFT, Expr("exact_sub", (var(LEFT, I64), const(1, I64)), I64))]
            looks.end = Branch(call("le", var(LEFT, I64), const(0, I64)), pauses, head)
            for block in region.blocks:
                _redirect(block, head, looks)
            more += [looks, pauses]
            made.pauses.append(Pause(exit.number, names, read))
            if k + 1 < len(heads):
                following = Block(0)
                onward.end = Branch(call("eq", var(WHERE, I64), const(k + 1, I64)), head, following)
                onward = following
                more.append(following)
            else:
                onward.end = Jump(head)
        region.blocks = [entry, *region.blocks, *more[1:]]
        for number, block in enumerate(region.blocks):
            block.number = number


def heads_of(region: Region) -> list[Block]:
    """Of the loops at whose heads it pauses."""
    loops = natural_loops(region)
    heads = {loop.header for loop in loops}
    nests = [loop for loop in loops if len(heads.intersection(loop.blocks)) > 1]
    lines = frozenset().union(*map(_lines, nests))
    alone = [loop for loop in loops if loop not in nests and not _is_expression(loop) and not _lines(loop) <= lines]
    return [loop.header for loop in (*nests, *alone)]


def _lines(loop: Loop) -> frozenset[int]:
    """Of the user's source: first turns are often apart from the others, with all loops that are within."""
    return frozenset(block.line for block in loop.blocks if block.line)


def _is_expression(loop: Loop) -> bool:
    return any(isinstance(i, Interruptible) and i.within for block in loop.blocks for i in block.body)


def _state(made: Resumable, names: Names) -> list[Expr]:
    """What is carried has its value where it is one of `names`, else zero."""
    zero = const(0, I64)
    state = [var(c.name, c.dtype) if c.name in names else const(0, c.dtype) for c in made.numbers]
    state += [var(c.name, I64) if c.name in names else zero for c in made.pointers]
    for c in made.owners:
        owner = var(c.name, I64)
        state += [cast(call("ne", owner, zero), I64), owner] if c.name in names else [zero, zero]
    return state


def _redirect(block: Block, of: Block, to: Block) -> None:
    end = block.end
    if isinstance(end, Jump) and end.block is of:
        block.end = Jump(to)
    elif isinstance(end, Branch) and of in (end.then, end.otherwise):
        block.end = replace(end, then=to if end.then is of else end.then, otherwise=to if end.otherwise is of else end.otherwise)


__all__ = ["Carried", "Pause", "Resumable", "resumable"]
