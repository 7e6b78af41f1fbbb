"""External calls of native programs: the steps that call NumPy functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.errors import make_final
from dynagraph.ir.external_calls import FunctionCall, selected
from dynagraph.ir.interpreter import concrete, symbols_in
from dynagraph.ir.loops import ExternalCall, LoopProgram

Row = tuple[FunctionCall, "Results", bool]
Results = tuple[int | None, ...]  # which of a call's results the program takes; None: its only one


class ExternalCalls:
    """What generated code calls: ``(number of the call, sizes, operands, results) -> None``.

    It raises where the function does, and where a result is not as it was foreseen: the program then bails out, unless the call
    is `committed`: it has an effect, or comes after one that has.
    """

    def __init__(self, calls: tuple[Row, ...]):
        self.calls = calls
        self.takes_sizes = [bool(symbols_in(call)) for call, _, _ in calls]

    def __dynagraph_parts__(self) -> tuple[Any, ...]:
        """What the constructor is given to make it in another process."""
        return (self.calls,)

    def __call__(self, number: int, sizes: Sequence[int], operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        call, taken, committed = self.calls[number]
        if not committed:
            self._run(number, call, taken, sizes, operands, results)
            return
        try:
            self._run(number, call, taken, sizes, operands, results)
        except BaseException as error:  # a signal's, too
            make_final(error)
            raise

    def _run(
        self, number: int, call: FunctionCall, taken: Results, sizes: Sequence[int], operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
    ) -> None:  # fmt: skip
        if self.takes_sizes[number]:
            call = call.map(lambda value: concrete(value, {f"s{k}": size for k, size in enumerate(sizes)}))
        with np.errstate(all="ignore"):  # as kernels are: no warnings
            value = call.run(np, operands, out=_room(taken, results)) if call.takes_out and results else call.run(np, operands)
        for result, out in zip(taken, results):
            given = selected(value, result)
            if given is out:
                continue
            if given.dtype != out.dtype or given.shape != out.shape:
                raise ValueError(f"{call.function} gave {given.dtype}{list(given.shape)}, not {out.dtype}{list(out.shape)}")
            out[...] = given


def external_call_of(program: LoopProgram) -> ExternalCalls | None:
    """The calls of a program; None where it calls nothing."""
    calls: list[Row] = []
    committed = False
    for step in program.steps:
        if isinstance(step, ExternalCall):
            committed = committed or step.has_effect
            calls.append((step.call, step.results, committed))
    return ExternalCalls(tuple(calls)) if calls else None


def _room(taken: Results, results: Sequence[np.ndarray]) -> Any:
    """Memory for the results of a call: for its one result, or a tuple with None for those that nobody uses."""
    by_number = dict(zip(taken, results))
    if None in by_number:
        return by_number[None]
    return tuple(by_number.get(k) for k in range(1 + max(by_number)))  # type: ignore[type-var, operator]


__all__ = ["ExternalCalls", "external_call_of"]
