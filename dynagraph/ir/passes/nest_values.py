"""What ints are in the blocks of a nest of loops, and what follows from the tests that lead to a block.

An int is a polynomial in symbols: what does not change within the nest, and what does: the turn of a loop, a variable where ways
meet or a turn begins, what is read from memory.  `Values.proved` shows that such a polynomial is not below zero: it takes one
symbol after the other out of it, the last one first, by the facts that hold there, and gives what must hold in front of the nest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.passes.turns import (
    UNKNOWN,
    Facts,
    Found,
    Holds,
    Near,
    Turns,
    Wrapped,
    has_unknown,
    moderate,
    otherwise,
    predecessors_within,
)
from dynagraph.ir.region_loops import Dominators, Loop
from dynagraph.ir.regions import Block, Branch, Checked, Instruction, Load, LoadSlot, Position, Region, Store, assigned

MOST_STEPS = 60  # of one proof
MOST_STEPS_OF_NEST = 3000
MET, TURNS, BEGUN, MADE = 0.1, 0.3, 0.4, 0.6  # when in a block symbols get their values: a loop's entry is met before it turns
Known = dict[str, Found]


@dataclass
class Way:
    """One of the ways to where symbols get their values: what they then are, and what holds."""

    values: dict[str, IntExpr]
    facts: Facts = ()


@dataclass
class Meeting:
    """Where ways meet; `order`: of blocks."""

    order: float
    ways: list[Way] = field(default_factory=list)


class Values(Turns):
    """`operands`: of the instructions that check, as in `Turns`."""

    def __init__(self, region: Region, nest: Loop, inner: list[Loop]):
        self.region, self.loop, self.unwraps, self.shows_bounds = region, nest, False, True
        self.wraps, self.steps, self.opaque, self.operands, self.results, self.at_end = {}, {}, {}, {}, {}, {}
        self.at_begin: dict[Block, tuple[IntExpr, Meeting, dict[str, IntExpr]]] = {}
        self.loops = {loop.header: loop for loop in (nest, *inner)}
        self.entries = predecessors_within(nest)
        self.order = {b: k for k, b in enumerate(nest.blocks)}
        self.dominators = Dominators(nest.blocks, self.entries)
        self.assigned = {name for block in nest.blocks for i in block.body if (name := assigned(i))}
        self.orders: dict[str, float] = {}  # of symbols: those with a higher one get their values later
        self.meetings: dict[str, Meeting] = {}
        self.closed: dict[str, IntExpr] = {}  # what a variable is where a turn begins
        self.highest: dict[str, IntExpr] = {}  # what a variable is not above
        self.standing: dict[Block, Facts] = {}  # what holds wherever a turn begins
        self.limits: dict[str, Near] = {}
        self.data: set[str] = set()  # symbols of what memory holds
        self.wrapped: dict[str, IntExpr] = {}  # symbols of ints that are computed modulo 2^64, and what they are without that
        self.positions: dict[str, tuple[Position, IntExpr]] = {}  # symbols of indices that may count from the end, and the indices
        self.symbol_of: dict[Instruction, str] = {}  # of what they assign, where that is no polynomial
        self.indices: dict[Instruction, list[Found]] = {}  # of places that are read or written
        self.turn_of: dict[str, Block] = {}
        self.steps_left = MOST_STEPS_OF_NEST
        self.tests: dict[Block, Found] = {}  # of branches
        self._facts: dict[Block, Facts] = {}
        self._at: Block = nest.header
        for block in nest.blocks:
            self._block(block)
        for loop in sorted(self.loops.values(), key=lambda x: -self.order[x.header]):
            self._close(loop)
            self._facts.clear()

    # -- what variables are -------------------------------------------------------------------------------------------------
    def symbol(self, name: str, order: float) -> IntExpr:
        made = f"{UNKNOWN}{name}.{len(self.orders)}"
        self.orders[made] = order
        return IntExpr.symbol(made)

    def _block(self, block: Block) -> None:
        self._at = block
        loop = self.loops.get(block)
        before = [b for b in self.entries[block] if loop is None or b not in loop.latches]
        known = self._met(block, before) if before else {}
        if loop is not None:
            known = self._begun(loop, known)
        for i in block.body:
            self.step(i, known)
        self.at_end[block] = known
        if isinstance(block.end, Branch):
            self.tests[block] = self.value(block.end.test, known)

    def _met(self, block: Block, before: list[Block]) -> Known:
        ends = [self.at_end[b] for b in before]
        known, meeting = dict(ends[0]), Meeting(self.order[block] + MET, [Way({}) for _ in before])
        for name in set().union(*ends):
            values = [end.get(name, self._given(name)) for end in ends]
            known[name] = values[0]
            if all(v == values[0] and type(v) is type(values[0]) for v in values):
                continue
            known[name] = None
            if all(isinstance(v, IntExpr) for v in values):
                known[name] = self._meets(name, meeting, values)  # type: ignore[arg-type]
        for way, b in zip(meeting.ways, before):
            way.facts = self.facts_behind(b, block)
        return known

    def _meets(self, name: str, meeting: Meeting, values: list[IntExpr]) -> IntExpr:
        symbol = self.symbol(name, meeting.order)
        made = _name(symbol)
        self.meetings[made] = meeting
        for way, value in zip(meeting.ways, values):
            way.values[made] = value
        return symbol

    def _given(self, name: str) -> Found:
        """What a variable is in front of the nest."""
        return IntExpr.symbol(name) if self.region.variables[name] is dtypes.int64 else None

    def _begun(self, loop: Loop, known: Known) -> Known:
        """Where a turn begins."""
        order = self.order[loop.header]
        meeting, turn = Meeting(order + BEGUN), self.symbol("turn", order + TURNS)
        self.turn_of[_name(turn)] = loop.header
        names = sorted({name for block in loop.blocks for i in block.body if (name := assigned(i))})
        entry, made, symbols = Way({_name(turn): IntExpr.of(0)}), dict(known), {}
        for name in names:
            made[name] = None
            if self.region.variables[name] is dtypes.int64:
                value = known.get(name, self._given(name))
                made[name] = symbols[name] = symbol = self.symbol(name, meeting.order)
                self.meetings[_name(symbol)] = meeting
                assert isinstance(value, IntExpr)
                entry.values[_name(symbol)] = value
        meeting.ways.append(entry)
        self.at_begin[loop.header] = turn, meeting, symbols
        return made

    def _close(self, loop: Loop) -> None:
        """What the variables are in turn k, and else what the last turn leaves them."""
        turn, meeting, begun = self.at_begin[loop.header]
        ends = [self.at_end[b] for b in loop.latches]
        rest: dict[str, str] = {}
        for name, start in begun.items():
            made = _name(start)
            steps = {v - start if isinstance(v, IntExpr) else None for v in (e.get(name) for e in ends)}
            step = steps.pop() if len(steps) == 1 else None
            if step is not None and self.is_older(step, loop.header):
                self.closed[made] = meeting.ways[0].values.pop(made) + step * turn
                del self.meetings[made]
            else:
                rest[made] = name
        self._count_down(loop, {made: [end.get(name) for end in ends] for made, name in rest.items()})
        rest = {made: name for made, name in rest.items() if made in self.meetings}
        before = {_name(turn): turn - 1}
        for end, latch in zip(ends, loop.latches):
            values = {}
            for made, name in rest.items():
                value = end.get(name)
                value = self.expanded(value) if isinstance(value, IntExpr) else None
                if value is None or not self.is_older(value.substitute({_name(turn): 0}), loop.header):
                    value = self.symbol(name, self.order[latch])  # not known
                values[made] = value.substitute(before)
            facts = [self.expanded(f) for f in self.facts_behind(latch, loop.header)]
            kept = [f.substitute(before) for f in facts if self.is_older(f.substitute({_name(turn): 0}), loop.header)]
            meeting.ways.append(Way(values, (turn, *kept)))

    def _count_down(self, loop: Loop, ends: dict[str, list[Found]]) -> None:
        """Variables that turns change by various numbers, where one is the turns left of another loop, and others follow it."""
        turn, meeting, _ = self.at_begin[loop.header]
        steps = {}
        for made, values in ends.items():
            if all(isinstance(v, IntExpr) for v in values):
                steps[made] = [self.expanded(v) - IntExpr.symbol(made) for v in values if isinstance(v, IntExpr)]
        down = [made for made, by in steps.items() if all(self._is_positive(-step) for step in by)]
        for made in down[:1]:
            start, now = meeting.ways[0].values[made], IntExpr.symbol(made)
            del self.meetings[made]
            self.highest[made] = start
            self.standing[loop.header] = (start - now - turn + 1,)
            for other, by in steps.items():
                ratio = {_ratio(x, y) for x, y in zip(by, steps[made])}
                if other != made and len(ratio) == 1 and (factor := ratio.pop()) is not None:
                    del self.meetings[other]
                    self.closed[other] = meeting.ways[0].values.pop(other) + (now - start) * factor

    def _is_positive(self, value: IntExpr) -> bool:
        """Whether it is above zero, whatever turns these are."""
        return value.terms.get((), 0) > 0 and all(c > 0 and all(a.name in self.turn_of for a in m) for m, c in value.terms.items())

    def is_older(self, value: IntExpr, header: Block) -> bool:
        """Whether it stays the same within a loop."""
        return all(self.orders.get(s.name, -1) < self.order[header] + TURNS for s in value.symbols())

    def step(self, i: Instruction, known: Known) -> None:
        name = assigned(i)
        if isinstance(i, (Load, Store)):
            self.indices[i] = [self.value(index, known) for index, _ in i.place.steps]
        super().step(i, known)
        if name is not None and self.region.variables[name] is dtypes.int64 and not isinstance(known[name], IntExpr):
            found, symbol = known[name], self.symbol(name, self.order[self._at] + MADE)
            if isinstance(found, Near) and not found.name:
                self.limits[_name(symbol)] = found
            if isinstance(found, Wrapped):
                self.wrapped[_name(symbol)] = found.value
            if isinstance(i, (Load, LoadSlot)) or (isinstance(i, Checked) and i.function.startswith(("int_of_", "float_"))):
                self.data.add(_name(symbol))
            self.symbol_of[i] = _name(symbol)
            if isinstance(i, Position) and isinstance(index := self.operands[i][0], IntExpr):
                self.is_at(i, index)
            known[name] = symbol

    def _result(self, i: Instruction, known: Known) -> Found:
        return None if isinstance(i, Position) else super()._result(i, known)

    def value(self, e: Expr, known: Known) -> Found:
        if e.op == "var" and e.value in self.assigned and e.value not in known:
            return self._given(str(e.value))
        found = super().value(e, known)
        if found is None and e.op == "select" and e.dtype is dtypes.int64:
            return self._chosen(*(self.value(a, known) for a in e.args))
        return found

    def _chosen(self, test: Found, x: Found, y: Found) -> Found:
        if not (isinstance(test, Holds) and isinstance(x, IntExpr) and isinstance(y, IntExpr)):
            return None
        symbol = self.symbol("chosen", self.order[self._at] + MADE)
        meeting = Meeting(self.order[self._at] + MADE)
        for value, facts in ((x, test.parts), (y, otherwise(test))):
            meeting.ways.append(Way({_name(symbol): value}, facts))
        self.meetings[_name(symbol)] = meeting
        return symbol

    def is_at(self, i: Position, index: IntExpr) -> None:
        self.positions[self.symbol_of[i]] = i, index

    def unwrapped(self, index: Found) -> IntExpr | None:
        """Of an index that is computed modulo 2^64, what it is where that is within bounds; None: of another one."""
        value = index.value if isinstance(index, Wrapped) else index
        if not isinstance(value, IntExpr):
            return None
        while known := {s.name: self.wrapped[s.name] for s in value.symbols() if s.name in self.wrapped}:
            value = value.substitute(known)
        return value if value != index else None

    # -- proofs -------------------------------------------------------------------------------------------------------------
    def expanded(self, value: IntExpr) -> IntExpr:
        while closed := {s.name: self.closed[s.name] for s in value.symbols() if s.name in self.closed}:
            value = value.substitute(closed)
        return value

    def proved(self, value: IntExpr, block: Block) -> list[IntExpr] | None:
        """What must be at least zero in front of the nest for `value` to be so wherever this block begins; None: not known."""
        self.left = min(MOST_STEPS, self.steps_left)
        self.steps_left -= self.left
        found = self._proved(value, self.facts(block))
        self.steps_left += max(self.left, 0)
        return found

    def _proved(self, value: IntExpr, facts: Facts) -> list[IntExpr] | None:
        self.left -= 1
        value = self.expanded(value)
        if value.constant is not None and value.constant >= 0:
            return []
        facts = tuple(dict.fromkeys(map(self.expanded, facts)))
        if self.left < 0 or not moderate(value):
            return None
        if any(self._cannot_be(f) for f in facts):
            return []
        changing = [s for s in value.symbols() if has_unknown(IntExpr.symbol(s.name))]
        if not changing:
            return None if value.constant is not None else [value]
        direct = [rest for f in facts if not has_unknown(rest := value - f + 1)]
        if any(rest.constant is not None and rest.constant >= 0 for rest in direct):
            return []
        last = max(changing, key=lambda s: self.orders[s.name])
        meeting = self.meetings.get(last.name)
        found = self._without(value, facts, last) if meeting is None else self._on_each_way(value, facts, meeting)
        direct = [rest for rest in direct if rest.constant is None and moderate(rest)]
        return [min(direct, key=lambda rest: len(rest.terms))] if direct and found != [] else found

    def _on_each_way(self, value: IntExpr, facts: Facts, meeting: Meeting) -> list[IntExpr] | None:
        found: list[IntExpr] = []
        for way in meeting.ways:
            here = tuple(f.substitute(way.values) for f in facts)
            proved = self._proved(value.substitute(way.values), (*here, *way.facts))
            if proved is None:
                return None
            found += proved
        return found

    def _without(self, value: IntExpr, facts: Facts, symbol: Symbol) -> list[IntExpr] | None:
        """With a bound of the symbol in its place."""
        factor = value.coefficient(symbol)
        if factor is None or has_unknown(factor):
            return None
        signs = {c > 0 for c in factor.terms.values()}
        if len(signs) != 1:
            return None
        (grows,) = signs
        asked = [] if factor.constant is not None else [factor if grows else -factor]
        for bound in self._bounds(symbol, facts, grows):
            found = self._proved(value.substitute({symbol.name: bound}), facts)
            if found is not None:
                return [*asked, *found]
        return None

    def _bounds(self, symbol: Symbol, facts: Facts, below: bool) -> list[IntExpr]:
        """What the symbol is not below, or not above."""
        found = []
        if below and symbol.name in self.turn_of:
            found.append(IntExpr.of(0))
        if not below and symbol.name in self.highest:
            found.append(self.highest[symbol.name])
        if symbol.name in self.limits:
            limits = self.limits[symbol.name]
            found.append(IntExpr.of(limits.low if below else limits.high))
        for fact in facts:
            factor = fact.coefficient(symbol)
            if factor is not None and factor.constant == (1 if below else -1):
                rest = fact.substitute({symbol.name: 0})
                found.append(1 - rest if below else rest - 1)
        return found

    def _cannot_be(self, fact: IntExpr) -> bool:
        """Whether it is at most zero, whatever turns these are."""
        return all(c <= 0 and all(a.name in self.turn_of for a in m) for m, c in fact.terms.items())


def _name(symbol: IntExpr) -> str:
    (found,) = symbol.symbols()
    return found.name


def _ratio(x: IntExpr, y: IntExpr) -> int | None:
    """The number by which the second is multiplied in the first, which has a constant part."""
    factor = x.terms.get((), 0) // y.terms[()]
    return factor if x == y * factor else None
