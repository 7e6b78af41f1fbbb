"""Kernels that store at computed places in an order that tells: a thread for all updates, or an owner for each place.

An owner walks through all updates of its places in order: what comes of them is what one loop gives, whatever combines them.
The threads of a block look at neighbouring updates at a time and list those whose owners are in the block, in order; then each goes
through the list.  All blocks look at all updates, whose places are few bytes and are read from the cache; or, where updates have
been sorted into buckets of places, each block looks at those of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.backends.cstyle import Scope
from dynagraph.backends.cuda.kernels import KernelPrinter, divided_up
from dynagraph.backends.cuda.schedule import BLOCK, WARP, Ordered, Owned, Sorting, n_iterations
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis, Buckets, Define, Loop, Sort, Store, map_expr

LOOKED_AT = 4  # updates that a thread looks at between two barriers
WAITING = 2 * BLOCK  # the list is gone through once more than these are on it
LISTED = WAITING + LOOKED_AT * BLOCK  # are at most
AHEAD = 4  # updates whose memory an owner loads at a time
WARPS = BLOCK // WARP


class OrderedPrinter(KernelPrinter[Ordered]):
    """All updates by one thread for each iteration of the outer axes."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), *((BLOCK, BLOCK) if self.kernel.axes else (1, 1))

    def described(self) -> str:
        return f"{'a thread for an element' if self.kernel.axes else 'one thread'}, in order"

    def body(self) -> None:
        axes = self.kernel.axes
        if axes:
            self.threads_over(self.c.integer(n_iterations(axes)))
            self.decode("item", axes)
        for s in self.kernel.body:
            assert isinstance(s, Loop), "what is stored in order stands in a loop"
            self.out.open("")
            for axis in s.axes:
                self.c.open_loop(axis)
            self.block([x for x in s.body if isinstance(x, (Define, Store))], Scope())
            for _ in s.axes:
                self.out.close()
            self.out.close()
        if axes:
            self.out.close()


