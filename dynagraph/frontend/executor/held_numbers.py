"""Numbers that an input holds, where the program needs them as sizes: guards read them, as they read sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.executor.wrapping import MAX_SYMBOLS
from dynagraph.frontend.guards.guards import Guard, Holds, SymbolicHeld
from dynagraph.frontend.kinds.values import Array, Const

LARGEST = 1 << 62  # as the guard has it


def held_number(ex: CaptureState, vector: Array, how: str) -> Const | None:
    """The "first" element, the "sum" or the "greatest" of an input, a vector of int64 that nothing has been written to.

    None where it is none, or holds numbers that no size is: these are data.
    """
    node = vector.node
    given = ex.memories.object_of(node) if node.kind == "placeholder" and ex.library is NUMPY and not vector.is_scalar else None
    if not isinstance(given, np.ndarray) or given.dtype != np.int64 or given.ndim != 1 or not given.size:
        return None
    if ex.memories.present(vector) is not node:
        return None
    known = ex.held.get((node, how))
    if known is None:
        number = _number(given, how)
        if not -LARGEST < number < LARGEST or (number >= 2 and len(ex.env.values) >= MAX_SYMBOLS):
            return None
        slot = ex.graph.placeholders.index(node)
        guard: Guard = SymbolicHeld(len(ex.env.values), slot, how) if number >= 2 else Holds(slot, how, number)
        ex.sizes.append(guard)
        known = ex.held[node, how] = Const(ex.env.symbol(number) if number >= 2 else number)
    return known


def _number(vector: Any, how: str) -> int:
    numbers: list[int] = vector.tolist()  # whose sum is exact
    return numbers[0] if how == "first" else sum(numbers) if how == "sum" else max(numbers)


__all__ = ["held_number"]
