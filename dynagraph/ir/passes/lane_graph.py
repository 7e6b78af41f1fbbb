"""One turn of an outer loop as a graph of blocks, for turns side by side.

All ways through a turn end in one block.  Loops within that compute the same are one: code is often written out twice, for a
variable whose Python type changes once (``s = 0.0`` and then ``s += x[k]``), and differs in its exits only, of which lanes have
none.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.region_liveness import NONE, Names, Reads
from dynagraph.ir.region_loops import Dominators, Loop, natural_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import (
    Block,
    Branch,
    Checked,
    Exit,
    Instruction,
    Interruptible,
    Jump,
    Leave,
    Load,
    OneByOne,
    Position,
    Region,
    Require,
    Set,
    Store,
    assigned,
    substituted,
    with_operands,
)

CHECKS = (Checked, Require, Position)


class LaneGraph:
    """`blocks`: of a turn, the header first, loops in one piece; `finish`: the last one; `inner`: the loops within.

    `origin`: the block of the region that one stands for; `twins`: whether loops have been made one.
    """

    def __init__(self, region: Region, loop: Loop, proven: Mapping[Instruction, Instruction | None], reads: Reads):
        self.variables, self.loop, self.reads = region.variables, loop, reads
        self.outside = Block(-1, end=Leave(Exit(0)))
        self.finish = Block(-1, loop.header.line)
        copies = {b: Block(b.number, b.line) for b in loop.blocks}
        self.origin = {copy: b for b, copy in copies.items()}
        self.header = copies[loop.header]
        self.finish.end = Jump(self.header)
        for block, copy in copies.items():
            made = (proven.get(i, i) for i in block.body)
            copy.body = [i for i in made if i is not None and not isinstance(i, (Interruptible, OneByOne))]
            copy.end = self._end(block, copies)
        self.twins = False
        self._arrange()
        n_blocks = len(self.blocks) + 1
        while len(self.blocks) < n_blocks and self._merge_twins():
            n_blocks = len(self.blocks)
            self.twins = True
            self._arrange()

    def _end(self, block: Block, copies: dict[Block, Block]) -> Jump | Branch:
        end, latch = block.end, block in self.loop.latches

        def to(target: Block) -> Block:
            return self.finish if latch and target is self.loop.header else copies.get(target, self.outside)

        if isinstance(end, Branch):
            return Branch(end.test, to(end.then), to(end.otherwise))
        assert isinstance(end, Jump)
        return Jump(to(end.block))

    def _arrange(self) -> None:
        found = [b for b in reverse_postorder(self.header) if b is not self.outside]
        region = Region("turn", blocks=found)
        loops = natural_loops(region)
        self.inner = [x for x in loops if x.header is not self.header]
        for loop in self.inner:  # the outer ones come first
            inside = set(loop.blocks)
            piece = [b for b in found if b in inside]
            at = found.index(loop.header)
            found = [b for b in found[:at] if b not in inside] + piece + [b for b in found[at:] if b not in inside]
        found.remove(self.finish)
        last = [b for b in found if b.successors() == (self.finish,) and any(isinstance(i, Store) for i in b.body)]
        last = [b for b in last if not self.loops_of(b)]
        last.sort(key=lambda b: not any(isinstance(i, CHECKS) for i in b.body))  # what is stored comes behind what is checked
        self.blocks = [*(b for b in found if b not in last), *last, self.finish]
        self.order = {b: k for k, b in enumerate(self.blocks)}
        self.entries = {b: p for b, p in predecessors([*self.blocks, self.outside]).items() if b is not self.outside}
        self.dominate = Dominators(self.blocks, self.entries)

    def loops_of(self, block: Block) -> list[Loop]:
        """The loops within that a block is in, the outermost first."""
        return [x for x in self.inner if block in x.blocks]

    def sets(self, block: Block) -> Names:
        return frozenset(name for i in block.body if (name := assigned(i)))

    def live(self, behind: Names) -> dict[Block, Names]:
        """What is read, at the beginning of each block; `behind`: what is read when the turn is over."""
        needs, sets = {}, {b: self.sets(b) for b in self.blocks}
        for block in self.blocks:
            live = self.reads.at_end(block)
            for i in reversed(block.body):
                live = live - {assigned(i)} | self.reads.by(i)
            needs[block] = live
        found = {**dict.fromkeys(self.blocks, NONE), self.finish: behind, self.outside: NONE}
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks[:-1]):
                ends = NONE.union(*(found[b] for b in block.successors()))
                live = needs[block] | (ends - sets[block])
                if live != found[block]:
                    found[block], changed = live, True
        return found

    # -- loops that compute the same --------------------------------------------------------------------------------------------
    def _merge_twins(self) -> bool:
        headers = [x.header for x in self.inner]
        live = self.live(NONE) if len(headers) > 1 else {}
        for k, header in enumerate(headers):
            for twin in headers[k + 1 :]:
                found = _Twins(self, live).blocks(header, twin)
                if found is not None:
                    for block in self.blocks:
                        _redirect(block, found)
                    return True
        return False


class _Twins:
    """Whether a block computes the same as another, and so on with all that follows; temporaries may have other names."""

    def __init__(self, graph: LaneGraph, live: dict[Block, Names]):
        self.graph, self.live = graph, live
        self.names: dict[str, Expr] = {}
        self.at: dict[Block, Block] = {}

    def blocks(self, block: Block, twin: Block) -> dict[Block, Block] | None:
        """What may stand for `twin` and the blocks behind it."""
        common, waiting = {block, twin}, [(block, twin)]
        ends = {self.graph.finish, self.graph.outside, self.graph.header}
        while waiting:
            one, two = (_behind_empty(b) for b in waiting.pop())
            if one is two:
                common.add(one)
            elif self.at.get(two) is not one:
                if two in self.at or one in ends or two in ends or not self._same(one, two):
                    return None
                self.at[two] = one
                waiting += zip(one.successors(), two.successors())
        others = {name: str(e.value) for name, e in self.names.items() if e.value != name}
        kept = NONE.union(*(self.live[b] for b in common if b in self.live))
        is_function = len({e.value for e in self.names.values()}) == len(self.names)
        return self.at if is_function and kept.isdisjoint({*others, *others.values()}) else None

    def _same(self, one: Block, two: Block) -> bool:
        if len(one.body) != len(two.body) or type(one.end) is not type(two.end):
            return False
        of = substituted(self.names)
        for i, j in zip(one.body, two.body):
            if type(i) is not type(j) or _parts(i) != _parts(with_operands(j, of)):
                return False
            name, other = assigned(i), assigned(j)
            if name is not None and other is not None:
                kind = self.graph.variables[name]
                if not isinstance(kind, DType) or kind is not self.graph.variables[other]:
                    return False
                renamed = var(name, kind)
                if self.names.setdefault(other, renamed) != renamed:
                    return False
                of = substituted(self.names)
        return not isinstance(one.end, Branch) or of(two.end.test) == one.end.test  # type: ignore[union-attr]


def _parts(i: Instruction) -> tuple[object, ...]:
    """What an instruction does, but for the variable that it sets, and for its exit."""
    if isinstance(i, Checked):
        return i.function, i.args
    if isinstance(i, (Load, Store)):
        place = i.place.base, i.place.steps, i.place.dtype
        return (*place, i.value, i.kept) if isinstance(i, Store) else place
    if isinstance(i, Position):
        return i.index, i.extent
    if isinstance(i, (Set, Require)):
        return (i.value if isinstance(i, Set) else i.test,)
    return (i,)


def _behind_empty(block: Block) -> Block:
    while not block.body and isinstance(block.end, Jump):
        block = block.end.block
    return block


def _redirect(block: Block, to: Mapping[Block, Block]) -> None:
    end = block.end
    if isinstance(end, Jump):
        block.end = Jump(to.get(end.block, end.block))
    elif isinstance(end, Branch):
        block.end = Branch(end.test, to.get(end.then, end.then), to.get(end.otherwise, end.otherwise))
