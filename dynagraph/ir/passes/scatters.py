"""Parallel scatters: in any order if that changes nothing, else in order for each place.

Called by `lower`.  Which way is taken:

- integers and bools whose combinations are the same in any order: each update by itself, in one atomic step;
- stores of many updates: first the last update of each place is found, by the greatest of their numbers, then only that one stores;
- all else: a `Loop` over the updates in order, below the axes that are not indexed: whoever owns a place walks along it.  Many
  updates are sorted first, into buckets of places: to count those of each bucket, in each part of the updates, gives where in the
  sorted list they begin; then the parts are gone through at a time, each in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynagraph.ir import dtypes, expr
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, Axis, Buckets, Buffer, Kernel, Loop, ScanLoop, Sort, Store

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: its multiples are spread evenly


@dataclass(frozen=True)
class Processors:
    """What a target of many processors wants of scatters.

    Stores of at least `claims` updates, to at most `places` times as many places, are done by claims; other scatters of at least
    `sorts` updates are sorted into `buckets`, in parts of `part` updates.  `any_order`: floats may be added in whatever order.
    """

    claims: int
    places: int
    sorts: int
    buckets: int
    part: int
    any_order: bool = False


@dataclass(frozen=True)
class Scattering:
    """One scatter: ``store`` in a loop over `axes`, in order.

    `there` is the element that the store's value is combined with, if any.  `spot` is the number of the place, below `n_spots`, of
    which there are about `spots_hint`.
    """

    name: str
    comment: str
    axes: tuple[Axis, ...]
    store: Store
    there: Expr | None
    spot: Expr
    n_spots: IntExpr
    spots_hint: int


def scatter_kernels(s: Scattering, target: Processors) -> tuple[list[Kernel], list[Buffer]]:
    """The kernels of a scatter, none where there is no place, and the temporaries between them.

    Leaves: stores that stand in a `Loop` are done in its order at each place; iterations of kernels' axes are independent.
    """
    if s.n_spots == 0:  # a check refuses what would be stored
        return [], []
    updates = tuple(a for a in s.axes if not _is_kept(a, s.store))
    atomic = _atomic(s, target)
    if atomic is not None or not updates:
        return [Kernel(s.name, s.axes, (atomic or s.store,), s.comment)], []
    n = 1
    for axis in updates:
        n *= axis.hint
    if s.there is None and n >= target.claims and s.spots_hint <= target.places * n:
        return _by_claims(s, updates)
    kept = tuple(a for a in s.axes if _is_kept(a, s.store))
    if n >= target.sorts:
        return _sorted(s, updates, kept, target)
    return [Kernel(s.name, kept, (Loop(updates, (s.store,)),), s.comment)], []


def _is_kept(axis: Axis, store: Store) -> bool:
    """Whether each iteration of an axis stores elsewhere: it runs along a dimension that is not indexed."""
    return axis.symbol in store.index.symbols()


# -- in any order ---------------------------------------------------------------------------------------------------------------


def _atomic(s: Scattering, target: Processors) -> Store | None:
    value, there = s.store.value, s.there
    if there is None or len(value.args) != 2 or value.args[0] != there or there in value.args[1].walk():
        return None
    function, update = value.op, value.args[1]
    if function == "sub":  # x - y is x + -y, also where integers wrap
        function, update = "add", _negative(update)
    if not FUNCTIONS[function].atomic or not (_is_exact(update.dtype) or (target.any_order and _may_round(function, update.dtype))):
        return None
    return Store(s.store.buffer, s.store.index, update, s.store.place, atomic=function)


def _negative(e: Expr) -> Expr:
    return expr.call("sub", expr.const(0, e.dtype), e) if e.dtype.is_integer else expr.call("neg", e)


def _is_exact(dtype: DType) -> bool:
    return dtype.is_integer or dtype.is_bool


def _may_round(function: str, dtype: DType) -> bool:
    """Processors add floats in one step, but no halves; of complex numbers the parts."""
    return function == "add" and not dtype.is_half


# -- the last one at each place -------------------------------------------------------------------------------------------------


def _by_claims(s: Scattering, updates: Sequence[Axis]) -> tuple[list[Kernel], list[Buffer]]:
    claims = Buffer(f"t_{s.name}_last", dtypes.int64, s.n_spots, "temp")
    number = expr.index(_number(updates))
    claim = Store(claims.name, IntExpr.of(0), number, s.spot, atomic="maximum")
    is_last = expr.call("eq", expr.gather(claims.name, s.spot, dtypes.int64), number)
    last = Store(s.store.buffer, s.store.index, s.store.value, s.store.place, where=is_last)
    kernels = [
        _filled(f"{s.name}_none", claims, s.spots_hint, -1, f"no update yet of {s.comment}"),
        Kernel(f"{s.name}_last", tuple(updates), (claim,), f"the last update at each place of {s.comment}"),
        Kernel(s.name, s.axes, (last,), s.comment),
    ]
    return kernels, [claims]


def _filled(name: str, buffer: Buffer, hint: int, value: int, comment: str) -> Kernel:
    axis, here = _axis("p", buffer.size, hint)
    return Kernel(name, (axis,), (Store(buffer.name, here, expr.const(value, buffer.dtype)),), comment)


def _axis(name: str, extent: IntExpr, hint: int) -> tuple[Axis, IntExpr]:
    variable = IntExpr.symbol(name, 0, extent - 1)
    (symbol,) = variable.symbols()
    return Axis(symbol, extent, hint), variable  # type: ignore[arg-type]


def _number(axes: Sequence[Axis]) -> IntExpr:
    """Iterations of a nest of loops, counted in order."""
    number = IntExpr.of(0)
    for axis in axes:
        number = number * axis.extent + IntExpr({(axis.symbol,): 1})
    return number


# -- in order, many ---------------------------------------------------------------------------------------------------------------


def _sorted(
    s: Scattering, updates: tuple[Axis, ...], kept: tuple[Axis, ...], target: Processors
) -> tuple[list[Kernel], list[Buffer]]:
    """A stable counting sort of the updates by the buckets of their places, then each bucket's in order."""
    n, hint = IntExpr.of(1), 1
    for axis in updates:
        n, hint = n * axis.extent, hint * axis.hint
    parts, parts_hint = (n + (target.part - 1)) // target.part, -(-hint // target.part)
    counts = Buffer(f"t_{s.name}_ends", dtypes.int64, parts * target.buckets, "temp")
    numbers = Buffer(f"t_{s.name}_numbers", dtypes.int64, n, "temp")
    buckets = Buckets(target.buckets, target.part, parts, counts.name, numbers.name)
    assert s.store.place is not None
    key = bucket(s.store.place, target.buckets)
    row = expr.call("mul", key, expr.index(parts))
    count = Store(counts.name, _number(updates) // target.part, expr.const(1, dtypes.int64), row, atomic="add")
    every, here = _axis("c", counts.size, target.buckets * parts_hint)
    total = Accumulator(f"r_{s.name}", "sum", dtypes.int64, expr.load(counts.name, here, dtypes.int64))
    ends = ScanLoop(every, total, (Store(counts.name, here, expr.var(total.name, dtypes.int64)),))
    part, _ = _axis("part", parts, parts_hint)
    kernels = [
        _filled(f"{s.name}_zeros", counts, every.hint, 0, f"no update counted yet of {s.comment}"),
        Kernel(f"{s.name}_counts", updates, (count,), f"how many updates each bucket of places has of {s.comment}"),
        Kernel(f"{s.name}_ends", (), (ends,), f"where the updates of each bucket end of {s.comment}"),
        Kernel(f"{s.name}_sort", (part,), (Sort(updates, key, buckets),), f"updates by buckets of places of {s.comment}"),
        Kernel(s.name, kept, (Loop(updates, (s.store,), buckets),), s.comment),
    ]
    return kernels, [counts, numbers]


def bucket(place: Expr, n: int) -> Expr:
    """Which of n buckets a place has: no bucket has many more places than another one, wherever they lie."""

    def number(value: int) -> Expr:
        return expr.const(value, dtypes.uint64)

    mixed = expr.call("shr", expr.call("mul", expr.cast(place, dtypes.uint64), number(GOLDEN)), number(32))
    return expr.cast(expr.call("shr", expr.call("mul", mixed, number(n)), number(32)), dtypes.int64)


__all__ = ["Processors", "Scattering", "bucket", "scatter_kernels"]
