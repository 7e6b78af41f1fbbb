"""Which variables of a region hold something that is still read."""

from __future__ import annotations

from collections.abc import Iterable

from dynagraph.ir.expr import Expr
from dynagraph.ir.region_loops import reverse_postorder
from dynagraph.ir.regions import Block, Branch, Exit, Instruction, Leave, assigned, with_operands

Names = frozenset[str]
NONE: Names = frozenset()


def operands_of(i: Instruction) -> list[Expr]:
    found: list[Expr] = []

    def seen(e: Expr) -> Expr:
        found.append(e)
        return e

    with_operands(i, seen)
    return found


class Reads:
    """The variables that instructions, and the ends of blocks, read: looked up once."""

    def __init__(self) -> None:
        self.found: dict[object, Names] = {}

    def of_all(self, parts: Iterable[Expr]) -> Names:
        return NONE.union(*map(self.of, parts))

    def of(self, e: Expr) -> Names:
        found = self.found.get(e)
        if found is None:
            found = frozenset((str(e.value),)) if e.op == "var" else self.of_all(e.args)
            self.found[e] = found
        return found

    def by(self, i: Instruction) -> Names:
        """By the instruction itself, whether or not the exit is taken."""
        found = self.found.get(i)
        if found is None:
            found = self.found[i] = self.of_all(operands_of(i))
        return found

    def by_each(self, instructions: Iterable[Instruction]) -> Names:
        return NONE.union(*map(self.by, instructions))

    def at_end(self, block: Block) -> Names:
        if isinstance(block.end, Branch):
            return self.of(block.end.test)
        return self.of_all(block.end.exit.state) if isinstance(block.end, Leave) else NONE

    def before(self, live: Names, i: Instruction) -> Names:
        """What is live before an instruction, where `live` is behind it."""
        exits = (getattr(i, name, None) for name in ("exit", "raising"))
        left = [self.of_all(e.state) for e in exits if isinstance(e, Exit)]
        return (live - {assigned(i)} | self.by(i)).union(*left)


def live_variables(entry: Block, reads: Reads) -> dict[Block, Names]:
    """At the beginning of each block.  What a block assigns before it goes on with another early counts as read, too."""
    blocks = reverse_postorder(entry)
    needs = {}
    for block in blocks:
        live = reads.at_end(block)
        for i in reversed(block.body):
            live = reads.before(live, i)
        needs[block] = live
    sets = {b: frozenset(n for i in b.body if (n := assigned(i))) for b in blocks}
    found = dict.fromkeys(blocks, NONE)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            early = NONE.union(*(found[e] for i in block.body if isinstance(e := getattr(i, "exit", None), Block)))
            live = needs[block] | (live_at_end(block, found) - sets[block]) | early
            if live != found[block]:
                found[block], changed = live, True
    return found


def live_at_end(block: Block, found: dict[Block, Names]) -> Names:
    """What is live behind a block's end."""
    return NONE.union(*(found[b] for b in block.successors()))
