"""Loop collapsing: merge neighbouring loops that walk memory as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynagraph.driver import deadline
from dynagraph.ir.intexpr import Apply, IntExpr, apply
from dynagraph.ir.loops import Axis, ColumnReduce, Kernel, Loop, Reduce, ScanLoop, Statement, indices, substitute

SPLIT_ROWS = 16  # a loop nest with fewer outer iterations than this,
SPLIT_LENGTH = 16384  # ... and an inner loop longer than this, is split into blocks
SPLIT_BLOCK = 4096
TILE = 32  # elements of a side of a tile of a transposition


def collapse(kernel: Kernel) -> Kernel:
    """Needs: a kernel from `lower`.  Leaves: the same stores in another loop structure; merged loops, blocks for cores."""
    deadline.check()
    kernel = merge_loops(kernel)
    if any(isinstance(s, (Loop, Reduce, ColumnReduce, ScanLoop)) for s in kernel.body):
        return kernel
    return _split_last(kernel)


def merge_loops(kernel: Kernel) -> Kernel:
    """The kernel with as few axes as its indices allow."""
    body = tuple(_collapse_inner(s) for s in kernel.body)
    axes, body = _merge(*_divided(kernel.axes, body))
    return replace(kernel, axes=axes, body=body)


def _collapse_inner(s: Statement) -> Statement:
    if isinstance(s, Loop):
        axes, body = _merge(*_divided(s.axes, s.body))
        return replace(s, axes=axes, body=body)
    if isinstance(s, Reduce) and not any(a.is_position for a in s.accumulators):
        return _collapse_reduce(s)
    return s


def _collapse_reduce(s: Reduce) -> Reduce:
    """Axes that are walked as one are merged with each other, and so are those that are walked in turn."""
    if s.walk is None:
        axes, (merged,) = _merge(s.axes, (s,))
        return replace(merged, axes=axes)  # type: ignore[return-value, type-var, arg-type]
    count = len(s.axes) - min(s.walk.axes, len(s.axes))
    turns, (merged,) = _merge(s.axes[:count], (s,))
    together, (merged,) = _merge(*_divided(s.axes[count:], (merged,)))
    walk = replace(s.walk, axes=len(together))
    return replace(merged, axes=turns + together, walk=walk)  # type: ignore[return-value, type-var, arg-type]


def _divided(axes: tuple[Axis, ...], body: Sequence[Statement]) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Axes of which indices want quotient and remainder as two axes each: heads that lie side by side, walked without divisions."""
    divided: list[Axis] = []
    body = tuple(body)
    for axis in axes:
        size = _divisor(axis, body)
        if size is None:
            divided.append(axis)
            continue
        extent = axis.extent // size
        name = axis.symbol.name
        quotient, rest = IntExpr.symbol(f"{name}_part", 0, extent - 1), IntExpr.symbol(name, 0, size - 1)
        body = substitute(body, {name: quotient * size + rest})
        (part,), (symbol,) = quotient.symbols(), rest.symbols()
        divided += [Axis(part, extent, axis.hint // size), Axis(symbol, IntExpr.of(size), size)]
    return tuple(divided), body


def _divisor(axis: Axis, body: Sequence[Statement]) -> int | None:
    """The one number by which indices divide the axis, and which divides its extent."""
    if axis.extent.constant is None or axis.start != 0:
        return None
    size = one_divisor(axis, body)
    return size if size is not None and 1 < size < axis.extent.constant and axis.extent.constant % size == 0 else None


def one_divisor(axis: Axis, body: Sequence[Statement]) -> int | None:
    """The one number by which indices divide the axis, if that is all that they do besides walking along it."""
    found: set[int | None] = set()
    for position in indices(body):
        for atom in position.atoms():
            if isinstance(atom, Apply) and axis.symbol in atom.left.symbols() | atom.right.symbols():
                divides = atom.function in ("//", "%") and atom.left.terms == {(axis.symbol,): 1}
                found.add(atom.right.constant if divides else None)
    return next(iter(found)) if len(found) == 1 else None


def _merge(axes: tuple[Axis, ...], body: Sequence[Statement]) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Merge axis k into its right neighbour wherever every index walks both as one."""
    merged = list(axes)
    position = len(merged) - 2
    body = tuple(body)
    while position >= 0:
        outer, inner = merged[position], merged[position + 1]
        if _walks_as_one(outer, inner, body):
            extent = outer.extent * inner.extent
            name = outer.symbol.name
            whole = IntExpr.symbol(name, 0, extent - 1)
            body = substitute(body, {outer.symbol.name: IntExpr.of(0), inner.symbol.name: whole})
            merged[position : position + 2] = (
                [Axis(next(iter(whole.symbols())), extent, outer.hint * inner.hint)] if extent.constant != 1 else []
            )
        position -= 1
    return tuple(merged), body


def merged_axes(axes: tuple[Axis, ...], body: tuple[Statement, ...]) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Neighbouring axes merged into as few as the indices allow."""
    return _merge(axes, body)


def _walks_as_one(outer: Axis, inner: Axis, body: Sequence[Statement]) -> bool:
    for position in indices(body):
        o, i = position.coefficient(outer.symbol), position.coefficient(inner.symbol)
        if o is None or i is None or o != i * inner.extent:
            return False
    return inner.start == 0 and outer.start == 0


def _split_last(kernel: Kernel) -> Kernel:
    """Make the last axis of a nest the inner loop, in blocks where the outer axes are too few."""
    if len(kernel.axes) < 2:
        return kernel
    across = _transposed_axis(kernel)
    if across is not None:
        return _tile(kernel, across)
    *outer, last = kernel.axes
    rows = 1
    for axis in outer:
        rows *= axis.hint
    if rows >= SPLIT_ROWS or last.hint < SPLIT_LENGTH:
        return _with_loop(kernel, tuple(outer), (last,))
    axis, inner = _blocks(last, SPLIT_BLOCK)
    return _with_loop(kernel, (*outer, axis), (inner,))


def _with_loop(kernel: Kernel, outer: tuple[Axis, ...], inner: tuple[Axis, ...]) -> Kernel:
    """The kernel with `inner` axes as a loop of its own; an iteration of the outer axes now costs all of it."""
    cost = kernel.cost
    for axis in inner:
        cost *= axis.hint
    return replace(kernel, axes=outer, body=(Loop(inner, kernel.body),), cost=cost)


def _blocks(axis: Axis, size: int) -> tuple[Axis, Axis]:
    """An axis as a loop over blocks and a loop within one."""
    blocks = (axis.extent + (size - 1)) // size
    block = IntExpr.symbol(f"{axis.symbol.name}_block", 0, blocks - 1)
    start = block * size
    (symbol,) = block.symbols()
    inner = Axis(axis.symbol, apply("min", axis.extent - start, IntExpr.of(size)), min(axis.hint, size), start)
    return Axis(symbol, blocks, -(-axis.hint // size)), inner


def _transposed_axis(kernel: Kernel) -> int | None:
    """The axis along which some array is contiguous, where the last axis walks that array in long strides."""
    last = kernel.axes[-1]
    for position in indices(kernel.body):
        step = position.coefficient(last.symbol)
        if step is None or step == 0 or step == 1:
            continue
        for k, axis in enumerate(kernel.axes[:-1]):
            if position.coefficient(axis.symbol) == 1 and axis.hint >= TILE and last.hint >= TILE:
                return k
    return None


def _tile(kernel: Kernel, across: int) -> Kernel:
    """Walk both axes of a transposition in square tiles, so that every cache line is used whole."""
    row_block, row = _blocks(kernel.axes[across], TILE)
    column_block, column = _blocks(kernel.axes[-1], TILE)
    others = tuple(a for k, a in enumerate(kernel.axes[:-1]) if k != across)
    return _with_loop(kernel, (*others, row_block, column_block), (row, column))
