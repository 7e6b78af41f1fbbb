"""What comes after an exit: the function that Python goes on in, and the rest of calls that were inlined."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dynagraph.frontend.bytecode.decode import JUMPS, Instruction
from dynagraph.frontend.bytecode.resume import BreakPoint, Resumes, Target, stack_effect
from dynagraph.frontend.kinds.values import NULL as EMPTY
from dynagraph.frontend.kinds.values import Const
from dynagraph.frontend.loops.builder import Frame, Way, live_at
from dynagraph.frontend.loops.types import NULL

try:
    from dynagraph._core._frame_hook import call_unwatched
except ImportError:  # a CPython version that the hook does not know
    call_unwatched = operator.call  # type: ignore[assignment]


def target_of(way: Way, target: Target, resumes: Resumes, run_watched: Callable[..., Any] | None) -> Callable[..., Any]:
    """What an exit's Tail calls with the state of the captured function's frame."""
    frame = way.frames[0]
    index = target.index_of[frame.ip]
    assert index >= 0, "an exit at an instruction that the original code has not"
    point = _break_point(frame, target, index)
    inner = len(way.frames) > 1
    if way.again and not inner:
        return resumes.pause(point)
    if way.raises and not inner:
        return resumes.raising(point)
    if not inner and _cannot_stand_alone(target.original.instructions[index]):
        return resumes.resume(point, index, tuple(point.shape), tuple(point.names))  # type: ignore[no-any-return]
    continuation = resumes.continuation(point, in_call=inner)
    return continuation if run_watched is None else partial(run_watched, continuation)


def _cannot_stand_alone(i: Instruction) -> bool:
    return i.op != "FOR_ITER" and (stack_effect(i) is None or i.op in JUMPS)


def _break_point(frame: Frame, target: Target, index: int) -> BreakPoint:
    shape = [EMPTY if v.type == NULL else Const(None) for v in frame.stack]
    names = names_of(frame)
    return BreakPoint(target, index, shape, names, [Const(None)] * len(names), [])


def names_of(frame: Frame) -> list[str]:
    """The locals that an exit hands over, the function's first parameter first: super() looks at it."""
    first = frame.program.code.co_varnames[:1]
    live = live_at(frame.program, frame.ip)
    i = frame.program.instructions[frame.ip]
    wanted = live | live_at(frame.program, frame.ip + 1) | (live_at(frame.program, i.value) if i.op == "FOR_ITER" else frozenset())
    return sorted((n for n in frame.locals if n in wanted), key=lambda n: (n not in first, n))


class Later:
    """A function that is made when it is called first: most never are."""

    def __init__(self, make: Callable[[], Target]):
        self.make = make

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        return call_unwatched(lambda: self.make().function)  # type: ignore[no-any-return]


class Rest:
    """The rest of a call of a Python function that native code has inlined and left."""

    def __init__(self, way: Way, depth: int):
        self.way, self.depth = way, depth
        self.resumes: Resumes | None = None
        self.run_watched: Callable[..., Any] | None = None

    def go_on_with(self, resumes: Resumes, run_watched: Callable[..., Any] | None) -> None:
        """What compiles the parts that it goes on in, and runs them."""
        self.resumes, self.run_watched = resumes, run_watched

    def made(self) -> Callable[..., Any]:
        """What does it, called with the frame's state."""
        frame = self.way.frames[self.depth]
        function = frame.function.object
        assert isinstance(function, types.FunctionType) and self.resumes is not None
        way = replace(self.way, frames=[frame, *self.way.frames[self.depth + 1 :]])
        return target_of(way, Target.of(function), self.resumes, self.run_watched)
