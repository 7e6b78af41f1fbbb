"""The blocks of a nest whose loops run in another order, as `interchange.py` has found they may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, var
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.passes.fast_loops import Guard, least_of, number, positive, redirect
from dynagraph.ir.passes.fast_nests import Live, Nest
from dynagraph.ir.passes.turns import has_unknown, moderate
from dynagraph.ir.region_liveness import Names, Reads, live_variables
from dynagraph.ir.region_loops import Loop, predecessors
from dynagraph.ir.regions import (
    Block,
    Branch,
    Instruction,
    Interruptible,
    Jump,
    Load,
    Place,
    Region,
    Separate,
    Set,
    Store,
    Touched,
    Unfolded,
    assigned,
)

I64 = dtypes.int64
FEWEST, FEWEST_OF_ALL = 8, 2**8  # turns of the loop that is moved, and of the innermost one, that are worth a guard
STRIP, SHORTEST_STRIP = 2**22, 16  # innermost turns between looks for signals; turns of the loop that is moved
LOOKS = 4096  # turns between looks for other threads count for as many
FARTHEST = 2**60  # where variables begin
MOST_TURNS = 2**31
Affine = tuple[IntExpr, dict[Loop, int]]  # what does not change, and by what the turns of loops are multiplied
Factors = Callable[[IntExpr], "Affine | None"]


class NewOrder:
    """What `Reordered` has to know: the first loop of `chain` becomes the last one.

    `bounds`: by loops, what is above zero in their turns, by turns that are `shifts` times the first loop's turn later.
    `unit`: arrays and axes whose strides have to be the size of an element, with a place in each; `apart`, `whole`: arrays that may
    not overlap, and whose elements may not.
    `within`: how often loops turn that stay in the innermost one; `most_within`: how often, where that is not known, at most.
    `most_turns`: of a strip, where it is not 0.
    """

    def __init__(self, region: Region, nest: Nest, chain: list[Loop], turn: dict[Loop, Symbol]):
        self.region, self.nest, self.chain, self.turn = region, nest, chain, turn
        self.bounds: dict[Loop, Affine] = {}
        self.shifts: dict[Loop, int] = {}
        self.unit: dict[tuple[str, int], Place] = {}
        self.apart: list[tuple[Touched, Touched]] = []
        self.whole: list[Touched] = []
        self.within: list[IntExpr] = []
        self.most_within = 1
        self.most_turns = 0
        self.inner_variables: dict[str, Affine] = {}
        self.counters: dict[str, Affine] = {}
        self.sunk: list[Instruction] = []

    @property
    def root(self) -> Loop:
        return self.chain[0]

    # -- variables ------------------------------------------------------------------------------------------------------------
    def find_variables(self, live: Live, factors: Factors, settled: Callable[[IntExpr], IntExpr], written: Names) -> None:
        """Raises ValueError where a turn goes on with what others leave."""
        values, last = self.nest.values, self.chain[-1]
        begun, assigned_names = live.at(_turns(self.root)) & values.assigned, values.assigned
        for name in sorted(live.at(self.root.header) & assigned_names):
            found = self._known(values.at_begin[self.root.header][2].get(name), factors, settled)
            if found is not None and set(found[1]) <= {self.root}:
                self.counters[name] = found
            elif name in begun:
                raise ValueError("turns read what others assign")
        self.leaves_last = bool(live.at(self.root.header) & assigned_names - set(self.counters))
        entry, _ = self.body(Block(-1))
        wanted = live_variables(entry, Reads())[entry] & assigned_names
        wanted = self._sink(wanted, written)
        ends = values.at_end[last.header]
        for name in sorted(wanted):
            found = self._known(ends.get(name), factors, settled)
            if found is None:
                raise ValueError("what a turn reads is not known")
            self.inner_variables[name] = found

    @staticmethod
    def _known(value: object, factors: Factors, settled: Callable[[IntExpr], IntExpr]) -> Affine | None:
        found = factors(settled(value)) if isinstance(value, IntExpr) else None
        return None if found is None or has_unknown(found[0]) or not moderate(found[0]) else found

    def _sink(self, wanted: Names, written: frozenset[str]) -> Names:
        """What is computed before the innermost loop is so in each of its turns.  Gives the ints that are read there."""
        kinds, nest = self.region.variables, self.nest
        path = [i for outer, inner in zip(self.chain, self.chain[1:]) for i in _path(outer, inner)]
        setters = [name for b in self.root.blocks for i in b.body if (name := assigned(i))]
        needed = {n for n in wanted if kinds[n] is not I64}
        ints = wanted - needed
        for i in reversed(path):
            name = assigned(i)
            if name is None or name not in needed:
                continue
            needed.discard(name)
            made = nest.proven.get(i, i)
            if not isinstance(made, (Set, Load)) or setters.count(name) > 1:
                raise ValueError("what a turn reads is not known")
            if isinstance(made, Load) and (made.place.base.op != "var" or made.place.base.value in written):
                raise ValueError("what is read before the innermost loop may be written there")
            self.sunk.insert(0, made)
            read = Reads().by(made) & nest.values.assigned
            ints |= {n for n in read if kinds[n] is I64}
            if any(setters.count(n) > 1 for n in read):
                raise ValueError("what a turn reads is not known")
            needed |= {n for n in read if kinds[n] is not I64}
        if needed:
            raise ValueError("turns read what others assign")
        return ints

    # -- blocks ---------------------------------------------------------------------------------------------------------------
    def body(self, behind: Block, n: int = 0) -> tuple[Block, list[Block]]:
        """A turn of the innermost loop as written, without its checks: where it begins, and all blocks, numbered from `n` on."""
        loop = self.chain[-1]
        copies = {b: Block(n + k, b.line) for k, b in enumerate(loop.blocks[1:])}
        for block, copy in copies.items():
            made = (self.nest.proven.get(i, i) for i in block.body)
            copy.body = [self.along(i) for i in made if i is not None]
            copy.end = block.end
            redirect(copy, {**copies, loop.header: behind})
        return copies[_turns(loop)], list(copies.values())

    def along(self, i: Instruction) -> Instruction:
        """With the size of an element for strides that are that."""
        if not isinstance(i, (Load, Store)):
            return i
        place = i.place
        steps = tuple(
            (index, None if (str(place.base.value), k) in self.unit else stride) for k, (index, stride) in enumerate(place.steps)
        )
        return i if steps == place.steps else replace(i, place=Place(place.base, steps, place.dtype))


def _turns(loop: Loop) -> Block:
    """Where a turn goes on behind the header."""
    assert isinstance(loop.header.end, Branch)
    return loop.header.end.then


def _path(outer: Loop, inner: Loop) -> list[Instruction]:
    """What a turn does before the loop within."""
    found, block = list(outer.header.body), _turns(outer)
    while block is not inner.header:
        found += block.body
        assert isinstance(block.end, Jump)
        block = block.end.block
    return found + inner.header.body


class Reordered:
    """The guard, and the nest behind it."""

    def __init__(self, region: Region, new: NewOrder):
        self.region, self.new, self.nest = region, new, new.nest
        self.header = new.root.header
        self.n = max(b.number for b in region.blocks) + 1
        self.made: list[Block] = []
        self.guard = Guard(region, self.nest.values, self._block(), self.header)
        self.bases: dict[object, Expr] = {}

    def _block(self, body: list[Instruction] | None = None) -> Block:
        made = Block(self.n, self.header.line, body or [])
        self.n += 1
        self.made.append(made)
        return made

    def _fresh(self, value: Expr | None = None, block: Block | None = None) -> Expr:
        name = self.guard.fresh()
        if value is not None:
            (block or self.guard.block).body.append(Set(name, value))
        return var(name, I64)

    def link(self) -> Block:
        """Gives the header of the nest that is made."""
        new, guard, header = self.new, self.guard, self.header
        others = new.chain[1:]
        self._ask()
        turns = self._base(new.bounds[new.root][0])
        guard.require(call("ge", turns, number(FEWEST)))
        if new.leaves_last:
            turns = self._fresh(_less(turns, number(1)))
        strip = self._strip(turns)
        low, high = self._fresh(number(0)), guard.fresh()
        head, start, done = self._block(), self._block(), self._block()
        guard.block.end = Jump(head)
        self.low, self.high = low, var(high, I64)
        self.named = {loop: var(guard.fresh(), I64) for loop in new.chain}
        start.body.append(Set(high, least_of(self._fresh(_more(low, strip), start), turns)))
        head.end = Branch(call("lt", low, turns), start, header)
        entry, headers = start, []
        behind = done
        for loop in others:
            entry, inside, behind = self._loop(loop, entry, behind, self._bounds_of(loop, entry))
            headers.append(inside)
        entry, inside, behind = self._loop(new.root, entry, behind, self._bounds_of_root(entry))
        self._body(entry, behind)
        for name, (base, by) in new.counters.items():
            value = self._affine(base, {self.high: by.get(new.root, 0)})
            done.body.append(Set(name, value))
        done.body += [Set(str(low.value), self.high), Interruptible(header, LOOKS)]
        done.end = Jump(head)
        inside_nest = set(new.root.blocks)
        for block in predecessors(self.region.blocks)[header]:
            if block not in inside_nest:
                redirect(block, {header: guard.block})
        self.region.blocks += self.made
        return headers[0]

    # -- the guard ------------------------------------------------------------------------------------------------------------
    def _ask(self) -> None:
        guard, new = self.guard, self.new
        for (_, axis), place in new.unit.items():
            stride = place.steps[axis][1]
            assert stride is not None
            guard.require(call("eq", stride, number(place.dtype.itemsize)))
        for condition in self.nest.conditions:
            guard.require_positive(condition + 1)
        for test in self.nest.tests:
            guard.require(guard.expr(test))
        guard.block.body += [Unfolded(array, guard.otherwise) for array in new.whole]
        guard.block.body += [Separate(one, two, guard.otherwise) for one, two in new.apart]
        affine = [*new.inner_variables.values(), *new.counters.values(), *new.bounds.values()]
        for base, _ in affine:
            self._base(base)

    def _base(self, base: IntExpr) -> Expr:
        """What does not change, as it is in front of the nest."""
        if base not in self.bases:
            guard = self.guard
            if base.constant is None:
                guard.require_positive(base + FARTHEST)
                guard.require_positive(FARTHEST - base)
            found = guard.int(base)
            self.bases[base] = self._fresh(found) if found.op == "var" else found
        return self.bases[base]

    def _strip(self, turns: Expr) -> Expr:
        """How many turns of the loop that is moved may be done without a look for signals."""
        guard, new = self.guard, self.new
        each = number(new.most_within)
        for limit in new.within:
            each = guard.checked("int_mul", each, guard.set(_most_of(self._base(limit), number(1))))
        extents: dict[Loop, Expr] = {}
        for loop in new.chain[1:]:
            base, by = new.bounds[loop]
            extent = self._base(base)
            if by.get(new.root, 0) > 0 or new.shifts[loop] < 0:
                extent = guard.checked("int_add", extent, turns)
            for other, factor in by.items():
                if factor > 0 and other in extents:
                    extent = guard.checked("int_add", extent, extents[other])
            extents[loop] = extent
            guard.require(positive(extent))
            guard.require(call("lt", extent, number(MOST_TURNS)))
            each = guard.checked("int_mul", each, extent)
        guard.require(call("lt", turns, number(MOST_TURNS)))
        if new.most_turns:
            return number(new.most_turns)
        guard.require(call("le", each, number(STRIP)))
        guard.require(call("ge", guard.checked("int_mul", each, turns), number(FEWEST_OF_ALL)))
        return guard.set(_most_of(number(SHORTEST_STRIP), guard.set(Expr("c_div", (number(STRIP), each), I64))))

    # -- loops ----------------------------------------------------------------------------------------------------------------
    def _loop(self, loop: Loop, entry: Block, behind: Block, bounds: tuple[Expr, Expr]) -> tuple[Block, Block, Block]:
        """Gives where a turn begins, the header, and where a turn ends."""
        counter = str(self.named[loop].value)
        first, end = bounds
        entry.body.append(Set(counter, first))
        header, turn, latch = self._block(), self._block(), self._block()
        entry.end = Jump(header)
        header.end = Branch(call("lt", self.named[loop], end), turn, behind)
        latch.body = [Set(counter, _more(self.named[loop], number(1)))]
        latch.end = Jump(header)
        return turn, header, latch

    def _bounds_of(self, loop: Loop, entry: Block) -> tuple[Expr, Expr]:
        """Of a loop, in a strip of turns of the loop that is moved: the least and the most that these ask for."""
        new = self.new
        base, by = new.bounds[loop]
        last = _less(self.high, number(1))
        shift, grows = new.shifts[loop], by.get(new.root, 0)
        first = number(0)
        if shift:
            first = self._fresh(self.low if shift > 0 else _less(number(0), last), entry)
        end = self._affine(base, {self.named[x]: c for x, c in by.items() if x is not loop and x is not new.root})
        if grows:
            end = _more(end, last) if grows > 0 else _less(end, self.low)
        return first, end if end.op in ("var", "const") else self._fresh(end, entry)

    def _bounds_of_root(self, entry: Block) -> tuple[Expr, Expr]:
        new = self.new
        lows, highs = [self.low], [self.high]
        for loop in new.chain[1:]:
            base, by = new.bounds[loop]
            shift, grows, at = new.shifts[loop], by.get(new.root, 0), self.named[loop]
            limit = self._affine(base, {self.named[x]: c for x, c in by.items() if x is not new.root})
            if grows > 0:
                lows.append(_less(number(1), limit))
            elif grows < 0:
                highs.append(limit)
            if shift > 0:
                highs.append(_more(at, number(1)))
            elif shift < 0:
                lows.append(_less(number(0), at))
        return self._extreme(lows, _most_of, entry), self._extreme(highs, least_of, entry)

    def _extreme(self, values: list[Expr], choose: Callable[[Expr, Expr], Expr], entry: Block) -> Expr:
        found, *others = values
        for value in others:
            named = self._fresh(value, entry)
            found = self._fresh(choose(found, named), entry)
        return found

    def _affine(self, base: IntExpr, by: Mapping[Expr, int]) -> Expr:
        """Terms that grow are added before others, so that no sum leaves 64 bits."""
        total: Expr | None = None if base == 0 else self._base(base)
        for name, factor in sorted(by.items(), key=lambda term: -term[1]):
            if factor:
                term = name if abs(factor) == 1 else Expr("exact_mul", (name, number(abs(factor))), I64)
                if total is None:
                    total = term if factor > 0 else _less(number(0), term)
                else:
                    total = _more(total, term) if factor > 0 else _less(total, term)
        return number(0) if total is None else total

    def _body(self, entry: Block, latch: Block) -> None:
        new = self.new
        for name, (base, by) in new.inner_variables.items():
            entry.body.append(Set(name, self._affine(base, {self.named[x]: c for x, c in by.items()})))
        entry.body += [new.along(replace(i)) for i in new.sunk]
        begin, blocks = new.body(latch, self.n)
        self.n += len(blocks)
        entry.end = Jump(begin)
        if not any(begin in b.successors() for b in blocks):  # one block: other passes look for what a place is within it
            entry.body, entry.end = entry.body + begin.body, begin.end
            blocks.remove(begin)
        self.made += blocks


def _more(x: Expr, y: Expr) -> Expr:
    return Expr("exact_add", (x, y), I64)


def _less(x: Expr, y: Expr) -> Expr:
    return Expr("exact_sub", (x, y), I64)


def _most_of(x: Expr, y: Expr) -> Expr:
    return Expr("select", (call("gt", x, y), x, y), I64)

