"""Run what finishes a convolution (a bias, a normalisation by numbers that are known, an activation, a sum) on its results while
they are in the cache.

Comes after `lower`, before `collapse` and `memory_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from dynagraph.driver import deadline
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import (
    Axis,
    Define,
    Kernel,
    LibraryCall,
    Loop,
    LoopProgram,
    Operand,
    Statement,
    Step,
    Store,
    expressions,
    loaded_buffers,
    map_body,
    map_expr,
    substitute,
)
from dynagraph.ir.optable.convolution import ROUTINES
from dynagraph.ir.passes.collapse import merged_axes
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import contiguous_strides, expr_of, same_dim

Touched = Callable[[Step], tuple[Any, Any]]  # the buffers that a step reads, and writes to
IMAGE = "image"  # what a kernel of parts is given: an image, and from where to where its channels and places go
PARAMETERS = (IMAGE, "channel", "channel_end", "place", "place_end")
_GONE = Kernel("", (), ())  # in place of a convolution that has moved


def finish_convolutions(program: LoopProgram) -> LoopProgram:
    """Needs: kernels from `lower`.  Leaves: the same values.  A kernel that computes element by element on what a convolution has
    made, which nothing else reads, becomes part of it (`then`): the convolution takes the kernel's place among the steps.
    """
    steps: list[Step] = list(program.steps)
    touched: Touched = cache(step_buffers)  # each step is asked for by many convolutions
    made: dict[str, int] = {}  # from what convolutions make to where they are
    for position, step in enumerate(program.steps):
        deadline.check()
        if isinstance(step, LibraryCall) and step.routine in ROUTINES[:2]:
            made[step.out.buffer] = position
        elif isinstance(step, Kernel):
            for name in sorted(loaded_buffers(step.body) & made.keys(), key=lambda name: -made[name]):
                finished = _finished(program, steps, made[name], position, touched)
                if finished is not None:
                    steps[made.pop(name)], steps[position] = _GONE, finished
                    break
    kept = tuple(s for s in steps if s is not _GONE)
    used = set(chain.from_iterable(names for step in kept for names in touched(step)))
    buffers = {k: b for k, b in program.buffers.items() if b.role != "temp" or k in used}
    return replace(program, buffers=buffers, steps=kept)


def _finished(
    program: LoopProgram, steps: Sequence[Step], source: int, position: int, touched: Touched
) -> LibraryCall | None:
    """The convolution at `source` with the kernel at `position`; None: the kernel is not one that may be part of it."""
    call, kernel = steps[source], steps[position]
    assert isinstance(call, LibraryCall) and isinstance(kernel, Kernel)
    out = call.out
    if not all(isinstance(s, (Define, Store)) for s in kernel.body) or not _may_move(program, steps, source, position, touched):
        return None
    index = _index_of(kernel, out)
    if index is None:
        return None
    body, into = _in_place(program, kernel.body, out, index)
    parts = _by_parts(kernel, body, out)
    if parts is None:
        return None
    return replace(call, out=replace(out, buffer=into), then=parts, comment=f"{call.comment}, then {kernel.comment}")


def _may_move(program: LoopProgram, steps: Sequence[Step], source: int, position: int, touched: Touched) -> bool:
    """Whether a convolution may be computed where a kernel stands: nobody else reads it, and neither what lies between them nor the
    kernel writes to its operands.
    """
    call = steps[source]
    assert isinstance(call, LibraryCall)
    made, operands = call.out.buffer, {o.buffer for o in call.operands}
    if call.then is not None or program.buffers[made].role != "temp":
        return False
    for k, step in enumerate(steps):
        reads, writes = touched(step)
        if k not in (source, position) and made in reads | writes:
            return False
        if source < k <= position and writes & operands:
            return False
    return True


def _index_of(kernel: Kernel, out: Operand) -> IntExpr | None:
    """Where all loads of the result are, if the axes of the kernel are those of the result, in order."""
    loads = {
        e.value[1]  # type: ignore[index]
        for root in expressions(kernel.body)
        for e in root.walk()
        if e.op == "load" and e.value[0] == out.buffer  # type: ignore[index]
    }
    if len(loads) != 1 or any(e.op == "gather" and e.value == out.buffer for root in expressions(kernel.body) for e in root.walk()):
        return None
    (index,) = loads
    dims = [(d, s) for d, s in zip(out.shape, contiguous_strides(out.shape)) if not same_dim(d, 1)]
    if len(dims) != len(kernel.axes):
        return None
    total = IntExpr.of(0)
    for axis, (dim, stride) in zip(kernel.axes, dims):
        if axis.start != 0 or axis.extent != expr_of(dim):
            return None
        total = total + IntExpr.symbol(axis.symbol.name) * expr_of(stride)
    return index if total == index else None


def _in_place(
    program: LoopProgram, body: Sequence[Statement], out: Operand, index: IntExpr
) -> tuple[tuple[Statement, ...], str]:
    """The statements with the convolution stored where what they make of it is, if it may be; and where that is."""
    *_, last = body
    if isinstance(last, Store) and last.place is None and last.where is None and last.index == index:
        buffer = program.buffers[last.buffer]
        others = [s for s in body[:-1] if isinstance(s, Store)]
        is_free = last.buffer not in loaded_buffers(body) and all(s.buffer != last.buffer for s in others)
        if is_free and buffer.dtype is out.dtype and buffer.size == program.buffers[out.buffer].size and buffer.role != "input":
            memo: dict[Expr, Expr] = {}

            def moved(e: Expr) -> Expr:
                is_own = e.op == "load" and e.value[0] == out.buffer  # type: ignore[index]
                return replace(e, value=(last.buffer, index), _hash=0) if is_own else e

            return map_body(body, lambda e: map_expr(e, memo, moved)), last.buffer
    return tuple(body), out.buffer


def _by_parts(kernel: Kernel, body: tuple[Statement, ...], out: Operand) -> Kernel | None:
    """The kernel over some channels and places of an image; None where its indices do not walk places as one axis."""
    axes = list(kernel.axes)
    image = None if same_dim(out.shape[0], 1) else axes.pop(0)
    channel = None if same_dim(out.shape[1], 1) else axes.pop(0)
    if image is not None:
        body = substitute(body, {image.symbol.name: IntExpr.symbol(IMAGE)})
    places, body = merged_axes(tuple(axes), body)
    if len(places) > 1:
        return None
    for axis, first in ((places[0] if places else None, "place"), (channel, "channel")):
        if axis is not None:
            start, end = IntExpr.symbol(first), IntExpr.symbol(f"{first}_end")
            body = (Loop((Axis(axis.symbol, end - start, axis.hint, start),), body),)
    return replace(kernel, axes=(), body=body)


__all__ = ["PARAMETERS", "finish_convolutions"]
