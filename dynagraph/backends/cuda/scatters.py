"""Print ordered scatters in CUDA C: one thread for all updates, or an owner for each place.

An owner walks through all updates of its places in order: what comes of them is what one loop gives, whatever combines them.
The threads of a block look at neighbouring updates at a time and list those whose owners are in the block, in order; then each goes
through the list.  All blocks look at all updates, whose places are few bytes and are read from the cache; or, where updates have
been sorted into buckets of places, each block looks at those of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.backends.cuda.kernels import (
    LANE,
    THREAD,
    THREAD_INDEX,
    ZERO,
    KernelPrinter,
    decode,
    divided_up,
    nested_loops,
    plain,
    threads_over,
)
from dynagraph.backends.cuda.schedule import BLOCK, WARP, Ordered, Owned, Sorting, n_iterations
from dynagraph.ir import expr
from dynagraph.ir.accumulation import computed_as, widened
from dynagraph.ir.dtypes import DType, bool_, int32, int64, uint16, uint32
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr, IntLike, apply
from dynagraph.ir.loops import Axis, Buckets, Loop, Sort, Store, map_expr
from dynagraph.ir.statements import (
    Assign,
    AxisKind,
    Barrier,
    Block,
    Call,
    Code,
    Declare,
    For,
    If,
    Let,
    as_int,
    compare,
    element,
    position,
    value_of,
    where,
)

LOOKED_AT = 4  # updates that a thread looks at between two barriers
WAITING = 2 * BLOCK  # the list is gone through once more than these are on it
LISTED = WAITING + LOOKED_AT * BLOCK  # are at most
AHEAD = 4  # updates whose memory an owner loads at a time
WARPS = BLOCK // WARP
FALSE, TRUE = (expr.const(value, bool_) for value in (False, True))
K, J, N, FIRST, ITEM, AT, TURN, OWNERS, WHICH = map(
    position, ("k", "j", "n", "first", "item", "at", "turn", "owners", "warp")
)
SYNC = Barrier(AxisKind.BLOCK)


def ballot(test: Expr) -> Expr:
    """A bit for each thread of the warp: whether the test holds there."""
    return Expr("ballot", (test,), uint32)


def popcount(bits: Expr) -> Expr:
    return Expr("popcount", (bits,), int32)


def below(bits: Expr) -> Expr:
    """How many threads before this one have their bit set."""
    return popcount(Expr("bits_below", (bits, value_of(LANE)), uint32))


def has_bit(bits: Expr, which: IntExpr) -> Expr:
    return Expr("has_bit", (bits, value_of(which)), bool_)


def unrolled(name: str, count: IntLike, *body: Code) -> For:
    return For(name, ZERO, IntExpr.of(count), body, AxisKind.UNROLLED)


class OrderedPrinter(KernelPrinter[Ordered]):
    """All updates by one thread for each iteration of the outer axes."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), *((BLOCK, BLOCK) if self.kernel.axes else (1, 1))

    def described(self) -> str:
        return f"{'a thread for an element' if self.kernel.axes else 'one thread'}, in order"

    def code(self) -> tuple[Code, ...]:
        axes = self.kernel.axes
        found: list[Code] = []
        for s in self.kernel.body:
            assert isinstance(s, Loop), "what is stored in order stands in a loop"
            found.append(Block(nested_loops(s.axes, plain(s.body))))
        return threads_over(axes, n_iterations(axes), found) if axes else tuple(found)


@dataclass(frozen=True)
class Walk:
    """What owners do with updates, one after the other: `store`, for whose place and for what stands there they have variables.

    `place` is where an update goes, `there` the element that it is combined with, if any, and `value` what does not depend on that,
    if it is known before.
    """

    axes: tuple[Axis, ...]
    store: Store
    place: Expr
    there: Expr | None
    value: Expr | None
    buckets: Buckets | None

    def element_at(self, place: str) -> Expr:
        """What stands at a place, whose variable has the name."""
        return expr.load(self.store.buffer, self.store.index + position(place), self.store.value.dtype)


