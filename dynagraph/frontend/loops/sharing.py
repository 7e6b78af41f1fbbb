"""Who else holds an iterator: native code advances copies, which nobody else may see."""

from __future__ import annotations

from collections.abc import Iterator as Iterates
from typing import Any

from dynagraph.frontend.bytecode.decode import Program
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.kinds import iterators
from dynagraph.frontend.kinds.values import Cell, Iterator, Sequence
from dynagraph.frontend.loops.builder import live_at

RANGE_ITERATOR = type(iter(range(0)))


def shared_iterator(frame: Frame, original: Program, index_of: list[int]) -> bool:
    """Whether anything but the loops at which a frame stands may see an iterator of theirs.

    `original`: the program that the frame's is the rest of; `index_of`: where its instructions stand there.
    """
    live = live_at(frame.program, frame.ip)
    named = [v for name, v in frame.locals.items() if name in live] + list(frame.cells.values())
    found = [id(it) for value in (*frame.stack, *named) for it in _iterators_in(value)]
    if len(set(found)) < len(found) or any(isinstance(v, Iterator) and v.is_held for v in frame.stack):
        return True
    handed_over = [v for v in frame.stack if isinstance(v, Lazy) and isinstance(v.obj, RANGE_ITERATOR)]
    return bool(handed_over) and not _are_of_ranges(frame, original, index_of)


def _iterators_in(value: Any) -> Iterates[Any]:
    if isinstance(value, Lazy):
        if hasattr(type(value.obj), "__next__"):
            yield value.obj
    elif isinstance(value, Iterator):
        yield value
        if isinstance(value, iterators.Zip):
            for part in value.parts:
                yield from _iterators_in(part)
        elif isinstance(value, iterators.Enumerate):
            yield from _iterators_in(value.inner)
    elif isinstance(value, Sequence):
        for item in value.items:
            yield from _iterators_in(item)
    elif isinstance(value, Cell):
        yield from _iterators_in(value.value)


def _are_of_ranges(frame: Frame, original: Program, index_of: list[int]) -> bool:
    """Whether each loop around an instruction that is ``for ... in range(...)`` takes its iterator from there alone.

    A range iterator that Python was in the middle of is one object: had it been made elsewhere, others could hold it.
    """
    instructions = frame.program.instructions
    heads = [k for k, i in enumerate(instructions) if i.op == "FOR_ITER" and k <= frame.ip < i.value]
    given = [v for v in frame.stack if isinstance(v, Iterator) or (isinstance(v, Lazy) and hasattr(type(v.obj), "__next__"))]
    if len(heads) != len(given):
        return False
    pairs = zip(heads, given)
    return all(_is_of_range(original, index_of[k]) for k, v in pairs if isinstance(v, Lazy) and isinstance(v.obj, RANGE_ITERATOR))


def _is_of_range(program: Program, head: int) -> bool:
    """Whether the iterator of a loop is made by a call of range right before it."""
    instructions = program.instructions
    k = head - 2
    if k < 0 or instructions[k + 1].op != "GET_ITER" or instructions[k].op != "CALL":
        return False
    wanted = instructions[k].value + 2  # values on the stack that the instructions before it put there
    while wanted > 0:
        k -= 1
        effect = _EFFECTS.get(instructions[k].op) or stack_effect(instructions[k])
        if k < 0 or effect is None:
            return False
        wanted += effect[0] - effect[1]
    return any(i.op == "LOAD_GLOBAL" and i.value == "range" for i in instructions[k : k + 2])


_EFFECTS = {"LOAD_CONST": (0, 1), "PUSH_NULL": (0, 1)}
