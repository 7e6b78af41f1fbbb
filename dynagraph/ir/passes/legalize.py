"""Bring a decomposed graph into the form that fusion takes: outputs of their own, reductions that fill the cores.

Comes last before `fuse`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.driver import deadline
from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import EXTREMES, OPS, Library, Reduction, Walk
from dynagraph.ir.optable import convolution, pooling
from dynagraph.ir.passes.average_windows import are_apart, as_slices
from dynagraph.ir.passes.fuse import operand_strided, takes_layout
from dynagraph.ir.shapes import Dim, Shape, hint_numel, hint_of, numel, same_dim

LAST_POSITION = 2**63 - 1
PARTS = 32  # of a long sum, at most
ROUTINES = (*convolution.ROUTINES, *pooling.ROUTINES)


@dataclass(frozen=True)
class Target:
    """What a target's processors want.  Reductions in two stages, blocks and then their results, have all of them work."""

    rows: int  # a reduction with at least this many independent results is parallel as it is
    long: int  # ... and one over fewer elements than this is not worth splitting
    block: int  # elements of a block of a contiguous reduction, at least,
    blocks: int | None  # ... and at most so many blocks
    columns: int  # columns that one thread, or block of threads, accumulates at a time
    units: int  # a column reduction with fewer of these than this
    column_parts: int  # ... is split into so many blocks of rows
    has_half_products: bool  # products of halves, which are summed in float32
    has_routines: bool  # convolutions and pools: placement keeps all but averages away from targets that have none
    in_order: bool  # reductions are in order where that tells: positions; sums and products in NumPy's order


CORES = Target(
    rows=16, long=32768, block=4096, blocks=32, columns=512, units=8, column_parts=32, has_half_products=False,
    has_routines=True, in_order=True,
)  # fmt: skip


def legalize(graph: Graph, target: Target = CORES) -> Graph:
    """Needs: a decomposed graph.  Leaves: what `fuse` needs; values of exact arithmetic are unchanged."""
    _share_reshaped(graph)
    for node in list(graph.nodes):
        deadline.check()
        if node.kind != "call_function":
            continue
        if isinstance(node.op.lowering, Library) and node.op.lowering.routine == "matmul":
            if node.dtype.is_half and not target.has_half_products:
                node = _widened_product(graph, node)
            if node.dtype.is_inexact:
                _copy_operands(graph, node)
            else:
                _expand_matmul(graph, node)
        elif node.is_op(*pooling.AVERAGES) and (not target.has_routines or are_apart(node)):
            with graph.inserting_before(node):
                result = as_slices(node)
            _replace(graph, node, result)
        elif isinstance(node.op.lowering, Library) and node.op.lowering.routine in ROUTINES:
            if not target.has_routines:
                raise GraphError(f"{node.name}: this device has no kernels for convolutions and pools")
            _copy_operands(graph, node)
        elif isinstance(node.op.lowering, Reduction):
            if node.is_op("sum_where"):
                if not target.in_order:
                    _fill(graph, node)
                elif node.attrs["walk"] is None:
                    node.attrs["walk"] = _walk(node)
                continue
            if node.is_op("sum", "prod"):
                node.attrs["walk"] = _walk(node) if target.in_order and node.dtype.is_inexact else None
            if node.attrs.get("walk") is None:
                _split_reduction(graph, node, target)
            else:
                _split_walk(graph, node, target)
    _own_outputs(graph)
    graph.eliminate_dead_code()
    return graph


def _share_reshaped(graph: Graph) -> None:
    """Of what one value is reshaped to, all but the first are made of the first: elements that have to be moved are moved once."""
    first: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.is_op("reshape"):
            source = first.setdefault(node.args[0], node)
            if source is not node:
                node.set_args((source,))


def _own_outputs(graph: Graph) -> None:
    """Copy outputs that are inputs, constants, or stand twice: each gets memory of its own."""
    output = graph.output_node
    seen: set[Node] = set()
    args: list[Node] = []
    for node in output.args:
        if node.kind != "call_function" or node in seen:
            with graph.inserting_before(output):
                node = graph.call(OPS["copy"], node)
        seen.add(node)
        args.append(node)
    output.set_args(tuple(args))


def _widened_product(graph: Graph, node: Node) -> Node:
    """Products of halves are summed in float32, as NumPy does it, and rounded once."""
    with graph.inserting_before(node):
        operands = (graph.call(OPS["cast"], arg, dtype=dtypes.float32) for arg in node.args)
        product = graph.call(node.op, *operands)
        result = graph.call(OPS["cast"], product, dtype=node.dtype)
    _replace(graph, node, result)
    return product


