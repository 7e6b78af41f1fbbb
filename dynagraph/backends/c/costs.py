"""Costs of kernels: iterations that threads share, and estimated time."""

from __future__ import annotations

from dynagraph.backends.c.columns import column_block, column_of
from dynagraph.backends.c.kernels import column_blocks
from dynagraph.backends.c.program import is_size
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import ColumnReduce, Kernel, Loop, Reduce, ScanLoop, Statement

FLAT_GRAIN = 64  # elements: threads do not share cache lines


def launch_size(kernel: Kernel) -> tuple[IntExpr, int]:
    """How many independent iterations a kernel has, and how many of them belong together."""
    count = IntExpr.of(1)
    for axis in kernel.axes:
        count = count * axis.extent
    column = column_of(kernel)
    if column is not None:
        return count * column_blocks(column, kernel.axes), 1
    flat = len(kernel.axes) == 1 and not any(isinstance(s, (Loop, Reduce, ScanLoop)) for s in kernel.body)
    return count, FLAT_GRAIN if flat else 1


def inner_extent(kernel: Kernel) -> tuple[IntExpr, int]:
    """How many turns the longest loop nest within an iteration has, and how many at capture."""
    nests = [_nest(s) for s in kernel.body]
    return max(nests, key=lambda nest: nest[1], default=(IntExpr.of(1), 1))


def _nest(s: Statement) -> tuple[IntExpr, int]:
    extent, hint = IntExpr.of(1), 1
    axes = (s.axis,) if isinstance(s, ScanLoop) else s.axes if isinstance(s, (Loop, Reduce, ColumnReduce)) else ()
    for axis in axes:
        hint *= max(1, axis.hint)
        varies_within = any(not is_size(symbol.name) for symbol in axis.extent.symbols())
        extent *= IntExpr.of(max(1, axis.hint)) if varies_within else axis.extent
    if isinstance(s, Loop):
        inner, inner_hint = max(map(_nest, s.body), key=lambda nest: nest[1], default=(IntExpr.of(1), 1))
        extent, hint = extent * inner, hint * inner_hint
    return extent, hint


def kernel_cost(kernel: Kernel) -> float:
    """Estimated nanoseconds of one iteration of `launch_size`."""
    total = kernel.cost
    for axis in kernel.axes:
        total *= axis.hint
    count = 1
    for axis in kernel.axes:
        count *= max(1, axis.hint)
    column = column_of(kernel)
    if column is not None:
        count *= max(1, -(-column.column.hint // column_block(column, kernel.axes)))
    return total / count
