"""Nodes: ops of the table that were applied to arrays, with the values that they gave."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.autograd.terms import FORWARD, RecordedTerm, Value, ValueTerm, defaults_of, ir_dtype
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS, Composite, Op
from dynagraph.location import Location

Levels = frozenset[int]
NONE: Levels = frozenset()
_numbers = itertools.count()


class Node:
    """One value: an op that was applied to nodes and arrays.

    `value` is what it gave, or None where nobody has asked yet.  `levels`: by whose variables it can be differentiated.
    `part`: what its gradient comes from, if not from the op.
    To gradients it is what they are taken of (`Differentiated`), with terms that are arrays.
    """

    __slots__ = ("attrs", "dtype", "inputs", "levels", "location", "number", "op", "part", "shape", "value")
    kind = "call_function"

    def __init__(
        self,
        op: Op,
        attrs: Mapping[str, Any],
        inputs: Sequence[Value],
        value: np.ndarray | None,
        shape: tuple[int, ...],
        dtype: DType,
        levels: Levels,
    ):
        self.op, self.attrs, self.inputs, self.value = op, attrs, inputs, value
        self.shape, self.dtype, self.levels = shape, dtype, levels
        self.number = -next(_numbers)  # backward runs the latest first
        self.location: Location | None = None
        self.part: Part | None = None

    @property
    def array(self) -> np.ndarray:
        """What it gives: as NumPy gave it when the step was run, or computed now."""
        if self.value is None:
            with np.errstate(all="ignore"):
                self.value = _computed(self.op.name, self.inputs, self.attrs)
        return self.value

    @property
    def name(self) -> str:
        return self.op.name

    # -- what gradients see --
    @property
    def node(self) -> Node:
        return self

    @property
    def args(self) -> tuple[Any, ...]:
        return tuple(x if type(x) is Node else _CONSTANT for x in self.inputs)

    @property
    def x(self) -> ValueTerm:
        value = self.inputs[0]
        return ValueTerm(value.array if type(value) is Node else value)

    @property
    def y(self) -> ValueTerm:
        value = self.inputs[1]
        return ValueTerm(value.array if type(value) is Node else value)

    @property
    def operands(self) -> tuple[ValueTerm, ...]:
        return tuple(ValueTerm(array_of(value)) for value in self.inputs)

    @property
    def out(self) -> ValueTerm:
        return ValueTerm(self.array)


@dataclass(eq=False)
class Part:
    """Steps whose gradient comes in another way: ``pull(cotangents)``, arrays or None, gives those by the operands.

    `results`: copies of what the steps give, made one after the other.  `captured`: what the steps take beside the operands: no
    gradient may be asked by these.  `noted`: makes the same of a graph's nodes.
    """

    name: str
    operands: Sequence[Value]
    captured: frozenset[Node]
    pull: Callable[[Sequence[np.ndarray | None]], Sequence[Any]]
    noted: Callable[..., Any]
    results: list[Node] = field(default_factory=list)


class _Constant:
    """What stands among the operands of a node for an array that is no node."""

    kind = "get_attr"


_CONSTANT = _Constant()


class Recorded:
    """A node as gradients see it that are recorded themselves."""

    __slots__ = ("attrs", "node", "record")

    def __init__(self, node: Node, record: Record):
        self.node, self.attrs, self.record = node, node.attrs, record

    @property
    def x(self) -> RecordedTerm:
        return RecordedTerm(self.node.inputs[0], self.record)

    @property
    def y(self) -> RecordedTerm:
        return RecordedTerm(self.node.inputs[1], self.record)

    @property
    def operands(self) -> tuple[RecordedTerm, ...]:
        return tuple(RecordedTerm(value, self.record) for value in self.node.inputs)

    @property
    def out(self) -> RecordedTerm:
        return RecordedTerm(self.node, self.record)


class Record:
    """Makes nodes, and keeps them in order.

    `open`: the levels by whose variables gradients may still be asked; what depends on none of them is an array.
    """

    def __init__(self, nodes: list[Node], open_levels: Collection[int]):
        self.nodes, self.open = nodes, open_levels

    def applied(self, op: Op, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> Value:
        """What an op gives, computed at once: a node where it can be differentiated."""
        if isinstance(op.lowering, Composite) and op.vjp is None:
            return self._expanded(op, inputs, attrs)
        array = _computed(op.name, inputs, attrs)
        levels = levels_of(op, inputs)
        dtype = ir_dtype(array.dtype)
        if dtype is None or not dtype.is_inexact or levels.isdisjoint(self.open):
            return array
        made = Node(op, {**defaults_of(op.name), **attrs}, inputs, array, array.shape, dtype, levels)
        self.nodes.append(made)
        return made

    def _expanded(self, op: Op, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> Value:
        """What an op gives that is made of others: these are differentiated."""
        graph = Graph()
        given = [graph.placeholder(f"x{k}", meta_of(value)) for k, value in enumerate(inputs)]
        assert isinstance(op.lowering, Composite)
        graph.output([op.lowering.decompose(graph, *given, **op.bind_attrs(attrs))])
        values: dict[Any, Value] = dict(zip(given, inputs))
        for node in graph.nodes:
            if node.kind == "get_attr":
                values[node] = graph.constants[node.target]
            elif node.kind == "call_function":
                values[node] = self.applied(node.op, [values[a] for a in node.args], node.attrs)
        return values[graph.outputs[0]]


def levels_of(op: Op, inputs: Iterable[Value]) -> Levels:
    """By the variables of which levels the result of an op can be differentiated, where it is floating point."""
    if op is _STOP:
        return NONE
    found = NONE
    for value in inputs:
        if type(value) is Node and value.levels is not found:
            found = found | value.levels if found else value.levels
    return found


_STOP = OPS["stop_gradient"]


def array_of(value: Value) -> np.ndarray:
    return value.array if type(value) is Node else value  # type: ignore[return-value]


def meta_of(value: Value) -> Meta:
    dtype = value.dtype if type(value) is Node else ir_dtype(value.dtype)  # type: ignore[arg-type]
    assert isinstance(dtype, DType)
    return Meta(dtype, value.shape)


def _computed(name: str, inputs: Sequence[Value], attrs: Mapping[str, Any]) -> np.ndarray:
    forward: Callable[..., Any] = FORWARD[name]
    return np.asarray(forward(*[array_of(value) for value in inputs], **attrs))


__all__ = ["NONE", "Levels", "Node", "Part", "Record", "Recorded", "array_of", "levels_of", "meta_of"]
