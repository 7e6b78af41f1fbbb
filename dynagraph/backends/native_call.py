"""Call machine code from Python: for programs that are parts of others.

`Executable.call` of a native program interprets the graph; what a compiled function calls is a plan over its machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.backends.executable import Executable
from dynagraph.ir.graph import Graph
from dynagraph.ir.shapes import SymInt, hint_of


def native_call(graph: Graph, executable: Executable) -> Callable[..., tuple[Any, ...]]:
    """A function that runs the machine code of the graph's program; of the inputs as arrays it gives a tuple of new arrays.

    Calls that the machine code cannot serve go through `Executable.call`: of arrays laid out in another way than the graph says,
    and where an external call raises, which then does so there.  So do all calls where there is no machine code, or
    where sizes are symbolic.

    >>> from dynagraph.backends.reference import reference
    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> from dynagraph.ir.ops import OPS
    >>> g = Graph()
    >>> _ = g.output([g.call(OPS["exp"], g.placeholder("x", Meta(dtypes.float64, (2,))))])
    >>> native_call(g, reference(g))(np.zeros(2))
    (array([1., 1.]),)
    """
    native = executable.native
    inputs = graph.placeholders
    symbolic = any("symbol" in node.attrs for node in inputs)
    if native is None or symbolic or any(isinstance(dim, SymInt) for node in (*inputs, *graph.outputs) for dim in node.shape):
        return executable.call
    guards = tuple(("array", k, k, n.dtype.numpy, n.ndim, n.shape, n.meta.strides, None) for k, n in enumerate(inputs))
    outputs = tuple((n.dtype.numpy, tuple(map(hint_of, n.shape)), False, -1) for n in graph.outputs)
    recipe = ("tuple", tuple(("out", k) for k in range(len(outputs))))
    plan = _dispatch.NativePlan(
        native.address, native.keepalive, len(inputs), outputs, native.workspace.evaluate({}), recipe, native.release_gil, 0, 0,
        native.external_call, better=native.better,
    )  # fmt: skip
    entry = _dispatch.Entry(guards, len(guards), plan)

    def call(*arrays: Any) -> tuple[Any, ...]:
        given = tuple(map(np.asarray, arrays))
        results: tuple[Any, ...] | None = entry.run_or(given, None)
        return executable.call(*given) if results is None else results

    return call


__all__ = ["native_call"]
