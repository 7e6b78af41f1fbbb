"""Run a graph as native code, the way a compiled call does: guards, plan, entry."""

from __future__ import annotations

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.backends.c.backend import compile_graph
from dynagraph.ir.graph import Graph
from dynagraph.ir.shapes import hint_of


def run_native(graph: Graph, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The outputs of the C program for a graph with static sizes; those into inputs are these."""
    executable = compile_graph(graph)
    native = executable.native
    assert native is not None
    guards = tuple(
        ("array", k, k, a.dtype, a.ndim, a.shape, None if a.flags.c_contiguous else element_strides(a), None)
        for k, a in enumerate(arrays)
    )
    outputs = tuple(
        (n.dtype.numpy, tuple(hint_of(d) for d in n.shape), False, -1 if into is None else into)
        for n, into in zip(graph.outputs, graph.into)
    )
    recipe = ("tuple", tuple(("out", k) for k in range(len(outputs))))
    plan = _dispatch.NativePlan(
        native.address,
        native.keepalive,
        len(arrays),
        outputs,
        native.workspace.evaluate({}),
        recipe,
        native.release_gil,
        0,
        graph.n_checks,
        native.external_call,
    )
    entry = _dispatch.Entry(guards, len(arrays), plan)
    return entry.run(arrays)


def element_strides(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)
