"""Loop nests for cores: short loops in the form that gcc vectorises, long ones in parts between which a signal stops them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dynagraph.backends.c.merge_functions import longest
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, apply
from dynagraph.ir.loops import Axis
from dynagraph.ir.statements import AxisKind, Block, Code, For, Let, Safepoint, Value, position

MOST_UNROLLED = 16  # turns of a loop that gcc writes out
UNSTOPPED_EXTENT = 65536  # turns of a loop that are done before anybody looks for signals
ZERO = IntExpr.of(0)


def end_of(axis: Axis) -> IntExpr:
    return axis.start + axis.extent


def at_most(limit: IntExpr, first: IntExpr, size: int) -> IntExpr:
    """The end of what begins at `first` and has `size` elements, where `limit` is not before it."""
    return first + apply("min", limit - first, IntExpr.of(size))


def is_at_most(extent: IntExpr, bound: int) -> bool:
    """Whether it is known not to be longer."""
    known = longest(extent)
    return known is not None and known <= bound


def lanes_loop(count: Value, *body: Code) -> For:
    """A loop of independent turns, which becomes vectors."""
    return For("l", ZERO, count, body, AxisKind.LANE)


def short_loop(axis: Axis, body: Sequence[Code], values: Iterable[Expr] = (), hoist: bool = False) -> tuple[Code, ...]:
    """A loop over an axis, which may be of a few elements.

    gcc 12 makes wrong code for AVX2 where it writes such a loop out, in another one, and vectorises loads that happen only
    where a condition holds.
    """
    name, end = axis.symbol.name, end_of(axis)
    few = (axis.extent.constant or MOST_UNROLLED + 1) <= MOST_UNROLLED
    unroll = 1 if few and any(e.op == "choose" for v in values for e in v.walk()) else None
    if axis.extent.constant is not None:
        return (For(name, axis.start, end, tuple(body), unroll=unroll, hoist=hoist),)
    loop = For(name, axis.start, position(f"{name}_end"), tuple(body), unroll=unroll, hoist=hoist)
    return Let(f"{name}_end", end), loop


def nest(
    axes: Sequence[Axis], body: Sequence[Code], values: Iterable[Expr] = (), within: Sequence[Axis] = (), each: int = 1
) -> tuple[Code, ...]:
    """Loops over axes, each long one in parts between which it may stop.

    The body has loops over the axes `within`, in each turn of which `each` values are computed.
    """
    values = list(values)
    turns = max(1, UNSTOPPED_EXTENT // each)
    for axis in within:
        turns = max(1, turns // max(1, longest(axis.extent) or 1))
    for axis in reversed(axes):
        body = (Block(_stopping(axis, body, turns, values)),)
        turns = max(1, turns // max(1, longest(axis.extent) or 1))
    return tuple(body)


def _stopping(axis: Axis, body: Sequence[Code], turns: int, values: Sequence[Expr]) -> tuple[Code, ...]:
    if is_at_most(axis.extent, turns):
        return short_loop(axis, body, values)
    name = axis.symbol.name
    first, last, following = (position(f"{name}_{which}") for which in ("first", "last", "next"))
    inner = For(name, first, following, tuple(body))
    part = Safepoint(), Let(f"{name}_next", at_most(last, first, turns)), inner
    return Let(f"{name}_last", end_of(axis)), For(f"{name}_first", axis.start, last, part, step=turns)
