"""External calls of native programs: the steps that call NumPy functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
            if not call.takes_out:
                value = call.run(np, operands)
            elif step.results == (None,):
                value = call.run(np, operands, out=results[0])
            else:
                value = call.run(np, operands, out=dict(zip(step.results, results)))
        for result, out in zip(step.results, results):
            if value is out:
                continue
            given = selected(value, result)
            if given.dtype != out.dtype or given.shape != out.shape:
                raise ValueError(f"{call.function} gave {given.dtype}{list(given.shape)}, not {out.dtype}{list(out.shape)}")
            out[...] = given

    return external_call


__all__ = ["external_call_of"]
