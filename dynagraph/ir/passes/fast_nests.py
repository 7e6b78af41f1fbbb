"""A second copy of nests of loops, without the checks that are proven in front of the nest for all turns of all its loops.

Where the guard in front holds, the copy does the whole nest: an inner loop of few turns then has no guard of its own to pay for.
Where it does not, the nest itself does, whose innermost loops have fast copies of their own.  Both have the same variables and the
same exits: what is not proven is checked in the copy too.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import prod

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, const, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.fast_loops import Guard, Proven, calls_function, positive, redirect, takes_long
from dynagraph.ir.passes.held_elements import held_elements
from dynagraph.ir.passes.lane_kinds import Refused
from dynagraph.ir.passes.nest_values import Values
from dynagraph.ir.passes.outer_lanes import Lanes
from dynagraph.ir.passes.read_once import ReadOnce, elements_read_once
from dynagraph.ir.passes.turns import CHECKED_POLYNOMIAL, Found, Holds, Turns, as_invariant, moderate, predecessors_within
from dynagraph.ir.region_liveness import NONE, Names, Reads, live_variables
from dynagraph.ir.region_loops import Loop, innermost_loops, natural_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import (
    Block,
    CallFunction,
    CallOut,
    Checked,
    Hold,
    Instruction,
    Interruptible,
    Jump,
    NewMemory,
    OneByOne,
    Position,
    Region,
    Require,
    RunTurns,
    Set,
    Store,
    assigned,
)

MOST_BLOCKS = 60  # of a nest that is copied
MOST_TURNS = 2**16  # of an innermost loop, within which no signal is looked for
TURNS_BETWEEN = 64  # looks for other threads count for as many turns
LARGEST = 2**59  # of ints, with either sign
LARGEST_FACTOR = 2**29
FLOATS = (dtypes.float64, dtypes.float32, dtypes.complex128)
MOST_CONDITIONS = 60
NOT_COPIED = (Hold, NewMemory, CallOut, CallFunction, RunTurns)


def add_fast_nests(region: Region, ready: AbstractSet[int] = frozenset()) -> dict[Block, Proven | None]:
    """Changes the region.  Gives what `add_fast_loops` has to know of innermost loops, by their headers.

    `ready`: the numbers of the headers of nests without checks, which get lanes only.
    """
    loops, innermost = natural_loops(region), innermost_loops(region)
    taken: set[Block] = set()
    done: dict[Block, Proven | None] = {}
    live = Live(region)
    for loop in loops:
        inside = set(loop.blocks)
        inner = [other for other in loops if other is not loop and other.header in inside]
        if loop.header in taken or not inner or not (loop.header.number in ready or _may_be_copied(region, loop, inner)):
            continue
        within = [x for x in innermost if x.header in inside]
        nest = Nest(region, loop, inner, within)
        if any(_computes_again(region, x, nest.hoisted) for x in within):
            continue  # the guard of such a loop does it once
        if loop.header.number in ready:
            done.update(nest.link_lanes(live))
            taken.update(inside)
        elif nest.is_proven():
            done.update(nest.link(live))
            taken.update(inside)
    if done:
        region.blocks = reverse_postorder(region.blocks[0])
    return done


def _may_be_copied(region: Region, loop: Loop, inner: list[Loop]) -> bool:
    if len(loop.blocks) > MOST_BLOCKS or loop.header is region.blocks[0]:
        return False
    body = [i for block in loop.blocks for i in block.body]
    if any(isinstance(i, NOT_COPIED) or isinstance(getattr(i, "exit", None), Block) or takes_long(i) for i in body):
        return False
    at = {block: k for k, block in enumerate(loop.blocks)}
    back = {(latch, x.header) for x in (loop, *inner) for latch in x.latches}
    return all(at.get(f, len(at)) > at[b] or (b, f) in back for b in loop.blocks for f in b.successors())


def _computes_again(region: Region, loop: Loop, hoisted: Mapping[Instruction, Expr]) -> bool:
    """Whether its turns call functions of what it does not change, beside those that are hoisted from the whole nest."""
    calls = [i for block in loop.blocks for i in block.body if calls_function(i) and i not in hoisted]
    return bool(calls) and any(as_invariant(f) is not None for f in map(Turns(region, loop).results.get, calls))


def adds_in_order(region: Region, loop: Loop) -> bool:
    """Whether it does little but to go on with floats of the turn before: vectors then cost more than they save."""
    body = [i for block in loop.blocks for i in block.body]
    floats = {name for i in body if (name := assigned(i)) and region.variables[name] in FLOATS}
    if any(isinstance(i, Store) for i in body):
        return False
    reads, before, ends = Reads(), predecessors_within(loop), dict[Block, frozenset[str]]()
    for block in loop.blocks:
        known = [ends[b] for b in before[block]] if block is not loop.header else []
        has = known[0].intersection(*known[1:]) if known else NONE
        for i in block.body:
            if reads.by(i) & floats - has:
                return True
            has |= {assigned(i) or ""}
        if reads.at_end(block) & floats - has:
            return True
        ends[block] = has
    return False


class Nest:
    """`conditions` and `tests` hold in front of the nest where `proven` may stand for its instructions."""

    def __init__(self, region: Region, loop: Loop, inner: list[Loop], innermost: list[Loop]):
        self.region, self.loop = region, loop
        self.innermost = {block: x for x in innermost for block in x.blocks}
        self.is_short: dict[Loop, bool] = {}  # whether an innermost loop has so few turns that signals may wait for its end
        self.values = Values(region, loop, inner)
        self.in_front: dict[Expr, Expr] = {}  # what the guard computes, and the variables that have it
        self.hoisted = {
            i: settled
            for x in innermost
            for block in x.blocks
            for i in block.body
            if calls_function(i) and (settled := as_invariant(self.values.results[i])) is not None
        }
        self.sizes: dict[IntExpr, list[tuple[Block, int]]] = {}  # what ints are at most behind these blocks, with either sign
        self.conditions: dict[IntExpr, None] = {}
        self.tests: dict[Expr, None] = {}
        self.proven: dict[Instruction, Instruction | None] = {}

    def is_proven(self) -> bool:
        """Whether all checks in innermost loops are, but for those of what memory holds."""
        n_inner = 0
        for block in self.loop.blocks:
            for i in block.body:
                made = self._proved(i, block)
                if made is not i:
                    self.proven[i] = made
                    n_inner += block in self.innermost
                elif block in self.innermost and not self._is_of_data(i, block):
                    return False
        return n_inner > 0 and len(self.conditions) <= MOST_CONDITIONS

    def is_without_checks(self) -> bool:
        """Whether all checks are proven, and none is left in any turn of any loop.  Signals are looked for elsewhere."""
        for block in self.loop.blocks:
            for i in block.body:
                if isinstance(i, (Interruptible, OneByOne)):
                    self.proven[i] = None
                elif isinstance(i, (Checked, Position, Require)):
                    made = self._proved(i, block)
                    if isinstance(made, (Checked, Position, Require)):
                        return False
                    self.proven[i] = made
        return len(self.conditions) <= MOST_CONDITIONS

    def _is_of_data(self, i: Instruction, block: Block) -> bool:
        """Whether a check stays in the fast copies of innermost loops too."""
        if isinstance(i, Checked) and i.function not in CHECKED_POLYNOMIAL and i.function != "int_mod":
            return True
        if not isinstance(i, (Checked, Position, Require)):
            return True
        if isinstance(i, Require) and self.values.operands[i] == [None]:  # a test of floats, as that none is below zero
            return True
        names = {s.name for f in self.values.operands[i] if isinstance(f, IntExpr) for s in f.symbols()}
        begins = self.values.order[self.innermost[block].header]
        return any(self.values.orders[name] > begins for name in names & self.values.data)

    def _proved(self, i: Instruction, block: Block) -> Instruction | None:
        """What stands for an instruction: itself where nothing is proven."""
        operands = self.values.operands[i]
        if i in self.hoisted:
            return Set(str(assigned(i)), self._in_front(self.hoisted[i]))
        if isinstance(i, Interruptible):
            return self._without_looks(i, block)
        if isinstance(i, Position):
            return self._in_bounds(i, block)
        if isinstance(i, Require):
            (test,) = operands
            settled = as_invariant(test)
            if settled is not None:
                self.tests[settled] = None
                return None
            if not isinstance(test, Holds):
                return i
            others = [p - 1 for p in test.parts if not self._is_above_all(p, block)]
            return None if self.hold(others, block) else i
        if isinstance(i, Checked) and i.function in CHECKED_POLYNOMIAL:
            if self._fits(i, block):
                return Set(i.name, Expr(f"exact_{CHECKED_POLYNOMIAL[i.function]}", i.args, dtypes.int64))
        elif isinstance(i, Checked) and i.function in ("int_floordiv", "int_mod", "float_div"):
            return self._divided(i)
        return i

    def _in_front(self, settled: Expr) -> Expr:
        if settled not in self.in_front:
            name = f"h{len(self.region.variables)}"
            self.region.variables[name] = settled.dtype
            self.in_front[settled] = var(name, settled.dtype)
        return self.in_front[settled]

    def _fits(self, i: Checked, block: Block) -> bool:
        result = self.values.results[i]
        if isinstance(result, IntExpr) and self.hold([LARGEST - result, result + LARGEST], block):
            return True
        sizes = [self._size(f, block) for f in self.values.operands[i]]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return False
        size = prod(known) if i.function == "int_mul" else sum(known)
        if size > LARGEST:
            return False
        made = result if isinstance(result, IntExpr) else IntExpr.symbol(self.values.symbol_of[i])
        self.sizes.setdefault(made, []).append((block, size))
        return True

    def _size(self, value: Found, block: Block) -> int | None:
        """What an int is at most where a block begins, with either sign."""
        if not isinstance(value, IntExpr):
            return None
        if value.constant is not None:
            return abs(value.constant)
        size = self._known_size(value, block)
        if size is not None:
            return size
        return LARGEST_FACTOR if self.hold([LARGEST_FACTOR - value, value + LARGEST_FACTOR], block) else None

    def _known_size(self, value: IntExpr, block: Block) -> int | None:
        always, loops = self.values.dominators, self.values.loops.values()
        for at, size in self.sizes.get(value, ()):
            if always(at, block) and all(block in x.blocks for x in loops if at in x.blocks):  # in the same turns
                return size
        return None

    def _is_above_all(self, value: IntExpr, block: Block) -> bool:
        """Whether it is above zero by its constant, beside which the rest is small."""
        by = value.terms.get((), 0)
        size = self._known_size(value - by, block)
        return size is not None and size < by

    def _divided(self, i: Checked) -> Instruction:
        divisor = as_invariant(self.values.operands[i][1])
        if divisor is None:
            return i
        if i.function == "float_div":
            self.tests[Expr("ne", (divisor, const(0.0, divisor.dtype)), dtypes.bool_)] = None
            return Set(i.name, Expr("div", i.args, self.region.variables[i.name]))  # type: ignore[arg-type]
        self.tests[positive(divisor)] = None  # the C compiler then drops the check
        return i

    def _without_looks(self, i: Interruptible, block: Block) -> Instruction | None:
        loop = self.innermost.get(block)
        if loop is None:
            return replace(i, turns=max(i.turns, TURNS_BETWEEN))
        if loop not in self.is_short:
            self.is_short[loop] = self._looks_elsewhere(loop) and self._has_few_turns(loop)
        return (OneByOne() if adds_in_order(self.region, loop) else None) if self.is_short[loop] else i

    def _looks_elsewhere(self, loop: Loop) -> bool:
        """Whether each turn of each loop around it comes to another look for signals."""
        always = self.values.dominators
        looks = [b for b in self.loop.blocks if b not in self.innermost and any(isinstance(i, Interruptible) for i in b.body)]
        around = [x for x in self.values.loops.values() if x.header is not loop.header and loop.header in x.blocks]
        return all(any(always(b, latch) for b in looks if b in x.blocks) for x in around for latch in x.latches)

    def _has_few_turns(self, loop: Loop) -> bool:
        turn, always = self.values.at_begin[loop.header][0], self.values.dominators
        each_turn = [b for b in loop.blocks if all(always(b, latch) for latch in loop.latches)]
        return any(self.hold([MOST_TURNS - turn], b) for b in each_turn)

    def _in_bounds(self, i: Position, block: Block) -> Instruction:
        index, extent = self.values.operands[i]
        if not isinstance(extent, IntExpr):
            return i
        if isinstance(index, IntExpr):
            if index.constant is not None and index.constant < 0:
                value = Expr("exact_add", (i.index, i.extent), dtypes.int64)
                return Set(i.name, value) if self.hold([index + extent], block) else i
            if self.hold([index, extent - index - 1], block):
                return Set(i.name, i.index)
        unwrapped = self.values.unwrapped(index)
        if unwrapped is None or not self.hold([unwrapped, extent - unwrapped - 1], block):
            return i
        self.values.is_at(i, unwrapped)
        return Set(i.name, i.index)

    def hold(self, values: list[IntExpr], block: Block) -> bool:
        """Whether these are at least zero wherever the block begins, which the guard then asks for."""
        found: dict[IntExpr, None] = {}
        for value in values:
            conditions = self.values.proved(value, block)
            if conditions is None or not all(moderate(c + 1) for c in conditions):
                return False
            found.update(dict.fromkeys(conditions))
        self.conditions |= found
        return True

    # -- blocks -------------------------------------------------------------------------------------------------------------
    def link(self, live: "Live") -> dict[Block, Proven | None]:
        """Gives the headers of innermost loops that were made, and what holds there; None: they need no copies."""
        region, header = self.region, self.loop.header
        side_by_side = self._lanes(live)
        n = max(b.number for b in region.blocks) + 1
        guard = Guard(region, self.values, Block(n, header.line), header)
        for condition in self.conditions:
            guard.require_positive(condition + 1)
        for test in self.tests:
            guard.require(guard.expr(test))
        for settled, known in self.in_front.items():
            guard.block.body.append(Set(str(known.value), guard.expr(settled)))
        read_once = {x: self._read_once(x) for x in dict.fromkeys(self.innermost.values())}
        for array in dict.fromkeys(found.array for once in read_once.values() for found in once):
            guard.require_unfolded(array)
        copies = {b: Block(n + 1 + k, b.line) for k, b in enumerate(self.loop.blocks)}
        for block, copy in copies.items():
            body = [self.proven.get(i, i) for i in block.body]
            copy.body, copy.end = [i for i in body if i is not None], block.end
            redirect(copy, copies)
        inside = set(self.loop.blocks)
        for block in predecessors(region.blocks)[header]:
            if block not in inside:
                redirect(block, {header: guard.block})
        region.blocks += [guard.block, *copies.values()]
        done: dict[Block, Proven | None] = {}
        for x, once in read_once.items():
            done[copies[x.header]] = frozenset(found.array for found in once) or None
        region.copies[header.number] = "fast copy of the whole nest"
        return done | self._enter(side_by_side, guard, copies)

    def link_lanes(self, live: "Live") -> dict[Block, Proven | None]:
        """Of a nest without checks: gives the headers of innermost loops that need no copies.  Others hold elements there."""
        region, header = self.region, self.loop.header
        done: dict[Block, Proven | None] = {}
        for x in dict.fromkeys(self.innermost.values()):
            if not self._read_once(x) and not held_elements(region, x, Turns(region, x)):
                done[x.header] = None
        side_by_side = self._lanes(live)
        if not side_by_side:
            return done
        inside = set(self.loop.blocks)
        guard = Guard(region, self.values, Block(max(b.number for b in region.blocks) + 1, header.line), header)
        for block in predecessors(region.blocks)[header]:
            if block not in inside:
                redirect(block, {header: guard.block})
        region.blocks.append(guard.block)
        return done | self._enter(side_by_side, guard, {b: b for b in self.loop.blocks})

    def _enter(self, side_by_side: list[Lanes], guard: Guard, copies: dict[Block, Block]) -> dict[Block, Proven | None]:
        """The guard goes on with the nest's copy, or with the strips of what runs side by side in it."""
        done: dict[Block, Proven | None] = {}
        entry, last = copies[self.loop.header], guard.block
        for lanes in side_by_side:
            start, last, headers = self._link_lanes(lanes, guard, last, copies)
            entry = start if lanes.loop is self.loop else entry
            done |= dict.fromkeys(headers)
        last.end = Jump(entry)
        return done

    def _read_once(self, loop: Loop) -> list[ReadOnce]:
        """Elements that an innermost loop may come to write.  Where it does not, the C compiler's own test is cheaper."""
        found = elements_read_once(self.region, loop, Turns(self.region, loop))
        return found if any(f.by is not None and self._may_meet(loop, f) for f in found) else []

    def _may_meet(self, loop: Loop, once: ReadOnce) -> bool:
        (turn,) = self.values.at_begin[loop.header][0].symbols()
        given = self.values.indices[once.loads[0]]
        for store in once.stores:
            pairs = [(x, y) for x, y in zip(given, self.values.indices[store]) if isinstance(x, IntExpr) and isinstance(y, IntExpr)]
            aparts = (self.settled(x) - self.settled(y).substitute({turn.name: 0}) for x, y in pairs)
            if not any(self.values.proved(-1 - apart, loop.header) == [] for apart in aparts):
                return True
        return False

    def settled(self, index: IntExpr) -> IntExpr:
        """Without symbols for what was an index that might count from the end, and does not."""
        value = self.values.expanded(index)
        while known := {s.name: self.values.positions[s.name][1] for s in value.symbols() if self._is_index(s.name)}:
            value = self.values.expanded(value.substitute(known))
        return value

    def _is_index(self, symbol: str) -> bool:
        i = self.values.positions[symbol][0] if symbol in self.values.positions else None
        made = None if i is None else self.proven.get(i)
        return i is not None and isinstance(made, Set) and made.value == i.index

    def _lanes(self, live: "Live") -> list[Lanes]:
        """Of outer loops, the innermost first, those whose turns run side by side."""
        found: list[Lanes] = []
        for loop in sorted(self.values.loops.values(), key=lambda x: len(x.blocks)):
            if any(other.header in loop.blocks for other in (x.loop for x in found)):
                continue
            try:
                found.append(Lanes(self.region, self.values, loop, self.proven, live.reads, lambda loop=loop: live.at(loop.header)))  # type: ignore[misc]
            except Refused:
                continue
        return found

    def _link_lanes(self, lanes: Lanes, guard: Guard, last: Block, copies: dict[Block, Block]) -> tuple[Block, Block, set[Block]]:
        """Gives where strips begin, the block behind the test whether they may be used, and the headers of innermost loops.

        `last`: the block that comes before that test.
        """
        region, header = self.region, lanes.loop.header
        may = guard.fresh(dtypes.bool_)
        number = max(b.number for b in region.blocks) + 1
        start, made, headers = lanes.link(copies[header], number, may)
        inside = {copies[b] for b in lanes.loop.blocks}
        for block in copies.values():
            if block not in inside:
                redirect(block, {copies[header]: start})
        n = number + len(made)
        asks, behind = Block(n, header.line), Block(n + 1, header.line)
        last.body.append(Set(may, const(False, dtypes.bool_)))
        last.end = Jump(asks)
        asked = Guard(region, self.values, asks, behind)
        asked.known = dict(guard.known)
        lanes.guard(asked)
        asks.body.append(Set(may, const(True, dtypes.bool_)))
        asks.end = Jump(behind)
        region.blocks += [*made, asks, behind]
        if lanes.use is not None:
            after = Block(n + 2, header.line)
            lanes.use.after_turn(after, copies[header], start)
            for latch in lanes.loop.latches:
                redirect(copies[latch], {copies[header]: after})
            last.body += lanes.use.begin()
            region.blocks.append(after)
        said = f"its turns run {lanes.width} at a time, as lanes of vectors"
        region.copies[header.number] = "; ".join(filter(None, (region.copies.get(header.number), said)))
        return start, behind, headers


class Live:
    """What is live in a region: looked up when it is first asked for, as passes that make copies change nothing of it."""

    def __init__(self, region: Region):
        self.region, self.reads = region, Reads()
        self.found: dict[Block, Names] = {}

    def at(self, block: Block) -> Names:
        if not self.found:
            self.found = live_variables(self.region.blocks[0], self.reads)
        return self.found[block]
