"""Where lanes go different ways: which blocks of a turn are done under masks, and what that means for variables.

Behind a branch that lanes take each for themselves, and up to where all ways meet, blocks are done one after the other.  Each has a
mask: the lanes that come to it.  A loop turns as long as one lane does.  Lanes enter a loop at the same time, so that those which
are still in it are in the same turn: what counts its turns is the same for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir.passes.lane_graph import LaneGraph
from dynagraph.ir.region_liveness import Names
from dynagraph.ir.region_loops import Loop
from dynagraph.ir.regions import Block, assigned


@dataclass(eq=False)
class Masked:
    """Blocks in the order in which they are done, and the block where all lanes have met again."""

    blocks: list[Block]
    behind: Block


class Masks:
    """Of branches of a graph that lanes take each for themselves.  Raises ValueError where lanes do not meet at one place.

    `of`: what a block is part of; `shared`: variables that, where masked blocks set them, are the same in all lanes that read them;
    `whole`: those that may be set in all lanes, whatever the mask.
    """

    def __init__(self, graph: LaneGraph, divergent: list[Block], live: dict[Block, Names]):
        self.graph, self.live = graph, live
        self.of: dict[Block, Masked] = {}
        meets = _meeting_points(graph)
        for block in divergent:
            self._add(graph, block, meets[block])
        for loop in graph.inner:
            if loop.header in self.of and any(self.of.get(b) is not self.of[loop.header] for b in loop.blocks):
                raise ValueError("lanes meet within a turn of a loop that others go on with")
        self.setters: dict[str, list[Block]] = {}
        for block in graph.blocks:
            for name in graph.sets(block) if block in self.of else ():
                self.setters.setdefault(name, []).append(block)
        self.whole = {name for name in self.setters if self._is_local(name) or self._has_one_setter(name)}
        self.shared = self.whole | {name for name in self.setters if self._counts(name)}

    def _add(self, graph: LaneGraph, block: Block, behind: Block) -> None:
        inside, waiting = set[Block](), list(block.successors())
        while waiting:
            at = waiting.pop()
            if at is not behind and at not in inside:
                inside.add(at)
                waiting += at.successors()
        if graph.header in inside or graph.outside in inside:
            raise ValueError("lanes do not meet before their turns end")
        met = list({id(m): m for b in inside if (m := self.of.get(b)) is not None}.values())
        for masked in met:
            inside |= set(masked.blocks)
        ends = {behind, *(m.behind for m in met)} - inside
        if len(ends) > 1:
            raise ValueError("lanes meet at several places")
        if inside:
            made = Masked(sorted(inside, key=graph.order.__getitem__), ends.pop())
            self.of.update(dict.fromkeys(inside, made))

    def following(self, block: Block) -> Block:
        """The masked block that is done after one, or where lanes have met."""
        masked = self.of[block]
        at = masked.blocks.index(block) + 1
        return masked.blocks[at] if at < len(masked.blocks) else masked.behind

    def back_from(self, block: Block) -> list[Loop]:
        """The loops whose last block it is, the innermost first."""
        loops = [x for x in self.graph.loops_of(block) if x.header in self.of]
        return [x for x in reversed(loops) if max(x.blocks, key=self.graph.order.__getitem__) is block]

    def flow(self, block: Block) -> list[Block]:
        """Where control goes on, once blocks are masked."""
        if block in self.of:
            return [self.following(block), *(x.header for x in self.back_from(block))]
        return [self.of[b].blocks[0] if b in self.of else b for b in block.successors()]

    # -- variables that masked blocks set -------------------------------------------------------------------------------------
    def _readers(self, name: str) -> list[Block]:
        """Masked blocks that begin with a value which is still read."""
        return [b for b in self.of if name in self.live[b]]

    def _is_read_behind(self, name: str) -> bool:
        return any(name in self.live[self.of[b].behind] for b in self.setters[name])

    def _is_local(self, name: str) -> bool:
        """Whether it is read in the blocks that set it only, after that."""
        return not self._is_read_behind(name) and not self._readers(name)

    def _has_one_setter(self, name: str) -> bool:
        """Whether all who read it come from the one block that sets it, in the same turn of each loop."""
        setter, *others = self.setters[name]
        if others or self._is_read_behind(name):
            return False
        around = [set(x.blocks) for x in self.graph.loops_of(setter)]
        readers = self._readers(name)
        behind = all(b is not setter and self.graph.dominate(setter, b) for b in readers)
        return behind and all(b in inside for inside in around for b in readers)

    def _counts(self, name: str) -> bool:
        """Whether a loop sets it in each turn at one place, and nothing else reads it."""
        readers = self._readers(name)
        if not readers or self._is_read_behind(name):
            return False
        for loop in self.graph.inner:
            if loop.header in self.of and set(readers) <= set(loop.blocks) and name in self.live[loop.header]:
                return self._counts_in(name, loop, readers)
        return False

    def _counts_in(self, name: str, loop: Loop, readers: list[Block]) -> bool:
        graph, inside = self.graph, set(loop.blocks)
        within = [b for b in self.setters[name] if b in inside]
        before = [b for b in self.setters[name] if b not in inside]
        entries = [b for b in graph.entries[loop.header] if b not in inside]
        if len(within) != 1 or len(entries) != 1 or any(b not in entries for b in before):
            return False
        (setter,) = within
        if graph.loops_of(setter)[-1] is not loop or not all(graph.dominate(setter, latch) for latch in loop.latches):
            return False
        if sum(assigned(i) == name for i in setter.body) != 1:
            return False
        return all(graph.order[b] <= graph.order[setter] or graph.dominate(setter, b) for b in readers)


def _meeting_points(graph: LaneGraph) -> dict[Block, Block]:
    """Where all ways from a block meet first."""
    n = len(graph.blocks)
    every = (1 << n) - 1
    bit = {b: 1 << k for b, k in graph.order.items()}
    found = {**dict.fromkeys(graph.blocks, every), graph.finish: bit[graph.finish]}
    changed = True
    while changed:
        changed = False
        for block in reversed(graph.blocks[:-1]):
            common = every
            for following in block.successors():
                if following is not graph.outside:
                    common &= found[following]
            common |= bit[block]
            if common != found[block]:
                found[block], changed = common, True
    meets = {}
    for block in graph.blocks[:-1]:
        behind = [b for b in graph.blocks if b is not block and found[block] & bit[b]]
        # the nearest one is that behind which all others lie
        meets[block] = max(behind, key=lambda b: found[b].bit_count(), default=graph.finish)
    return meets
