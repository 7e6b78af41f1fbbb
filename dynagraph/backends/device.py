"""The fallback backend for device arrays: node by node through CuPy, by the eager column of the op table.

What the graph holds are CuPy's own functions, on operands that have their dtypes already, so that results are those of the
plain run.  NumPy scalars and Python numbers stay on the host: they are handed to CuPy's functions as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import ArrayLibrary, named
from dynagraph.backends.executable import Executable
from dynagraph.errors import BackendError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import Sizes, bind_sizes, concrete, concrete_attrs
from dynagraph.ir.ops import Elementwise

_log = logging.getLogger("dynagraph.capture")


@dataclass(frozen=True)
class Step:
    """One node: its operands and result are positions in the table of values; `dead`: what nothing needs any more."""

    node: Node
    operands: tuple[int, ...]
    result: int
    dead: tuple[int, ...]


def compile_graph(graph: Graph) -> Executable:
    """A program that runs the graph through the library of its arrays.

    Where the library gives another dtype or shape than the graph says, it raises BackendError, and the call runs eagerly.
    """
    graph = graph.copy()
    graph.eliminate_dead_code()
    library = named(graph.library)
    number = {node: k for k, node in enumerate(graph.nodes)}
    steps = _steps(graph, number)
    inputs_at = [number[node] for node in graph.placeholders]
    constants = [(node.target, number[node]) for node in graph.nodes if node.kind == "get_attr"]
    outputs = [(number[node], scalar) for node, scalar in zip(graph.outputs, graph.scalars)]

    def call(*inputs: Any) -> tuple[Any, ...]:
        try:
            return run(inputs)
        except Exception as error:
            _log.info("%s: a program of arrays of %s's leaves the call to the plain run: %r", graph.name, library.name, error)
            raise

    def run(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        sizes = bind_sizes(graph, inputs)
        values: list[Any] = [None] * len(number)
        for position, given in zip(inputs_at, inputs):
            values[position] = _host_scalar(given)
        for name, position in constants:
            values[position] = library.module.asarray(graph.constants[name])
        with np.errstate(all="ignore"):
            for step in steps:
                values[step.result] = _run(step, values, sizes, library)
                for position in step.dead:
                    values[position] = None
        results = [values[k] if scalar else _on_device(values[k], library) for k, scalar in outputs]
        for node, result in zip(graph.outputs, results):
            _check(node, result, concrete(node.shape, sizes), library)
        return _own_results(results, [scalar for _, scalar in outputs], inputs, library)

    return Executable(call, artifacts={"plan": "\n".join(step.node.describe() for step in steps)})


def _steps(graph: Graph, number: dict[Node, int]) -> list[Step]:
    calls = [node for node in graph.nodes if node.kind == "call_function"]
    last: dict[Node, Node] = {}
    for node in calls:
        last.update(dict.fromkeys((*node.args, node), node))
    kept = set(graph.outputs)
    dead: dict[Node, list[int]] = {}
    for value, user in last.items():
        if value not in kept and value.kind == "call_function":
            dead.setdefault(user, []).append(number[value])
    return [Step(n, tuple(number[a] for a in n.args), number[n], tuple(dead.get(n, ()))) for n in calls]


def _run(step: Step, values: Sequence[Any], sizes: Sizes, library: ArrayLibrary) -> Any:
    node = step.node
    operands = [values[k] for k in step.operands]
    attrs = concrete_attrs(node, sizes)
    if node.is_op("constant"):
        return node.dtype.numpy.type(attrs["value"])
    on_host = operands and node.ndim == 0 and not any(isinstance(x, library.array_type) for x in operands)
    if on_host and not node.is_op("copy"):  # by which arrays are made of numbers
        return _host_scalar(node.op.eager(np, *operands, **attrs))
    if not isinstance(node.op.lowering, Elementwise):
        operands = [_on_device(x, library) for x in operands]
    return node.op.eager(library.module, *operands, **attrs)


def _host_scalar(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) else value


def _on_device(value: Any, library: ArrayLibrary) -> Any:
    return value if isinstance(value, library.array_type) else library.module.asarray(value)


def _check(node: Node, result: Any, shape: tuple[int, ...], library: ArrayLibrary) -> None:
    if result.dtype != node.dtype.numpy or result.shape != shape:
        given = f"{result.dtype}{list(result.shape)}"
        raise BackendError(f"{library.name}: {node.name} is {given} where {node.dtype}{list(shape)} was expected")


def _own_results(results: Sequence[Any], scalars: Sequence[bool], taken: Iterable[Any], library: ArrayLibrary) -> tuple[Any, ...]:
    """The arrays in C order, each in memory of its own, which is nobody's view."""
    copy: Callable[..., Any] = library.module.array
    mine = [x for x in taken if isinstance(x, library.array_type)]
    owned: list[Any] = []
    for result, scalar in zip(results, scalars):
        if not scalar:
            shared = any(library.may_share_memory(result, other) for other in mine)
            if shared or result.base is not None or not result.flags.c_contiguous:
                result = copy(result, order="C")
            mine.append(result)
        owned.append(result)
    return tuple(owned)


__all__ = ["compile_graph"]