def _copy_operands(graph: Graph, node: Node) -> None:
    """Copy operands that do not lie in memory as the routine takes them."""
    args: list[Node] = []
    for operand in node.args:
        _, shape, strides, _ = operand_strided(node, operand)
        if not takes_layout(node, shape, strides):
            with graph.inserting_before(node):
                operand = graph.call(OPS["copy"], operand)
        args.append(operand)
    node.set_args(tuple(args))


def _expand_matmul(graph: Graph, node: Node) -> None:
    """Integer products have no BLAS: (m, k, 1) * (1, k, n) summed over k, which never exists in memory."""
    left, right = node.args
    with graph.inserting_before(node):
        a = graph.call(OPS["reshape"], left, shape=left.shape + (1,))
        b = graph.call(OPS["reshape"], right, shape=right.shape[:-2] + (1,) + right.shape[-2:])
        multiply, add = ("logical_and", "any") if node.dtype is dtypes.bool_ else ("multiply", "sum")
        product = graph.call(OPS[multiply], a, b)
        result = graph.call(OPS[add], product, axis=(product.ndim - 2,), keepdims=False)
    _replace(graph, node, result)


def _fill(graph: Graph, node: Node) -> None:
    """Where the order is free: zeros instead of what is left out."""
    x, mask, start = node.args
    with graph.inserting_before(node):
        zero = graph.call(OPS["constant"], value=0, dtype=x.dtype)
        filled = graph.call(OPS["where"], mask, x, zero)
        total = graph.call(OPS["sum"], filled, axis=node.attrs["axis"], keepdims=node.attrs["keepdims"])
        result = graph.call(OPS["add"], start, total)
    _replace(graph, node, result)


def _walk(node: Node) -> Walk:
    """The order in which the elements of a sum or product are taken: by default that of an array without gaps."""
    axes, shape = node.attrs["axis"], node.args[0].shape
    if node.is_op("prod") and not node.dtype.is_half:
        return Walk(0)
    if node.attrs["walk"] is not None:
        return node.attrs["walk"]  # type: ignore[no-any-return]
    behind = shape[axes[-1] + 1 :] if axes else ()
    return Walk(len(axes) if all(same_dim(d, 1) for d in behind) else 0)


