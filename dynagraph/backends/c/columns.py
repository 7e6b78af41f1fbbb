"""Column reductions for one core: a block of neighbouring columns keeps its accumulators on the stack."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dynagraph.backends.c.nests import UNSTOPPED_EXTENT, at_most, end_of, is_at_most, lanes_loop, nest
from dynagraph.backends.c.reductions import LANE, as_wide
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import computed_as, extreme, identity, is_better, rounded, step, widened
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, Axis, ColumnReduce, Define, Kernel, LeafRule, expr_cost, map_expr
from dynagraph.ir.statements import (
    Assign,
    Block,
    Code,
    Declare,
    For,
    Let,
    Opaque,
    Safepoint,
    While,
    as_int,
    compare,
    element,
    position,
)

COLUMN_BLOCK = 512  # columns that one range of a column reduction accumulates on the stack, at most,
NARROW_BLOCK = 128  # ... and at least, where there are too few ranges for threads to share:
COLUMN_PARTS = 8  # fewer than this,
WORTH_PARTS = 1 << 16  # ... of so many values
COLUMN_UNROLL = 4  # rows that are added to the accumulators at a time,
UNROLL_COST = 6.0  # ... where a value costs no more than this many additions
FIRST = position("first")  # column of the block
WIDTH = position("width")


def column_of(kernel: Kernel) -> ColumnReduce | None:
    """The column reduction that a kernel is."""
    return next((s for s in kernel.body if isinstance(s, ColumnReduce)), None)


def column_block(r: ColumnReduce, outer: Sequence[Axis]) -> int:
    """How many columns one range has.  A column's bits do not depend on it."""
    ranges, rows = (math.prod(max(1, axis.hint) for axis in axes) for axes in (outer, r.axes))
    if ranges * rows * r.column.hint < WORTH_PARTS:
        return COLUMN_BLOCK
    wanted = -(-r.column.hint * ranges // COLUMN_PARTS)
    return min(max(-(-wanted // NARROW_BLOCK) * NARROW_BLOCK, NARROW_BLOCK), COLUMN_BLOCK)


def column_reduce(r: ColumnReduce, outer: Sequence[Axis]) -> tuple[Code, ...]:
    """The columns from `first` on, as many as a range has."""
    block = column_block(r, outer)
    width = Declare("width", dtypes.int32, as_int(at_most(r.column.extent, FIRST, block) - FIRST))
    # gcc 12 loses rows of sums of 7 columns of int64 where it knows how many these are
    first = r.accumulators[0]
    opaque = () if first.dtype.is_inexact else (Opaque("width"),)
    return width, *opaque, *(_positions(r, block) if first.is_position else _columns(r, block))


def _each_column(r: ColumnReduce, *body: Code) -> For:
    return lanes_loop(WIDTH, Let(r.column.symbol.name, FIRST + LANE), *body)


def _columns(r: ColumnReduce, block: int) -> tuple[Code, ...]:
    arrays = [Declare(f"{a.name}_column", computed_as(a.dtype), size=block, aligned=True) for a in r.accumulators]
    begin = lanes_loop(WIDTH, *(Assign(f"{a.name}_column", identity(a), LANE) for a in r.accumulators))
    *outer, last = r.axes
    turns = UNSTOPPED_EXTENT // block
    row, start, end = last.symbol.name, last.start, end_of(last)
    rows: tuple[Code, ...]
    if is_at_most(last.extent, turns):
        rows = Declare(row, None, start), *_rows(r, end)
    else:
        limit = position(f"{row}_last")
        part = Safepoint(), *_rows(r, at_most(limit, position(row), turns))
        rows = Declare(row, None, start), Let(f"{row}_last", end), While(compare("lt", position(row), limit), part)
    passes = nest(outer, (Block(rows),), within=(last,), each=block)
    totals = [Declare(a.name, computed_as(a.dtype), rounded(_total(a), a.dtype)) for a in r.accumulators]
    return *arrays, begin, *passes, _each_column(r, *totals, *r.stores)


def _total(a: Accumulator) -> Expr:
    return element(f"{a.name}_column", LANE, computed_as(a.dtype))


def _rows(r: ColumnReduce, end: IntExpr) -> tuple[Code, ...]:
    """The rows up to `end`."""
    row, cost = r.axes[-1].symbol.name, expr_cost([a.value for a in r.accumulators])
    found: list[Code] = [Let(f"{row}_end", end)]
    limit = position(f"{row}_end")
    for rows in (COLUMN_UNROLL, 1) if cost <= UNROLL_COST and not r.accumulators[0].dtype.is_half else (1,):
        within = compare("lt", position(row) + (rows - 1), limit)
        found.append(While(within, (_added(r, rows), Assign(row, position(row) + rows))))
    return tuple(found)


def _added(r: ColumnReduce, rows: int) -> For:
    """Accumulate `rows` rows, in order, while the accumulators stay in registers."""
    symbol, totals = r.axes[-1].symbol, [_total(a) for a in r.accumulators]
    here = IntExpr({(symbol,): 1})
    for k in range(rows):
        moved: dict[Expr, Expr] = {}  # what several accumulate is computed once
        values = [map_expr(a.value, moved, LeafRule({symbol.name: here + k})) for a in r.accumulators]
        totals = [step(a, total, value) for a, total, value in zip(r.accumulators, totals, values)]
    found = [rounded(total, a.dtype) for a, total in zip(r.accumulators, totals)]
    return _each_column(r, *(Assign(f"{a.name}_column", total, LANE) for a, total in zip(r.accumulators, found)))


def _positions(r: ColumnReduce, block: int) -> tuple[Code, ...]:
    """Where the extremes of columns are: of each the best so far, and its row."""
    (a,) = r.accumulators
    dtype = a.value.dtype
    rows = IntExpr.of(1)
    for axis in r.axes:
        rows = rows * axis.extent
    narrow = (rows.bounds()[1] or 2**31) < 2**31 and as_wide(dtype) < 8  # so that as many fit into a vector
    counter, wide = dtypes.int32 if narrow else dtypes.int64, computed_as(dtype)
    zero, row = expr.const(0, counter), expr.var("row", counter)
    value, old, better = expr.var("value", wide), expr.var("old", wide), expr.var("better", dtypes.bool_)
    where = element("where", LANE, counter)
    compared = _each_column(
        r,
        Declare("value", wide, widened(a.value)),
        Declare("old", wide, element("best", LANE, wide)),
        Define("better", is_better(a, value, old)),
        Assign("best", expr.call("select", better, value, old), LANE),
        Assign("where", expr.call("select", better, row, where), LANE),
    )
    return (
        Declare("best", wide, size=block, aligned=True),
        Declare("where", counter, size=block, aligned=True),
        lanes_loop(WIDTH, Assign("best", identity(extreme(a)), LANE)),
        lanes_loop(WIDTH, Assign("where", zero, LANE)),
        Declare("row", counter, zero),
        *nest(r.axes, (compared, Assign("row", expr.call("add", row, expr.const(1, counter)))), each=block),
        _each_column(r, Define(a.name, expr.cast(where, dtypes.int64)), *r.stores),
    )
