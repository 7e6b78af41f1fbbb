"""Row reductions for one core: in independent lanes if the order is free, else one element after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynagraph.backends.c.merge_functions import longest
from dynagraph.backends.c.nests import (
    UNSTOPPED_EXTENT,
    ZERO,
    at_most,
    end_of,
    is_at_most,
    lanes_loop,
    nest,
)
from dynagraph.ir import expr
from dynagraph.ir.accumulation import computed_as, identity, local, next_step, step, widened
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, IntLike
from dynagraph.ir.loops import Accumulator, Axis, Reduce, expressions
from dynagraph.ir.statements import (
    Assign,
    Block,
    Break,
    Code,
    Declare,
    For,
    If,
    Let,
    Opaque,
    Powers,
    Safepoint,
    While,
    as_int,
    compare,
    element,
    position,
)

LANE_BYTES = 256  # of accumulators per reduction: four of the widest vectors, which hides the latency of an addition
SERIAL_EXTENT = 16  # shorter reductions are not worth lanes
DECIDED_BLOCK = 4096  # elements of which it is asked at a time whether any or all are true
LANE = position("l")


def lane_plan(r: Reduce) -> int:
    """How many lanes a reduction has, whose order is free (0: none, elements are taken one by one)."""
    if not r.axes or r.walk is not None or any(a.is_position for a in r.accumulators):
        return 0
    assert not any(a.kind in ("sum", "prod") and a.dtype.is_inexact for a in r.accumulators), "the order of these is NumPy's"
    extent = longest(r.axes[-1].extent)
    if (extent or SERIAL_EXTENT) < SERIAL_EXTENT or any(map(_in_order, r.accumulators)):
        return 0
    widest = max(as_wide(a.dtype) for a in r.accumulators)
    lanes = LANE_BYTES // widest
    while extent is not None and lanes > 4 and lanes * 4 > extent:
        lanes //= 2
    return lanes


def _in_order(a: Accumulator) -> bool:
    """Whether the order of the elements tells: which NaN stays, and what infinities become in a product."""
    return a.dtype.is_complex and a.kind in ("prod", "max", "min")


def as_wide(dtype: DType) -> int:
    """Bytes of a value as it is computed with."""
    return max(4, dtype.itemsize) if dtype.is_float else dtype.itemsize


def free_order(r: Reduce) -> tuple[Code, ...]:
    """A reduction whose order is free."""
    lanes = lane_plan(r)
    if not lanes:
        return nest(r.axes, (*steps(r), *r.stores), expressions((r,)))
    return _extremes(r) if _takes_twice(r) else _lanes(r, lanes)


def steps(r: Reduce) -> list[Code]:
    """What one element adds to each accumulator."""
    return [Assign(a.name, next_step(a, local(a.name, a.dtype), a.value)) for a in r.accumulators]


def single(r: Reduce) -> tuple[Code, ...]:
    """Every reduced size is 1."""
    found: list[Code] = []
    for a in r.accumulators:
        value = widened(a.value)
        if a.is_position:
            value = identity(a)
        elif a.kind == "sum" and a.dtype.is_inexact:
            value = step(a, local(a.name, a.dtype), a.value)  # 0.0 + -0.0 is 0.0
        found.append(Assign(a.name, value))
    return taken(r, [*found, *r.stores])


def taken(r: Reduce, body: Sequence[Code]) -> tuple[Code, ...]:
    """Statements for elements that are taken."""
    chosen = r.accumulators[0].chosen
    return tuple(body) if chosen is None else (If(chosen, tuple(body)),)


# -- lanes --------------------------------------------------------------------------------------------------------------


def lane_of(a: Accumulator, index: IntLike = LANE) -> Expr:
    return element(f"{a.name}_lane", index, computed_as(a.dtype))


def _lanes(r: Reduce, lanes: int) -> tuple[Code, ...]:
    """Independent lanes along the last axis: fast, and the same bits for any vector width."""
    *outer, axis = r.axes
    name = axis.symbol.name
    base, end = position(f"{name}_base"), position(f"{name}_end")
    body: list[Code] = [Let(f"{name}_end", end_of(axis))]
    for a in r.accumulators:
        body += declared_lanes(a, lanes)
    body += [Declare(f"{name}_base", None, axis.start), *_lane_steps(r, axis, lanes, end)]
    # gcc 12 miscompiles the rest where it knows how long it is: with AVX-512 it loses lanes of sums of 18 int64
    body += [Opaque(f"{name}_base"), _lane_step(r, axis, as_int(end - base))]
    width = position("w")
    halves = [lanes_loop(width, _joined(a, step(a, lane_of(a), lane_of(a, LANE + width)))) for a in r.accumulators]
    body.append(Powers("w", lanes // 2, 1, tuple(halves)))
    for a in r.accumulators:
        total = lane_of(a, 0)
        body.append(Assign(a.name, step(a, local(a.name, a.dtype), total) if outer else total))
    return nest(outer, (Block(tuple(body)),), within=(axis,))


def declared_lanes(a: Accumulator, lanes: int, aligned: bool = False) -> list[Code]:
    array = Declare(f"{a.name}_lane", computed_as(a.dtype), size=lanes, aligned=aligned)
    return [array, lanes_loop(IntExpr.of(lanes), _joined(a, identity(a)))]


def _joined(a: Accumulator, value: Expr) -> Assign:
    return Assign(f"{a.name}_lane", value, LANE)


def _lane_steps(r: Reduce, axis: Axis, lanes: int, end: IntExpr, may_stop: bool = True) -> tuple[Code, ...]:
    """Whole steps of all lanes."""
    name = axis.symbol.name
    base = position(f"{name}_base")
    may_stop = may_stop and not is_at_most(axis.extent, UNSTOPPED_EXTENT)
    limit = position(f"{name}_next") if may_stop else end
    further = Assign(f"{name}_base", base + lanes)
    loop = While(compare("le", base + lanes, limit), (_lane_step(r, axis, IntExpr.of(lanes)), further))
    if not may_stop:
        return (loop,)
    part = Safepoint(), Let(f"{name}_next", at_most(end, base, UNSTOPPED_EXTENT)), loop
    return (While(compare("le", base + lanes, end), part),)


def _lane_step(r: Reduce, axis: Axis, count: IntExpr | Expr) -> Code:
    name = axis.symbol.name
    taken_up = [_joined(a, next_step(a, lane_of(a), a.value)) for a in r.accumulators]
    return lanes_loop(count, Let(name, position(f"{name}_base") + LANE), *taken_up, *r.stores)


# -- extremes -----------------------------------------------------------------------------------------------------------


def _takes_twice(r: Reduce) -> bool:
    """Whether it makes no difference that elements are taken twice."""
    kinds = ("max", "min", "any", "all", "all_bits", "any_bits")
    return not r.stores and all(a.kind in kinds and not a.dtype.is_complex for a in r.accumulators)


def _decided(a: Accumulator) -> Expr:
    """The condition under which further elements change nothing."""
    total = local(a.name, a.dtype)
    return total if a.kind in ("any", "max", "any_bits") else expr.call("not", total)


def _extremes(r: Reduce) -> tuple[Code, ...]:
    """What may take elements twice; where each further element can change nothing, it ends with the block."""
    *outer, axis = r.axes
    name = axis.symbol.name
    first, end = position(f"{name}_at"), position(f"{name}_end")
    joined = [Assign(a.name, step(a, local(a.name, a.dtype), lane_of(a, 0))) for a in r.accumulators]
    body: list[Code] = [Let(f"{name}_end", end_of(axis))]
    if all(a.dtype.is_bool for a in r.accumulators):
        decided = _decided(r.accumulators[0])
        for a in r.accumulators[1:]:
            decided = expr.call("and", decided, _decided(a))
        part: list[Code] = [Let(f"{name}_stop", at_most(end, first, DECIDED_BLOCK))]
        part += [*extreme_lanes(r.accumulators, axis, first, position(f"{name}_stop"), may_stop=False), *joined]
        part += [If(decided, (Break(),)), *([] if is_at_most(axis.extent, UNSTOPPED_EXTENT) else [Safepoint()])]
        body.append(For(f"{name}_at", axis.start, end, tuple(part), step=DECIDED_BLOCK))
    else:
        body += [*extreme_lanes(r.accumulators, axis, axis.start, end, may_stop=True), *joined]
    return nest(outer, (Block(tuple(body)),), within=(axis,))


def extreme_lanes(
    extremes: Sequence[Accumulator], axis: Axis, start: IntExpr, end: IntExpr, may_stop: bool
) -> list[Code]:
    """The extremes between two places, in the first lanes.  The last elements are taken twice: it makes no difference."""
    name = axis.symbol.name
    r = Reduce((axis,), tuple(extremes))
    lanes = lane_plan(r)
    found: list[Code] = []
    for a in extremes:
        found += declared_lanes(a, lanes, aligned=True)
    last = Assign(f"{name}_base", end - lanes), _lane_step(r, axis, IntExpr.of(lanes))
    whole: list[Code] = [Declare(f"{name}_base", None, start), *_lane_steps(r, axis, lanes, end, may_stop)]
    whole.append(If(compare("lt", position(f"{name}_base"), end), last))
    width = lanes // 2
    while width:  # unroll: else gcc writes it out before it vectorises
        for a in extremes:
            joined = _joined(a, next_step(a, lane_of(a), lane_of(a, LANE + width)))
            whole.append(replace(lanes_loop(IntExpr.of(width), joined), unroll=1))
        width //= 2
    alone = [Assign(f"{a.name}_lane", next_step(a, lane_of(a, 0), a.value), ZERO) for a in extremes]
    found.append(If(compare("ge", end - start, lanes), tuple(whole), (For(name, start, end, tuple(alone)),)))
    return found
