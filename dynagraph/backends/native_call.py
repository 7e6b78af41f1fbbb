"""Call machine code from Python: for programs that are parts of others.

`Executable.call` of a native program interprets the graph; what a compiled function calls is a plan over its machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.backends.executable import Executable
from dynagraph.ir.graph import Graph
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import Relation, SymInt, expr_of
from dynagraph.ir.size_programs import size_program

Place = tuple[int, int, int, int, int]  # a symbol's number, the input and the axis whose size it is, its least and greatest value


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
    inputs = graph.placeholders
    symbolic = any("symbol" in node.attrs for node in inputs)
    if symbolic or any(isinstance(dim, SymInt) for node in (*inputs, *graph.outputs) for dim in node.shape):
        return executable.call
    entry = native_entry(graph, executable)
    if entry is None:
        return executable.call

    def call(*arrays: Any) -> tuple[Any, ...]:
        given = tuple(map(np.asarray, arrays))
        results: tuple[Any, ...] | None = entry.run_or(given, None)
        return executable.call(*given) if results is None else results

    return call


def native_entry(
    graph: Graph, executable: Executable, places: Sequence[Place] = (), relations: Sequence[Relation] = (),
    large: Iterable[IntExpr] = (),
) -> Any | None:  # fmt: skip
    """An entry whose ``run_or(arrays, other)`` runs the machine code, and gives a tuple of the outputs that are not checks; or
    `other`, where arrays are not as the graph says, an external call raises, or a check is true.  None: there is no machine code.

    `places`: where each symbol is read, and its bounds.  `relations`: what must be as it was decided.  `large`: what must fit into
    64 bits.
    """
    native = executable.native
    if native is None:
        return None
    inputs, outputs = graph.placeholders, graph.outputs
    read = {(position, axis) for _, position, axis, _, _ in places}
    guards: list[tuple[Any, ...]] = []
    for k, node in enumerate(inputs):
        shape = tuple(None if (k, axis) in read else dim for axis, dim in enumerate(node.shape))
        guards.append(("array", k, k, node.dtype.numpy, node.ndim, shape, node.meta.strides, None))
    guards += [("dim", symbol, position, axis) for symbol, position, axis, _, _ in places]
    for symbol, position, axis, low, high in places:
        size = (1, ("s", symbol), "*")
        guards += [("relation", "<=", low, size, True), ("relation", "<=", size, high, True)]
        guards.append(("relation", "==", size, size_program(expr_of(inputs[position].shape[axis])), True))
    guards += [("relation", r.op, size_program(r.left), size_program(r.right), r.holds) for r in relations]
    n_symbols = max((symbol + 1 for symbol, *_ in places), default=0)
    given = tuple((n.dtype.numpy, tuple(size_program(expr_of(d)) for d in n.shape), False, -1) for n in outputs)
    recipe = ("tuple", tuple(("out", k) for k in range(len(outputs) - graph.n_checks)))
    plan = _dispatch.NativePlan(
        native.address, native.keepalive, len(inputs), given, size_program(native.workspace), recipe, native.release_gil, n_symbols,
        graph.n_checks, native.external_call, (), tuple(map(size_program, (*native.limits, *large))), native.better,
    )  # fmt: skip
    return _dispatch.Entry(tuple(guards), len(inputs), plan)


__all__ = ["native_call", "native_entry"]
