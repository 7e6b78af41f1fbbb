"""Kernels as statements for one core: a range function runs the iterations `lo` to `hi` of the flattened outer axes."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.c.columns import column_block, column_of, column_reduce
from dynagraph.backends.c.nests import ZERO, nest, short_loop
from dynagraph.backends.c.pairwise import in_order
from dynagraph.backends.c.positions import positions
from dynagraph.backends.c.reductions import free_order, single
from dynagraph.ir.accumulation import (
    begin_scan,
    computed_as,
    identity,
    local,
    next_running_step,
    rounded,
    scan_step,
    widened,
)
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import (
    Axis,
    ColumnReduce,
    Define,
    Kernel,
    Loop,
    Reduce,
    ScanLoop,
    Statement,
    Store,
    expressions,
)
from dynagraph.ir.statements import Assign, AxisKind, Block, Code, Declare, For, Let, divided, position

ITEM, REST = position("item"), position("rest")
HI = position("hi")  # of the range


def write_out(kernel: Kernel) -> tuple[Code, ...]:
    """The body of a range function."""
    column = column_of(kernel)
    body = _body(kernel.body, kernel.axes)
    if not kernel.axes and column is None:
        return body
    if len(kernel.axes) == 1 and column is None:
        name = kernel.axes[0].symbol.name
        return (For(name, ZERO, HI, body, AxisKind.PARALLEL, hoist=_is_plain(kernel.body)),)
    return (For("item", ZERO, HI, (*_decode(kernel.axes, column), *body), AxisKind.PARALLEL),)


def column_blocks(r: ColumnReduce, outer: Sequence[Axis]) -> IntExpr:
    """How many ranges all columns are."""
    block = column_block(r, outer)
    return (r.column.extent + (block - 1)) // block


def _decode(axes: Sequence[Axis], column: ColumnReduce | None) -> list[Code]:
    """Loop variables from the flat item number, last axis fastest."""
    found: list[Code] = [Declare("rest", None, ITEM)]
    if column is not None:
        around, own = divided(REST, column_blocks(column, axes))
        found += [Let("first", own * column_block(column, axes)), Assign("rest", around)]
    for axis in reversed(axes[1:]):
        around, own = divided(REST, axis.extent)
        found += [Let(axis.symbol.name, own), Assign("rest", around)]
    return [*found, Let(axes[0].symbol.name, REST)] if axes else found


def _body(body: Sequence[Statement], outer: Sequence[Axis]) -> tuple[Code, ...]:
    found: list[Code] = []
    for s in body:
        if isinstance(s, (Define, Store)):
            found.append(s)
        elif isinstance(s, Loop):
            found += _loop(s, outer)
        elif isinstance(s, Reduce):
            found += _reduce(s, outer)
        elif isinstance(s, ColumnReduce):
            found += column_reduce(s, outer)
        else:
            assert isinstance(s, ScanLoop), "sorts are for other targets"
            found += [begin_scan(s), *nest((s.axis,), scan_step(s, next_running_step))]
    return tuple(found)


def _is_plain(body: Sequence[Statement]) -> bool:
    return all(isinstance(s, (Define, Store)) for s in body)


def _loop(loop: Loop, outer: Sequence[Axis]) -> tuple[Code, ...]:
    body, values = _body(loop.body, outer), list(expressions(loop.body))
    for axis in reversed(loop.axes):
        hoist = axis is loop.axes[-1] and (axis.extent.bounds()[0] or 0) > 0 and _is_plain(loop.body)
        body = (Block(short_loop(axis, body, values, hoist)),)
    return body


def _reduce(r: Reduce, outer: Sequence[Axis]) -> list[Code]:
    found: list[Code] = []
    for a in r.accumulators:
        found.append(Declare(a.name, computed_as(a.dtype), identity(a) if a.start is None else widened(a.start)))
    if not r.axes:
        found += single(r)
    elif any(a.is_position for a in r.accumulators):
        found += positions(r)
    elif r.walk is not None:
        found += in_order(r, r.walk, outer)
    else:
        found += free_order(r)
    halves = [a for a in r.accumulators if a.dtype.is_half]
    return [*found, *(Assign(a.name, rounded(local(a.name, a.dtype), a.dtype)) for a in halves)]
