"""Numbers that an input holds, where the program needs them as sizes: guards read them, as they read sizes."""

from __future__ import annotations

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.executor.wrapping import MAX_SYMBOLS
from dynagraph.frontend.guards.guards import Holds, SymbolicHeld
from dynagraph.frontend.kinds.values import Array, Const
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import number_held

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
        number = number_held(given, how)
        if not -LARGEST < number < LARGEST or (number >= 2 and len(ex.env.values) >= MAX_SYMBOLS):
            return None
        slot = ex.graph.placeholders.index(node)
        known = ex.held[node, how] = _taken(ex, node, slot, how, number)
    return known


def _taken(ex: CaptureState, node: Node, slot: int, how: str, number: int) -> Const:
    if number < 2:
        ex.sizes.append(Holds(slot, how, number))
        return Const(number)
    symbol = len(ex.env.values)
    ex.sizes.append(SymbolicHeld(symbol, slot, how))
    node.attrs["held"] = (*node.attrs.get("held", ()), (f"s{symbol}", how))  # for programs that are not told of sizes
    return Const(ex.env.symbol(number))


__all__ = ["held_number"]
