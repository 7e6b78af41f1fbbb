"""Buffer assignment for `lower`: inputs, outputs, constants, temporaries, rows on the stack."""

from __future__ import annotations

from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.intexpr import IntExpr, rejoined
from dynagraph.ir.loops import Axis, Buffer
from dynagraph.ir.ops import Index
from dynagraph.ir.passes.demand import ZERO
from dynagraph.ir.passes.fuse import FusionPlan
from dynagraph.ir.shapes import Shape, contiguous_strides, expr_of, hint_of, numel


class Buffers:
    """Where the real nodes of a graph live."""

    def __init__(self, graph: Graph, plan: FusionPlan):
        self.by_name: dict[str, Buffer] = {}
        self.of: dict[Node, Buffer] = {}
        self.owner = plan.reuse.owner
        for position, node in enumerate(graph.placeholders):
            self._add(node, Buffer(f"in{position}", node.dtype, _extent(node), "input", position))
        for position, node in enumerate(graph.outputs):
            buffer = Buffer(f"out{position}", node.dtype, expr_of(numel(node.shape)), "output", position)
            owner = self.owner(node)
            if owner in self.of:  # it is written into an input
                self.by_name[buffer.name] = buffer
            else:
                self._add(owner, buffer)
        for node in graph.nodes:
            if node.kind == "get_attr":
                data = graph.constants[node.target]
                self._add(node, Buffer(f"c_{node.name}", node.dtype, IntExpr.of(data.size), "constant", data=data))
            elif node in plan.reuse.previous:
                self.of[node] = self.of[self.owner(node)]
            elif node in plan.stored and node not in self.of:
                self._add(node, Buffer(f"t_{node.name}", node.dtype, expr_of(numel(node.shape)), "temp"))

    def _add(self, node: Node, buffer: Buffer) -> None:
        self.of[node] = self.by_name[buffer.name] = buffer

    def scratch(self, node: Node, size: IntExpr) -> Buffer:
        return self.add(Buffer(f"row_{node.name}", node.dtype, size, "scratch"))

    def add(self, buffer: Buffer) -> Buffer:
        """Memory that is not a node's."""
        self.by_name[buffer.name] = buffer
        return buffer

    def flat(self, node: Node, index: Index) -> IntExpr:
        """The offset of an element of a node in its buffer."""
        return flat_index(self.strides(node), index)

    def strides(self, node: Node) -> Shape:
        """How a node lies in its buffer."""
        return _strides(self.owner(node))


def _strides(node: Node) -> Shape:
    return contiguous_strides(node.shape) if node.meta.strides is None else node.meta.strides


def _extent(node: Node) -> IntExpr:
    """The elements between the lowest and the highest address of a strided input (for the listing only)."""
    if node.meta.strides is None:
        return expr_of(numel(node.shape))
    total = IntExpr.of(1)
    for dim, stride in zip(node.shape, node.meta.strides):
        total = total + (expr_of(dim) - 1) * abs(hint_of(stride))
    return total


def flat_index(strides: Shape, index: Index) -> IntExpr:
    total = ZERO
    for stride, position in zip(strides, index):
        total = total + position * expr_of(stride)
    return rejoined(total)


def make_axes(shape: Shape, index: Index) -> tuple[Axis, ...]:
    """The loops over a shape whose variables `index_of` made."""
    axes = []
    for dim, variable in zip(shape, index):
        if variable is not ZERO:
            (symbol,) = variable.symbols()
            axes.append(Axis(symbol, expr_of(dim), hint_of(dim)))  # type: ignore[arg-type]
    return tuple(axes)
