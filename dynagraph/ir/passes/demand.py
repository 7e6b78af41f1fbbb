"""Demand analysis: which operand elements an element of a node needs; for fusion and lowering."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.ir.graph import Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.ops import Attrs, Elementwise, Gather, Index, Movement, Piece, Reduction, Strided, strided_of, view_of
from dynagraph.ir.shapes import Dim, Shape, expr_of, same_dim

ZERO = IntExpr.of(0)


def axis_index(name: str, dim: Dim) -> IntExpr:
    """A loop variable over a dimension: 0 where the size is 1."""
    return ZERO if same_dim(dim, 1) else IntExpr.symbol(name, 0, expr_of(dim) - 1)


def index_of(shape: Shape, prefix: str) -> Index:
    """Fresh loop variables ``prefix0, prefix1, ...`` over a shape."""
    return tuple(axis_index(f"{prefix}{k}", dim) for k, dim in enumerate(shape))


def broadcast_index(shape: Shape, index: Index) -> Index:
    """The element of an operand of `shape` that broadcasts to `index` of the result."""
    aligned = index[len(index) - len(shape) :]
    return tuple(ZERO if same_dim(dim, 1) else i for dim, i in zip(shape, aligned))


def movement_pieces(node: Node, index: Index) -> Sequence[Piece]:
    """The pieces of a Movement's element, as its row gives them."""
    assert isinstance(node.op.lowering, Movement)
    return node.op.lowering.source(index, tuple(a.meta for a in node.args), node.attrs, node.meta)


def operand_indices(node: Node, index: Index) -> list[tuple[Node, Index]]:
    """The operand elements that an elementwise, movement or creation node needs for its element at `index`."""
    lowering = node.op.lowering
    if isinstance(lowering, Elementwise):
        return [(a, broadcast_index(a.shape, index)) for a in node.args]
    if isinstance(lowering, Movement):
        pieces = movement_pieces(node, index)
        return [(node.args[position], source) for _, position, source in pieces if position is not None]
    if isinstance(lowering, Gather):  # of the first operand any element: it is in memory
        at = place_index(node.args[1], node.attrs, index)
        return [(place, at) for place in node.args[1:]]
    return []


def gather_base(source: Node) -> tuple[Node, Strided]:
    """The node whose memory a gather reads, and how its operand lies there."""
    return view_of(source) or (source, strided_of(source))


def kept_axes(source: Node, places: Node, attrs: Attrs, index: Index) -> dict[int, IntExpr]:
    """For each axis of a gather's (or scatter's) first operand that is not indexed, the position along it."""
    at, n = attrs["at"], places.ndim
    axes = [k for k in range(source.ndim) if k not in attrs["axes"]]
    return dict(zip(axes, index[:at] + index[at + n :]))


def place_index(places: Node, attrs: Attrs, index: Index) -> Index:
    """The element of the places that an element of a gather (or of a scatter's values) needs."""
    return index[attrs["at"] : attrs["at"] + places.ndim]


def reduction_index(node: Node, kept: Index, reduced: Index) -> Index:
    """The operand's index: `reduced` along the reduced axes, `kept` along the others."""
    assert isinstance(node.op.lowering, Reduction)
    axes = set(node.attrs["axis"])
    kept_left, reduced_left = iter(kept), iter(reduced)
    return tuple(next(reduced_left) if k in axes else next(kept_left) for k in range(node.args[0].ndim))


def reduction_operands(node: Node, kept: Index, reduced: Index) -> list[tuple[Node, Index]]:
    """The operand elements that a reduction needs for each that it takes."""
    index = reduction_index(node, kept, reduced)
    return [(a, broadcast_index(a.shape, index)) for a in node.args]


def kept_shape(node: Node) -> Shape:
    """The operand's dimensions that a reduction keeps."""
    return tuple(d for k, d in enumerate(node.args[0].shape) if k not in node.attrs["axis"])


def reduced_shape(node: Node) -> Shape:
    return tuple(node.args[0].shape[k] for k in node.attrs["axis"])
