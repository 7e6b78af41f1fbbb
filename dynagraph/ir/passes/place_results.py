"""Have external calls put results where a kernel would copy them to: the gradients of slices of one array side by side.

Comes after `collapse` and `segment`, before `memory_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dynagraph.driver import deadline
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis, ExternalCall, Kernel, Loop, LoopProgram, Operand, Statement, Step, Store, loaded_buffers
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import contiguous_strides, expr_of, same_dim

ONE = IntExpr.of(1)
Digits = list[tuple[IntExpr, IntExpr]]  # a walk over memory, the innermost loop first: its turns, and the step of each


def place_results(program: LoopProgram, made_of: Sequence[int]) -> LoopProgram:
    """Needs: steps in order; `made_of`: of each, the number of the step that it was before `segment`.  Leaves: the same values.

    A loop that does nothing but copy a result of an external call, which nobody else reads, to other memory of the program is left
    out: the call is given that memory.
    """
    placing = _Placing(program, made_of)
    for position in range(len(program.steps)):
        deadline.check()
        placing.kernel(position)
    steps = tuple(step for step in placing.steps if not isinstance(step, Kernel) or step.body)
    buffers = {name: b for name, b in program.buffers.items() if name not in placing.gone}
    return replace(program, buffers=buffers, steps=steps)


class _Placing:
    def __init__(self, program: LoopProgram, made_of: Sequence[int]):
        self.buffers, self.made_of = program.buffers, made_of
        self.steps: list[Step] = list(program.steps)
        self.results: dict[str, int] = {}  # of calls: which step makes them
        for position, step in enumerate(program.steps):
            if isinstance(step, ExternalCall) and step.call.takes_out:
                self.results |= {out.buffer: position for out in step.outs if self.buffers[out.buffer].role == "temp"}
        self.touched = [step_buffers(step) for step in program.steps] if self.results else []
        self.placed: dict[tuple[int, str], int] = {}  # calls and what they write to, instead of which kernel
        self.gone: set[str] = set()

    def kernel(self, position: int) -> None:
        kernel = self.steps[position]
        if not isinstance(kernel, Kernel) or not self.results:
            return
        kept = [s for k, s in enumerate(kernel.body) if not self._is_placed(position, kernel, k)]
        if len(kept) < len(kernel.body):
            share = sum(map(_turns, kept)) / max(1, sum(map(_turns, kernel.body)))
            self.steps[position] = replace(kernel, body=tuple(kept), cost=kernel.cost * share)
            self.touched[position] = step_buffers(self.steps[position])

    def _is_placed(self, position: int, kernel: Kernel, k: int) -> bool:
        """Whether a statement is needed no more, since a call puts what it copies into place from now on."""
        s = kernel.body[k]
        axes, store = (kernel.axes + s.axes, s.body[0]) if isinstance(s, Loop) and len(s.body) == 1 else (kernel.axes, s)
        if not isinstance(store, Store) or store.value.op != "load" or store.place is not None or store.where is not None:
            return False
        source, index = cast("tuple[str, IntExpr]", store.value.value)
        if source not in self.results or source in loaded_buffers((*kernel.body[:k], *kernel.body[k + 1 :])):
            return False
        made = self.results[source]
        call = self.steps[made]
        assert isinstance(call, ExternalCall)
        (out,) = (out for out in call.outs if out.buffer == source)
        moved = _moved(out, axes, index, store)
        if moved is None or not self._may_move(source, store.buffer, made, position):
            return False
        self.steps[made] = replace(call, outs=tuple(moved if o is out else o for o in call.outs))
        self.touched[made] = step_buffers(self.steps[made])
        self.placed[made, store.buffer] = self.made_of[position]
        self.gone.add(source)
        del self.results[source]
        return True

    def _may_move(self, source: str, target: str, made: int, position: int) -> bool:
        """Whether memory may be written to where a call stands instead of where a kernel does, and nobody else reads the result."""
        buffer, own = self.buffers[target], self.made_of[position]
        if buffer.role not in ("temp", "output") or buffer.dtype is not self.buffers[source].dtype:
            return False
        for k, (reads, writes) in enumerate(self.touched):
            if k not in (made, position) and source in reads | writes:
                return False
            if made <= k <= position and target in reads:
                return False
            if made <= k <= position and target in writes and own not in (self.made_of[k], self.placed.get((k, target))):
                return False
        return True


def _turns(s: Statement) -> int:
    return math.prod(axis.hint for axis in s.axes) if isinstance(s, Loop) else 1


def _moved(out: Operand, axes: Sequence[Axis], index: IntExpr, store: Store) -> Operand | None:
    """The result of a call in the memory that a store copies it to; None where its loops do not walk all of it once, or where its
    axes would have no strides there."""
    shifted = {axis.symbol.name: IntExpr({(axis.symbol,): 1}) + axis.start for axis in axes if axis.start != 0}
    index, target = index.substitute(shifted), store.index.substitute(shifted)
    if not all(map(same_dim, out.strides, contiguous_strides(out.shape))):
        return None
    digits: Digits = []
    size, offset, rest = ONE, target, list(axes)
    while rest:
        axis = next((a for a in rest if index.coefficient(a.symbol) == size), None)
        step = None if axis is None else target.coefficient(axis.symbol)
        if axis is None or step is None:
            return None
        rest.remove(axis)
        variable = IntExpr({(axis.symbol,): 1})
        index, offset = index - variable * size, offset - variable * step
        size = size * axis.extent
        digits.append((axis.extent, step))
    variables = {axis.symbol for axis in axes}
    if index != out.offset or size != math.prod(map(expr_of, out.shape), start=ONE) or variables & offset.symbols():
        return None
    strides = _strides(out, _merged(digits))
    return None if strides is None else replace(out, buffer=store.buffer, strides=strides, offset=offset)


def _merged(digits: Digits) -> Digits:
    """Loops that walk memory as one are one."""
    merged: Digits = []
    for turns, step in digits:
        if merged and step == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0] * turns, merged[-1][1])
        else:
            merged.append((turns, step))
    return merged


def _strides(out: Operand, digits: Digits) -> tuple[int, ...] | None:
    """The strides of the axes of a contiguous array that is walked in this way; None: an axis is walked by two loops."""
    waiting, covered = list(digits), ONE
    strides: list[IntExpr] = []
    for n in reversed(out.shape):
        if same_dim(n, 1):
            strides.append(ONE)
            continue
        if not waiting:
            return None
        turns, step = waiting[0]
        strides.append(step * covered)
        covered = covered * expr_of(n)
        if covered == turns:
            waiting, covered = waiting[1:], ONE
    if waiting:
        return None
    return tuple(s if s.constant is None else s.constant for s in reversed(strides))  # type: ignore[misc]


__all__ = ["place_results"]
