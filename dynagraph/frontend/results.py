"""What a captured call returns, as a recipe for the dispatcher; it decides what the graph's outputs are.

A view of an argument or of another output is given as a view of the same memory; an argument is given as itself; what is
mentioned twice is one object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.frontend.executor import Executor, refuse
from dynagraph.frontend.guards import size_program
from dynagraph.frontend.values import Array, Const, Dict, Function, Object, Sequence
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Strided, view_of
from dynagraph.ir.shapes import SymInt, expr_of

Recipe = tuple[Any, ...]
IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), range, type, type(Ellipsis), np.dtype, np.ufunc)


class Results:
    """Builds the recipe of a value, collecting the nodes that the graph must output."""

    def __init__(self, ex: Executor, value: Any):
        self.ex = ex
        self.nodes: list[Node] = []
        self.scalars: list[bool] = []
        self._uses: dict[int, int] = {}
        self._memos: dict[int, int] = {}
        self._count(value)
        self.recipe = self._build(value)

    def _count(self, value: Any) -> None:
        value = self.ex.resolve(value)
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        if self._uses[id(value)] > 1 or getattr(value, "source", None) is not None:
            return
        if isinstance(value, Sequence):
            for item in value.items:
                self._count(item)
        elif isinstance(value, Dict):
            for item in value.items.values():
                self._count(item)

    def _build(self, value: Any) -> Recipe:
        value = self.ex.resolve(value)
        source = getattr(value, "source", None)
        if source is not None and not isinstance(value, Const):
            return ("arg", self.ex.guards.register(source))
        if isinstance(value, Const):
            return ("const", self._constant(value.value))
        if id(value) in self._memos:
            return ("memo", self._memos[id(value)], self._fresh(value))
        if self._uses.get(id(value), 0) > 1 and not self._is_output(value):
            self._memos[id(value)] = len(self._memos)
            return ("memo", self._memos[id(value)], self._fresh(value))
        return self._fresh(value)

    def _constant(self, value: Any) -> Any:
        if isinstance(value, SymInt):
            return int(value)  # from now on this size only
        if isinstance(value, IMMUTABLE) or callable(value):
            return value
        return refuse("UNSUPPORTED_RESULT", f"{value!r}")

    def _is_output(self, value: Any) -> bool:
        return isinstance(value, Array) and (value.is_scalar or view_of(value.node) is None)

    def _fresh(self, value: Any) -> Recipe:
        if isinstance(value, Array):
            return self._array(value)
        if isinstance(value, Sequence):
            parts = tuple(self._build(item) for item in value.items)
            return ("tuple" if value.kind is tuple else "list", parts)
        if isinstance(value, Dict):
            return ("dict", tuple((k, self._build(v)) for k, v in value.items.items()))
        if isinstance(value, (Function, Object)):
            return refuse("UNSUPPORTED_RESULT", "a function made inside")
        return refuse("UNSUPPORTED_RESULT", f"a {type(value).__name__.lower()}")

    def _array(self, array: Array) -> Recipe:
        found = None if array.is_scalar else view_of(array.node)
        if found is None:
            return self._output(array.node, array.is_scalar)
        base, strided = found
        owner = self._base(base)
        return ("view", owner, array.node.dtype.numpy, *_layout(strided), not _is_broadcast(array.node))

    def _base(self, base: Node) -> Recipe:
        if base.kind != "placeholder":
            return self._output(base, False)
        owner = self.ex.arrays[base]
        if owner.source is None or owner.is_scalar:
            return self._output(base, False)
        return ("arg", self.ex.guards.register(owner.source))

    def _output(self, node: Node, scalar: bool) -> Recipe:
        for position, (known, is_scalar) in enumerate(zip(self.nodes, self.scalars)):
            if known is node and is_scalar is scalar:
                return ("out", position)
        self.nodes.append(node)
        self.scalars.append(scalar)
        return ("out", len(self.nodes) - 1)


def _layout(strided: Strided) -> tuple[Any, Any, Any]:
    return (
        tuple(size_program(expr_of(d)) for d in strided.shape),
        tuple(size_program(expr_of(s)) for s in strided.strides),
        size_program(expr_of(strided.offset)),
    )


def _is_broadcast(node: Node) -> bool:
    """Whether a view goes through np.broadcast_to, whose results are read-only."""
    while node.kind == "call_function":
        if node.is_op("broadcast_to"):
            return True
        node = node.args[0] if node.args else node
        if view_of(node) is None:
            return node.is_op("broadcast_to")
    return False
