"""Turns of an outer loop side by side, as lanes of vectors, where the loops within add up in order.

As in ``for j ...: for k ...: c[i, j] += a[i, k] * b[k, j]``: the additions of one element have to wait for one another, those of
neighbours need not.  The copy of a nest without checks gets strips of WIDTH turns of the outer loop, each of which does the loops
within once, for all its lanes, and strips of FEW turns for what is left over; the last ones are done turn by turn.  Each element's
operations keep their order.

A variable of such a loop is the same in all lanes, or a float64 for each lane, or an int that grows from lane to lane by a
constant, of which the first lane's is kept.  Turns may not depend on one another, neither through variables nor through memory:
subscripts show that, axis by axis, and for different arrays a test in front of the nest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.fast_loops import Guard, redirect
from dynagraph.ir.passes.held_elements import MOST_ARRAYS, whole_array
from dynagraph.ir.passes.lane_kinds import F64, I64, VARIES, LaneKinds, Refused
from dynagraph.ir.passes.nest_values import Values
from dynagraph.ir.passes.turns import moderate, predecessors_within
from dynagraph.ir.region_liveness import NONE, Names, Reads
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    FEW,
    FEW_LANES,
    LANES,
    WIDTH,
    Block,
    Branch,
    Checked,
    Exit,
    Instruction,
    Interruptible,
    Jump,
    Load,
    LoadLanes,
    OneByOne,
    Place,
    Region,
    Require,
    Separate,
    Set,
    SetLanes,
    Store,
    StoreLanes,
    Touched,
    Unfolded,
    assigned,
    substituted,
)

BOOL = dtypes.bool_
MOST_TURNS = {1: 2**16, 2: 2**10, 3: 2**7}  # of the loops within, by how many lie in one another: signals wait for a strip's end


@dataclass
class Held:
    """The lanes of an array that an innermost loop adds to at one place: a variable has them meanwhile."""

    place: Place
    step: Expr | None
    name: str = ""


class Lanes(LaneKinds):
    """Of one loop of a nest.  Changes nothing until `link`.  Raises Refused.

    Strips may be used where `conditions` are at least zero, `apart` do not overlap, and elements of each of `whole` lie apart.
    """

    def __init__(self, region: Region, values: Values, loop: Loop, proven: dict[Instruction, Instruction | None], reads: Reads):
        super().__init__(region, values, loop, proven, reads)
        self.conditions: dict[IntExpr, None] = {}
        self.apart: list[tuple[Touched, Touched]] = []
        self.whole: list[Touched] = []
        self.asks = True  # the guard may have to ask for what is to hold
        self.held = {x: self._held(x) for x in self.inner if self.is_innermost(x)}
        if not self._pays():
            raise Refused("its turns are no faster side by side")
        self._bound_turns()
        self._separate()

    # -- whether it pays --------------------------------------------------------------------------------------------------------
    def _pays(self) -> bool:
        """Whether turns of innermost loops wait for one another, or go across the order of memory, and none would be slower."""
        found = False
        for loop in self.held:
            if self.held[loop] or self._goes_on(loop):
                found = True
            elif any(self.varies(name) for b in loop.blocks for name in self.sets(b)) or self._places(loop):
                if not self._goes_across(loop):
                    return False
                found = True
        return found

    def _places(self, loop: Loop) -> list[tuple[Instruction, Place]]:
        """That lanes read and write."""
        memory = [i for b in loop.blocks for i in self.body[b] if isinstance(i, (Load, Store))]
        return [(i, i.place) for i in memory if self.is_of_lanes(i.place)]

    def _goes_across(self, loop: Loop) -> bool:
        """Whether neighbours are those of the lanes, and not of its own turns."""
        (turn,) = self.values.at_begin[loop.header][0].symbols()
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
        """Whether it goes on with lanes of the turn before."""
        names = {name for b in loop.blocks for i in self.body[b] if (name := assigned(i)) and self.varies(name)}
        has: dict[Block, Names] = {}
        entries = predecessors_within(loop)
        for block in loop.blocks:
            ends = [has[b] | self.sets(b) for b in entries[block] if b in has] if block is not loop.header else []
            has[block] = ends[0].intersection(*ends[1:]) if ends else NONE
            known = has[block]
            for i in self.body[block]:
                if self.reads.by(i) & names - known:
                    return True
                known |= {assigned(i) or ""}
        return False

    def _held(self, loop: Loop) -> dict[str, Held]:
        """By array: what an innermost loop reads and writes at one place only, in each turn."""
        if not self._ends_at_header(loop):
            return {}
        always = self.values.dominators
        stored: set[str] = set()
        places: dict[str, list[tuple[Load | Store, Place | None]]] = {}
        sets = NONE.union(*map(self.sets, loop.blocks))
        for block in loop.blocks:
            each_turn = all(always(block, latch) for latch in loop.latches)
            known: dict[str, Expr | None] = dict.fromkeys(sets)
            for i in self.body[block]:
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
        tests_only = all(isinstance(i, Set) for i in self.body[loop.header])
        return tests_only and all(inside.issuperset(b.successors()) for b in loop.blocks[1:])

    def _bound_turns(self) -> None:
        depth = max(sum(x.header in y.blocks for y in self.inner) for x in self.inner)
        if depth not in MOST_TURNS:
            raise Refused("too many loops lie in one another")
        for loop in self.inner:
            turn, always = self.values.at_begin[loop.header][0], self.values.dominators
            each_turn = [b for b in loop.blocks if all(always(b, latch) for latch in loop.latches)]
            if not any(self._hold(MOST_TURNS[depth] - turn, b) for b in each_turn):
                raise Refused("how long its turns take is not known before")

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
    def guard(self, guard: Guard) -> None:
        """Goes on elsewhere where strips may not be used."""
        guard.block.body.append(Require(Expr("has_lanes", (const(WIDTH, I64),), BOOL), guard.otherwise))
        for condition in self.conditions:
            guard.require_positive(condition + 1)
        guard.block.body += [Unfolded(array, guard.otherwise) for array in self.whole]
        for one, two in self.apart:
            guard.block.body.append(Separate(one, two, guard.otherwise))

    def link(self, rest: Block, number: int, may: str, live: Names) -> tuple[Block, list[Block], set[Block]]:
        """Its strips: the block that they begin with, all blocks, from `number` on, and the headers of innermost loops.

        `rest`: where a turn of the nest's copy begins, which does what is left; `may`: the variable that says whether the guard
        held; `live`: what is read where a turn begins, or behind the loop.
        """
        self.n = number
        self.made: list[Block] = []
        few, made, headers = self._strips_of(FEW, rest, may, live)
        start, more, others = self._strips_of(WIDTH, few, may, live)
        return start, made + more, headers | others

    def _strips_of(self, width: int, rest: Block, may: str, live: Names) -> tuple[Block, list[Block], set[Block]]:
        self.width, self.made = width, []
        kind = LANES if width == WIDTH else FEW_LANES
        of_latches = NONE.union(*(self._left_by(latch) for latch in self.loop.latches))
        self.needed = sorted((live | of_latches | set(self.counters)) & self.assigned)
        self.lanes = {name: self._fresh("w", kind) for name in sorted(self.assigned) if self.varies(name)}
        self.of = substituted({name: var(lanes, F64) for name, lanes in self.lanes.items()})
        for held in (h for found in self.held.values() for h in found.values()):
            held.name = self._fresh("w", kind)
        start = self._block(self.loop.header)
        strip = self._begin(start, rest, may)
        self.strips = {b: self._block(b) for b in self.loop.blocks[1:]}
        self.strips[self.loop.header] = start
        self.entered = {x.header: self._block(x.header) for x, found in self.held.items() if found}
        for loop, found in self.held.items():
            if found:
                self._enter(loop, found)
        for block in self.loop.blocks[1:]:
            self._copy(block)
        end = self.loop.header.end
        assert isinstance(end, Branch)
        strip.end = Jump(self._target(None, end.then))
        headers = {self.strips[x.header] for x in self.held}
        for x in self.held:
            headers.update(self.strips[b] for b in x.header.successors() if b in x.blocks)
        return start, self.made, headers

    def _left_by(self, latch: Block) -> Names:
        look = self.body[latch][-1]
        assert isinstance(look, Interruptible)
        return self.reads.of_all(look.exit.state) if isinstance(look.exit, Exit) else NONE

    def _fresh(self, prefix: str, kind: "DType | str") -> str:
        n = len(self.region.variables)
        while f"{prefix}{n}" in self.region.variables:
            n += 1
        self.region.variables[f"{prefix}{n}"] = kind
        return f"{prefix}{n}"

    def _block(self, block: Block) -> Block:
        made = Block(self.n, block.line)
        self.n += 1
        self.made.append(made)
        return made

    def _begin(self, start: Block, rest: Block, may: str) -> Block:
        """Strips go on while there are turns left for one."""
        start.body.append(Require(var(may, BOOL), rest))
        last: dict[str, Expr] = {}
        for part in self.test.args:
            if part.op == "var" and self.counters.get(str(part.value)):
                by = const(self.counters[str(part.value)] * (self.width - 1), I64)
                name = self._fresh("w", I64)
                start.body.append(Checked(name, "int_add", (part, by), rest))
                last[str(part.value)] = var(name, I64)
        strip = self._block(self.loop.header)
        start.end = Branch(substituted(last)(self.test), strip, rest)
        ends = [self.before[latch] | self.sets(latch) for latch in self.loop.latches]
        always = ends[0].intersection(*ends[1:])
        for name in self.needed:
            if name not in always and self.varies(name):
                strip.body.append(self._set(self.lanes[name], var(name, F64)))
        for i in self.body[self.loop.header]:
            strip.body += self._translated(i, {})
        return strip

    def may_link(self, live: Names) -> bool:
        """Whether what each strip leaves is known."""
        ends = [self.before[latch] | self.sets(latch) for latch in self.loop.latches]
        needed = (live | NONE.union(*map(self._left_by, self.loop.latches))) & self.assigned
        return all(name in ends[0].intersection(*ends[1:]) or self.kinds[name] in (0, VARIES) for name in needed)

    def _target(self, origin: Block | None, to: Block) -> Block:
        entry = self.entered.get(to)
        if entry is None or any(to is x.header and origin in x.blocks for x in self.held):
            return self.strips[to]
        return entry

    def _enter(self, loop: Loop, found: dict[str, Held]) -> None:
        """What an innermost loop holds is loaded where it turns at all, and stored where it ends."""
        header, inside = loop.header, set(loop.blocks)
        end = header.end
        assert isinstance(end, Branch)
        first, left = (end.then, end.otherwise) if end.then in inside else (end.otherwise, end.then)
        entry, loads, stores = self.entered[header], self._block(header), self._block(header)
        entry.body = [j for i in self.body[header] for j in self._translated(i, {})]
        loads.body = [LoadLanes(h.name, h.place, h.step, self.width) for h in found.values()]
        loads.end = Jump(self.strips[first])
        stores.body = [StoreLanes(h.place, var(h.name, F64), h.step, self.width) for h in found.values()]
        entry.end = self._branch(end, {first: loads, left: self._target(header, left)})
        stores.end = Jump(self._target(header, left))
        self.strips[header].end = self._branch(end, {first: self.strips[first], left: stores})

    @staticmethod
    def _branch(end: Branch, to: dict[Block, Block]) -> Branch:
        return Branch(end.test, to[end.then], to[end.otherwise])

    def _copy(self, block: Block) -> None:
        copy = self.strips[block]
        held = next((h for x, h in self.held.items() if block in x.blocks), {})
        for i in self.body[block]:
            copy.body += self._translated(i, held)
        if block in self.loop.latches:
            copy.body += self._finished()
            look = self.body[block][-1]
            assert isinstance(look, Interruptible)
            copy.body.append(Interruptible(look.exit, look.turns * self.width, look.within))
        if copy.end is None:
            copy.end = block.end
            redirect(copy, {b: self._target(block, b) for b in block.successors()})

    def _finished(self) -> Iterable[Instruction]:
        """Variables are what the last lane's turn leaves."""
        for name in self.needed:
            kind = self.kinds[name]
            if kind == VARIES:
                yield Set(name, Expr("last_lane", (var(self.lanes[name], F64), const(self.width, I64)), F64))
            elif kind:
                assert isinstance(kind, int)
                yield Set(name, Expr("exact_add", (var(name, I64), const(kind * (self.width - 1), I64)), I64))

    def _translated(self, i: Instruction, held: dict[str, Held]) -> list[Instruction]:
        if isinstance(i, (Interruptible, OneByOne)):
            return []
        if isinstance(i, Set):
            return [self._set(self.lanes[i.name], self.of(i.value)) if self.varies(i.name) else i]
        assert isinstance(i, (Load, Store))
        its = held.get(str(i.place.base.value))
        if isinstance(i, Store):
            if its is not None:
                return [self._set(its.name, self.of(i.value))]
            return [StoreLanes(i.place, self.of(i.value), self.step_of(i.place), self.width)]
        if its is not None:
            return [self._set(self.lanes[i.name], var(its.name, F64))]
        if self.is_of_lanes(i.place):
            return [LoadLanes(self.lanes[i.name], i.place, self.step_of(i.place), self.width)]
        if not self.varies(i.name):
            return [i]
        name = self._fresh("w", F64)
        return [Load(name, i.place), self._set(self.lanes[i.name], var(name, F64))]

    def _set(self, name: str, value: Expr) -> SetLanes:
        return SetLanes(name, value, self.width)


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
