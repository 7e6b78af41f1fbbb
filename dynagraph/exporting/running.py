"""Run an exported program: the passes, C kernels, and an entry that checks inputs and calls them without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.backends.native_call import native_entry
from dynagraph.backends.registry import get_backend
from dynagraph.errors import ExportError
from dynagraph.exporting.sizes import Binding, SizeRange
from dynagraph.ir.graph import Graph
from dynagraph.ir.shapes import ShapeEnv


class Runner:
    """Calls the program for arrays of all inputs; gives None where they do not fit, or where only Python can do it."""

    def __init__(self, graph: Graph, bindings: Sequence[Binding], env: ShapeEnv, ranges: dict[str, SizeRange]):
        self.graph = graph
        self.executable = get_backend("cpu")(graph)
        places = [(int(b.symbol[1:]), b.position, b.axis, ranges[b.symbol].low, ranges[b.symbol].high) for b in bindings]
        self.entry = native_entry(graph, self.executable, places, tuple(env.relations), tuple(env.large or ()))

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...] | None:
        if self.entry is None:
            return None
        results: tuple[Any, ...] | None = self.entry.run_or(tuple(arrays), None)
        return results

    def slowly(self, arrays: Sequence[np.ndarray], name: str) -> tuple[Any, ...]:
        """For arrays that fit by size and dtype, but are laid out in another way, or of which an index is out of bounds."""
        plain = [np.require(array, requirements=["C", "A"]) for array in arrays]
        results = self(plain)
        if results is None:
            results = self.executable.call(*plain)
            n = len(results) - self.graph.n_checks
            for check, node in zip(results[n:], self.graph.outputs[n:]):
                if check:
                    where = f"{node.location}: " if node.location else ""
                    raise ExportError(f"{name}: {where}an index is out of bounds, or a value is not one that the program is for")
        return results[: len(results) - self.graph.n_checks] if self.graph.n_checks else results


__all__ = ["Runner"]
