"""Control flow of regions: the order of blocks, dominators, innermost loops."""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir.regions import Block, Branch, Jump, Region


@dataclass(eq=False, repr=False)
class Loop:
    """A natural loop.  `blocks`: the header first, each after those that it is entered from."""

    header: Block
    blocks: list[Block]
    latches: list[Block]


def reverse_postorder(entry: Block) -> list[Block]:
    """The blocks that can be reached; but for back edges, each after those that it is entered from."""
    done: list[Block] = []
    seen = {entry}
    waiting = [(entry, iter(entry.successors()))]
    while waiting:
        block, rest = waiting[-1]
        for following in rest:
            if following not in seen:
                seen.add(following)
                waiting.append((following, iter(following.successors())))
                break
        else:
            done.append(block)
            waiting.pop()
    return done[::-1]


def reached_from(block: Block) -> set[Block]:
    """The blocks that control may come to behind one."""
    seen: set[Block] = set()
    waiting = list(block.successors())
    while waiting:
        at = waiting.pop()
        if at not in seen:
            seen.add(at)
            waiting += at.successors()
    return seen


def predecessors(blocks: list[Block]) -> dict[Block, list[Block]]:
    found: dict[Block, list[Block]] = {b: [] for b in blocks}
    for block in blocks:
        for following in dict.fromkeys(block.successors()):
            found[following].append(block)
    return found


def split_edges(region: Region) -> None:
    """A block of its own on each edge from one of two ways on to a block that is entered in several."""
    before = predecessors(region.blocks)
    for block in list(region.blocks):
        if isinstance(block.end, Branch):
            ends = []
            for target in (block.end.then, block.end.otherwise):
                if len(before[target]) > 1 or block.end.then is block.end.otherwise:
                    made = Block(0, block.line, [], Jump(target))
                    region.blocks.append(made)
                    target = made
                ends.append(target)
            block.end = Branch(block.end.test, *ends)
    for number, block in enumerate(region.blocks):
        block.number = number


class Dominators:
    """Cooper, Harvey and Kennedy: A Simple, Fast Dominance Algorithm."""

    def __init__(self, blocks: list[Block], before: dict[Block, list[Block]]):
        self.at = {b: k for k, b in enumerate(blocks)}
        self.above: dict[Block, Block] = {blocks[0]: blocks[0]}
        changed = True
        while changed:
            changed = False
            for block in blocks[1:]:
                known = [p for p in before[block] if p in self.above]
                common = known[0]
                for other in known[1:]:
                    common = self._common(common, other)
                if self.above.get(block) is not common:
                    self.above[block], changed = common, True

    def _common(self, x: Block, y: Block) -> Block:
        while x is not y:
            while self.at[x] > self.at[y]:
                x = self.above[x]
            while self.at[y] > self.at[x]:
                y = self.above[y]
        return x

    def __call__(self, x: Block, y: Block) -> bool:
        """Whether each way to `y` goes through `x`."""
        return self._common(x, y) is x


def natural_loops(region: Region) -> list[Loop]:
    """All loops that are entered at one place; each before those within it."""
    blocks = reverse_postorder(region.blocks[0])
    before = predecessors(blocks)
    dominate = Dominators(blocks, before)
    loops: list[Loop] = []
    for header in blocks:
        latches = [p for p in before[header] if dominate.at[p] >= dominate.at[header] and dominate(header, p)]
        if not latches:
            continue
        inside = leading_to(header, latches, before)
        loops.append(Loop(header, sorted(inside, key=dominate.at.__getitem__), latches))
    return loops


def innermost_loops(region: Region) -> list[Loop]:
    """Those without loops in them."""
    found = natural_loops(region)
    headers = {loop.header for loop in found}
    return [loop for loop in found if len(headers.intersection(loop.blocks)) == 1 and is_acyclic(loop)]


def leading_to(header: Block, latches: list[Block], before: dict[Block, list[Block]]) -> set[Block]:
    """The blocks of the loop with these latches."""
    inside, waiting = {header}, list(latches)
    while waiting:
        block = waiting.pop()
        if block not in inside:
            inside.add(block)
            waiting += before[block]
    return inside


def is_acyclic(loop: Loop) -> bool:
    """Whether turns have no cycle within, as one that is entered at two places."""
    at = {block: k for k, block in enumerate(loop.blocks)}
    return all(f is loop.header or at.get(f, len(at)) > at[b] for b in loop.blocks for f in b.successors())
