"""Looks for signals stay where a loop may run long without another one."""

from __future__ import annotations

from collections.abc import Callable

from dynagraph.ir.regions import Block, CallFunction, Interruptible, Region


def drop_looks(region: Region) -> None:
    """Changes the region: what stands in no cycle runs once.  Functions look where they begin, so those that a function calls in
    each turn do it for its loop.
    """
    looks = [b for b in region.blocks if any(isinstance(i, Interruptible) for i in b.body)]
    within_function = bool(region.arguments)
    for block in looks:
        if not _comes_back(block, _calls if within_function else _never):
            block.body = [i for i in block.body if not isinstance(i, Interruptible)]


def _comes_back(block: Block, looks: Callable[[Block], bool]) -> bool:
    """Whether control may come to the block again, other than through those that look."""
    if looks(block):
        return False
    seen: set[Block] = set()
    waiting = [b for b in block.successors() if not looks(b)]
    while waiting:
        at = waiting.pop()
        if at is block:
            return True
        if at not in seen:
            seen.add(at)
            waiting += [b for b in at.successors() if not looks(b)]
    return False


def _calls(block: Block) -> bool:
    return any(isinstance(i, CallFunction) for i in block.body)


def _never(block: Block) -> bool:
    return False
