"""Run a graph node by node through the eager column of the op table: what a graph means, for every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph.errors import GraphError, make_final
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import Symbol
from dynagraph.ir.shapes import Dim, SymInt, expr_of

Sizes = Mapping[str, int]


def interpret(graph: Graph, inputs: Sequence[Any], xp: Any = np, effects: Effects | None = None) -> tuple[Any, ...]:
    """The values of the graph's outputs: arrays of the namespace `xp`, 0-d ones included, never scalars.

    Results may be views of inputs or of one another.  `effects`: told of each effect before it begins.  Raises GraphError where
    `inputs` do not fit the placeholders.

    >>> from dynagraph.ir.graph import Meta
    >>> from dynagraph.ir import optable
    >>> from dynagraph.ir.ops import OPS
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (2,)))
    >>> _ = g.output([g.call(OPS["add"], x, x)])
    >>> interpret(g, [np.array([1.0, 2.0])])
    (array([2., 4.]),)
    """
    sizes = bind_sizes(graph, inputs)
    values: dict[Node, Any] = dict(zip(graph.placeholders, inputs))
    checks = graph.outputs[len(graph.outputs) - graph.n_checks :]
    effects = Effects() if effects is None else effects
    for node in graph.nodes:
        if node.has_effect:
            effects.begin([values[check] for check in checks])
        if node.kind == "get_attr":
            values[node] = xp.asarray(graph.constants[node.target])
        elif node.kind == "call_function":
            operands = [values[a] for a in node.args]
            values[node] = xp.asarray(node.op.eager(xp, *operands, **concrete_attrs(node, sizes)))
    return tuple(values[node] for node in graph.outputs)


class Effects:
    """The effects of a program's run.  What is raised within, once one has begun, is final, as a signal's exception is: nothing is
    run again.

    >>> with Effects() as effects:
    ...     effects.begin([False])
    """

    def __init__(self) -> None:
        self.have_begun = False

    def begin(self, checks: Sequence[Any]) -> None:
        """Before each effect.  ValueError where a check has failed: the program bails out, and has done nothing."""
        if not self.have_begun and any(checks):
            raise ValueError("a check has failed")
        self.have_begun = True

    def __enter__(self) -> Effects:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self.have_begun and error is not None:
            make_final(error)


def bind_sizes(graph: Graph, inputs: Sequence[Any]) -> dict[str, int]:
    """The symbols' values, read off the inputs' shapes and off inputs that are symbols; checked against the placeholders."""
    placeholders = graph.placeholders
    if len(inputs) != len(placeholders):
        raise GraphError(f"graph {graph.name!r}: takes {len(placeholders)} inputs, got {len(inputs)}")
    sizes: dict[str, int] = {}
    for node, array in zip(placeholders, inputs):
        if dtypes.from_numpy(array.dtype) is not node.dtype or array.ndim != node.ndim:
            raise _misfit(graph, node, array)
        if "symbol" in node.attrs:
            sizes[node.attrs["symbol"]] = int(array)
        for name, how in node.attrs.get("held", ()):
            sizes[name] = number_held(array, how)
        for dim, size in zip(node.shape, array.shape):
            symbol = _bare_symbol(dim)
            if symbol is not None:
                sizes.setdefault(symbol.name, size)
    for node, array in zip(placeholders, inputs):
        if any(concrete(dim, sizes) != size for dim, size in zip(node.shape, array.shape)):
            raise _misfit(graph, node, array)
    return sizes


def number_held(vector: Any, how: str) -> int:
    """What a vector of int64 holds, as a symbol may stand for: its "first" element, the "sum" of all, or the "greatest"."""
    numbers: list[int] = vector.tolist()  # whose sum is exact
    return numbers[0] if how == "first" else sum(numbers) if how == "sum" else max(numbers)


def _bare_symbol(dim: Dim) -> Symbol | None:
    """The symbol that a size is, no arithmetic around it."""
    for symbol in expr_of(dim).symbols():
        if expr_of(dim).terms == {(symbol,): 1}:
            return symbol
    return None


def _misfit(graph: Graph, node: Node, array: Any) -> GraphError:
    given = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    return GraphError(f"graph {graph.name!r}: input {node.name} must be {node.meta}, got {given}")


def concrete(value: Any, sizes: Sizes) -> Any:
    """An attribute or shape with every symbolic size replaced by its value."""
    if isinstance(value, SymInt):
        return value.expr.evaluate(sizes)
    if isinstance(value, tuple):
        return tuple(concrete(v, sizes) for v in value)
    if isinstance(value, FunctionCall):
        return value.map(lambda v: concrete(v, sizes))
    return value


def symbols_in(value: Any) -> set[Symbol]:
    """The symbolic sizes in a shape or an attribute."""
    if isinstance(value, SymInt):
        return value.expr.symbols()
    if isinstance(value, tuple):
        return set().union(*map(symbols_in, value)) if value else set()
    if isinstance(value, FunctionCall):
        return symbols_in((value.args, tuple(v for _, v in value.kwargs)))
    return set()


def concrete_attrs(node: Node, sizes: Sizes) -> dict[str, Any]:
    return {name: concrete(value, sizes) for name, value in node.attrs.items()} if sizes else node.attrs


def at_sizes(graph: Graph, sizes: Sizes) -> Graph:
    """The same graph for sizes that are known."""
    new = Graph(graph.name)
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        new.location = node.location
        if node.kind == "placeholder":
            made[node] = new.placeholder(node.target, Meta(node.dtype, concrete(node.shape, sizes)))
        elif node.kind == "get_attr":
            made[node] = new.constant(graph.constants[node.target], node.name)
        elif node.kind == "call_function":
            made[node] = new.call(node.op, *(made[a] for a in node.args), **concrete_attrs(node, sizes))
    new.location = None
    new.output([made[node] for node in graph.outputs])
    return new


__all__ = ["Effects", "Sizes", "at_sizes", "bind_sizes", "concrete", "concrete_attrs", "interpret", "number_held", "symbols_in"]
