"""Loops that are entered in the middle of a turn are entered at the test that counts their turns.

Where types of variables change within a turn, as in ``if x[i] > best: best = x[i]``, that turn is written out before the loop, and
goes on in the middle of the loop's own turn.  What is left of it is copied for the way in: then the loop begins at its test, and
passes find how often it turns, and loops within one another rather than the other way round.
"""

from __future__ import annotations

from dataclasses import replace

from dynagraph.ir.passes.fast_loops import Copy, redirect
from dynagraph.ir.passes.turns import predecessors_within
from dynagraph.ir.region_loops import Dominators, Loop, is_acyclic, leading_to, natural_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import Block, Branch, Region

MOST_BLOCKS = 6  # that are copied
MOST_INSTRUCTIONS = 60
MOST_LOOPS = 20  # of a region


def enter_at_tests(region: Region) -> None:
    """Changes the region."""
    for _ in range(MOST_LOOPS):
        found = next(((x, first) for x in natural_loops(region) if (first := _before_test(region, x))), None)
        if found is None:
            return
        _copy_for_entry(region, *found)


def _before_test(region: Region, loop: Loop) -> list[Block]:
    """The blocks of a turn before the test that counts turns, where turns begin at others."""
    if loop.header is region.blocks[0]:
        return []
    before = predecessors_within(loop)
    dominate = Dominators(loop.blocks, before)
    for test in loop.blocks[1:]:
        if not isinstance(test.end, Branch) or not all(dominate(test, latch) for latch in loop.latches):
            continue
        first = [b for b in loop.blocks if not dominate(test, b)]
        if _may_be_copied(loop, first, test) and _counts(region, loop, first, test, before):
            return first
    return []


def _may_be_copied(loop: Loop, first: list[Block], test: Block) -> bool:
    if len(first) > MOST_BLOCKS or sum(len(b.body) for b in first) > MOST_INSTRUCTIONS:
        return False
    at = {b: k for k, b in enumerate(first)}
    return all(f is test or at.get(f, -1) > at[b] for b in first for f in b.successors())


def _counts(region: Region, loop: Loop, first: list[Block], test: Block, before: dict[Block, list[Block]]) -> bool:
    """Whether turns that begin at the test are counted there, with those that go through its `first` blocks."""
    whole = Loop(test, [test, *(b for b in loop.blocks if b is not test and b not in first), *first], before[test])
    dominate = Dominators(whole.blocks, before)
    for left in test.successors():
        if before.get(left, [test]) != [test]:
            continue
        latches = [b for b in before[test] if left not in before or not dominate(left, b)]
        inside = leading_to(test, latches, before)
        inner = Loop(test, [b for b in whole.blocks if b in inside], latches)
        if set(first) <= inside and is_acyclic(inner):
            copy = Copy(region, inner, {})  # none is made
            copy.count()
            if test in copy.ending:
                return True
    return False


def _copy_for_entry(region: Region, loop: Loop, first: list[Block]) -> None:
    n = max(b.number for b in region.blocks) + 1
    copies = {b: Block(n + k, b.line, [replace(i) for i in b.body], b.end) for k, b in enumerate(first)}
    for copy in copies.values():
        redirect(copy, copies)
    for block in predecessors(region.blocks)[loop.header]:
        if block not in loop.blocks:
            redirect(block, copies)
    region.blocks = reverse_postorder(region.blocks[0])
