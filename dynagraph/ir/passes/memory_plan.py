"""Memory planning: place temporaries in one workspace, reusing memory of dead values.

Comes after `lower` and `collapse`; the printers read the offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dynagraph.driver import deadline
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Buffer, ExternalCall, LibraryCall, LoopProgram, RoutineCall, Step, loaded_buffers, stored_buffers

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """A temporary is live from the step that first writes it to the last that reads it, both included."""

    buffer: Buffer
    first: int
    last: int


def memory_plan(program: LoopProgram) -> LoopProgram:
    """Needs: steps in order.  Leaves: offsets such that temporaries which are live at one time do not overlap."""
    lifetimes = _lifetimes(program)
    sizes = {t.buffer.name: _aligned(t.buffer.size * t.buffer.dtype.itemsize) for t in lifetimes}
    if all(s.constant is not None for s in sizes.values()):
        offsets, total = _pack(lifetimes, {k: s.constant or 0 for k, s in sizes.items()})
        placed = {k: IntExpr.of(v) for k, v in offsets.items()}
        return replace(program, offsets=placed, workspace=IntExpr.of(total))
    placed, end = {}, IntExpr.of(0)
    for lifetime in lifetimes:  # symbolic sizes: one after the other
        placed[lifetime.buffer.name] = end
        end = end + sizes[lifetime.buffer.name]
    return replace(program, offsets=placed, workspace=end)


def step_buffers(step: Step) -> tuple[set[str], set[str]]:
    """The names that a step reads and writes."""
    if isinstance(step, LibraryCall):
        reads, writes = {o.buffer for o in step.read}, {step.out.buffer}
        if step.then is not None:
            reads, writes = reads | loaded_buffers(step.then.body), writes | stored_buffers(step.then.body)
        return reads, writes
    if isinstance(step, (ExternalCall, RoutineCall)):
        return {o.buffer for o in step.operands}, {o.buffer for o in step.outs}
    return loaded_buffers(step.body), stored_buffers(step.body)


def _lifetimes(program: LoopProgram) -> list[Lifetime]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, step in enumerate(program.steps):
        deadline.check()
        reads, writes = step_buffers(step)
        for name in sorted(reads | writes):
            first.setdefault(name, position)
            last[name] = position
    return [
        Lifetime(b, first[b.name], last[b.name])
        for b in program.buffers.values()
        if b.role == "temp" and b.name in first
    ]


def _aligned(size: IntExpr) -> IntExpr:
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _pack(lifetimes: list[Lifetime], sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Largest first, each at the lowest offset that is free during its lifetime."""
    placed: list[tuple[Lifetime, int]] = []
    for lifetime in sorted(lifetimes, key=lambda t: (-sizes[t.buffer.name], t.first)):
        busy = sorted(
            (offset, offset + sizes[other.buffer.name])
            for other, offset in placed
            if other.first <= lifetime.last and lifetime.first <= other.last
        )
        offset = 0
        for low, high in busy:
            if low - offset >= sizes[lifetime.buffer.name]:
                break
            offset = max(offset, high)
        placed.append((lifetime, offset))
    total = max((offset + sizes[t.buffer.name] for t, offset in placed), default=0)
    return {t.buffer.name: offset for t, offset in placed}, total