@dataclass(frozen=True)
class Walk:
    """What owners do with updates, one behind the other: `store`, for whose place and for what stands there they have variables.

    `place` is where an update goes, `there` the element that it is combined with, if any, and `value` what does not depend on that,
    if it is known before.
    """

    axes: tuple[Axis, ...]
    store: Store
    place: Expr
    there: Expr | None
    value: Expr | None
    buckets: Buckets | None


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

    def body(self) -> None:
        walk = self._walk()
        columns, lanes, axes = self.plan.columns, self._lanes(), self.kernel.axes
        self._declare(walk)
        self.out.line(f"const dg_index tiles = {self.c.integer(self._tiles())};")
        self.blocks_over("unit", f"tiles * {self.plan.blocks}")
        self.out.line("const dg_index owners = unit / tiles;")
        if axes:
            self.out.line(f"const dg_index column = (unit - owners * tiles) * {columns} + threadIdx.x % {columns};")
            self.decode("column", axes)
        tests = [f"column < {self.c.integer(n_iterations(axes))}"] if axes else []
        begin = self._bounds(walk)
        self.out.line(f"const int mine = threadIdx.x / {columns};")
        self.out.line("int listed = 0, turn = 0;")
        if walk.there is not None:
            self.out.line("bool some = false;")
            self.out.line("int64_t place = 0;")
            self.out.line(f"{self.c.type(walk.there.dtype)} there = 0;")
        self.out.open(f"for (dg_index first = {begin}; first < n; first += {LOOKED_AT * BLOCK})")
        self._look(walk, lanes)
        self._list(walk)
        self.out.open(f"if (listed > {WAITING} || first + {LOOKED_AT * BLOCK} >= n)")
        self.out.line("__syncthreads();")
        with self.where(tests):
            self._go_through(walk)
        self.out.line("listed = 0;")
        self.out.line("__syncthreads();")
        self.out.close()
        self.out.close()
        if walk.there is not None:
            with self.where([*tests, "some"]):
                self.out.line(self._given_back(walk))
        self.out.close()

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

    def _declare(self, walk: Walk) -> None:
        self.out.line(f"__shared__ int64_t of_place[{LISTED}];")
        self.out.line(f"__shared__ unsigned short of_owner[{LISTED}];")
        listed = self._listed_value(walk)
        self.out.line(f"__shared__ {'dg_index' if listed is None else self.c.number_type(listed.dtype)} of_update[{LISTED}];")
        self.out.line(f"__shared__ int of_warp[2][{LOOKED_AT}][{WARPS}];")
        self.out.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")

    def _bounds(self, walk: Walk) -> str:
        """Where the updates of a block begin; a line says where they end."""
        if walk.buckets is None:
            self.out.line(f"const dg_index n = {self.c.integer(n_iterations(walk.axes))};")
            return "0"
        b = walk.buckets
        self.out.line(f"const dg_index parts = {self.c.integer(b.parts)};")
        self.out.line(f"const dg_index begin = owners && parts ? (dg_index){self.c.element(b.ends, 'owners * parts - 1')} : 0;")
        self.out.line(f"const dg_index n = parts ? (dg_index){self.c.element(b.ends, '(owners + 1) * parts - 1')} : 0;")
        return "begin"

    def _looked_at(self, walk: Walk) -> str:
        """The k-th update that a thread looks at, if there is one."""
        number = f"first + k * {BLOCK} + (dg_index)threadIdx.x"
        return number if walk.buckets is None else f"(dg_index){self.c.element(walk.buckets.numbers, number)}"

    def _listed_value(self, walk: Walk) -> Expr | None:
        """What is listed of an update: its value, where that is the same for all columns, or its number (None)."""
        return None if self.kernel.axes else walk.value

    def _look(self, walk: Walk, lanes: int) -> None:
        """Each thread's updates, where they go, and how many of each warp's have an owner here."""
        self.out.line(f"int64_t to[{LOOKED_AT}];")
        self.out.line(f"int owner[{LOOKED_AT}];")
        self.out.line(f"unsigned here[{LOOKED_AT}];")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = 0; k < {LOOKED_AT}; ++k)")
        self.out.line("owner[k] = -1;")
        self.out.open(f"if (first + k * {BLOCK} + (dg_index)threadIdx.x < n)")
        self.out.line(f"const dg_index item = {self._looked_at(walk)};")
        self.decode("item", walk.axes)
        (text,) = self.c.values([walk.place], Scope())
        self.out.line(f"to[k] = {text};")
        self.out.line(f"owner[k] = dg_owner(to[k], {self.plan.blocks * lanes}) - (int)owners * {lanes};")
        self.out.close()
        self.out.line(f"here[k] = __ballot_sync(0xffffffffu, owner[k] >= 0 && owner[k] < {lanes});")
        self.out.line("if (lane == 0) of_warp[turn][k][warp] = __popc(here[k]);")
        self.out.close()
        self.out.line("__syncthreads();")

    def _list(self, walk: Walk) -> None:
        """Those that have an owner here, in order."""
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = 0; k < {LOOKED_AT}; ++k)")
        self.out.line("int at = listed;")
        self.out.open(f"for (int w = 0; w < {WARPS}; ++w)")
        self.out.line("at = w == warp ? listed : at;")
        self.out.line("listed += of_warp[turn][k][w];")
        self.out.close()
        self.out.open("if (here[k] >> lane & 1)")
        self.out.line("at += __popc(here[k] & ((1u << lane) - 1));")
        self.out.line("of_place[at] = to[k];")
        self.out.line("of_owner[at] = (unsigned short)owner[k];")
        self.out.line(f"const dg_index item = {self._looked_at(walk)};")
        value = self._listed_value(walk)
        if value is None:
            self.out.line("of_update[at] = item;")
        else:
            self.decode("item", walk.axes)
            (text,) = self.c.values([value], Scope())
            self.out.line(f"of_update[at] = {text};")
        self.out.close()
        self.out.close()
        self.out.line("turn ^= 1;")

    def _go_through(self, walk: Walk) -> None:
        if walk.there is None:
            self.out.line(f"#pragma unroll {AHEAD}")
            self.out.open("for (int k = 0; k < listed; ++k)")
            self.out.line("if (of_owner[k] != mine) continue;")
            self.out.line("const int64_t place = of_place[k];")
            self._value_of(walk, "const {} value", "k")
            self.block([walk.store], Scope())
            self.out.close()
            return
        self.out.open(f"for (int k = 0; k < listed; k += {AHEAD})")
        self._load_ahead(walk, walk.there)
        self._combine(walk, walk.there)
        self.out.close()

    def _value_of(self, walk: Walk, target: str, k: str) -> None:
        """Lines that find the value of an update; `{}` stands for its type."""
        if walk.value is None:
            return
        target = target.format(self.c.type(walk.value.dtype))
        if self._listed_value(walk) is not None:
            self.out.line(f"{target} = of_update[{k}];")
            return
        self._decode_update(walk, k)
        (text,) = self.c.values([walk.value], Scope())
        self.out.line(f"{target} = {text};")

    def _decode_update(self, walk: Walk, k: str) -> None:
        self.out.line(f"const dg_index item = of_update[{k}];")
        self.decode("item", walk.axes)

    def _load_ahead(self, walk: Walk, there: Expr) -> None:
        """What the next few updates of an owner need of memory, at a time."""
        self.out.line(f"bool own[{AHEAD}];")
        self.out.line(f"int64_t at[{AHEAD}];")
        self.out.line(f"{self.c.type(there.dtype)} seen[{AHEAD}];")
        if walk.value is not None:
            self.out.line(f"{self.c.type(walk.value.dtype)} values[{AHEAD}];")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int j = 0; j < {AHEAD}; ++j)")
        self.out.line("own[j] = k + j < listed && of_owner[k + j] == mine;")
        self.out.open("if (own[j])")
        self.out.line("at[j] = of_place[k + j];")
        self.out.line(f"seen[j] = {self.c.loaded(self._element(walk, 'at[j]'), there.dtype)};")
        self._value_of(walk, "values[j]", "k + j")
        self.out.close()
        self.out.close()

    def _combine(self, walk: Walk, there: Expr) -> None:
        """In order; a place that has become another meanwhile is loaded anew."""
        self.out.line("const int64_t held = place;")
        self.out.line("const bool holds = some;")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int j = 0; j < {AHEAD}; ++j)")
        self.out.line("if (!own[j]) continue;")
        self.out.open("if (!some || at[j] != place)")
        self.out.line("bool stale = holds && at[j] == held;")
        self.out.line("#pragma unroll")
        self.out.line("for (int i = 0; i < j; ++i) stale |= own[i] && at[i] == at[j];")
        self.out.line("if (some)")
        self.out.line(f"    {self._given_back(walk)}")
        self.out.line("some = true;")
        self.out.line("place = at[j];")
        self.out.line(f"there = stale ? {self.c.loaded(self._element(walk, 'place'), there.dtype)} : seen[j];")
        self.out.close()
        if walk.value is not None:
            self.out.line(f"const {self.c.type(walk.value.dtype)} value = values[j];")
        else:
            self._decode_update(walk, "k + j")
        (text,) = self.c.values([walk.store.value], Scope())
        self.out.line(f"there = {text};")
        self.out.close()

    def _given_back(self, walk: Walk) -> str:
        """What a place has become."""
        return f"{self._element(walk, 'place')} = {self.c.stored('there', walk.store.value.dtype)};"

    def _element(self, walk: Walk, place: str) -> str:
        return self.c.element(walk.store.buffer, f"{self.c.integer(walk.store.index)} + {place}")


