"""The blocks of strips: a turn of an outer loop for several lanes at once, as `outer_lanes.py` has found it may be done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, const, var
from dynagraph.ir.passes.lane_kinds import I64, VARIES
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import (
    Block,
    Branch,
    Checked,
    CheckedLanes,
    Instruction,
    Interruptible,
    Jump,
    LaneType,
    Load,
    LoadLanes,
    Position,
    Require,
    Set,
    SetLanes,
    Store,
    StoreLanes,
    assigned,
    substituted,
    with_exit,
)

if TYPE_CHECKING:
    from dynagraph.ir.passes.outer_lanes import Held, Lanes

BOOL = dtypes.bool_
VECTOR = 32  # bytes
MOST_IN_VAIN = 8  # operations that are done although no lane may want them
# Lanes that have left their loops wait for the others: where fewer than 3 of 8 turn, on an average of the last strips, turns are
# done one by one for a while, and for longer each time.
USED, OF = 3, 8
EACH = 8  # a power of two: one of so many turns is counted
FEWEST_ALONE, MOST_ALONE = 64, 4096
FALSE, TRUE = const(False, BOOL), const(True, BOOL)


def link_strips(lanes: Lanes, rest: Block, number: int, may: str) -> tuple[Block, list[Block], set[Block]]:
    """Strips of many turns, and behind them strips of one vector: where they begin, all blocks, the headers of innermost loops."""
    use = Use(lanes) if any(x.header in lanes.masks.of for x in lanes.inner) else None
    few = Strips(lanes, lanes.part, number, may, use)
    start = few.link(rest, rest)
    many = Strips(lanes, lanes.width, number + len(few.made), may, use)
    return many.link(start, rest), few.made + many.made, few.headers() | many.headers()


class Use:
    """How well lanes are used: variables of the region that say whether strips pay.

    `balance`: lanes that turned in the last strips, less those that would have to; `alone`: how many turns are done one by one when
    it falls below zero; `left`: how many of these are left.
    """

    def __init__(self, lanes: Lanes):
        self.balance, self.alone, self.left = (lanes.fresh(I64) for _ in range(3))
        lanes.use = self

    def begin(self) -> list[Instruction]:
        """In front of the nest: strips come first."""
        return [Set(self.balance, const(0, I64)), Set(self.alone, const(FEWEST_ALONE, I64)), Set(self.left, const(0, I64))]

    def judge(self, turned: Expr, n: Expr) -> list[Instruction]:
        """Behind a strip, in which so many lanes turned, of n."""
        balance = var(self.balance, I64)
        kept = Expr("exact_sub", (balance, Expr("c_div", (balance, const(4, I64)), I64)), I64)
        more = Expr("exact_sub", (_times(turned, OF), _times(n, USED)), I64)
        return [Set(self.balance, Expr("exact_add", (kept, more), I64))]

    def between(self) -> list[Instruction]:
        """Where strips pay: the next time that they do not, fewer turns are done one by one."""
        alone = var(self.alone, I64)
        half = Expr("c_div", (alone, const(2, I64)), I64)
        return [Set(self.alone, Expr("select", (call("gt", alone, const(FEWEST_ALONE, I64)), half, alone), I64))]

    def leave(self) -> list[Instruction]:
        alone = var(self.alone, I64)
        longer = Expr("select", (call("lt", alone, const(MOST_ALONE, I64)), _times(alone, 2), alone), I64)
        return [Set(self.left, alone), Set(self.alone, longer), Set(self.balance, const(0, I64))]

    def after_turn(self, block: Block, header: Block, strips: Block) -> None:
        """A turn has been done by itself."""
        less = Expr("exact_sub", (var(self.left, I64), const(1, I64)), I64)
        block.body = [Set(self.left, less)]
        block.end = Branch(call("eq", var(self.left, I64), const(0, I64)), strips, header)


def _times(e: Expr, n: int) -> Expr:
    return Expr("exact_mul", (e, const(n, I64)), I64)


class Strips:
    """Of `width` turns.  `masks`: of masked blocks; `failed`: the lanes where a check has failed."""

    def __init__(self, lanes: Lanes, width: int, number: int, may: str, use: Use | None):
        self.of, self.graph, self.width, self.may, self.n, self.use = lanes, lanes.graph, width, may, number, use
        self.made: list[Block] = []
        self.lanes = {name: self._fresh(self.region_type(name)) for name in sorted(lanes.assigned) if lanes.varies(name)}
        self.masks = {b: self._fresh(self._type(BOOL)) for b in lanes.blocks if b in lanes.masks.of}
        for held in (h for found in lanes.held.values() for h in found.values()):
            held.name = self._fresh(self._type(held.place.dtype))
        self.failed = self._fresh(self._type(BOOL)) if lanes.may_fail else ""
        if use is not None:
            self.turned = self._fresh(self._type(I64 if lanes.part == VECTOR // 8 else dtypes.int32))
            self.turns, self.n_turned = self._fresh(I64), self._fresh(I64)
        self.saved = [n for n in lanes.needed if not lanes.varies(n)] if lanes.may_fail else []

    def region_type(self, name: str) -> LaneType:
        kind = self.of.region.variables[name]
        assert isinstance(kind, DType)
        return self._type(kind)

    def _type(self, dtype: DType) -> LaneType:
        return LaneType(dtype, self.width, self.of.part)

    def _fresh(self, kind: DType | LaneType) -> str:
        return self.of.fresh(kind)

    def _block(self, block: Block) -> Block:
        made = Block(self.n, block.line)
        self.n += 1
        self.made.append(made)
        return made

    def headers(self) -> set[Block]:
        """Of innermost loops, and what begins their turns."""
        found = {self.strips[x.header] for x in self.of.innermost}
        for x in self.of.innermost:
            found.update(self.strips[b] for b in x.header.successors() if b in x.blocks)
        return found

    # -- blocks ---------------------------------------------------------------------------------------------------------------
    def link(self, rest: Block, alone: Block) -> Block:
        """`rest`: what comes where fewer turns are left; `alone`: what does turns one by one."""
        of, graph = self.of, self.graph
        start = self._block(graph.header)
        strip = self._begin(start, rest)
        self.strips = {b: self._block(b) for b in of.blocks[1:]}
        self.strips[graph.header] = start
        self.abort = self._block(graph.header) if of.may_fail else None
        if self.abort is not None:
            self.abort.body += [Set(name, var(saved, self.region_type(name).dtype)) for name, saved in self.kept]
            self.abort.end = Jump(rest)
        self.entered = {x.header: self._block(x.header) for x, found in of.held.items() if found}
        for loop, found in of.held.items():
            if found:
                self._enter(loop, found)
        for block in of.blocks[1:-1]:
            if block in of.masks.of:
                self._copy_masked(block)
            else:
                self._copy(block)
        self._finish(rest, alone)
        for i in graph.header.body:
            strip.body += self._translated(i, {}, None)
        end = graph.header.end
        assert isinstance(end, Branch)
        strip.end = Jump(self._target(None, end.then))
        return start

    def _begin(self, start: Block, rest: Block) -> Block:
        """Strips go on while there are turns left for one."""
        of = self.of
        start.body.append(Require(var(self.may, BOOL), rest))
        if of.masks.of or self.width < of.width:
            start.body.append(Require(Expr("has_lanes", (const(self.width, I64),), BOOL, "_LATER"), rest))
        last: dict[str, Expr] = {}
        for part in of.test.args:
            if part.op == "var" and of.counters.get(str(part.value)):
                by = const(of.counters[str(part.value)] * (self.width - 1), I64)
                name = self._fresh(I64)
                start.body.append(Checked(name, "int_add", (part, by), rest))
                last[str(part.value)] = var(name, I64)
        strip = self._block(self.graph.header)
        start.end = Branch(substituted(last)(of.test), strip, rest)
        always = of.before[self.graph.finish]
        self.kept: list[tuple[str, str]] = []
        for name in self.saved:
            dtype = self.region_type(name).dtype
            saved = self._fresh(dtype)
            self.kept.append((name, saved))
            strip.body.append(Set(saved, var(name, dtype)))
        for name in self.lanes:
            if name in of.needed and name not in always:
                strip.body.append(self._set(self.lanes[name], var(name, self.region_type(name).dtype)))
            elif name in of.masks.setters and name not in of.masks.whole:
                strip.body.append(self._set(self.lanes[name], _zero(self.region_type(name).dtype)))
        strip.body += [self._set(mask, FALSE) for mask in self.masks.values()]
        if self.failed:
            strip.body.append(self._set(self.failed, FALSE))
        if self.use is not None:
            strip.body.append(self._set(self.turned, _zero(self.of.region.lanes[self.turned].dtype)))
            strip.body += [Set(name, _zero(I64)) for name in (self.turns, self.n_turned)]
        return strip

    def _finish(self, rest: Block, alone: Block) -> None:
        """Variables are what the last lane's turn leaves.  Signals are left to a turn that is done by itself."""
        of, finish = self.of, self.strips[self.graph.finish]
        if self.failed:
            finish.body += self._unless_failed()
        for name in of.needed:
            kind = of.kinds[name]
            if kind == VARIES:
                dtype = self.region_type(name).dtype
                ends = (var(self.lanes[name], dtype), const(self.width, I64), const(of.part, I64))
                finish.body.append(Set(name, Expr("last_lane", ends, dtype)))
            elif kind:
                assert isinstance(kind, int)
                finish.body.append(Set(name, Expr("exact_add", (var(name, I64), const(kind * (self.width - 1), I64)), I64)))
        for look in (i for i in of.loop.latches[0].body if isinstance(i, Interruptible)):
            look = of.proven.get(look, look) or look  # type: ignore[assignment]
            finish.body.append(Interruptible(rest, look.turns * self.width, look.within))
            break
        start = self.strips[self.graph.header]
        finish.end = Jump(start)
        if self.use is not None:
            pays, leaves = self._block(self.graph.header), self._block(self.graph.header)
            of_lanes = Expr("sum_lanes", (var(self.turned, I64), const(self.width, I64), const(of.part, I64)), I64)
            finish.body += self.use.judge(of_lanes, var(self.n_turned, I64))
            finish.end = Branch(call("lt", var(self.use.balance, I64), const(0, I64)), leaves, pays)
            pays.body, pays.end = self.use.between(), Jump(start)
            leaves.body, leaves.end = self.use.leave(), Jump(alone)

    def _target(self, origin: Block | None, to: Block) -> Block:
        entry = self.entered.get(to)
        if entry is None or any(to is x.header and origin in x.blocks for x in self.of.held):
            return self.strips[to]
        return entry

    def _enter(self, loop: Loop, found: dict[str, Held]) -> None:
        """What an innermost loop holds is loaded where it turns at all, and stored where it ends."""
        header, inside = loop.header, set(loop.blocks)
        end = header.end
        assert isinstance(end, Branch)
        first, left = (end.then, end.otherwise) if end.then in inside else (end.otherwise, end.then)
        entry, loads, stores = self.entered[header], self._block(header), self._block(header)
        entry.body = [j for i in header.body for j in self._translated(i, {}, None)]
        loads.body = [LoadLanes(h.name, h.place, h.step, self._type(h.place.dtype)) for h in found.values()]
        loads.end = Jump(self.strips[first])
        stores.body = list(self._unless_failed())
        stores.body += [StoreLanes(h.place, var(h.name, h.place.dtype), h.step, self._type(h.place.dtype)) for h in found.values()]
        entry.end = Branch(end.test, *(loads if b is first else self._target(header, left) for b in (end.then, end.otherwise)))
        stores.end = Jump(self._target(header, left))
        goes_on = self.strips[first]
        self.strips[header].end = Branch(end.test, *(goes_on if b is first else stores for b in (end.then, end.otherwise)))

    def _held_in(self, block: Block) -> dict[str, Held]:
        return next((h for x, h in self.of.held.items() if block in x.blocks), {})

    def _copy(self, block: Block) -> None:
        copy, end, masks = self.strips[block], block.end, self.of.masks
        held = self._held_in(block)
        for i in block.body:
            copy.body += self._translated(i, held, None)
        if copy.end is not None:
            return
        if isinstance(end, Jump):
            copy.end = Jump(self._edge(block, end.block))
            return
        assert isinstance(end, Branch)
        if self.of.kind(end.test) != VARIES:
            copy.end = Branch(end.test, self._edge(block, end.then), self._edge(block, end.otherwise))
            return
        masked = next((masks.of[b] for b in block.successors() if b in masks.of), None)
        if masked is None:
            copy.end = Jump(self._target(block, end.then))
            return
        test = self.vector(end.test)
        copy.body += self._sent(masked.blocks, ((end.then, test), (end.otherwise, _not(test))))
        copy.end = Jump(self.strips[masked.blocks[0]])

    def _edge(self, block: Block, to: Block) -> Block:
        """What all lanes go on with."""
        masked = self.of.masks.of.get(to)
        if masked is None:
            return self._target(block, to)
        made = self._block(to)
        made.body.append(self._set(self.masks[to], TRUE))
        made.end = Jump(self.strips[masked.blocks[0]])
        return made

    def _sent(self, blocks: list[Block], ways: tuple[tuple[Block, Expr], ...]) -> Iterator[Instruction]:
        """Lanes where the way's test holds come to a block."""
        for to, test in ways:
            if to in blocks:
                mask = var(self.masks[to], BOOL)
                yield self._set(self.masks[to], Expr("or", (mask, test), BOOL))

    def _copy_masked(self, block: Block) -> None:
        masks, mask = self.of.masks, var(self.masks[block], BOOL)
        copy = self.strips[block]
        body, behind = copy, None
        if self.use is not None and any(block is x.header for x in self.of.inner):
            copy = body = self._counted(block, mask)
        if self._needs_lanes(block):
            body, behind = self._block(block), self._block(block)
            copy.end = Branch(self._any(self.masks[block]), body, behind)
        held = self._held_in(block)
        for i in block.body:
            body.body += self._translated(i, held, block)
        end, others = block.end, masks.of[block].blocks
        ways: tuple[tuple[Block, Expr], ...]
        if isinstance(end, Branch):
            test = self.vector(end.test)
            ways = (end.then, _and(mask, test)), (end.otherwise, _and(mask, _not(test)))
        else:
            assert isinstance(end, Jump)
            ways = ((end.block, mask),)
        again: Expr = FALSE
        for to, test in ways:
            if to is block:
                again = var(self._fresh(self._type(BOOL)), BOOL)
                body.body.append(self._set(str(again.value), test))
            else:
                body.body += self._sent(others, ((to, test),))
        body.body.append(self._set(self.masks[block], again))
        if behind is not None:
            body.end = Jump(behind)
        last = behind or body
        for loop in masks.back_from(block):
            following = self._block(block)
            last.end = Branch(self._any(self.masks[loop.header]), self.strips[loop.header], following)
            last = following
        last.end = Jump(self.strips[masks.following(block)])

    def _counted(self, block: Block, mask: Expr) -> Block:
        """A loop's head: in some turns, the lanes that turn are counted.  Gives where it goes on."""
        head, counts, following = self.strips[block], self._block(block), self._block(block)
        dtype = self.of.region.lanes[self.turned].dtype
        head.body.append(Set(self.turns, Expr("exact_add", (var(self.turns, I64), const(1, I64)), I64)))
        is_next = call("eq", call("and", var(self.turns, I64), const(EACH - 1, I64)), const(0, I64))
        head.end = Branch(is_next, counts, following)
        more = Expr("cast", (mask,), dtype)
        counts.body.append(self._set(self.turned, Expr("add", (var(self.turned, dtype), more), dtype)))
        counts.body.append(Set(self.n_turned, Expr("exact_add", (var(self.n_turned, I64), const(self.width, I64)), I64)))
        counts.end = Jump(following)
        return following

    def _needs_lanes(self, block: Block) -> bool:
        """Whether it is skipped where no lane comes to it: it touches memory, checks, or is long."""
        long = sum(self.of.varies(i.name) and i.value.op != "var" for i in block.body if isinstance(i, Set)) > MOST_IN_VAIN
        return long or any(not isinstance(i, Set) and i not in self.of.safe for i in block.body)

    # -- instructions ---------------------------------------------------------------------------------------------------------
    def _any(self, name: str) -> Expr:
        return Expr("any_lanes", (var(name, BOOL), const(self.width // self.of.part, I64)), BOOL)

    def _unless_failed(self) -> Iterator[Instruction]:
        if self.failed:
            assert self.abort is not None
            yield Require(_not(self._any(self.failed)), self.abort)

    def _set(self, name: str, value: Expr) -> SetLanes:
        return SetLanes(name, value, self.of.region.lanes[name])

    def vector(self, e: Expr) -> Expr:
        """An expression of lanes: where it is the same in all, as it stands."""
        kind = self.of.kind(e)
        if kind == 0:
            return e
        if isinstance(kind, int):
            return Expr("counting", (e, const(kind, I64)), I64)
        if e.op == "var":
            return var(self.lanes[str(e.value)], e.dtype)
        return Expr(e.op, tuple(map(self.vector, e.args)), e.dtype, e.value)

    def _assign(self, name: str, value: Expr, block: Block | None) -> Iterator[Instruction]:
        """A variable of each lane; in a masked block, in those that come to it."""
        lanes = self.lanes[name]
        if block is not None and name not in self.of.masks.whole:
            value = Expr("select", (var(self.masks[block], BOOL), value, var(lanes, value.dtype)), value.dtype)
        yield self._set(lanes, value)

    def _translated(self, i: Instruction, held: dict[str, Held], block: Block | None) -> Iterator[Instruction]:
        """`block`: a masked one."""
        name = assigned(i)
        if isinstance(i, Set):
            if self.of.varies(i.name):
                yield from self._assign(i.name, self.vector(i.value), block)
            else:
                yield i
        elif isinstance(i, Load):
            yield from self._load(i, held.get(str(i.place.base.value)), block)
        elif isinstance(i, Store):
            yield from self._store(i, held.get(str(i.place.base.value)), block)
        elif isinstance(i, Require) and self.of.kind(i.test) != 0:
            missed = _not(self.vector(i.test))
            missed = missed if block is None else _and(var(self.masks[block], BOOL), missed)
            yield self._set(self.failed, Expr("or", (var(self.failed, BOOL), missed), BOOL))
        elif isinstance(i, Checked) and name is not None and self.of.varies(name):
            args = tuple(a if a.op == "name" else self.vector(a) for a in i.args)
            mask = None if block is None else var(self.masks[block], BOOL)
            kind, failed = self.region_type(name), var(self.failed, BOOL)
            if block is None or name in self.of.masks.whole:
                yield CheckedLanes(self.lanes[name], i.function, args, failed, mask, kind)
            else:
                made = self._fresh(kind)
                yield CheckedLanes(made, i.function, args, failed, mask, kind)
                yield from self._assign(name, var(made, kind.dtype), block)
        else:
            assert isinstance(i, (Checked, Require, Position)) and self.abort is not None
            if name is None or not self.of.varies(name):
                yield with_exit(i, self.abort)
                return
            assert isinstance(i, (Checked, Position))
            dtype = self.region_type(name).dtype
            made = self._fresh(dtype)
            yield replace(i, name=made, exit=self.abort)
            yield from self._assign(name, var(made, dtype), block)

    def _load(self, i: Load, held: Held | None, block: Block | None) -> Iterator[Instruction]:
        dtype = i.place.dtype
        if held is not None:
            yield from self._assign(i.name, var(held.name, dtype), block)
        elif self.of.is_of_lanes(i.place):
            mask = None if block is None or i in self.of.safe else var(self.masks[block], BOOL)
            whole = block is None or i.name in self.of.masks.whole
            into = self.lanes[i.name] if whole else self._fresh(self._type(dtype))
            yield LoadLanes(into, i.place, self.of.step_of(i.place), self._type(dtype), mask)
            if not whole:
                yield from self._assign(i.name, var(into, dtype), block)
        elif not self.of.varies(i.name):
            yield i
        else:
            name = self._fresh(dtype)
            yield Load(name, i.place)
            yield from self._assign(i.name, var(name, dtype), block)

    def _store(self, i: Store, held: Held | None, block: Block | None) -> Iterator[Instruction]:
        value = self.vector(i.value)
        if held is not None:
            if block is not None:
                value = Expr("select", (var(self.masks[block], BOOL), value, var(held.name, value.dtype)), value.dtype)
            yield self._set(held.name, value)
            return
        yield from self._unless_failed()
        mask = None if block is None else var(self.masks[block], BOOL)
        yield StoreLanes(i.place, value, self.of.step_of(i.place), self._type(i.place.dtype), mask)


def _zero(dtype: DType) -> Expr:
    return const(0, dtype)


def _not(e: Expr) -> Expr:
    return Expr("not", (e,), BOOL)


def _and(x: Expr, y: Expr) -> Expr:
    return Expr("and", (x, y), BOOL)
