"""Memory layout of NumPy's results: the order of their axes in memory, by the strides of the operands.

The frontend notes it in the strides of a new node's meta (None: C order), so that views of it are known to be views, or copies, as
they are in NumPy.  Kernels never see it: `capture` hands over a graph of values, whose outputs are transposed to where they lie.

Comparisons of strides that are symbolic are decisions, and guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Composite, Elementwise, Reduction, Scan, Strided, may_be_view
from dynagraph.ir.shapes import Dim, Shape, contiguous_strides, hint_of, same_dim, same_shape

Order = tuple[int, ...]  # the axes of an array, the one of the longest strides first


# -- orders and strides -----------------------------------------------------------------------------------------------


def c_order(rank: int) -> Order:
    return tuple(range(rank))


def f_order(rank: int) -> Order:
    return tuple(range(rank))[::-1]


def packed_strides(shape: Shape, order: Order) -> Shape:
    """The strides of an array that lies without gaps.

    >>> packed_strides((2, 3, 4), (1, 0, 2))
    (4, 8, 1)
    """
    strides: list[Dim] = [1] * len(shape)
    for axis, stride in zip(order, contiguous_strides([shape[k] for k in order])):
        strides[axis] = stride
    return tuple(strides)


def order_of(shape: Shape, strides: Shape) -> Order:
    """The order that has these strides without gaps; sizes from 2 on all have the same.

    >>> order_of((2, 3, 4), (4, 8, 1))
    (1, 0, 2)
    """
    return tuple(sorted(range(len(shape)), key=lambda k: (-hint_of(strides[k]), same_dim(shape[k], 1), k)))


def is_packed(x: Strided, order: Order) -> bool:
    """Whether an array lies in this order without gaps, as NumPy's flags C_CONTIGUOUS and F_CONTIGUOUS have it."""
    if any(d == 0 for d in x.shape):
        return True
    wanted = packed_strides(x.shape, order)
    return all(d == 1 or same_dim(have, want) or have == want for d, have, want in zip(x.shape, x.strides, wanted))


def lies_in_c_order(x: Strided) -> bool:
    """Whether this is known without a decision."""
    return same_shape(x.strides, contiguous_strides(x.shape))


def _reach(stride: Dim) -> Dim:
    return stride if stride >= 0 else -stride


# -- NumPy's rules ----------------------------------------------------------------------------------------------------


def iteration_order(steps: Sequence[Shape], rank: int) -> Order:
    """How NumPy's iterator (``order="K"``) goes through operands together: by falling strides, and in C order where they disagree.

    `steps`: for each operand its strides along the axes of the iteration, 0 where it has one element.
    """
    axes = list(f_order(rank))  # the innermost first
    for k in range(1, rank):
        axis, place = axes[k], k
        for earlier in range(k - 1, -1, -1):
            swap = _goes_inside([(s[axis], s[axes[earlier]]) for s in steps if s[axis] != 0 and s[axes[earlier]] != 0])
            if swap is False:
                break
            place = earlier if swap else place
        axes.insert(place, axes.pop(k))
    return tuple(axes[::-1])


def _goes_inside(strides: Sequence[tuple[Dim, Dim]]) -> bool | None:
    """Whether all operands have shorter strides along the first axis than along the second; None where none can tell."""
    return all(_reach(a) < _reach(b) for a, b in strides) if strides else None


def steps_of(x: Strided, rank: int) -> Shape:
    """The strides of an operand that is broadcast to `rank` dimensions."""
    return (0,) * (rank - len(x.shape)) + tuple(0 if d == 1 else s for d, s in zip(x.shape, x.strides))


def ufunc_order(operands: Sequence[Strided], shape: Shape) -> Order:
    """Of the result of a ufunc, or of any function that NumPy runs through its iterator."""
    rank, arrays = len(shape), [x for x in operands if x.shape]
    if all(map(lies_in_c_order, arrays)):
        return c_order(rank)
    if all(len(x.shape) == rank and all(map(_same_size, x.shape, shape)) for x in arrays):  # the way of NumPy's short cut
        for order in (c_order(rank), f_order(rank)):
            if all(is_packed(x, order) for x in arrays):
                return order
    return iteration_order([steps_of(x, rank) for x in arrays], rank)


def _same_size(a: Dim, b: Dim) -> bool:
    return same_dim(a, b) or a == b


def copy_order(x: Strided) -> Order:
    """Of a copy with ``order="K"``, and of what np.zeros_like and its kin make."""
    rank = len(x.shape)
    for order in (c_order(rank), f_order(rank)):
        if is_packed(x, order):
            return order
    return order_by_strides(x)


def order_by_strides(x: Strided) -> Order:
    """The axes by falling strides, those of equal strides as they stand."""
    axes: list[int] = []
    for axis, stride in enumerate(x.strides):
        place = len(axes)
        while place > 0 and _reach(stride) > _reach(x.strides[axes[place - 1]]):
            place -= 1
        axes.insert(place, axis)
    return tuple(axes)