def _split_walk(graph: Graph, node: Node, target: Target) -> None:
    """Have several cores add up the parts of a long pairwise sum, where there are few of them."""
    axes, operand, walk = node.attrs["axis"], node.args[0], node.attrs["walk"]
    rows = hint_numel(d for k, d in enumerate(operand.shape) if k not in axes)
    together = axes[len(axes) - walk.axes :]
    length = hint_numel(operand.shape[k] for k in together)
    if node.is_op("prod") or not together or walk.tree or not 0 < rows < target.rows or length < target.long:
        return
    in_turn = len(together) < len(axes) or walk.chunk is not None
    if in_turn and node.dtype.is_half:  # each step is rounded
        return
    along = together[0]
    with graph.inserting_before(node):
        merged = _merged(graph, node, together)
        if walk.chunk is not None:
            result = graph.call(OPS["block_reduce"], merged, kind="sum", axis=along, block=walk.chunk, pairwise=True)
        else:
            levels = max(1, min(PARTS, length // target.block).bit_length() - 1)
            parts = graph.call(OPS["block_reduce"], merged, kind="sum", axis=along, levels=levels, pairwise=True)
            result = graph.call(OPS["sum"], parts, axis=(along,), keepdims=in_turn, walk=Walk(1, tree=True))
        if in_turn:
            result = graph.call(OPS["sum"], result, axis=axes[: len(axes) - walk.axes] + (along,), keepdims=False, walk=Walk(0))
    _replace_reduction(graph, node, result)


def _merged(graph: Graph, node: Node, axes: tuple[int, ...]) -> Node:
    """The operand of a reduction, with neighbouring axes as one."""
    shape = node.args[0].shape
    flat: Shape = shape[: axes[0]] + (numel(shape[k] for k in axes),) + shape[axes[-1] + 1 :]
    merged = node.args[0] if len(axes) == 1 else graph.call(OPS["reshape"], node.args[0], shape=flat)
    return _widened(graph, node, merged)


def _widened(graph: Graph, node: Node, operand: Node) -> Node:
    """Halves that are added up or multiplied are so in float32, and rounded once."""
    if not node.dtype.is_half or not node.is_op("sum", "prod"):
        return operand
    return graph.call(OPS["cast"], operand, dtype=dtypes.float32)


def _replace_reduction(graph: Graph, node: Node, result: Node) -> None:
    """By the same values, in the accumulator's dtype and without the reduced axes."""
    with graph.inserting_before(node):
        if result.dtype is not node.dtype:
            result = graph.call(OPS["cast"], result, dtype=node.dtype)
        if node.attrs["keepdims"]:
            result = graph.call(OPS["reshape"], result, shape=node.shape)
    _replace(graph, node, result)


def _replace(graph: Graph, node: Node, result: Node) -> None:
    node.replace_all_uses_with(result)
    graph.erase(node)


def _split_reduction(graph: Graph, node: Node, target: Target) -> None:
    """Reduce in blocks first where the kept dimensions alone give too little to do in parallel."""
    lowering, operand = node.op.lowering, node.args[0]
    assert isinstance(lowering, Reduction)
    axes, kind = node.attrs["axis"], lowering.kind
    if target.in_order and kind in EXTREMES:
        return
    if not axes or hint_numel(operand.shape) < 2 * target.long:
        return
    if axes != tuple(range(axes[0], axes[-1] + 1)):
        _reduce_in_turn(graph, node, target)
        return
    along, end, shape = axes[0], axes[-1] + 1, operand.shape
    block = _block_size(hint_numel(shape[:along]), hint_numel(shape[along:end]), shape[end:], target, kind in EXTREMES)
    if block is None:
        return
    with graph.inserting_before(node):
        merged = _merged(graph, node, axes)
        parts = graph.call(OPS["block_reduce"], merged, kind=EXTREMES.get(kind, kind), axis=along, block=block)
        if kind in EXTREMES:
            positions = graph.call(OPS["block_reduce"], merged, kind=kind, axis=along, block=block)
            result = _position_of_extreme(graph, parts, positions, along, EXTREMES[kind])
        else:
            result = graph.call(node.op, parts, axis=(along,), keepdims=False)
    _replace_reduction(graph, node, result)


def _reduce_in_turn(graph: Graph, node: Node, target: Target) -> None:
    """Reduce the last axes first, where others that are kept stand between: they are rows too."""
    axes, operand = node.attrs["axis"], node.args[0]
    rows = hint_numel(d for k, d in enumerate(operand.shape) if k not in axes)
    if not 0 < rows < target.rows or hint_numel(operand.shape) < rows * target.long:
        return
    last = next(k for k, axis in reversed(list(enumerate(axes))) if axis - 1 not in axes)
    with graph.inserting_before(node):
        inner = graph.call(node.op, _widened(graph, node, operand), axis=axes[last:], keepdims=False)
        outer = result = graph.call(node.op, inner, axis=axes[:last], keepdims=False)
    _replace_reduction(graph, node, result)
    for part in (inner, outer):
        _split_reduction(graph, part, target)


def _position_of_extreme(graph: Graph, extremes: Node, positions: Node, axis: int, kind: str) -> Node:
    """Of blocks' extremes and where they are: where the row's is first.  A NaN is the extreme of all."""
    extreme = graph.call(OPS[kind], extremes, axis=(axis,), keepdims=True)
    found = graph.call(OPS["equal"], extremes, extreme)
    if extremes.dtype.is_inexact:
        found = graph.call(OPS["logical_or"], found, graph.call(OPS["isnan"], extremes))
    elsewhere = graph.call(OPS["constant"], value=LAST_POSITION, dtype=dtypes.int64)
    first = graph.call(OPS["where"], found, positions, elsewhere)
    return graph.call(OPS["min"], first, axis=(axis,), keepdims=False)


def _block_size(rows: int, length: int, behind: tuple[Dim, ...], target: Target, position: bool) -> int | None:
    columns = hint_numel(behind)
    if position:  # of which each column is a row of its own
        rows, behind = rows * columns, ()
    if all(same_dim(d, 1) for d in behind):
        if rows >= target.rows or length < target.long:
            return None
        least = target.block
        while target.blocks is not None and least * target.blocks < length:
            least *= 2
        return least
    last = max(1, hint_of(behind[-1]))
    units = rows * max(1, last // target.columns) * (columns // last)
    if units >= target.units or length < 4 * target.column_parts:
        return None
    return max(16, -(-length // target.column_parts))
