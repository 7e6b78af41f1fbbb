"""The reference backend, which defines what is correct: NumPy's own functions, node by node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dynagraph.backends.executable import Executable
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import Effects, interpret


def reference(graph: Graph) -> Executable:
    """A program that interprets the graph.  Like generated code it gives no floating-point warnings."""

    def call(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"), Effects() as effects:
            return own_results(interpret(graph, arrays, effects=effects), [*arrays, *graph.constants.values()])

    return Executable(call)


def own_results(results: Iterable[Any], taken: Iterable[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results in C order, each in memory of its own: apart from the arrays `taken` and from each other."""
    mine = list(taken)
    owned: list[np.ndarray] = []
    for result in results:
        if (
            result.base is not None
            or not result.flags.c_contiguous
            or any(np.may_share_memory(result, a) for a in mine)
        ):
            result = np.array(result, order="C")
        mine.append(result)
        owned.append(result)
    return tuple(owned)


__all__ = ["own_results", "reference"]
