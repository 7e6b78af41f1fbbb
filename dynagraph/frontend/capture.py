"""Capture one call of a function: bytecode -> graph, guards and a recipe for the result."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.frontend import handlers  # noqa: F401  (importing it registers the handlers)
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.decode import decode
from dynagraph.frontend.executor import Executor
from dynagraph.frontend.guards import GuardList, size_program
from dynagraph.frontend.results import Recipe, Results
from dynagraph.ir.graph import Graph
from dynagraph.ir.shapes import expr_of

Output = tuple[np.dtype, tuple[Any, ...], bool]


@dataclass(frozen=True)
class Captured:
    """A call as a graph.  `outputs`: dtype, shape as size programs, and whether it is given as a NumPy scalar."""

    graph: Graph
    guards: GuardList
    result: Recipe
    outputs: tuple[Output, ...]
    n_inputs: int
    n_symbols: int
    code: types.CodeType

    def bytecode(self) -> str:
        """The normalised instructions that were run, for ``dump --bytecode``."""
        lines = []
        for index, i in enumerate(decode(self.code)):
            operand = "" if i.value is None else repr(i.value) if not isinstance(i.value, types.CodeType) else i.value.co_name
            lines.append(f"{i.line:5d} {index:5d}  {i.op:24s} {operand}")
        return "\n".join(lines)


def capture(function: types.FunctionType, values: tuple[Any, ...], *, dynamic: bool | None = None) -> Captured:
    """Capture the call of `function` with these bound parameters, in order of ``co_varnames``.

    Runs nothing of the user's program for effect.  Raises Break where the call cannot be captured whole.

    >>> def f(x):
    ...     return x + 1
    >>> print(capture(f, (np.zeros(3),)).graph)
    x = placeholder[x] : float64[3]
    constant = constant(value=1.0, dtype=float64) : float64[]   # <doctest dynagraph.frontend.capture.capture[0]>:2
    add = add(x, constant) : float64[3]   # <doctest dynagraph.frontend.capture.capture[0]>:2
    return add
    """
    ex = Executor(function, values, dynamic)
    results = Results(ex, ex.run())
    graph = ex.graph
    graph.location = None
    if not any(n.kind == "call_function" for n in graph.nodes):
        raise Break("NOTHING_TO_COMPILE", None, function.__qualname__)
    graph.output(results.nodes)
    outputs = tuple(
        (n.dtype.numpy, tuple(size_program(expr_of(d)) for d in n.shape), scalar)
        for n, scalar in zip(results.nodes, results.scalars)
    )
    floats = any(n.kind == "call_function" and (n.dtype.is_float or any(a.dtype.is_float for a in n.args)) for n in graph.nodes)
    ex.guards.finish(ex.dims, list(ex.env.relations), floats)
    return Captured(graph, ex.guards, results.recipe, outputs, ex.n_inputs, len(ex.env.values), function.__code__)
