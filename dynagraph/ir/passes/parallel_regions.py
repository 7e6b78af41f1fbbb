"""Loops whose turns do not depend on one another get a copy that does a range of turns, which threads run at the same time.

In front of the loop stands a test of what it takes, then `RunTurns`, then the loop itself, which does what is left: all, some, or
none of its turns.  A turn in the copy that cannot go on, for whatever reason, gives up: then all arrays are as before it and those
that ran with it, and the loop itself comes to the turn and leaves there as if there were no copy.

What a turn assigns is its own where the turn assigns it before it reads it: that is known, or looked at when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.passes.enter_loops import enter_at_tests
from dynagraph.ir.passes.fast_loops import Copy, Guard, add_fast_loops, least_of, number, redirect
from dynagraph.ir.passes.fast_nests import add_fast_nests
from dynagraph.ir.passes.interchange import interchange
from dynagraph.ir.passes.separate_loops import separate_loops
from dynagraph.ir.passes.turns import TURN, Holds, has_unknown, moderate
from dynagraph.ir.region_dependences import (
    LARGEST_STEP,
    Along,
    Dependent,
    TurnsOfNest,
    arrays_given,
    arrays_of,
    check_instructions,
    separate,
)
from dynagraph.ir.region_liveness import NONE, Names, Reads, live_at_end, live_variables
from dynagraph.ir.region_loops import Loop, natural_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import (
    POINTER,
    Block,
    Branch,
    Exit,
    Instruction,
    Jump,
    Leave,
    Load,
    LoadSlot,
    Region,
    Require,
    RunTurns,
    Set,
    Slot,
    Store,
    Touched,
    assigned,
    slots_of_variable,
    with_exit,
)

I64, BOOL = dtypes.int64, dtypes.bool_
LOW, HIGH, LAST = "turn_from", "turn_to", "turn_last"  # the first parameters of the copy
MOST_BLOCKS = 80  # of a loop that is copied
FARTHEST = 2**60  # of counters, from 0
MOST_TURNS = 2**40
GIVES_UP, ENDS, PASSES_ON = 0, 2, 1  # the copy's exits


def with_copies(region: Region) -> Region:
    """A tidied region with all copies of its loops: it changes."""
    enter_at_tests(region)
    separate_loops(region)
    ready, interchanged = interchange(region)
    reads = Reads()
    parallel = _add_nests(region, reads)
    nested = {block for loop in natural_loops(region) for block in loop.blocks[1:]}
    done = add_fast_nests(region, ready)
    add_fast_loops(region, done, lambda loop: None if loop.header in nested else _of_innermost(region, loop, reads, parallel))
    for turns in region.turns:
        add_fast_loops(turns, add_fast_nests(turns, ready))
    for header, said in (*interchanged.items(), *dict.fromkeys(parallel, "its turns run in parallel").items()):
        region.copies[header] = "; ".join(filter(None, (said, region.copies.get(header))))
    return region


def _may_be_parallel(region: Region) -> bool:
    return not (region.functions or region.has_tape)


def _add_nests(region: Region, reads: Reads) -> list[int]:
    """Loops with others within.  Gives the numbers of the headers of those whose turns run in parallel."""
    found = natural_loops(region) if _may_be_parallel(region) else []
    taken: set[Block] = set()
    headers, live = [], _Live(region, reads)
    for loop in found:
        inside = set(loop.blocks)
        if loop.header in taken or not any(other is not loop and other.header in inside for other in found):
            continue
        try:
            made = _Parallel(region, loop, reads, live)
            made.make_turns()
        except Dependent:
            continue
        made.link()
        live = _Live(region, reads)
        taken.update(loop.blocks)
        headers.append(loop.header.number)
    return headers


def _of_innermost(region: Region, loop: Loop, reads: Reads, headers: list[int]) -> Callable[[Copy], None] | None:
    """Of a loop that is in no other, which is run often and has little to do, the turns without checks run in parallel."""
    if not _may_be_parallel(region):
        return None
    try:
        made = _Parallel(region, loop, reads, _Live(region, reads))
    except Dependent:
        return None

    def then(copy: Copy) -> None:
        try:
            made.make_turns(None if copy.kept else copy)
        except Dependent:
            return
        made.link(copy)
        headers.append(loop.header.number)

    return then


class _Live:
    """What is live in a region, as long as that does not change: looked up when it is first asked for."""

    def __init__(self, region: Region, reads: Reads):
        self.region, self.reads = region, reads
        self.found: dict[Block, Names] = {}

    def at(self, block: Block) -> Names:
        if not self.found:
            self.found = live_variables(self.region.blocks[0], self.reads)
        return self.found[block]


class _Parallel:
    """The copy of one loop.  Changes nothing until `link`.  Raises Dependent.

    Where a `copy` without checks is given, these are the turns of that, which never give up: nothing need be kept for them.
    """

    def __init__(self, region: Region, loop: Loop, reads: Reads, live: "_Live"):
        if loop.header is region.blocks[0] or len(loop.blocks) > MOST_BLOCKS:
            raise Dependent("it has too many blocks")
        check_instructions(region, loop)
        self.region, self.loop = region, loop
        self.inside = set(loop.blocks)
        self.turns = TurnsOfNest(region, loop)
        self.counting: list[Block] = []
        self.limits: list[tuple[IntExpr, int]] = []
        self._count()
        self.arrays, self.given = arrays_of(loop), arrays_given(region)
        self.along: dict[str, Along] = {}
        for data, uses in self.arrays.items():
            if any(isinstance(i, Store) for i, _ in uses):
                self.along[data] = separate(self.turns, uses)
        self.reads = reads
        self.left = sorted(live.at(loop.header) & self.turns.assigned)  # by a turn, for what comes behind
        self.steps = {}  # of variables that count
        for name, step in self.turns.steps.items():
            by = step.constant
            if by is not None and abs(by) <= LARGEST_STEP:
                self.steps[name] = by
        self.late = {}  # those of which a turn's end tells what they are in the next, and what they then are in the first one
        for name, value in self.turns.late.items():
            factor = value.coefficient(TURN)
            if factor is not None and factor.constant is not None and abs(factor.constant) <= LARGEST_STEP:
                self.steps[name] = factor.constant
                self.late[name] = value.substitute({TURN.name: -1})
        self.private = self.turns.assigned - set(self.steps)
        self.exported = [name for name in self.left if name in self.private]
        self.ends = {block: block.end for block in loop.blocks}

    def _count(self) -> None:
        """As many turns reach their end as all tests hold in that count."""
        for block in self.loop.blocks:
            end = block.end
            if not isinstance(end, Branch):
                continue
            stays = [b in self.inside for b in (end.then, end.otherwise)]
            test = self.turns.value(end.test, self.turns.at_end[block])
            if all(stays) or not isinstance(test, Holds) or len(test.parts) != 1:
                continue
            (part,) = test.parts if stays[0] else (1 - test.parts[0],)
            step = part.coefficient(TURN)
            if step is None or step.constant is None or not -LARGEST_STEP <= step.constant < 0 or has_unknown(part):
                continue
            if not moderate(part):
                continue
            self.counting.append(block)
            self.limits.append((part.substitute({TURN.name: 0}), -step.constant))
        if not self.limits:
            raise Dependent("how often it turns is not known before")

    # -- the copy -----------------------------------------------------------------------------------------------------------
    def make_turns(self, copy: Copy | None = None) -> None:
        exits = [Exit(GIVES_UP), Exit(PASSES_ON), Exit(ENDS)]
        made = Region(f"{self.region.name}_turns", dict(self.region.variables), exits=exits, number=len(self.region.turns))
        self.n_blocks = max(b.number for b in self.region.blocks) + 1
        self.gives_up = self._block([], Leave(exits[GIVES_UP]))
        exits[PASSES_ON].state = [number(0), *(self._variable(n) for n in self.exported)]
        self.passes_on = self._block([], Leave(exits[PASSES_ON]))
        ends = self._block([], Leave(exits[ENDS]))
        behind = self._block([], Branch(call("ne", var(LAST, I64), number(0)), self.passes_on, ends))
        copies = {b: Block(b.number, b.line) for b in self.loop.blocks}
        following = Set(LOW, Expr("exact_add", (var(LOW, I64), number(1)), I64))
        latch = self._block([following], Branch(call("lt", var(LOW, I64), var(HIGH, I64)), copies[self.loop.header], behind))
        self.start = self._block([], Jump(copies[self.loop.header]))
        for block, made_copy in copies.items():
            kept = block.body if copy is None else [p for i in block.body if (p := copy.proven.get(i, i)) is not None]
            made_copy.body = [with_exit(i, self._exit(i, copies, exits[GIVES_UP])) for i in kept]
            made_copy.end = self._end(block, {**copies, self.loop.header: latch}, exits[GIVES_UP])
        self.header = copies[self.loop.header]
        for name in (LOW, HIGH, LAST):
            made.variables[name] = I64
        made.blocks = reverse_postorder(self.start)
        self._drop_dead(made)
        self._settle_private(made, copy is None)
        self._parameters(made)
        made.blocks = reverse_postorder(self.start)
        self.worker = made
        leaves = any(isinstance(getattr(i, "exit", None), Exit) for i in made.instructions())
        self.may_give_up = leaves or self.gives_up in made.blocks
        if copy is not None and self.may_give_up:
            raise Dependent("it may end early")

    def _block(self, body: list[Instruction], end: "Jump | Branch | Leave") -> Block:
        made = Block(self.n_blocks, self.loop.header.line, body, end)
        self.n_blocks += 1
        return made

    @staticmethod
    def _exit(i: Instruction, copies: dict[Block, Block], gives_up: Exit) -> Exit | Block:
        early = getattr(i, "exit", None)
        return copies.get(early, gives_up) if isinstance(early, Block) else gives_up

    def _variable(self, name: str) -> Expr:
        kind = self.region.variables[name]
        return var(name, I64 if isinstance(kind, str) else kind)

    def _end(self, block: Block, to: dict[Block, Block], gives_up: Exit) -> "Jump | Branch | Leave":
        end = self.ends[block]
        if isinstance(end, Jump):
            return Jump(to[end.block]) if end.block in to else Leave(gives_up)
        if not isinstance(end, Branch):
            return Leave(gives_up)
        if block in self.counting:
            return Jump(to[end.then if end.then in self.inside else end.otherwise])
        return Branch(end.test, to.get(end.then, self.gives_up), to.get(end.otherwise, self.gives_up))

    def _drop_dead(self, made: Region) -> None:
        """Copies of variables whose values nobody reads would have to be looked at."""
        changed = True
        while changed:
            changed = False
            found = live_variables(made.blocks[0], self.reads)
            for block in made.blocks:
                live, kept = live_at_end(block, found) | self.reads.at_end(block), []
                for i in reversed(block.body):
                    if isinstance(i, (Set, Load)) and i.name not in live:
                        changed = True
                        continue
                    live = self.reads.before(live, i)
                    kept.append(i)
                block.body = kept[::-1]

    def _settle_private(self, made: Region, keeps: bool) -> None:
        """Where a turn may read what it has not assigned it gives up: a flag says so."""
        known = self.known_at(made)
        unset = self._unset_reads(made, known)
        inner = {loop.header: loop for loop in natural_loops(made) if loop.header is not self.header}
        if unset and self._unset_reads(made, self.known_at(made, inner)):
            raise Dependent("turns read what others assign")
        if unset and not keeps:
            raise Dependent("a turn may read what others assign")
        flags = {name: f"has_{name}" for name in sorted(unset)}
        made.variables.update(dict.fromkeys(flags.values(), BOOL))
        for block in made.blocks:
            has, body = set(known[block]), []
            for i in block.body:
                body += self._looks(self.reads.by(i), has, flags, made)
                body.append(i)
                name = assigned(i)
                if name is not None:
                    has.add(name)
                    if name in flags:
                        body.append(Set(flags[name], const(True, BOOL)))
            block.body = body + self._looks(self.reads.at_end(block), has, flags, made)
        if any(not isinstance(made.variables[name], dtypes.DType) for name in unset):
            raise Dependent("an array that one turn assigns another may read")
        self.header.body[:0] = [Set(flag, const(False, BOOL)) for flag in flags.values()]

    def _looks(self, names: Names, has: set[str], flags: dict[str, str], made: Region) -> list[Instruction]:
        wanted = sorted(n for n in names & self.private - has if n in flags)
        return [Require(var(flags[n], BOOL), made.exits[GIVES_UP]) for n in wanted]

    def known_at(self, made: Region, inner: dict[Block, Loop] | None = None) -> dict[Block, set[str]]:
        """The variables that the turn has assigned on each way to a block.  `inner`: loops that are taken to turn once at least."""
        entries = predecessors(made.blocks)
        passes_by = {edge for loop in (inner or {}).values() for edge in self._around(made, loop, inner or {})}
        found: dict[Block, set[str]] = {self.start: set(), self.header: set()}
        changed = True
        while changed:
            changed = False
            for block in made.blocks:
                if block not in (self.start, self.header):
                    ways: list[Block] = []
                    for b in entries[block]:
                        if (b, block) in passes_by:
                            continue
                        loop = inner.get(b) if inner else None
                        leaves = loop is not None and block not in loop.blocks
                        ways += loop.latches if loop is not None and leaves else [b]
                    ends = [found[b] | {n for i in b.body if (n := assigned(i))} for b in ways if b in found]
                    if not ends:
                        continue
                    has = set.intersection(*ends)
                    if has != found.get(block):
                        found[block], changed = has, True
        return found

    def _around(self, made: Region, loop: Loop, inner: dict[Block, Loop]) -> list[tuple[Block, Block]]:
        """Edges that go around a loop of which the first turn is written out: from the loop's own test, before that turn."""
        test, found = _tested(loop.header), []
        begins = {self.header, *(x.header for x in inner.values() if x is not loop and loop.header in x.blocks)}
        for block in made.blocks if test is not None else ():
            if block in loop.blocks or not isinstance(block.end, Branch) or _tested(block) != test:
                continue
            leading = [_leads_to(b, loop.header, begins) for b in (block.end.then, block.end.otherwise)]
            if leading == [True, False]:
                found.append((block, block.end.otherwise))
            elif leading == [False, True]:
                found.append((block, block.end.then))
        return found

    def _unset_reads(self, made: Region, known: dict[Block, set[str]]) -> set[str]:
        unset: set[str] = set()
        for block in made.blocks:
            if block not in known:
                continue  # it is not come to
            has = set(known[block])
            for i in block.body:
                unset |= self.reads.by(i) & self.private - has
                has.add(assigned(i) or "")
            unset |= self.reads.at_end(block) & self.private - has
        return unset

    def _parameters(self, made: Region) -> None:
        read = NONE.union(*(self.reads.by(i) for i in made.instructions()), *map(self.reads.at_end, made.blocks))
        given = sorted(n for n in read if n in self.region.variables and n not in self.private)
        made.parameters = [LOW, HIGH, LAST, *given]
        counts = [n for n in given if n in self.steps]
        for name in counts:
            by = Expr("exact_mul", (number(self.steps[name]), var(LOW, I64)), I64)
            self.start.body.append(Set(name, Expr("exact_add", (var(name, I64), by), I64)))
        used = read | {n for b in made.blocks for i in b.body if (n := assigned(i))} | set(made.parameters)
        made.variables = {n: kind for n, kind in made.variables.items() if n in used}

    # -- in front of the loop -----------------------------------------------------------------------------------------------
    def link(self, copy: Copy | None = None) -> None:
        region, header = self.region, self.loop.header
        otherwise = header if copy is None else copy.guard.block if copy.kept else copy.entry
        keeps = self.may_give_up if copy is None else copy.kept > 0
        guard = Guard(region, self.turns, self._block([], Jump(otherwise)), otherwise)
        turns = self._turns(guard) if copy is None or keeps else var(copy.left, I64)
        counts = sorted(set(self.steps) & (set(self.worker.parameters) | set(self.left)))
        for name in counts:
            if name in self.late:
                guard.require(call("eq", var(name, I64), guard.int(self.late[name])))
            near = [call("lt", var(name, I64), number(FARTHEST)), call("gt", var(name, I64), number(-FARTHEST))]
            guard.require(call("and", *near))
        written, read = [], []
        for data in self.arrays:
            touched = self._touched(guard, data)
            if data in self.along:
                guard.require(call("ne", var(self.given[data].writeable, I64), number(0)))
                written.append(touched)
            else:
                read.append(touched)
        results = f"g{len(region.variables)}"
        region.variables[results] = POINTER
        given = tuple(self._variable(n) for n in self.worker.parameters[3:])
        width = 1 + sum(slots_of_variable(region.variables[n]) for n in self.exported)
        run = RunTurns(results, self.worker.number, turns, given, tuple(written), tuple(read), width, keeps)
        guard.block.body.append(run)
        region.turns.append(self.worker)
        done = guard.fresh()
        guard.block.body.append(LoadSlot(done, Slot(var(results, I64), number(0), width, 0)))
        for name in counts:
            by = Expr("exact_mul", (number(self.steps[name]), var(done, I64)), I64)
            guard.block.body.append(Set(name, Expr("exact_add", (var(name, I64), by), I64)))
        after, at = self._block([], Jump(otherwise)), 1
        for name in self.exported:
            after.body.append(LoadSlot(name, Slot(var(results, I64), number(0), width, at)))
            at += slots_of_variable(region.variables[name])
        if copy is not None and not keeps:
            after.body.append(Set(copy.left, Expr("exact_sub", (var(copy.left, I64), var(done, I64)), I64)))
            after.end = Branch(call("gt", var(copy.left, I64), number(0)), copy.entry, header)
        guard.block.end = Branch(call("gt", var(done, I64), number(0)), after, otherwise)
        if copy is not None:
            (copy.start if keeps else copy.guard.block).end = Jump(guard.block)
        else:
            for block in predecessors(region.blocks)[header]:
                if block not in self.inside:
                    redirect(block, {header: guard.block})
        region.blocks = reverse_postorder(region.blocks[0])

    def _turns(self, guard: Guard) -> Expr:
        least: Expr | None = None
        for start, step in self.limits:
            n = guard.int(start)
            if step != 1:
                guard.require(call("gt", n, number(0)))
                n = guard.set(Expr("c_div", (guard.int(start + step - 1), number(step)), I64))
            least = n if least is None else guard.set(least_of(least, n))
        assert least is not None
        guard.require(call("gt", least, number(1)))
        guard.require(call("lt", least, number(MOST_TURNS)))
        return least

    def _touched(self, guard: Guard, data: str) -> Touched:
        parts, along = self.given[data], self.along.get(data)
        place = self.arrays[data][0][1]
        sizes = tuple(var(n, I64) for n in parts.sizes)
        made = Touched(var(data, I64), place.dtype, sizes, tuple(stride for _, stride in place.steps))
        if along is None:
            return made
        return replace(made, axis=along.axis, first=guard.int(along.first), step=along.step, low=along.low, high=along.high)


def _tested(block: Block) -> Expr | None:
    """What a block's end tests, of the variables as they then are."""
    if not isinstance(block.end, Branch):
        return None
    test, values = block.end.test, {i.name: i.value for i in block.body if isinstance(i, Set)}
    return values.get(str(test.value), test) if test.op == "var" else test


def _leads_to(block: Block, to: Block, without: AbstractSet[Block]) -> bool:
    """Whether control may come there, but through some blocks."""
    seen, waiting = set(without), [block]
    while waiting:
        at = waiting.pop()
        if at is to:
            return True
        if at not in seen:
            seen.add(at)
            waiting += at.successors()
    return False