def joined_order(operands: Sequence[Strided]) -> Order:
    """Of what np.concatenate gives."""
    rank = len(operands[0].shape)
    if all(map(lies_in_c_order, operands)):
        return c_order(rank)
    axes = list(c_order(rank))
    for k in range(1, rank):
        axis, place = axes[k], k
        for earlier in range(k - 1, -1, -1):
            other = axes[earlier]
            swap = _goes_outside([(x.strides[axis], x.strides[other]) for x in operands if x.shape[axis] != 1 != x.shape[other]])
            if swap is False:
                break
            place = earlier if swap else place
        axes.insert(place, axes.pop(k))
    return tuple(axes)


def _goes_outside(strides: Sequence[tuple[Dim, Dim]]) -> bool | None:
    return all(_reach(a) > _reach(b) for a, b in strides) if strides else None


def reduced_order(operands: Sequence[Strided], axes: Sequence[int], keepdims: bool) -> Order:
    """Of a reduction by a ufunc: the axes that are kept, as they lie in the array, and in the mask where there is one."""
    shape = operands[0].shape
    kept = [k for k in range(len(shape)) if keepdims or k not in axes]
    return tuple(kept.index(k) for k in ufunc_order(operands, shape) if k in kept)


def result_among(result: Strided, rank: int, axes: Sequence[int], keepdims: bool) -> Strided:
    """A given result of a reduction, as its iterator goes through it: along the axes that are reduced it stays where it is."""
    kept = iter(range(len(result.shape)))
    places = [None if k in axes and not keepdims else next(kept) for k in range(rank)]
    shape = tuple(1 if p is None or k in axes else result.shape[p] for k, p in enumerate(places))
    return Strided(shape, tuple(0 if p is None or k in axes else result.strides[p] for k, p in enumerate(places)))


def segments_order(x: Strided, axis: int) -> Order:
    """Of ``ufunc.reduceat``: the iterator goes through the array's other axes, and through the indices along this one."""
    rank = len(x.shape)
    steps = steps_of(x, rank)
    return iteration_order([(*steps[:axis], 0, *steps[axis + 1 :]), tuple(int(k == axis) for k in range(rank))], rank)


def product_order(left: Strided, right: Strided, rank: int) -> Order:
    """Of np.matmul: matrices in C order, their stack as the stacks of the operands lie."""
    stacked = rank - 2
    stacks = [Strided(x.shape[:-2], x.strides[:-2]) for x in (left, right)]
    return (*iteration_order([steps_of(s, stacked) for s in stacks], stacked), stacked, stacked + 1)


def gathered_order(view: Strided, places: Sequence[Strided], axes: Sequence[int], at: int, rank: int) -> Order:
    """Of an index with arrays: their dimensions lie outside, wherever they stand; the others as they lie in the array."""
    rest = [k for k in range(len(view.shape)) if k not in axes]
    n_places = rank - len(rest)
    if not rest:
        return ufunc_order(places, places[0].shape)
    inner = order_by_strides(Strided(tuple(view.shape[k] for k in rest), tuple(view.strides[k] for k in rest)))
    return (*range(at, at + n_places), *(k if k < at else k + n_places for k in inner))


# -- the table --------------------------------------------------------------------------------------------------------

Rule = Callable[[Node, Sequence[Strided]], Order]


def _reduction(node: Node, operands: Sequence[Strided]) -> Order:
    return reduced_order(operands, node.attrs["axis"], node.attrs["keepdims"])


def _elementwise(node: Node, operands: Sequence[Strided]) -> Order:
    return ufunc_order(operands, node.shape)


def _padded(node: Node, operands: Sequence[Strided]) -> Order:
    return padded_order(operands[0])


def padded_order(x: Strided) -> Order:
    rank = len(x.shape)
    return f_order(rank) if is_packed(x, f_order(rank)) and not is_packed(x, c_order(rank)) else c_order(rank)


_BY_NAME: dict[str, Rule | None] = {
    "argmax": None,
    "argmin": None,
    "block_reduce": None,
    "concatenate": lambda node, operands: joined_order(operands),
    "pad": _padded,
    "roll": lambda node, operands: copy_order(operands[0]),
    "matmul": lambda node, operands: product_order(operands[0], operands[1], node.ndim),
    "gather": lambda node, operands: gathered_order(operands[0], operands[1:], node.attrs["axes"], node.attrs["at"], node.ndim),
}
_BY_LOWERING: dict[type, Rule] = {
    Elementwise: _elementwise,
    Scan: _elementwise,
    Reduction: _reduction,
    Composite: _reduction,  # mean, var and std
}


def rule_of(node: Node) -> Rule | None:
    """How NumPy lays out what it computes by this op; None: in C order, or where the operand lies."""
    name = node.op.name
    if may_be_view(node):
        return None
    return _BY_NAME[name] if name in _BY_NAME else _BY_LOWERING.get(type(node.op.lowering))


__all__ = [
    "Order", "c_order", "copy_order", "f_order", "is_packed", "iteration_order", "joined_order", "lies_in_c_order",
    "order_by_strides", "order_of", "packed_strides", "padded_order", "reduced_order", "result_among", "rule_of", "segments_order",
    "steps_of", "ufunc_order",
]  # fmt: skip
