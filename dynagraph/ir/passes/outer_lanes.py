"""Turns of an outer loop side by side, as lanes of vectors, where the loops within add up in order.

As in ``for j ...: for k ...: c[i, j] += a[i, k] * b[k, j]``: the additions of one element have to wait for one another, those of
neighbours need not.  The copy of a nest without checks gets strips of some turns of the outer loop, each of which does the loops
within once, for all its lanes, and strips of fewer for what is left over; the last ones are done turn by turn.  Each element's
operations keep their order.

A variable of such a loop is the same in all lanes, or of each lane, or an int that grows from lane to lane by a constant, of which
the first lane's is kept.  Turns may not depend on one another, neither through variables nor through memory: subscripts show that,
axis by axis, and for different arrays a test in front of the nest.  Where lanes go different ways they are masked.

Where a check fails in a lane, before anything is stored, the strip is given up, and its turns are done one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.fast_loops import Guard
from dynagraph.ir.passes.held_elements import MOST_ARRAYS, whole_array
from dynagraph.ir.passes.lane_kinds import I64, LaneKinds, Refused
from dynagraph.ir.passes.lane_strips import VECTOR, Use, link_strips
from dynagraph.ir.passes.nest_values import Values
from dynagraph.ir.passes.turns import moderate
from dynagraph.ir.region_liveness import NONE, Names, Reads, operands_of
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    Block,
    Branch,
    Checked,
    Instruction,
    LaneType,
    Load,
    Place,
    Position,
    Region,
    Require,
    Separate,
    Set,
    Store,
    Touched,
    Unfolded,
    assigned,
)

BOOL = dtypes.bool_
MOST_TURNS = {1: 2**16, 2: 2**10, 3: 2**7}  # of the loops within, by how many lie in one another: signals wait for a strip's end
# vectors of a variable: what waits for one another is done for as many at a time; of those that leave loops at different times
# fewer wait for the last one
PARTS, PARTS_OF_MASKED_LOOPS = 4, 2


@dataclass
class Held:
    """The lanes of an array that an innermost loop adds to at one place: a variable has them meanwhile."""

    place: Place
    step: Expr | None
    name: str = ""


class Lanes(LaneKinds):
    """Of one loop of a nest.  Changes nothing until `link`.  Raises Refused.

    Strips may be used where `conditions` are at least zero, `apart` do not overlap, and elements of each of `whole` lie apart.
    `part`: lanes of a vector; `width`: turns of a strip; `safe`: loads in masked blocks that may be done for all lanes.
    """

    def __init__(
        self,
        region: Region,
        values: Values,
        loop: Loop,
        proven: dict[Instruction, Instruction | None],
        reads: Reads,
        live: Callable[[], Names],
    ):
        super().__init__(region, values, loop, proven, reads, live)
        self.proven = proven
        self.use: Use | None = None  # of strips whose lanes leave loops at different times
        self.conditions: dict[IntExpr, None] = {}
        self.apart: list[tuple[Touched, Touched]] = []
        self.whole: list[Touched] = []
        self.asks = True  # the guard may have to ask for what is to hold
        self.innermost = [x for x in self.inner if self.is_innermost(x)]
        self.held = {x: self._held(x) for x in self.innermost if x.header not in self.masks.of}
        if not self._pays():
            raise Refused("its turns are no faster side by side")
        self.may_fail = self._may_fail()
        self.safe = self._safe_loads()
        self._bound_turns()
        self._separate()
        self.part = VECTOR // self._largest()
        leaves = any(x.header in self.masks.of for x in self.inner)
        self.width = self.part * (PARTS_OF_MASKED_LOOPS if leaves else PARTS)

    def _largest(self) -> int:
        """The bytes of the largest numbers that have lanes."""
        sizes = {4}
        for block in self.blocks:
            seen = [block.end.test] if isinstance(block.end, Branch) else []
            for i in block.body:
                if isinstance(i, Load) and self.varies(i.name):
                    sizes.add(i.place.dtype.itemsize)
                elif isinstance(i, Store):
                    sizes.update((i.place.dtype.itemsize, i.value.dtype.itemsize))
                elif (name := assigned(i)) is None or self.varies(name):
                    seen += operands_of(i)
            sizes.update(part.dtype.itemsize for e in seen for part in e.walk() if part.op != "name" and self.kind(part))
        return max(sizes)

    # -- whether it pays --------------------------------------------------------------------------------------------------------
    def _pays(self) -> bool:
        """Whether turns of innermost loops wait for one another, or go across the order of memory, and none would be slower."""
        found = False
        for loop in self.innermost:
            if self.held.get(loop) or self._goes_on(loop):
                found = True
            elif any(self.varies(name) for b in loop.blocks for name in self.graph.sets(b)) or self._places(loop):
                if not self._goes_across(loop):
                    return False
                found = True
        return found

    def _places(self, loop: Loop) -> list[tuple[Instruction, Place]]:
        """That lanes read and write."""
        memory = [i for b in loop.blocks for i in b.body if isinstance(i, (Load, Store))]
        return [(i, i.place) for i in memory if self.is_of_lanes(i.place)]

    def _goes_across(self, loop: Loop) -> bool:
        """Whether neighbours are those of the lanes, and not of its own turns."""
        (turn,) = self.values.at_begin[self.graph.origin[loop.header]][0].symbols()
        for i, place in self._places(loop):
            last = self._index(self.values.indices[i][-1])
            factor = None if last is None else last.coefficient(turn)
            if self.step_of(place) is not None or factor is None or factor != IntExpr.of(0):
                return False
        return bool(self._places(loop))

    def _index(self, found: object) -> IntExpr | None:
        """An index of what is read or written, by turns; those that have been shown to be within bounds count from the start."""
        if not isinstance(found, IntExpr):
            return None
        value = self.values.expanded(found)
        while known := {s.name: p for s in value.symbols() if (p := self.positions.get(s.name)) is not None}:
            value = self.values.expanded(value.substitute(known))
        return value

    def _goes_on(self, loop: Loop) -> bool:
        """Whether it goes on with lanes of the turn before, other than by counting."""
        names = {name for b in loop.blocks for name in self.graph.sets(b) if self.varies(name)}
        _, _, begun = self.values.at_begin[self.graph.origin[loop.header]]
        counters = {name for name, start in begun.items() if any(s.name in self.values.closed for s in start.symbols())}
        return bool(names & self.live[loop.header] - counters)

    def _held(self, loop: Loop) -> dict[str, Held]:
        """By array: what an innermost loop reads and writes at one place only, in each turn."""
        if not self._ends_at_header(loop):
            return {}
        always = self.graph.dominate
        stored: set[str] = set()
        places: dict[str, list[tuple[Load | Store, Place | None]]] = {}
        sets = NONE.union(*map(self.graph.sets, loop.blocks))
        for block in loop.blocks:
            each_turn = block not in self.masks.of and all(always(block, latch) for latch in loop.latches)
            known: dict[str, Expr | None] = dict.fromkeys(sets)
            for i in block.body:
                if isinstance(i, Set):
                    known[i.name] = _settled(i.value, known)
                elif isinstance(i, (Load, Store)):
                    places.setdefault(str(i.place.base.value), []).append((i, _settled_place(i.place, known)))
                    if isinstance(i, Store) and each_turn:
                        stored.add(str(i.place.base.value))
        found = {}
        for data in sorted(stored):
            uses = places[data]
            (first, place), *others = uses
            same = all(p is not None and place is not None and p.steps == place.steps for _, p in others)
            if place is not None and same and any(isinstance(i, Load) for i, _ in uses):
                found[data] = Held(place, self.step_of(first.place))
        return found

    def _ends_at_header(self, loop: Loop) -> bool:
        """Whether a loop is left where its header's test says so, and there only."""
        end, inside = loop.header.end, set(loop.blocks)
        if not isinstance(end, Branch) or loop.header in (end.then, end.otherwise):
            return False
        if (end.then in inside) == (end.otherwise in inside):
            return False
        tests_only = all(isinstance(i, Set) for i in loop.header.body)
        return tests_only and all(inside.issuperset(b.successors()) for b in loop.blocks[1:])

    def _safe_loads(self) -> set[Instruction]:
        """Of what has been read or written for all lanes before, in the same turns of loops."""
        known: dict[object, list[Block]] = {}
        found: set[Instruction] = set()
        for block in self.blocks:
            for i in block.body:
                key = self._address(i) if isinstance(i, (Load, Store)) else None
                if key is None:
                    continue
                if block not in self.masks.of:
                    known.setdefault(key, []).append(block)
                elif isinstance(i, Load) and any(self._has_done(b, block) for b in known.get(key, ())):
                    found.add(i)
        return found

    def _address(self, i: Load | Store) -> object:
        steps = [(self._index(x), stride) for x, (_, stride) in zip(self.values.indices[i], i.place.steps)]
        return None if any(x is None for x, _ in steps) else (i.place.base, i.place.dtype, tuple(steps))

    def _has_done(self, before: Block, block: Block) -> bool:
        return self.graph.dominate(before, block) and all(block in x.blocks for x in self.graph.loops_of(before))

    def _bound_turns(self) -> None:
        depth = max(sum(x.header in y.blocks for y in self.loops_within) for x in self.loops_within)
        if depth not in MOST_TURNS:
            raise Refused("too many loops lie in one another")
        for loop in self.loops_within:
            turn, always = self.values.at_begin[loop.header][0], self.values.dominators
            each_turn = [b for b in loop.blocks if all(always(b, latch) for latch in loop.latches)]
            if not any(self._hold(MOST_TURNS[depth] - turn, b) for b in each_turn):
                raise Refused("how long its turns take is not known before")

    def _may_fail(self) -> bool:
        """Whether there are checks, which nothing may have been stored before."""
        checks = {b for b in self.blocks if any(isinstance(i, (Checked, Require, Position)) for i in b.body)}
        stores = [b for b in self.blocks if self._stores(b)]
        if not checks:
            return False
        waiting = [f for b in stores for f in self.masks.flow(b)]
        for loop, found in self.held.items():
            if found:
                waiting += [b for b in loop.header.successors() if b not in loop.blocks]
        seen: set[Block] = set()
        while waiting:
            at = waiting.pop()
            if at not in seen and at is not self.graph.header:
                seen.add(at)
                waiting += self.masks.flow(at)
        if seen & checks or any(self._checks_behind_store(b) for b in stores):
            raise Refused("what is checked comes behind what is stored")
        return True

    def _stores(self, block: Block) -> bool:
        held = {data for loop, found in self.held.items() if block in loop.blocks for data in found}
        return any(isinstance(i, Store) and str(i.place.base.value) not in held for i in block.body)

    def _checks_behind_store(self, block: Block) -> bool:
        first = next(k for k, i in enumerate(block.body) if isinstance(i, Store))
        return any(isinstance(i, (Checked, Require, Position)) for i in block.body[first:])

    def _hold(self, value: IntExpr, block: Block) -> bool:
        found = self.values.proved(value, block)
        if found is None or not all(moderate(c + 1) for c in found) or (found and not self.asks):
            return False
        self.conditions.update(dict.fromkeys(found))
        return True

    # -- whether turns are independent ----------------------------------------------------------------------------------------
    def _separate(self) -> None:
        written = {data: [u for u in uses if isinstance(u[1], Store)] for data, uses in self.arrays.items()}
        for data, stores in written.items():
            for store in stores:
                for use in self.arrays[data]:
                    if not (self._touch_others(store, use, False) or self._touch_others(store, use, True)):
                        raise Refused("turns write to what others read or write, or may do so")
        if len(self.arrays) > MOST_ARRAYS:
            raise Refused("it has too many arrays")
        settled = frozenset(self.region.parameters) - {assigned(i) for i in self.region.instructions()}
        pairs = [p for p in combinations(sorted(self.arrays), 2) if written[p[0]] or written[p[1]]]
        names = dict.fromkeys(name for pair in pairs for name in pair)
        wholes = {name: whole_array(name, [(i, place) for _, i, place in self.arrays[name]], settled) for name in names}
        for data, other in pairs:
            one, two = wholes[data], wholes[other]
            if one is None or two is None:
                raise Refused("it goes through arrays that are made, or change, within the function")
            self.apart.append((one, two))
        for data, stores in written.items():
            whole = whole_array(data, [(i, place) for _, i, place in self.arrays[data]], settled) if stores else None
            if stores and whole is None:
                raise Refused("it writes to arrays that are made, or change, within the function")
            self.whole += [whole] if whole is not None else []

    def _touch_others(self, store: tuple[Block, Instruction, Place], other: tuple[Block, Instruction, Place], asks: bool) -> bool:
        """Whether what is stored in one turn lies elsewhere than what `other` reads or writes in another.

        `asks`: the guard may have to ask for it.
        """
        self.asks = asks
        (at, s, _), (to, a, _) = store, other
        for x, y in zip(self.values.indices[s], self.values.indices[a]):
            one, two = self._index(x), self._index(y)
            if one is not None and two is not None and self._differ(one, at, two, to):
                return True
        return False

    def _differ(self, x: IntExpr, at: Block, y: IntExpr, to: Block) -> bool:
        """Whether indices on one axis are never the same in two turns."""
        steps = [i.coefficient(self.turn) for i in (x, y)]
        if any(s is None or s.constant is None for s in steps):
            return False
        cx, cy = (s.constant or 0 for s in steps if s is not None)
        x, y = (i.substitute({self.turn.name: 0}) for i in (x, y))
        older = [self.values.is_older(i, self.loop.header) for i in (x, y)]
        if cx == cy != 0:
            apart = (x - y).constant
            return all(older) and apart is not None and (apart == 0 or apart % cx != 0)
        if cx > 0 and cy == 0 and older[0]:
            return self._beyond(x, cx, y, to)
        if cy > 0 and cx == 0 and older[1]:
            return self._beyond(y, cy, x, at)
        if cx == cy == 0 and any(older):
            block = to if older[0] else at
            return self._hold(x - y - 1, block) or self._hold(y - x - 1, block)
        return False

    def _beyond(self, first: IntExpr, step: int, index: IntExpr, block: Block) -> bool:
        """Whether an index where a block begins is below, or above, all that turns begin at `first`."""
        if self._hold(first - index - 1, block):
            return True
        if self.limit_step != 1 or not self.values.is_older(limit := self.limit.substitute({self.turn.name: 0}), self.loop.header):
            return False
        return self._hold(index - first - (limit - 1) * step - 1, block)

    # -- blocks ---------------------------------------------------------------------------------------------------------------
    def fresh(self, kind: DType | LaneType) -> str:
        """A new variable of the region."""
        region = self.region
        n = len(region.variables) + len(region.lanes)
        while f"w{n}" in region.variables or f"w{n}" in region.lanes:
            n += 1
        if isinstance(kind, LaneType):
            region.lanes[f"w{n}"] = kind
        else:
            region.variables[f"w{n}"] = kind
        return f"w{n}"

    def guard(self, guard: Guard) -> None:
        """Goes on elsewhere where strips may not be used."""
        guard.block.body.append(Require(Expr("has_lanes", (const(self.width, I64),), BOOL), guard.otherwise))
        for condition in self.conditions:
            guard.require_positive(condition + 1)
        guard.block.body += [Unfolded(array, guard.otherwise) for array in self.whole]
        for one, two in self.apart:
            guard.block.body.append(Separate(one, two, guard.otherwise))

    def link(self, rest: Block, number: int, may: str) -> tuple[Block, list[Block], set[Block]]:
        """Its strips: the block that they begin with, all blocks, from `number` on, and the headers of innermost loops.

        `rest`: where a turn of the nest's copy begins, which does what is left; `may`: the variable that says whether the guard
        held.
        """
        return link_strips(self, rest, number, may)


def _settled(e: Expr, known: dict[str, Expr | None]) -> Expr | None:
    """An index, of variables that a loop does not set; `known`: those that it sets."""
    if e.op == "var":
        return known.get(str(e.value), e)
    args = [_settled(a, known) for a in e.args]
    if None in args or e.op not in ("const", "exact_add", "exact_sub", "exact_mul"):
        return None
    return Expr(e.op, tuple(args), e.dtype, e.value)  # type: ignore[arg-type]


def _settled_place(place: Place, known: dict[str, Expr | None]) -> Place | None:
    steps = [(_settled(index, known), stride) for index, stride in place.steps]
    if any(index is None for index, _ in steps):
        return None
    return Place(place.base, tuple(steps), place.dtype)  # type: ignore[arg-type]
