"""Run what finishes a convolution or a product of matrices on its results while they are in the cache: a bias, a normalisation by
numbers that are known, an activation, a sum.

Comes after `lower`, before `collapse` and `memory_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from dynagraph.driver import deadline
from dynagraph.ir import dtypes
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
from dynagraph.ir.shapes import expr_of

Touched = Callable[[Step], tuple[Any, Any]]  # the buffers that a step reads, and writes to
MATRIX_AXES = 8 + 2  # of a product on the thread pool: DG_MATRIX_AXES, and the matrices'
IMAGE = "image"  # what a kernel of parts is given: an image, and from where to where its channels and places go; see `_cube`
PARAMETERS = (IMAGE, "channel", "channel_end", "place", "place_end")
_GONE = Kernel("", (), ())  # in place of a call that has moved


def is_own_product(call: LibraryCall) -> bool:
    """Whether a call is a product of matrices on the thread pool (`dynagraph/_core/products`)."""
    return call.own and call.out.dtype in (dtypes.float32, dtypes.float64) and len(call.out.shape) <= MATRIX_AXES


def finish_calls(program: LoopProgram) -> LoopProgram:
    """Needs: kernels from `lower`.  Leaves: the same values.  A kernel that computes element by element on what a convolution or
    product has made, which nothing reads before, becomes part of it (`then`): the call takes the kernel's place among the steps.
    """
    steps: list[Step] = list(program.steps)
    touched: Touched = cache(step_buffers)  # each step is asked for by many calls
    made: dict[str, int] = {}  # from what calls make to where they are
    for position, step in enumerate(program.steps):
        deadline.check()
        if isinstance(step, LibraryCall) and (step.routine in ROUTINES[:2] or is_own_product(step)):
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
    """The call at `source` with the kernel at `position`; None: the kernel is not one that may be part of it."""
    call, kernel = steps[source], steps[position]
    assert isinstance(call, LibraryCall) and isinstance(kernel, Kernel)
    out = call.out
    if not all(isinstance(s, (Define, Store)) for s in kernel.body) or not _may_move(program, steps, source, position, touched):
        return None
    index = _index_of(kernel, out)
    if index is None:
        return None
    body, into = tuple(kernel.body), out.buffer
    if not any(out.buffer in touched(step)[0] for step in steps[position + 1 :]):
        body, into = _in_place(program, kernel.body, out, index)
    parts = _by_parts(kernel, body, _cube(call))
    if parts is None:
        return None
    return replace(call, out=replace(out, buffer=into), then=parts, comment=f"{call.comment}, then {kernel.comment}")


def _may_move(program: LoopProgram, steps: Sequence[Step], source: int, position: int, touched: Touched) -> bool:
    """Whether a call may be made where a kernel stands: nobody reads its result before, and neither what lies between them nor the
    kernel writes to its operands.
    """
    call = steps[source]
    assert isinstance(call, LibraryCall)
    made, operands = call.out.buffer, {o.buffer for o in call.operands}
    if call.then is not None or program.buffers[made].role != "temp":
        return False
    for k, step in enumerate(steps):
        reads, writes = touched(step)
        if k != source and (made in writes or (k < position and made in reads)):
            return False
        if source < k <= position and writes & operands:
            return False
    return True


def _index_of(kernel: Kernel, out: Operand) -> IntExpr | None:
    """Where all loads of the result are, if the axes of the kernel walk it from the first element to the last."""
    loads = {
        e.value[1]  # type: ignore[index]
        for root in expressions(kernel.body)
        for e in root.walk()
        if e.op == "load" and e.value[0] == out.buffer  # type: ignore[index]
    }
    if len(loads) != 1 or any(e.op == "gather" and e.value == out.buffer for root in expressions(kernel.body) for e in root.walk()):
        return None
    (index,) = loads
    total, stride = IntExpr.of(0), IntExpr.of(1)
    for axis in reversed(kernel.axes):
        if axis.start != 0:
            return None
        total = total + IntExpr.symbol(axis.symbol.name) * stride
        stride = stride * axis.extent
    return index if total == index else None


def _in_place(
    program: LoopProgram, body: Sequence[Statement], out: Operand, index: IntExpr
) -> tuple[tuple[Statement, ...], str]:
    """The statements with the call's result stored where what they make of it is, if it may be; and where that is."""
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


def _cube(call: LibraryCall) -> tuple[IntExpr, IntExpr, IntExpr]:
    """The result as images of channels of places; a product's are its batch, rows and columns."""
    shape = call.out.shape
    split = (0, 1) if call.routine in ROUTINES else (len(shape) - 3, len(shape) - 2)
    groups = shape[: split[0] + 1], shape[split[0] + 1 : split[1] + 1], shape[split[1] + 1 :]
    images, channels, places = (math.prod(map(expr_of, dims), start=IntExpr.of(1)) for dims in groups)
    return images, channels, places


def _by_parts(kernel: Kernel, body: tuple[Statement, ...], cube: tuple[IntExpr, ...]) -> Kernel | None:
    """The kernel over some channels and places of an image; None where its indices do not walk each of the three as one axis."""
    axes = list(kernel.axes)
    walked: list[Axis | None] = []
    for size in reversed(cube):
        group: list[Axis] = []
        covered = IntExpr.of(1)
        while covered != size and axes:
            group.insert(0, axes.pop())
            covered = covered * group[0].extent
        merged, body = merged_axes(tuple(group), body)
        if covered != size or len(merged) > 1:
            return None
        walked.append(merged[0] if merged else None)
    if axes:
        return None
    place, channel, image = walked
    if image is not None:
        body = substitute(body, {image.symbol.name: IntExpr.symbol(IMAGE)})
    for axis, first in ((place, "place"), (channel, "channel")):
        if axis is not None:
            start, end = IntExpr.symbol(first), IntExpr.symbol(f"{first}_end")
            body = (Loop((Axis(axis.symbol, end - start, axis.hint, start),), body),)
    return replace(kernel, axes=(), body=body)


__all__ = ["PARAMETERS", "finish_calls", "is_own_product"]
