"""Symbolic sizes of an exported program: their bounds, where they are read, and what a call must fulfil."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynagraph.errors import ExportError
from dynagraph.ir.interpreter import concrete
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import Relation

if TYPE_CHECKING:
    import numpy as np

_HOLDS = {"==": lambda a, b: a == b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b}


@dataclass(frozen=True)
class SizeRange:
    """A symbolic size: its name, and the least and greatest value."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Binding:
    """The symbol is the size of an axis of an input."""

    symbol: str
    position: int
    axis: int


def holds(relation: Relation, sizes: dict[str, int]) -> bool:
    """Whether a relation is at these sizes what it was at the export."""
    return _HOLDS[relation.op](relation.left.evaluate(sizes), relation.right.evaluate(sizes)) == relation.holds


def within(relation: Relation, ranges: dict[str, SizeRange]) -> bool:
    """Whether it follows from the bounds of the sizes that the relation is as it was."""
    symbols = {name: IntExpr.symbol(name, low=r.low, high=r.high) for name, r in ranges.items()}
    low, high = (relation.left.substitute(symbols) - relation.right.substitute(symbols)).bounds()
    if relation.op == "==":
        apart = (low is not None and low > 0) or (high is not None and high < 0)
        return apart if not relation.holds else low == high == 0
    below, above = (-1, 0) if relation.op == "<" else (0, 1)  # it is true up to here, and false from there on
    return high is not None and high <= below if relation.holds else low is not None and low >= above


def said(relation: Relation, ranges: dict[str, SizeRange]) -> str:
    """A relation with the names of the sizes."""
    symbols = {name: IntExpr.symbol(r.name) for name, r in ranges.items()}
    return str(Relation(relation.op, relation.left.substitute(symbols), relation.right.substitute(symbols), relation.holds))


def check_sizes(program: Any, arrays: "Sequence[np.ndarray]") -> None:
    """Raise ExportError for the first input that does not fit the program: who, what was given, and the rule."""
    nodes, ranges = program.graph.placeholders, program.ranges
    for spec, node, array in zip(program.inputs, nodes, arrays):
        if array.dtype != node.dtype.numpy:
            raise ExportError(f"{program.name}: {spec.target} must be of {node.dtype}, got {array.dtype}; cast it first")
        if array.ndim != node.ndim:
            raise ExportError(
                f"{program.name}: {spec.target} must have {node.ndim} dimensions, got shape {array.shape}"
            )
    sizes = {b.symbol: arrays[b.position].shape[b.axis] for b in program.bindings}
    for binding in program.bindings:
        r, size = ranges[binding.symbol], sizes[binding.symbol]
        if not r.low <= size <= r.high:
            raise ExportError(
                f"{program.name}: axis {binding.axis} of {program.inputs[binding.position].target} is {size}; "
                f"{r.name} must be from {r.low} to {r.high}"
            )
    for spec, node, array in zip(program.inputs, nodes, arrays):
        for axis, (dim, size) in enumerate(zip(node.shape, array.shape)):
            if concrete(dim, sizes) != size:
                wanted = dim if isinstance(dim, int) else f"{_named(dim, ranges)} = {concrete(dim, sizes)}"
                raise ExportError(f"{program.name}: axis {axis} of {spec.target} must be {wanted}, got {size}")
    if any(abs(expr.evaluate(sizes)) >= 1 << 63 for expr in program.env.large or ()):
        given = ", ".join(f"{ranges[s].name} = {n}" for s, n in sizes.items())
        raise ExportError(f"{program.name}: the sizes {given} are too large")
    for relation, place in program.env.relations.items():
        if not holds(relation, sizes):
            where = f" ({place})" if place else ""
            given = ", ".join(f"{ranges[s.name].name} = {sizes[s.name]}" for s in sorted(_symbols(relation), key=str))
            raise ExportError(f"{program.name}: the program is for sizes with {said(relation, ranges)}{where}, got {given}")


def _named(dim: Any, ranges: dict[str, SizeRange]) -> str:
    return str(dim.expr.substitute({name: IntExpr.symbol(r.name) for name, r in ranges.items()}))


def _symbols(relation: Relation) -> set[Any]:
    return relation.left.symbols() | relation.right.symbols()


__all__ = ["Binding", "SizeRange", "check_sizes", "holds", "said", "within"]
