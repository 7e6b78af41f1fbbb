"""Kernels whose rows are computed by teams of threads: passes over a row, and what the threads of a team make of their parts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from dynagraph.backends.cstyle import Scope, initial
from dynagraph.backends.cuda.kernels import KernelPrinter
from dynagraph.backends.cuda.schedule import (
    MOST_THREADS,
    UNROLLED_ROWS,
    WARP,
    Pack,
    Rows,
    kept_loads,
    n_iterations,
    packed,
    pass_axes,
    replaced,
)
from dynagraph.ir import expr
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, Axis, Define, Loop, Reduce, Store, loaded_buffers, stored_buffers


class RowsPrinter(KernelPrinter[Rows]):
    """A team of threads for each row."""

    _n_lengths = 0
    _is_shared = False  # whether a block has several teams, the last of which may have no row of their own

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), self.plan.block // self.plan.team, self.plan.block

    def described(self) -> str:
        ways = [*self.plan.fitting, self.plan]
        room = max((way.room or 0 for way in self.plan.fitting), default=0)
        packs = max(way.width for way in ways)
        texts = [f"{self.plan.team} threads for a row", f"packs of {packs}" * (packs > 1), f"written out up to {room}" * (room > 0)]
        return ", ".join(filter(None, texts))

    def wants_registers(self) -> bool:
        lengths = (n_iterations(axes) for s in self.kernel.body if (axes := pass_axes(s)))
        return self.plan.block == MOST_THREADS and any(length.constant is None for length in lengths)

    def body(self) -> None:
        plan = self.plan
        kernel = self.kernel
        accumulators = [a for s in kernel.body if isinstance(s, Reduce) and s.axes for a in s.accumulators]
        if plan.team > WARP:
            for a in accumulators:
                self.out.line(f"__shared__ {self.c.number_type(a.dtype)} {a.name}_of_warp[{plan.team // WARP}];")
                if a.is_position:
                    kind = self.c.number_type(a.value.dtype)
                    self.out.line(f"__shared__ {kind} {a.best}_of_warp[{plan.team // WARP}];")
        self.out.line(f"const int lane = threadIdx.x % {plan.team};")
        self.out.line(f"const dg_index rows = {self.c.integer(n_iterations(kernel.axes))};")
        if not plan.fitting:
            self._all_rows(plan)
            return
        (length,) = {n_iterations(axes) for s in kernel.body if (axes := pass_axes(s))}
        self.out.line(f"const dg_index row_length = {self.c.integer(length)};")  # the same for all threads: they stay together
        for way in plan.fitting:
            in_packs = way.width > 1 and not _is_whole(length, replace(way, multiple=None))
            tests = [f"row_length % {way.width} == 0"] * in_packs
            tests += [f"row_length <= {way.room}"] * (way.turns is not None)
            self.out.open(f"if ({' && '.join(tests)})")
            self._all_rows(way)
            self.out.line("return;")
            self.out.close()
        self._all_rows(plan)

    def _all_rows(self, plan: Rows) -> None:
        """The loop over the rows of a team."""
        kernel = self.kernel
        teams = plan.block // plan.team
        self.blocks_over("first_row", "rows", teams)
        self._is_shared = teams > 1
        if teams > 1:  # those behind the last row compute it too, as all threads of a warp take part in what it exchanges
            self.out.line(f"const dg_index own_row = first_row + threadIdx.x / {plan.team};")
            self.out.line("const bool is_own = own_row < rows;")
            self.out.line("const dg_index row = is_own ? own_row : rows - 1;")
        self.decode("row" if teams > 1 else "first_row", kernel.axes)
        kept = self._keep(plan)
        shares = stored_buffers(kernel.body) & loaded_buffers(kernel.body)
        scope = Scope()
        plain: list[Define | Store] = []
        for s in kernel.body:
            if isinstance(s, (Define, Store)):
                plain.append(s)
                continue
            self._row_level(plain, scope, plan)
            plain.clear()
            assert isinstance(s, (Reduce, Loop))
            self._pass(s, plan, kept)
            if shares:
                self.out.line("__syncthreads();" if plan.team > WARP else "__syncwarp();")
        self._row_level(plain, scope, plan)
        if plan.team > WARP:
            self.out.line("__syncthreads();")
        self.out.close()

    def _row_level(self, items: Sequence[Define | Store], scope: Scope, plan: Rows) -> None:
        """What is computed once for a row: by all threads of the team; one of them stores."""
        run: list[Define | Store] = []
        for k, item in enumerate(items):
            run.append(item)
            if k + 1 < len(items) and isinstance(items[k + 1], Store) == isinstance(item, Store):
                continue
            if isinstance(item, Store):
                self._store_for_row(run, scope, plan)
            else:
                self.block(run, scope)
            run.clear()

    def _store_for_row(self, stores: Sequence[Define | Store], scope: Scope, plan: Rows) -> None:
        tests = ["lane == 0"] * (plan.team > 1) + ["is_own"] * self._is_shared
        with self.where(tests if stores else []):
            self.block(stores, Scope(scope))

    def _for_own_rows(self) -> contextlib.AbstractContextManager[None]:
        return self.where(["is_own"] * self._is_shared)

    def _keep(self, plan: Rows) -> dict[Expr, Expr]:
        """Lines that load what several passes read, and how it is spelled from then on."""
        loads = kept_loads(self.kernel, plan)
        if not loads:
            return {}
        first = next(s for s in self.kernel.body if pass_axes(s))
        axes = pass_axes(first) or ()
        kept: dict[Expr, Expr] = {}
        for k, e in enumerate(loads):
            kind = self.c.memory_type(e.dtype)
            self.out.line(f"dg_pack<{kind}, {plan.width}> kept{k}[{plan.turns}];")
            kept[e] = expr.load(f"kept{k}[turn].v", IntExpr.symbol("lane_of_pack"), e.dtype)
        self._open_turns(axes, plan)
        for k, e in enumerate(loads):
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            if plan.width == 1:
                self.out.line(f"kept{k}[turn].v[0] = {self.c.element(buffer, self.c.integer(index))};")
            else:
                kind = self.c.memory_type(e.dtype)
                place = self.at_first(Pack("", buffer, e.dtype, index), axes[-1], "at")
                self.out.line(f"kept{k}[turn] = dg_load_pack<{kind}, {plan.width}>({place});")
        self._close_turns(axes, plan)
        return kept

    def _length(self, axes: Sequence[Axis]) -> str:
        """The length of a row, as a number or a name."""
        length = n_iterations(axes)
        if length.constant is not None:
            return self.c.integer(length)
        name = f"length{self._n_lengths}"
        self._n_lengths += 1
        self.out.line(f"const dg_index {name} = {self.c.integer(length)};")
        return name

    def _open_turns(self, axes: Sequence[Axis], plan: Rows) -> None:
        """Open the loop over a thread's part of a row: `at` is the place of its element, or of its pack's first."""
        length = n_iterations(axes)
        text = self._length(axes)
        stride = plan.team * plan.width
        if plan.turns is not None:
            self.out.line("#pragma unroll")
            self.out.open(f"for (int turn = 0; turn < {plan.turns}; ++turn)")
            mine = "lane" if plan.width == 1 else f"lane * {plan.width}"
            self.out.line(f"const dg_index at = turn * {stride} + {mine};")
            if length.constant is None or length.constant % stride:
                self.out.line(f"if (at < {text}) {{")
                self.out.depth += 1
        else:
            mine = "lane" if plan.width == 1 else f"lane * {plan.width}"
            self.out.line(f"#pragma unroll {UNROLLED_ROWS}")
            self.out.open(f"for (dg_index at = {mine}; at < {text}; at += {stride})")
        if plan.width == 1:
            self._decode_from("at", axes)

    def _decode_from(self, item: str, axes: Sequence[Axis]) -> None:
        """As `decode`, of axes that may begin elsewhere than at 0."""
        if len(axes) == 1:
            self.out.line(f"const dg_index {axes[0].symbol.name} = {self.c.integer(axes[0].start)} + {item};")
            return
        assert all(a.start == 0 for a in axes)
        self.decode(item, axes)

    def _close_turns(self, axes: Sequence[Axis], plan: Rows) -> None:
        length = n_iterations(axes).constant
        if plan.turns is not None and (length is None or length % (plan.team * plan.width)):
            self.out.close()
        self.out.close()

    def _pass(self, s: Reduce | Loop, plan: Rows, kept: dict[Expr, Expr]) -> None:
        if isinstance(s, Loop):
            with self._for_own_rows():
                self._walk(s, s.axes, [x for x in s.body if isinstance(x, (Define, Store))], plan, kept)
            return
        for a in s.accumulators:
            start = "-1" if a.is_position else initial(self.c, a)
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = {start};")
            if a.is_position:
                self.out.line(f"{self.c.number_type(a.value.dtype)} {a.best} = 0;")
        if not s.axes:
            self._single(s, plan)
        else:
            self._walk(s, s.axes, [*_steps(s.accumulators), *s.stores], plan, kept)
            self._combine_team(s.accumulators, plan)
        for a in s.accumulators:
            if a.dtype.is_half:
                self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")

    def _walk(
        self, s: Reduce | Loop, axes: Sequence[Axis], items: Sequence[Define | Store], plan: Rows, kept: dict[Expr, Expr]
    ) -> None:
        """A thread's part of a pass: the steps of accumulators are definitions of their values, then stores."""
        accumulators = {f"{a.name}_value": a for a in s.accumulators} if isinstance(s, Reduce) else {}
        if not axes:
            self._lane_of_pass(items, accumulators, "0")
            return
        if plan.width > 1 and plan.turns is None:
            self._long_pass(items, axes[-1], plan, accumulators)
            return
        self._open_turns(axes, plan)
        if plan.width == 1:
            changed = replaced(items, lambda e: _in_pack_of_one(kept.get(e)))
            self._lane_of_pass([x for x in changed if isinstance(x, (Define, Store))], accumulators, "at")
        else:
            self._pack_of_pass(items, axes[-1], plan, kept, accumulators)
        self._close_turns(axes, plan)

    def _long_pass(
        self, items: Sequence[Define | Store], axis: Axis, plan: Rows, accumulators: dict[str, Accumulator]
    ) -> None:
        """Packs, then what is left of the row: with a test in between, the loads of several packs would wait for each other."""
        length = self._length([axis])
        self.out.open("")
        self.out.line(f"dg_index at = lane * {plan.width};")
        self.out.line(f"#pragma unroll {UNROLLED_ROWS}")
        self.out.open(f"for (; at + {plan.width} <= {length}; at += {plan.team * plan.width})")
        self._pack_of_pass(items, axis, plan, {}, accumulators)
        self.out.close()
        if not _is_whole(axis.extent, plan):
            self.out.line("#pragma unroll 1")
            self.out.open(f"for (; at < {length}; ++at)")
            self._decode_from("at", [axis])
            self._lane_of_pass(items, accumulators, "at")
            self.out.close()
        self.out.close()

    def _pack_of_pass(
        self,
        items: Sequence[Define | Store],
        axis: Axis,
        plan: Rows,
        kept: dict[Expr, Expr],
        accumulators: dict[str, Accumulator],
    ) -> None:
        width = plan.width
        lane = IntExpr.symbol("lane_of_pack", 0, width - 1)
        statements, loads, stores = packed(items, axis, width, lane, kept, plan.multiple)
        self.load_packs(loads, axis, width, "at")
        for pack in stores:
            self.out.line(f"dg_pack<{self.c.memory_type(pack.dtype)}, {width}> {pack.name};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int lane_of_pack = 0; lane_of_pack < {width}; ++lane_of_pack)")
        self.out.line(f"const dg_index {axis.symbol.name} = {self.c.integer(axis.start)} + at + lane_of_pack;")
        self._lane_of_pass([x for x in statements if isinstance(x, (Define, Store))], accumulators, "at + lane_of_pack")
        self.out.close()
        if stores:
            with self._for_own_rows():
                self.store_packs(stores, axis, width, "at")

    def _lane_of_pass(self, items: Sequence[Define | Store], accumulators: dict[str, Accumulator], position: str) -> None:
        """One element of a pass.  Stores to the local pack are anybody's, those to memory only of a team with a row of its own."""
        scope = Scope()
        stores = [x for x in items if isinstance(x, Store)]
        if accumulators and self._is_shared and any(x.buffer in self.program.buffers for x in stores):
            self.block([x for x in items if isinstance(x, Define)], scope)
            with self._for_own_rows():
                self.block(stores, Scope(scope))
        else:
            self.block(items, scope)
        for name, a in accumulators.items():
            if a.is_position:
                self.out.open(f"if ({a.name} < 0 || {self._better(a, name, a.best)})")
                self.out.line(f"{a.best} = {name};")
                self.out.line(f"{a.name} = {position};")
                self.out.close()
            else:
                self.out.line(f"{a.name} = {self.combine(a, a.name, name)};")

    def _single(self, s: Reduce, plan: Rows) -> None:
        """Every reduced size is 1."""
        scope = Scope()
        self.block(_steps(s.accumulators), scope)
        for a in s.accumulators:
            text = f"{a.name}_value"
            if a.kind == "sum" and a.dtype.is_inexact:
                text = self.combine(a, a.name, text)  # 0.0 + -0.0 is 0.0
            self.out.line(f"{a.name} = {'0' if a.is_position else text};")
        self._store_for_row(s.stores, scope, plan)

    def _combine_team(self, accumulators: Sequence[Accumulator], plan: Rows) -> None:
        """Every thread of the team gets what all have accumulated, in an order that is always the same."""
        if plan.team == 1:
            return
        self._exchange(accumulators, min(WARP, plan.team))
        if plan.team <= WARP:
            return
        warps = plan.team // WARP
        self.out.open(f"if (lane % {WARP} == 0)")
        for a in accumulators:
            self.out.line(f"{a.name}_of_warp[lane / {WARP}] = {a.name};")
            if a.is_position:
                self.out.line(f"{a.best}_of_warp[lane / {WARP}] = {a.best};")
        self.out.close()
        self.out.line("__syncthreads();")
        for a in accumulators:
            self.out.line(f"{a.name} = {a.name}_of_warp[lane % {warps}];")
            if a.is_position:
                self.out.line(f"{a.best} = {a.best}_of_warp[lane % {warps}];")
        self._exchange(accumulators, warps)

    def _exchange(self, accumulators: Sequence[Accumulator], width: int) -> None:
        self.out.line("#pragma unroll")
        self.out.open(f"for (int step = {width // 2}; step; step /= 2)")
        for a in accumulators:
            kind = self.c.number_type(a.dtype)
            self.out.line(f"const {kind} {a.name}_other = dg_from_lane({a.name}, (lane ^ step) % {width}, {width});")
            if not a.is_position:
                self.out.line(f"{a.name} = {self.combine(a, a.name, f'{a.name}_other')};")
                continue
            mine, theirs = a.best, f"{a.best}_other"
            self.out.line(
                f"const {self.c.number_type(a.value.dtype)} {theirs} = dg_from_lane({mine}, (lane ^ step) % {width}, {width});"
            )
            better, worse = self._better(a, theirs, mine), self._better(a, mine, theirs)
            self.out.open(
                f"if ({a.name}_other >= 0 && ({a.name} < 0 || {better} || (!({worse}) && {a.name}_other < {a.name})))"
            )
            self.out.line(f"{mine} = {theirs};")
            self.out.line(f"{a.name} = {a.name}_other;")
            self.out.close()
        self.out.close()

    def _better(self, a: Accumulator, value: str, best: str) -> str:
        """Whether a value is a new extreme; a NaN is the extreme of all."""
        pair = (var(value, a.value.dtype), var(best, a.value.dtype))
        text = self.c.expr(expr.call("gt" if a.kind == "argmax" else "lt", *pair), Scope())
        if a.value.dtype.is_inexact:
            text = f"(({text} || {value} != {value}) && {best} == {best})"
        return text


def _steps(accumulators: Sequence[Accumulator]) -> list[Define]:
    """The values that are accumulated, by name."""
    return [Define(f"{a.name}_value", a.value) for a in accumulators]


def _is_whole(length: IntExpr, plan: Rows) -> bool:
    """Whether packs fill a row, as far as is known when the kernel is printed."""
    return all(c % plan.width == 0 or plan.multiple in monomial for monomial, c in length.terms.items())


def _in_pack_of_one(kept: Expr | None) -> Expr | None:
    """What is kept for a pack's lane, where packs have one."""
    if kept is None:
        return None
    name: str
    name, _ = kept.value  # type: ignore[misc]
    return expr.load(name, IntExpr.of(0), kept.dtype)


__all__ = ["RowsPrinter"]
