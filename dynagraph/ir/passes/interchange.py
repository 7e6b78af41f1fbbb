"""Loop interchange: nests of counting loops whose turns run in another order, so that innermost ones go along memory.

As in ``for j ...: for i ...: a[i, j] = f(b[i, j])`` of arrays in C order, where `i` has to be the outer loop.  One loop of a
perfect nest becomes its innermost one; what that does in a turn as written may have loops within.  In front of the nest stands a
guard, as that of `fast_nests.py`: it proves all checks of all turns, since exits cannot be taken in another order, and asks that
arrays do not overlap.  Where it does not hold, the nest runs as written.

Skewing is the same with turns that begin one later in each turn of the outer loop: those on a diagonal become neighbours.  Sweeps
that go on with floats of both neighbours before, as in ``u[i, j] = (u[i - 1, j] + u[i, j - 1]) / 2``, then need not wait for them.
Tables of ints lose by it: their operations take less time than it costs to go across memory.

The order is legal where no dependence through memory is turned round: subscripts show that, axis by axis.  Nothing is reassociated:
two operations on one element keep their order, and so the bits.

Signals may wait for some milliseconds: turns of the loop that is moved are done in strips, and the others within a strip in the new
order.  Between strips all variables are those of the nest as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.passes.fast_nests import Live, Nest
from dynagraph.ir.passes.held_elements import MOST_ARRAYS, whole_array
from dynagraph.ir.passes.interchanged_blocks import NewOrder, Reordered
from dynagraph.ir.passes.turns import NOT_INVARIANT, Holds, has_unknown, moderate
from dynagraph.ir.region_liveness import operands_of
from dynagraph.ir.region_loops import Loop, innermost_loops, natural_loops, reverse_postorder
from dynagraph.ir.regions import (
    Block,
    Branch,
    Checked,
    Instruction,
    Interruptible,
    Jump,
    Load,
    OneByOne,
    Place,
    Position,
    Region,
    Require,
    Set,
    Store,
    Touched,
    assigned,
)

MOST_DEPTH = 4  # of a nest whose order changes
MOST_BLOCKS = 40
MOST_WITHIN = 2**10  # turns of a loop that stays within the innermost one, so that strips end
LARGEST_FACTOR = 2**16
# costs of an element for a turn of a loop: one that lies elsewhere than its neighbour's, and a sum that waits for itself
STRIDED, IN_ORDER = 8, 3
SKEWED_TURNS = 16  # on a diagonal, whose rows have to stay in the cache
INTERCHANGED = "interchanged: its turns become those of the innermost loop"
SKEWED = "skewed: its turns become those of the innermost loop, along diagonals"
WORTH = 1.5  # times the cost of the new order
INSTRUCTIONS = (Set, Checked, Require, Position, Load, Store, Interruptible, OneByOne)
Axis = tuple[str, int]  # an array, and one of its axes


class Refused(Exception):
    """What stands against another order."""


def interchange(region: Region) -> tuple[set[int], dict[int, str]]:
    """Changes the region.  Gives the headers of the nests that were made, and what became of loops: headers by their numbers."""
    loops, live = natural_loops(region), Live(region)
    innermost = innermost_loops(region)
    found: list[_Order] = []
    for root in loops:
        chain = _chain(root, loops)
        if len(chain) > 1 and root.header is not region.blocks[0] and _may_change(root):
            try:
                found += _orders(region, root, chain, loops, innermost, live)
            except Refused:
                continue
    made: set[int] = set()
    said: dict[int, str] = {}
    taken: set[Block] = set()
    for order in sorted(found, key=lambda o: (o.cost, -o.at)):
        inside = set(order.root.blocks)
        if not taken & inside:
            made.add(Reordered(region, order.new).link().number)
            said[order.root.header.number] = SKEWED if order.skewed else INTERCHANGED
            taken |= inside
    if made:
        region.blocks = reverse_postorder(region.blocks[0])
    return made, said


def _orders(
    region: Region, root: Loop, chain: list[Loop], loops: list[Loop], innermost: list[Loop], live: Live
) -> Iterator["_Order"]:
    inside = set(root.blocks)
    inner = [x for x in loops if x is not root and x.header in inside]
    nest = Nest(region, root, inner, [x for x in innermost if x.header in inside])
    if not nest.is_without_checks():
        raise Refused("not all of its checks are proven")
    best: _Order | None = None
    ways = [(depth, False) for depth in range(len(chain), 1, -1)]
    ways += [(2, True)] if len(chain) == len(nest.values.loops) == 2 else []
    for depth, skewed in ways:
        try:
            order = _Order(region, nest, chain, depth, loops.index(root), skewed)
            order.check(live)
        except Refused:
            continue
        if best is None or skewed or order.cost <= best.cost:  # the one that moves less
            best = order
    if best is not None:
        yield best


# -- what the nest consists of --------------------------------------------------------------------------------------------------


def _chain(root: Loop, loops: list[Loop]) -> list[Loop]:
    """The loops of a perfect nest, the outermost first."""
    found = [root] if _ends_at_header(root) else []
    while found and len(found) < MOST_DEPTH:
        inside = set(found[-1].blocks) - {found[-1].header}
        inner = [x for x in loops if x.header in inside]
        direct = [x for x in inner if not any(x.header in y.blocks for y in inner if y is not x)]
        if len(direct) != 1 or not _is_around(found[-1], direct[0]) or not _ends_at_header(direct[0]):
            break
        found.append(direct[0])
    return found


def _ends_at_header(loop: Loop) -> bool:
    """Whether a loop is left where its header's test does not hold, and there only."""
    end, inside = loop.header.end, set(loop.blocks)
    if not isinstance(end, Branch) or end.then not in inside or end.then is loop.header or end.otherwise in inside:
        return False
    return all(inside.issuperset(b.successors()) for b in loop.blocks[1:]) and all(isinstance(i, Set) for i in loop.header.body)