class SortPrinter(KernelPrinter[Sorting]):
    """A warp for each part, whose lanes look at neighbours: those before a lane that have its bucket are told by votes."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), 1, WARP

    def described(self) -> str:
        return "a warp for a part"

    def body(self) -> None:
        (s,) = self.kernel.body
        assert isinstance(s, Sort)
        b, (axis,) = s.buckets, self.kernel.axes
        part, at_a_time = axis.symbol.name, AHEAD * WARP
        self.out.line(f"__shared__ dg_index next[{b.n}];")
        self.out.line("const int lane = threadIdx.x;")
        self.out.line(f"const dg_index n = {self.c.integer(n_iterations(s.axes))}, parts = {self.c.integer(b.parts)};")
        self.blocks_over(part, "parts")
        self.out.open(f"for (int b = lane; b < {b.n}; b += {WARP})")
        self.out.line(f"const dg_index cell = b * parts + {part};")
        self.out.line(f"next[b] = cell ? (dg_index){self.c.element(b.ends, 'cell - 1')} : 0;")
        self.out.close()
        self.out.line("__syncwarp();")
        self.out.line(f"const dg_index end = n - {part} * {b.part} < {b.part} ? n : {part} * {b.part} + {b.part};")
        self.out.open(f"for (dg_index first = {part} * {b.part}; first < end; first += {at_a_time})")
        self.out.line(f"int bucket[{AHEAD}];")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = 0; k < {AHEAD}; ++k)")
        self.out.line(f"const dg_index item = first + k * {WARP} + lane;")
        self.out.line("bucket[k] = -1;")
        self.out.open("if (item < end)")
        self.decode("item", s.axes)
        (text,) = self.c.values([s.key], Scope())
        self.out.line(f"bucket[k] = (int)({text});")
        self.out.close()
        self.out.close()
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = 0; k < {AHEAD}; ++k)")
        self.out.line("unsigned same = __ballot_sync(0xffffffffu, bucket[k] >= 0);")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int bit = 0; bit < {(b.n - 1).bit_length()}; ++bit)")
        self.out.line("const unsigned ones = __ballot_sync(0xffffffffu, bucket[k] >> bit & 1);")
        self.out.line("same &= bucket[k] >> bit & 1 ? ones : ~ones;")
        self.out.close()
        self.out.line("const int before = __popc(same & ((1u << lane) - 1));")
        to = self.c.element(b.numbers, "next[bucket[k]] + before")
        self.out.line(f"if (bucket[k] >= 0) {to} = first + k * {WARP} + lane;")
        self.out.line("__syncwarp();")
        self.out.line("if (bucket[k] >= 0 && before == 0) next[bucket[k]] += __popc(same);")
        self.out.line("__syncwarp();")
        self.out.close()
        self.out.close()
        self.out.close()


def _independent(value: Expr, there: Expr | None) -> Expr | None:
    """The one operand of an update that does not depend on what is there: all of it, where nothing does."""
    if there is None:
        return value
    others = [arg for arg in value.args if there not in arg.walk()]
    return others[0] if len(value.args) == 2 and value.args[0] == there and len(others) == 1 else None


def _itself(leaf: Expr) -> Expr:
    return leaf


__all__ = ["OrderedPrinter", "OwnedPrinter", "SortPrinter"]
