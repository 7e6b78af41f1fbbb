"""Size programs: sizes in the postfix form that the dispatcher evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dynagraph.ir.graph import Graph
from dynagraph.ir.intexpr import Apply, IntExpr, Symbol
from dynagraph.ir.shapes import SymInt, expr_of

BEYOND = (1 << 62, 1 << 62, "*")  # fits into no 64 bits, which the dispatcher finds out


def size_program(expr: IntExpr) -> Any:
    """A size as the dispatcher evaluates it: an int, or a tuple in postfix form."""
    constant = expr.constant
    return constant if constant is not None and abs(constant) < 1 << 63 else tuple(_postfix(expr))


def _postfix(expr: IntExpr) -> list[Any]:
    program: list[Any] = []
    for position, (monomial, coefficient) in enumerate(expr.terms.items()):
        program += [coefficient] if abs(coefficient) < 1 << 63 else BEYOND
        for atom in monomial:
            if isinstance(atom, Symbol):
                program += [("s", int(atom.name[1:])), "*"]
            else:
                program += [*_apply(atom), "*"]
        if position:
            program.append("+")
    return program or [0]


def _apply(atom: Apply) -> list[Any]:
    return [*_postfix(atom.left), *_postfix(atom.right), atom.function]


def limits(*graphs: Graph) -> tuple[IntExpr, ...]:
    """What must fit into 64 bits for programs of these graphs to be right: bytes of values that are arrays in NumPy, if only for a
    moment, and integers that nodes are made with.
    """
    return tuple({expr: None for graph in graphs for expr in _sizes_in(graph) if expr.constant is None})


def _sizes_in(graph: Graph) -> Iterator[IntExpr]:
    for node in graph.nodes:
        if node.meta is not None and not all(type(dim) is int for dim in node.meta.shape):
            nbytes = IntExpr.of(node.dtype.itemsize)
            for dim in node.meta.shape:
                nbytes *= expr_of(dim)
            yield nbytes
        yield from _integers_in(tuple(node.attrs.values()))


def _integers_in(value: Any) -> Iterator[IntExpr]:
    if isinstance(value, SymInt):
        yield value.expr
    elif isinstance(value, IntExpr):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _integers_in(part)


__all__ = ["limits", "size_program"]