class OwnedPrinter(KernelPrinter[Owned]):
    """Threads for the places of each iteration of the outer axes."""

    def units(self) -> tuple[IntExpr, int, int]:
        return self._tiles() * self.plan.blocks, 1, BLOCK

    def described(self) -> str:
        owners = self.plan.blocks * self._lanes()
        return f"{owners} owners of places, in order" + (f", {self.plan.columns} columns for a block" if self.kernel.axes else "")

    def _lanes(self) -> int:
        """Owners of a block, in each column."""
        return BLOCK // self.plan.columns

    def _tiles(self) -> IntExpr:
        return divided_up(n_iterations(self.kernel.axes), self.plan.columns)

    def code(self) -> tuple[Code, ...]:
        walk, axes = self._walk(), self.kernel.axes
        columns, tiles, unit = self.plan.columns, position("tiles"), position("unit")
        found: list[Code] = [Let("owners", unit // tiles)]
        if axes:
            found.append(Let("tile", unit - OWNERS * tiles))
            found.append(Let("column", position("tile") * columns + THREAD % columns))
            found += decode("column", axes)
        tests = [compare("lt", position("column"), n_iterations(axes))] if axes else []
        bounds, begin = self._bounds(walk)
        found += [*bounds, Declare("mine", int32, as_int(THREAD // columns))]
        found += [Declare(name, int32, expr.const(0, int32)) for name in ("listed", "turn")]
        if walk.there is not None:
            there = computed_as(walk.there.dtype)
            found += [Declare("some", bool_, FALSE), Declare("place", int64, expr.const(0, int64))]
            found.append(Declare("there", there, expr.const(0, there)))
        is_full = compare("gt", position("listed"), WAITING)
        is_last = compare("ge", FIRST + LOOKED_AT * BLOCK, N)
        gone_through = SYNC, *where(tests, self._go_through(walk)), Assign("listed", ZERO), SYNC
        turn = *self._look(walk), *self._list(walk), If(expr.call("or", is_full, is_last), gone_through)
        found.append(For("first", begin, N, turn, step=LOOKED_AT * BLOCK))
        if walk.there is not None:
            found += where([*tests, var("some", bool_)], [_given_back(walk)])
        units = For("unit", ZERO, tiles * self.plan.blocks, tuple(found), AxisKind.BLOCK)
        return *self._declared(walk), Let("tiles", self._tiles()), units

    def _walk(self) -> Walk:
        (loop,) = self.kernel.body
        assert isinstance(loop, Loop)
        (store,) = loop.body
        assert isinstance(store, Store) and store.place is not None
        found = [e for e in store.value.walk() if e.op == "gather" and e.value == store.buffer]
        assert len(found) <= 1, "an update is combined with what is at its place, and with nothing else there"
        there = found[0] if found else None
        value = _independent(store.value, there)
        names = {store.place: var("place", store.place.dtype)}
        if there is not None:
            names[there] = var("there", there.dtype)
        if value is not None:
            names[value] = var("value", value.dtype)
        named = Store(store.buffer, store.index, map_expr(store.value, names, _itself), names[store.place])
        return Walk(loop.axes, named, store.place, there, value, loop.sorted_by)

    def _declared(self, walk: Walk) -> list[Code]:
        listed = self._listed_value(walk)
        kind = None if listed is None else computed_as(listed.dtype)
        arrays: list[tuple[str, DType | None, int]] = [("of_place", int64, LISTED), ("of_owner", uint16, LISTED)]
        arrays += [("of_update", kind, LISTED), ("of_warp", int32, 2 * LOOKED_AT * WARPS)]
        return [*(Declare(name, dtype, size=size, shared=True) for name, dtype, size in arrays), *_lane_and_warp()]

    def _bounds(self, walk: Walk) -> tuple[list[Code], IntExpr]:
        """Where the updates of a block begin, and statements that say where they end."""
        if walk.buckets is None:
            return [Let("n", n_iterations(walk.axes))], ZERO
        b, parts, begin = walk.buckets, position("parts"), position("begin")
        ends = self.program.buffers[b.ends].dtype
        found: list[Code] = [Let("parts", b.parts), Declare("begin", None, ZERO), Declare("n", None, ZERO)]
        end = Assign("n", element(b.ends, (OWNERS + 1) * parts - 1, ends))
        start = If(compare("gt", OWNERS, 0), (Assign("begin", element(b.ends, OWNERS * parts - 1, ends)),))
        return [*found, If(compare("gt", parts, 0), (start, end))], begin

    def _looked_at(self, walk: Walk) -> Declare:
        """The k-th update that a thread looks at, if there is one."""
        number = FIRST + K * BLOCK + THREAD_INDEX
        if walk.buckets is None:
            return Declare("item", None, number)
        name = walk.buckets.numbers
        return Declare("item", None, element(name, number, self.program.buffers[name].dtype))

    def _listed_value(self, walk: Walk) -> Expr | None:
        """What is listed of an update: its value, where that is the same for all columns, or its number (None)."""
        return None if self.kernel.axes else walk.value

    def _look(self, walk: Walk) -> tuple[Code, ...]:
        """Each thread's updates, where they go, and how many of each warp's have an owner here."""
        lanes, owner = self._lanes(), element("owner", K, int32)
        owned = expr.call("sub", var("owner_of", int32), expr.cast(value_of(OWNERS * lanes), int32))
        found = (
            self._looked_at(walk),
            *decode("item", walk.axes),
            Assign("to", walk.place, K),
            Call("dg_owner", (element("to", K, int64), IntExpr.of(self.plan.blocks * lanes)), "owner_of", int32),
            Assign("owner", owned, K),
        )
        is_here = expr.call("and", *(
            expr.call(op, owner, expr.const(bound, int32)) for op, bound in (("ge", 0), ("lt", lanes))
        ))  # fmt: skip
        counted = Assign("of_warp", popcount(element("here", K, uint32)), _of_warp(WHICH))
        look = unrolled(
            "k",
            LOOKED_AT,
            Assign("owner", expr.const(-1, int32), K),
            If(compare("lt", FIRST + K * BLOCK + THREAD_INDEX, N), found),
            Assign("here", ballot(is_here), K),
            If(compare("eq", LANE, 0), (counted,)),
        )
        arrays = [Declare(name, dtype, size=LOOKED_AT) for name, dtype in (("to", int64), ("owner", int32), ("here", uint32))]
        return *arrays, look, SYNC

    def _list(self, walk: Walk) -> tuple[Code, ...]:
        """Those that have an owner here, in order."""
        here, listed, at = element("here", K, uint32), var("listed", int32), var("at", int32)
        is_mine = compare("eq", position("w"), WHICH)
        counted = expr.call("add", listed, element("of_warp", _of_warp(position("w")), int32))
        chosen = Assign("at", expr.call("select", is_mine, listed, at)), Assign("listed", counted)
        entry: list[Code] = [
            Assign("at", expr.call("add", at, below(here))),
            Assign("of_place", element("to", K, int64), AT),
            Assign("of_owner", expr.cast(element("owner", K, int32), uint16), AT),
            self._looked_at(walk),
        ]
        value = self._listed_value(walk)
        if value is not None:
            entry += decode("item", walk.axes)
        entry.append(Assign("of_update", ITEM if value is None else widened(value), AT))
        each = Declare("at", int32, listed), For("w", ZERO, IntExpr.of(WARPS), chosen), If(has_bit(here, LANE), tuple(entry))
        return unrolled("k", LOOKED_AT, *each), Assign("turn", 1 - TURN)

    def _go_through(self, walk: Walk) -> tuple[Code, ...]:
        """Each owner's updates of the list."""
        listed = position("listed")
        if walk.there is not None:
            return (For("k", ZERO, listed, (*self._load_ahead(walk, walk.there), *self._combine(walk, walk.there)), step=AHEAD),)
        place = Declare("place", int64, element("of_place", K, int64))
        body = place, *self._value_of(walk, K, "value"), walk.store
        return (For("k", ZERO, listed, (If(_is_mine(K), body),), unroll=AHEAD),)

    def _value_of(self, walk: Walk, k: IntExpr, target: str, index: IntExpr | None = None) -> list[Code]:
        """Statements that find the value of an update, if it is known before."""
        if walk.value is None:
            return []
        dtype, found, value = computed_as(walk.value.dtype), [], widened(walk.value)
        if self._listed_value(walk) is not None:
            value = element("of_update", k, dtype)
        else:
            found = self._decoded(walk, k)
        return [*found, Declare(target, dtype, value) if index is None else Assign(target, value, index)]

    def _decoded(self, walk: Walk, k: IntExpr) -> list[Code]:
        return [Declare("item", None, element("of_update", k, int64)), *decode("item", walk.axes)]

    def _load_ahead(self, walk: Walk, there: Expr) -> list[Code]:
        """What the next few updates of an owner need of memory, at a time."""
        arrays = [("own", bool_), ("at", int64), ("seen", computed_as(there.dtype))]
        arrays += [] if walk.value is None else [("values", computed_as(walk.value.dtype))]
        own = element("own", J, bool_)
        loaded = (
            Declare("place_of", int64, element("of_place", K + J, int64)),
            Assign("at", var("place_of", int64), J),
            Assign("seen", widened(walk.element_at("place_of")), J),
            *self._value_of(walk, K + J, "values", J),
        )
        each = (
            Assign("own", compare("lt", K + J, position("listed")), J),
            If(own, (Assign("own", _is_mine(K + J), J),)),
            If(own, loaded),
        )
        return [*(Declare(name, dtype, size=AHEAD) for name, dtype in arrays), unrolled("j", AHEAD, *each)]

    def _combine(self, walk: Walk, there: Expr) -> tuple[Code, ...]:
        """In order; a place that has become another meanwhile is loaded anew."""
        place, held, some = var("place", int64), var("held", int64), var("some", bool_)
        at, i, stale = element("at", J, int64), position("i"), var("stale", bool_)
        is_stale = expr.call("and", var("holds", bool_), expr.call("eq", at, held))
        is_other = expr.call("or", stale, expr.call("eq", element("at", i, int64), at))
        before = unrolled("i", J, If(element("own", i, bool_), (Assign("stale", is_other),)))
        seen = element("seen", J, computed_as(there.dtype))
        moved = (
            Declare("stale", bool_, is_stale),
            before,
            If(some, (_given_back(walk),)),
            Assign("some", TRUE),
            Assign("place", at),
            If(stale, (Assign("there", widened(walk.element_at("place"))),), (Assign("there", seen),)),
        )
        if walk.value is None:
            value = self._decoded(walk, K + J)
        else:
            dtype = computed_as(walk.value.dtype)
            value = [Declare("value", dtype, element("values", J, dtype))]
        is_elsewhere = expr.call("or", expr.call("not", some), expr.call("ne", at, place))
        update = If(is_elsewhere, moved), *value, Assign("there", widened(walk.store.value))
        each = unrolled("j", AHEAD, If(element("own", J, bool_), update))
        return Declare("held", int64, place), Declare("holds", bool_, some), each


def _is_mine(k: IntExpr) -> Expr:
    """Whether the k-th update of the list is this thread's."""
    return expr.call("eq", expr.cast(element("of_owner", k, uint16), int32), var("mine", int32))


def _of_warp(warp: IntExpr) -> IntExpr:
    """Where the number of a warp's updates of the k-th kind is: one half is written to while the other may yet be read."""
    return (TURN * LOOKED_AT + K) * WARPS + warp


def _lane_and_warp() -> list[Code]:
    return [Declare("lane", int32, as_int(THREAD % WARP)), Declare("warp", int32, as_int(THREAD // WARP))]


def _given_back(walk: Walk) -> Store:
    """What a place has become."""
    return Store(walk.store.buffer, walk.store.index, var("there", walk.store.value.dtype), var("place", int64))


class SortPrinter(KernelPrinter[Sorting]):
    """A warp for each part, whose lanes look at neighbours: those before a lane that have its bucket are told by votes."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), 1, WARP

    def described(self) -> str:
        return "a warp for a part"

    def code(self) -> tuple[Code, ...]:
        (s,) = self.kernel.body
        assert isinstance(s, Sort)
        b, (axis,) = s.buckets, self.kernel.axes
        part, end, sync = position(axis.symbol.name), position("end"), Barrier(AxisKind.WARP)
        cell, ends = position("cell"), self.program.buffers[b.ends].dtype
        begin = (
            Let("cell", position("b") * position("parts") + part),
            Assign("next", ZERO, position("b")),
            If(compare("gt", cell, 0), (Assign("next", element(b.ends, cell - 1, ends), position("b")),)),
        )
        found: tuple[Code, ...] = (
            For("b", LANE, IntExpr.of(b.n), begin, AxisKind.WARP, step=WARP),
            sync,
            Let("end", apply("min", N - part * b.part, IntExpr.of(b.part)) + part * b.part),
            For("first", part * b.part, end, (*self._look(s), self._put(s)), step=AHEAD * WARP),
        )
        return (
            Declare("next", None, size=b.n, shared=True),
            Declare("lane", int32, as_int(THREAD)),
            Let("n", n_iterations(s.axes)),
            Let("parts", b.parts),
            For(axis.symbol.name, ZERO, position("parts"), found, AxisKind.BLOCK),
        )

    def _look(self, s: Sort) -> tuple[Code, ...]:
        """The buckets of the updates that a thread looks at at a time; -1 where there is none."""
        key = *decode("item", s.axes), Assign("bucket", expr.cast(s.key, int32), K)
        each = (
            Let("item", FIRST + K * WARP + LANE),
            Assign("bucket", expr.const(-1, int32), K),
            If(compare("lt", ITEM, position("end")), key),
        )
        return Declare("bucket", int32, size=AHEAD), unrolled("k", AHEAD, *each)

    def _put(self, s: Sort) -> Code:
        """Each update's number goes after those of its bucket."""
        b, bucket, same, ones = s.buckets, position("own"), var("same", uint32), var("ones", uint32)
        own, before = var("own", int32), position("before")
        is_one = has_bit(own, position("bit"))
        others = expr.call("xor", ones, expr.const(2**32 - 1, uint32))
        agree = expr.call("and", same, expr.call("select", is_one, ones, others))
        vote = Declare("ones", uint32, ballot(is_one)), Assign("same", agree)
        is_some = compare("ge", bucket, 0)
        following = element("next", bucket, int64)
        number = expr.call("add", following, expr.cast(var("before", int32), int64))
        to = Store(b.numbers, ZERO, _index(FIRST + K * WARP + LANE, self.program.buffers[b.numbers].dtype), number)
        grown = Assign("next", expr.call("add", following, expr.cast(popcount(same), int64)), bucket)
        return unrolled(
            "k",
            AHEAD,
            Declare("own", int32, element("bucket", K, int32)),
            Declare("same", uint32, ballot(is_some)),
            unrolled("bit", (b.n - 1).bit_length(), *vote),
            Declare("before", int32, below(same)),
            If(is_some, (to,)),
            Barrier(AxisKind.WARP),
            If(expr.call("and", is_some, compare("eq", before, 0)), (grown,)),
            Barrier(AxisKind.WARP),
        )


def _index(e: IntExpr, dtype: DType) -> Expr:
    """A position as a value in memory."""
    return expr.cast(value_of(e), dtype)


def _independent(value: Expr, there: Expr | None) -> Expr | None:
    """The one operand of an update that does not depend on what is there: all of it, where nothing does."""
    if there is None:
        return value
    others = [arg for arg in value.args if there not in arg.walk()]
    return others[0] if len(value.args) == 2 and value.args[0] == there and len(others) == 1 else None


def _itself(leaf: Expr) -> Expr:
    return leaf


__all__ = ["OrderedPrinter", "OwnedPrinter", "SortPrinter"]