def _is_around(outer: Loop, inner: Loop) -> bool:
    """Whether a turn does no more than the loop within, but for what counts, is tested, or read."""
    within = set(inner.blocks)
    around = [b for b in outer.blocks if b not in within and b is not outer.header]
    return all(isinstance(b.end, Jump) and not any(isinstance(i, Store) for i in b.body) for b in around)


def _may_change(root: Loop) -> bool:
    body = [i for b in root.blocks for i in b.body]
    if len(root.blocks) > MOST_BLOCKS or not any(isinstance(i, Store) for i in body):
        return False
    if not all(isinstance(i, INSTRUCTIONS) and not isinstance(getattr(i, "exit", None), Block) for i in body):
        return False
    return not any(part.op in NOT_INVARIANT for i in body for e in operands_of(i) for part in e.walk())


def _may_be_fortran(place: Place) -> bool:
    """Whether neighbours along the first axis may be next to one another, as the last one is not known to be contiguous."""
    return len(place.steps) > 1 and all(stride is not None for _, stride in place.steps)


# -- one order --------------------------------------------------------------------------------------------------------------------


class _Order:
    """The root of a nest as the last one of the first `depth` loops of a chain.  Raises Refused.

    `unit`: axes along which the guard has to find neighbours next to one another.
    Turns are counted from where a loop's variable is zero at the first turn of the root: `shifts` says by how much a turn of the
    root moves its first turn, so that the triangle of ``for j ...: for i in range(j, n)`` has indices of one loop each.
    """

    def __init__(self, region: Region, nest: Nest, whole_chain: list[Loop], depth: int, at: int, skewed: bool):
        self.skewed = skewed
        self.region, self.nest, self.values, self.at = region, nest, nest.values, at
        self.chain, self.rest = whole_chain[:depth], whole_chain[depth:]
        self.root, self.last = self.chain[0], self.chain[-1]
        self.turn: dict[Loop, Symbol] = {}
        for loop in whole_chain:
            (self.turn[loop],) = self.values.at_begin[loop.header][0].symbols()
        self.uses: dict[str, list[tuple[Instruction, Place]]] = {}
        for block in self.root.blocks:
            for i in block.body:
                if isinstance(i, (Load, Store)):
                    if i.place.base.op != "var" or (isinstance(i, Store) and i.kept):
                        raise Refused("its arrays are not given, or what it writes to is kept")
                    self.uses.setdefault(str(i.place.base.value), []).append((i, i.place))
        if len(self.uses) > MOST_ARRAYS:
            raise Refused("it has too many arrays")
        self.written = {data for data, uses in self.uses.items() if any(isinstance(i, Store) for i, _ in uses)}
        self.chosen: dict[str, IntExpr] = {}  # of max(0, n) where a loop turns: n
        self.limits = {loop: self._limit(loop) for loop in self.chain}
        self.shifts = {loop: self._shift(loop) for loop in self.chain[1:]}
        if skewed and any(self.shifts.values()):
            raise Refused("its loops are those of a triangle")
        self.shifts = dict.fromkeys(self.shifts, 1) if skewed else self.shifts
        root_turn = IntExpr.symbol(self.turn[self.root].name)
        turns = {x: self.turn[x].name for x in self.chain}
        self.shifted = {turns[x]: IntExpr.symbol(turns[x]) - root_turn * by for x, by in self.shifts.items() if by}
        self.indices = {i: [self._index(f) for f in self.values.indices[i]] for uses in self.uses.values() for i, _ in uses}
        self.unit = self._unit_axes()
        self.cost = self._cost([*self.chain[1:], self.root, *self.rest])
        if skewed and not self._waits():
            raise Refused("its turns do not wait for both neighbours, or those of a diagonal do")
        if not skewed and self.cost * WORTH > self._cost(whole_chain):
            raise Refused("it goes along memory no better")

    def check(self, live: Live) -> None:
        self._check_dependences()
        self._check_arrays()
        self._bound_within()
        self.new = NewOrder(self.region, self.nest, self.chain, self.turn)
        self.new.bounds = {loop: self._bounds(loop) for loop in self.chain}
        self.new.shifts = self.shifts
        self.new.apart, self.new.whole = self.apart, self.whole
        self.new.within, self.new.most_within = self.within, self.most_within
        self.new.most_turns = SKEWED_TURNS if self.skewed else 0
        self.new.unit = {(data, axis): self.uses[data][0][1] for data, axis in self.unit}
        try:
            self.new.find_variables(live, self.factors, self._settled, frozenset(self.written))
        except ValueError as error:
            raise Refused(str(error)) from None

    # -- turns ----------------------------------------------------------------------------------------------------------------
    def _settled(self, value: IntExpr) -> IntExpr:
        """What an int is in a turn of the innermost loop, by turns."""
        value = self.nest.settled(value)
        while known := {s.name: self.chosen[s.name] for s in value.symbols() if s.name in self.chosen}:
            value = self.nest.settled(value.substitute(known))
        return value.substitute(self.shifted)

    def _limit(self, loop: Loop) -> IntExpr:
        """What is above zero in the turns of a loop, and one less in each."""
        test = self.values.tests.get(loop.header)
        if not isinstance(test, Holds) or len(test.parts) != 1:
            raise Refused("how often it turns is not known before")
        limit = self.values.expanded(test.parts[0])
        (turn,) = self.values.at_begin[loop.header][0].symbols()
        rest = IntExpr.of(0) - IntExpr.symbol(turn.name)
        for _ in range(2):
            for symbol in limit.symbols():
                meeting = self.values.meetings.get(symbol.name)
                if meeting is None or limit - IntExpr.symbol(symbol.name) != rest:
                    continue
                # max(0, n), and where that is 0 there are no turns
                ways = [(way.values[symbol.name], way.facts) for way in meeting.ways]
                found = [value for value, facts in ways if facts == (value,)]
                if len(ways) == 2 and len(found) == 1 and any(value == 0 for value, _ in ways):
                    self.chosen[symbol.name] = found[0]
                    limit = self.values.expanded(found[0] + rest)
                    break
        factor = limit.coefficient(turn)
        if factor is None or factor != IntExpr.of(-1):
            raise Refused("its test does not count by ones")
        return limit

    def _shift(self, loop: Loop) -> int:
        turn, root = self.turn[loop], self.turn[self.root]
        _, _, begun = self.values.at_begin[loop.header]
        for start in begun.values():
            value = self.values.expanded(start)
            factors = [value.coefficient(s) for s in (turn, root)]
            if all(f is not None for f in factors) and factors[0] == IntExpr.of(1):
                by = factors[1].constant  # type: ignore[union-attr]
                if by in (1, -1):
                    return by
        return 0

    def factors(self, value: IntExpr) -> tuple[IntExpr, dict[Loop, int]] | None:
        """What is left of an affine value, and by what the turns of each loop are multiplied in it."""
        found = {}
        for loop, turn in self.turn.items():
            if turn not in value.symbols():
                continue
            factor = value.coefficient(turn)
            if factor is None or factor.constant is None or abs(factor.constant) > LARGEST_FACTOR:
                return None
            found[loop] = factor.constant
        return value.substitute({turn.name: 0 for turn in self.turn.values()}), found

    def _bounds(self, loop: Loop) -> tuple[IntExpr, dict[Loop, int]]:
        found = self.factors(self._settled(self.limits[loop]))
        if found is None or has_unknown(found[0]) or not moderate(found[0]):
            raise Refused("how often it turns is not known before")
        if abs(found[1].get(self.root, 0)) > 1 or any(by not in (1, -1) for x, by in found[1].items() if x is not self.root):
            raise Refused("its bounds are not those of a triangle")
        return found

    def _bound_within(self) -> None:
        """Loops that stay in the innermost one end soon."""
        inside = set(self.last.blocks)
        within = [x for x in self.values.loops.values() if x is not self.last and x.header in inside]
        self.within: list[IntExpr] = []
        self.most_within = 1
        for loop in within:
            try:
                limit = self._limit(loop).substitute({s.name: 0 for s in self.values.at_begin[loop.header][0].symbols()})
            except Refused:
                limit = None
            if limit is not None and not has_unknown(limit) and moderate(limit):
                self.within.append(limit)
                continue
            self.most_within *= MOST_WITHIN
            turn, always = self.values.at_begin[loop.header][0], self.values.dominators
            each_turn = [b for b in loop.blocks if all(always(b, latch) for latch in loop.latches)]
            if not any(self.nest.hold([MOST_WITHIN - turn], b) for b in each_turn):
                raise Refused("how long its turns take is not known before")
        if len(within) > 1 and any(x.header in y.blocks for x, y in combinations(within, 2)):
            raise Refused("its turns take long")

    # -- memory -----------------------------------------------------------------------------------------------------------------
    def _index(self, found: object) -> tuple[IntExpr, dict[Loop, int]] | None:
        """An index; None: not known."""
        return self.factors(self._settled(found)) if isinstance(found, IntExpr) else None

    def _unit_axes(self) -> set[Axis]:
        """Of arrays whose last axis is not known to be contiguous, those along which the innermost loop then goes."""
        found = set()
        for data, uses in self.uses.items():
            for i, place in uses:
                axes = [k for k, x in enumerate(self.indices[i]) if x is not None and x[1].get(self.root)]
                if axes == [0] and _may_be_fortran(place):
                    found.add((data, 0))
        return found

    def _step(self, i: Instruction, place: Place, loop: Loop) -> int:
        """What a turn of a loop costs there."""
        found = [(k, x[1].get(loop, 0)) for k, x in enumerate(self.indices[i]) if x is not None]
        moves = [(k, by) for k, by in found if by]
        if None in self.indices[i] or len(moves) > 1:
            return STRIDED
        if not moves:
            return 0
        ((axis, by),) = moves
        is_unit = place.steps[axis][1] is None or (axis == 0 and _may_be_fortran(place))
        return 1 if abs(by) == 1 and is_unit else STRIDED

    def _cost(self, chain: list[Loop]) -> int:
        """Of a turn of the innermost loop.  Where that adds up, those around it may run side by side."""
        found = []
        for loop in chain[-2:]:
            uses = [(i, place) for uses in self.uses.values() for i, place in uses]
            cost = sum(self._step(i, place, loop) for i, place in uses)
            in_order = any(isinstance(i, Store) and not self._step(i, place, loop) for i, place in uses)
            found.append((cost, in_order))
        (outer, _), (cost, in_order) = found
        if not in_order:
            return cost
        return min(cost + IN_ORDER, outer)

    def _check_dependences(self) -> None:
        for data in self.written:
            uses = [i for i, _ in self.uses[data]]
            for store in uses:
                if isinstance(store, Store) and not all(self._keeps_order(store, other) for other in uses):
                    raise Refused("a dependence would be turned round")

    def _keeps_order(self, store: Instruction, other: Instruction) -> bool:
        """Whether two turns that touch one element come in the same order as before."""
        apart = self._apart(store, other)
        if apart is None:
            return True
        first = apart.get(self.root)
        if first == 0:
            return True
        for loop in self.chain[1:]:
            by = apart.get(loop)
            if by is None:
                return False
            if by:
                return first is not None and (by > 0) == (first > 0)
        return True  # the same turns of all others, which stay in order

    def _waits(self) -> bool:
        """Whether a turn waits for floats of the turns before it in both loops, and none of a diagonal for another."""
        before: set[tuple[int, int]] = set()
        outer, inner = self.chain
        for data in self.written:
            for store in (i for i, _ in self.uses[data] if isinstance(i, Store)):
                for other, place in self.uses[data]:
                    apart = self._apart(store, other)
                    if apart is None:
                        continue
                    if set(apart) != {outer, inner} or (apart[inner] == 0 and apart[outer]):
                        return False
                    if isinstance(other, Load) and place.dtype.is_float:
                        before.add((apart[outer], apart[inner]))
        return {(1, 1), (0, 1)} <= before

    def _apart(self, store: Instruction, other: Instruction) -> dict[Loop, int] | None:
        """How many turns later `other` touches an element, by loops of which that is known; None: it never does."""
        apart: dict[Loop, int] = {}
        diagonal: list[int] = []
        for x, y in zip(self.indices[store], self.indices[other]):
            if x is None or y is None or x[1] != y[1]:
                continue
            (rest, factors), difference = x, (x[0] - y[0]).constant
            if difference is None or not all(self.values.is_older(z, self.root.header) for z in (rest, y[0])):
                continue
            if not factors and difference:
                return None
            if len(factors) == 1:
                ((loop, factor),) = factors.items()
                if difference % factor or apart.get(loop, difference // factor) != difference // factor:
                    return None
                apart[loop] = difference // factor
            elif factors == {self.chain[-1]: 1, self.root: -1}:
                diagonal.append(difference)
        for difference in diagonal:  # of a loop's own turns, where these are shifted
            if self.root in apart:
                apart.setdefault(self.chain[-1], difference + apart[self.root])
        return apart

    def _check_arrays(self) -> None:
        settled = frozenset(self.region.parameters) - {assigned(i) for i in self.region.instructions()}
        wholes: dict[str, Touched] = {}
        for data, uses in self.uses.items():
            found = whole_array(data, uses, settled)
            if found is None:
                raise Refused("it goes through arrays that are made, or change, within the function")
            wholes[data] = found
        pairs = combinations(sorted(self.uses), 2)
        self.apart = [(wholes[x], wholes[y]) for x, y in pairs if x in self.written or y in self.written]
        self.whole = [wholes[data] for data in sorted(self.written)]

