"""A header of its own for a loop and for the one around it, where both begin at one block.

That is so where the first turn of each is written out before them, as the types of variables change in it: what begins a turn of
the outer loop then leads to the inner one's header.  No turn changes; but passes that look at innermost loops find the inner one.
"""

from __future__ import annotations

from dynagraph.ir.passes.fast_loops import Copy, redirect
from dynagraph.ir.passes.turns import predecessors_within
from dynagraph.ir.region_loops import Dominators, Loop, is_acyclic, leading_to, natural_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import Block, Branch, Jump, Region


def separate_loops(region: Region) -> None:
    """Changes the region."""
    for loop in natural_loops(region):
        if len(loop.latches) > 1 and (inner := _inner_latches(region, loop)):
            _separate(region, loop.header, inner)


def _inner_latches(region: Region, loop: Loop) -> list[Block]:
    """Those before a test that ends the inner loop, which counts its turns."""
    before = predecessors_within(loop)
    dominate = Dominators(loop.blocks, before)
    for block in loop.blocks:
        for left in block.successors() if isinstance(block.end, Branch) else ():
            if left is loop.header or before.get(left) != [block]:
                continue
            inner = [latch for latch in loop.latches if not dominate(left, latch)]
            if 0 < len(inner) < len(loop.latches) and _counts(region, loop, inner, block):
                return inner
    return []


def _counts(region: Region, loop: Loop, latches: list[Block], test: Block) -> bool:
    """Whether these latches are those of an innermost loop, with a test that counts its turns."""
    inside = leading_to(loop.header, latches, predecessors_within(loop))
    inner = Loop(loop.header, [b for b in loop.blocks if b in inside], latches)
    if test not in inside or not is_acyclic(inner):
        return False
    copy = Copy(region, inner, {})  # none is made
    copy.count()
    return test in copy.ending


def _separate(region: Region, header: Block, inner: list[Block]) -> None:
    outer = Block(max(b.number for b in region.blocks) + 1, header.line, [], Jump(header))
    for block in predecessors(region.blocks)[header]:
        if block not in inner:
            redirect(block, {header: outer})
    region.blocks = reverse_postorder(region.blocks[0])
