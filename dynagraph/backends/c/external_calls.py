"""External calls of native programs: the steps that call NumPy functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.ir.external_calls import selected
from dynagraph.ir.interpreter import concrete
from dynagraph.ir.loops import ExternalCall, LoopProgram


def external_call_of(program: LoopProgram) -> Callable[..., None] | None:
    """What generated code calls: ``(number of the call, sizes, operands, results) -> None``; None where it calls nothing.

    It raises where the function does, and where a result is not as it was foreseen: the program then bails out.
    """
    steps = [step for step in program.steps if isinstance(step, ExternalCall)]
    if not steps:
        return None

    def external_call(number: int, sizes: Sequence[int], operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        step = steps[number]
        call = step.call.map(lambda value: concrete(value, {f"s{k}": size for k, size in enumerate(sizes)})) if sizes else step.call
        with np.errstate(all="ignore"):  # as kernels are: no warnings
            value = call.run(np, operands, out=_room(step, results)) if call.takes_out else call.run(np, operands)
        for result, out in zip(step.results, results):
            given = selected(value, result)
            if given is out:
                continue
            if given.dtype != out.dtype or given.shape != out.shape:
                raise ValueError(f"{call.function} gave {given.dtype}{list(given.shape)}, not {out.dtype}{list(out.shape)}")
            out[...] = given

    return external_call


def _room(step: ExternalCall, results: Sequence[np.ndarray]) -> Any:
    """Memory for the results of a call: for its one result, or a tuple with None for those that nobody uses."""
    by_number = dict(zip(step.results, results))
    if None in by_number:
        return by_number[None]
    return tuple(by_number.get(k) for k in range(1 + max(by_number)))  # type: ignore[type-var, operator]


__all__ = ["external_call_of"]
