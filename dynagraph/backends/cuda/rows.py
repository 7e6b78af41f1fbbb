"""Write row kernels out for CUDA: teams of threads make passes over a row and combine their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Union

from dynagraph.backends.cuda.kernels import (
    LANE,
    THREAD,
    ZERO,
    KernelPrinter,
    decode,
    first_of,
    from_zero,
    in_packs,
    plain,
)
from dynagraph.backends.cuda.schedule import (
    UNROLLED_ROWS,
    WARP,
    Pack,
    Rows,
    kept_loads,
    n_iterations,
    pass_axes,
    replaced,
)
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import computed_as, identity, is_better, local, rounded, step, widened
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, apply
from dynagraph.ir.loops import Accumulator, Axis, Define, Loop, Reduce, Store, loaded_buffers, stored_buffers
from dynagraph.ir.statements import (
    Assign,
    AxisKind,
    Barrier,
    Block,
    Code,
    Declare,
    For,
    If,
    Let,
    LoadPack,
    Move,
    Powers,
    While,
    as_int,
    compare,
    element,
    position,
    value_of,
    where,
)

AT = position("at")
OWN = expr.var("is_own", dtypes.bool_)
NONE = expr.const(-1, dtypes.int64)  # no position yet
Plain = Union[Define, Store]


class RowsPrinter(KernelPrinter[Rows]):
    """A team of threads for each row."""

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
        return any(length.constant is None for length in lengths)

    def code(self) -> tuple[Code, ...]:
        plan, kernel = self.plan, self.kernel
        found: list[Code] = []
        if plan.team > WARP:
            of_team = [a for s in kernel.body if isinstance(s, Reduce) and s.axes for a in s.accumulators]
            for name, dtype in (pair for a in of_team for pair in _exchanged(a)):
                found.append(Declare(f"{name}_of_warp", dtype, size=plan.team // WARP, shared=True))
        found.append(Declare("lane", dtypes.int32, as_int(THREAD % plan.team)))
        found.append(Let("rows", n_iterations(kernel.axes)))
        if not plan.fitting:
            return *found, _Way(self, plan).all_rows()
        (length,) = {n_iterations(axes) for s in kernel.body if (axes := pass_axes(s))}
        found.append(Let("row_length", length))  # the same for all threads: they stay together
        rows: Code = _Way(self, plan).all_rows()
        for way in reversed(plan.fitting):
            in_packs = way.width > 1 and not _is_whole(length, replace(way, multiple=None))
            tests = [compare("eq", position("row_length") % way.width, 0)] * in_packs
            tests += [compare("le", position("row_length"), way.room or 0)] * (way.turns is not None)
            (rows,) = where(tests, [_Way(self, way).all_rows()], [rows])
        return *found, rows


class _Way:
    """One way to compute rows: `plan` says how a team shares one."""

    def __init__(self, printer: RowsPrinter, plan: Rows):
        self.kernel, self.program, self.plan = printer.kernel, printer.program, plan
        # whether a block has several teams, the last of which may have no row of their own
        self.is_shared = plan.block > plan.team
        self.own = [OWN] * self.is_shared
        self.together = AxisKind.BLOCK if plan.team > WARP else AxisKind.WARP
        self.n_lengths = 0

    def all_rows(self) -> For:
        """The loop over the rows of a team."""
        kernel, plan = self.kernel, self.plan
        teams = plan.block // plan.team
        found: list[Code] = []
        if teams > 1:  # those after the last row compute it too, as all threads of a warp take part in what it exchanges
            own = position("own_row")
            found.append(Let("own_row", position("first_row") + THREAD // plan.team))
            found.append(Define("is_own", compare("lt", own, position("rows"))))
            found.append(Let("row", apply("min", own, position("rows") - 1)))
        found += decode("row" if teams > 1 else "first_row", kernel.axes)
        kept = self._keep(found)
        shares = stored_buffers(kernel.body) & loaded_buffers(kernel.body)
        for s in kernel.body:
            if isinstance(s, Define):
                found.append(s)
            elif isinstance(s, Store):
                found += self._store_for_row([s])
            else:
                assert isinstance(s, (Reduce, Loop))
                found += self._pass(s, kept)
                found += [Barrier(self.together)] * bool(shares)
        found += [Barrier(AxisKind.BLOCK)] * (plan.team > WARP)
        return For("first_row", ZERO, position("rows"), tuple(found), AxisKind.BLOCK, step=teams)

    def _store_for_row(self, stores: Sequence[Store]) -> tuple[Code, ...]:
        """What is stored once for a row: by one of the threads, all of which have computed it."""
        return where([compare("eq", LANE, 0)] * (self.plan.team > 1) + self.own, stores)

    def _keep(self, found: list[Code]) -> Mapping[Expr, Expr]:
        """Load what several passes read.  Gives how it is spelled from then on."""
        plan, loads = self.plan, kept_loads(self.kernel, self.plan)
        if not loads:
            return {}
        axes = next(axes for s in self.kernel.body if (axes := pass_axes(s)))
        kept: dict[Expr, Expr] = {}
        moves: list[Code] = []
        for k, e in enumerate(loads):
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            name = f"kept{k}[turn]"
            found.append(Declare(f"kept{k}", e.dtype, size=plan.turns, pack=plan.width))
            lane = ZERO if plan.width == 1 else IntExpr.symbol("lane_of_pack")
            kept[e] = expr.load(f"{name}.v", lane, e.dtype)
            if plan.width == 1:
                moves.append(Move(f"{name}.v", ZERO, buffer, index))
            else:
                first = first_of(Pack("", buffer, e.dtype, index), axes[-1], "at")
                moves.append(LoadPack(name, buffer, first, e.dtype, plan.width, declared=True))
        found += self._turns(axes, moves)
        return kept

    def _length(self, axes: Sequence[Axis]) -> tuple[list[Code], IntExpr]:
        """The length of a row, as a number or a name."""
        length = n_iterations(axes)
        if length.constant is not None:
            return [], length
        name = f"length{self.n_lengths}"
        self.n_lengths += 1
        return [Let(name, length)], position(name)

    def _turns(self, axes: Sequence[Axis], body: Sequence[Code]) -> list[Code]:
        """The loop over a thread's part of a row: `at` is the place of its element, or of its pack's first."""
        plan = self.plan
        found, length = self._length(axes)
        stride, mine = plan.team * plan.width, LANE * plan.width
        if plan.width == 1:
            body = [*_decode_from(AT, axes), *body]
        if plan.turns is None:
            loop = For("at", mine, length, tuple(body), AxisKind.WARP, step=stride, unroll=UNROLLED_ROWS)
        else:
            fits = length.constant is not None and length.constant % stride == 0
            part = where([] if fits else [compare("lt", AT, length)], body)
            at = Let("at", position("turn") * stride + mine)
            loop = For("turn", ZERO, IntExpr.of(plan.turns), (at, *part), AxisKind.UNROLLED)
        return [*found, loop]

    def _pass(self, s: Reduce | Loop, kept: Mapping[Expr, Expr]) -> list[Code]:
        if isinstance(s, Loop):
            return list(where(self.own, self._walk(s.axes, plain(s.body), (), kept)))
        found: list[Code] = []
        for a in s.accumulators:
            found.append(Declare(a.name, computed_as(a.dtype), NONE if a.is_position else identity(a)))
            if a.is_position:
                best = computed_as(a.value.dtype)
                found.append(Declare(a.best, best, expr.const(0, best)))
        if not s.axes:
            found += self._single(s)
        else:
            found += self._walk(s.axes, [*_values(s.accumulators), *s.stores], s.accumulators, kept)
            found += self._combine_team(s.accumulators)
        halves = [a for a in s.accumulators if a.dtype.is_half]
        return [*found, *(Assign(a.name, rounded(local(a.name, a.dtype), a.dtype)) for a in halves)]

    def _walk(
        self, axes: Sequence[Axis], items: Sequence[Plain], accumulators: Sequence[Accumulator], kept: Mapping[Expr, Expr]
    ) -> list[Code]:
        """A thread's part of a pass: the values that are accumulated are definitions, then come stores."""
        plan = self.plan
        if not axes:
            return self._element(items, accumulators, ZERO)
        if plan.width > 1 and plan.turns is None:
            return self._long_pass(items, axes[-1], accumulators)
        if plan.width == 1:
            return self._turns(axes, self._element(plain(replaced(items, kept.get)), accumulators, AT))
        return self._turns(axes, self._pack(items, axes[-1], accumulators, kept))

    def _long_pass(self, items: Sequence[Plain], axis: Axis, accumulators: Sequence[Accumulator]) -> list[Code]:
        """Packs, then what is left of the row: with a test in between, the loads of several packs would wait for each other."""
        plan = self.plan
        found, length = self._length([axis])
        further = Assign("at", AT + plan.team * plan.width)
        packs = tuple(self._pack(items, axis, accumulators, {}))
        body: list[Code] = [Declare("at", None, LANE * plan.width)]
        body.append(While(compare("le", AT + plan.width, length), packs, further, UNROLLED_ROWS))
        if not _is_whole(axis.extent, plan):
            rest = *_decode_from(AT, [axis]), *self._element(items, accumulators, AT)
            body.append(While(compare("lt", AT, length), rest, Assign("at", AT + 1), unroll=1))
        return [*found, Block(tuple(body))]

    def _pack(
        self, items: Sequence[Plain], axis: Axis, accumulators: Sequence[Accumulator], kept: Mapping[Expr, Expr]
    ) -> list[Code]:
        place = AT + position("lane_of_pack")

        def one(elements: Sequence[Plain]) -> list[Code]:
            return self._element(elements, accumulators, place)

        return in_packs(items, axis, self.plan.width, "at", one, self.own, kept, self.plan.multiple)

    def _element(self, items: Sequence[Plain], accumulators: Sequence[Accumulator], place: IntExpr) -> list[Code]:
        """One element of a pass.  Stores to the local pack are anybody's, those to memory only of a team with a row of its own."""
        found: list[Code] = list(items)
        stores = [x for x in items if isinstance(x, Store)]
        if accumulators and self.is_shared and any(x.buffer in self.program.buffers for x in stores):
            found = [*(x for x in items if isinstance(x, Define)), *where(self.own, stores)]
        for a in accumulators:
            value = _value_of(a)
            if not a.is_position:
                found.append(Assign(a.name, step(a, local(a.name, a.dtype), value)))
                continue
            best = local(a.best, a.value.dtype)
            is_new = expr.call("or", _is_unset(a.name), is_better(a, widened(value), best))
            found.append(If(is_new, (Assign(a.best, widened(value)), Assign(a.name, value_of(place)))))
        return found

    def _single(self, s: Reduce) -> list[Code]:
        """Every reduced size is 1."""
        found: list[Code] = list(_values(s.accumulators))
        for a in s.accumulators:
            value = widened(_value_of(a))
            if a.is_position:
                value = expr.const(0, dtypes.int64)
            elif a.kind == "sum" and a.dtype.is_inexact:
                value = step(a, local(a.name, a.dtype), value)  # 0.0 + -0.0 is 0.0
            found.append(Assign(a.name, value))
        return [*found, *self._store_for_row(s.stores)]

    # -- teams --------------------------------------------------------------------------------------------------------
    def _combine_team(self, accumulators: Sequence[Accumulator]) -> list[Code]:
        """Every thread of the team gets what all have accumulated, in an order that is always the same."""
        team = self.plan.team
        found = _combine_lanes(accumulators, min(WARP, team))
        if team <= WARP:
            return found
        names = [pair for a in accumulators for pair in _exchanged(a)]
        given = [Assign(f"{name}_of_warp", expr.var(name, dtype), LANE // WARP) for name, dtype in names]
        taken = [Assign(name, element(f"{name}_of_warp", LANE % (team // WARP), dtype)) for name, dtype in names]
        found += [If(compare("eq", LANE % WARP, 0), tuple(given)), Barrier(AxisKind.BLOCK), *taken]
        return [*found, *_combine_lanes(accumulators, team // WARP)]


def _exchanged(a: Accumulator) -> list[tuple[str, DType]]:
    """The variables that an accumulation consists of."""
    best = [(a.best, computed_as(a.value.dtype))] if a.is_position else []
    return [(a.name, computed_as(a.dtype)), *best]


def _combine_lanes(accumulators: Sequence[Accumulator], width: int) -> list[Code]:
    """A tree over `width` neighbouring threads of a warp, each of which gets the result."""
    if width == 1:
        return []
    body: list[Code] = []
    for a in accumulators:
        for name, dtype in _exchanged(a):
            partner = Expr("from_partner", (expr.var(name, dtype), value_of(position("step")), value_of(width)), dtype)
            body.append(Declare(f"{name}_other", dtype, partner))
        mine, other = (local(name, a.dtype) for name in (a.name, f"{a.name}_other"))
        if not a.is_position:
            body.append(Assign(a.name, step(a, mine, other)))
            continue
        best, theirs = (local(name, a.value.dtype) for name in (a.best, f"{a.best}_other"))
        is_equal = expr.call("not", is_better(a, best, theirs))
        is_first = expr.call("and", is_equal, expr.call("lt", other, mine))
        is_new = expr.call("or", _is_unset(a.name), expr.call("or", is_better(a, theirs, best), is_first))
        test = expr.call("and", expr.call("not", _is_unset(f"{a.name}_other")), is_new)
        body.append(If(test, (Assign(a.best, theirs), Assign(a.name, other))))
    return [Powers("step", width // 2, 1, tuple(body), AxisKind.UNROLLED)]


def _is_unset(name: str) -> Expr:
    """Whether there is no position yet."""
    return expr.call("lt", expr.var(name, dtypes.int64), expr.const(0, dtypes.int64))


def _values(accumulators: Sequence[Accumulator]) -> list[Define]:
    """The values that are accumulated, by name."""
    return [Define(f"{a.name}_value", a.value) for a in accumulators]


def _value_of(a: Accumulator) -> Expr:
    return expr.var(f"{a.name}_value", a.value.dtype)


def _decode_from(at: IntExpr, axes: Sequence[Axis]) -> list[Code]:
    """As `decode`, of axes that may begin elsewhere than at 0."""
    if len(axes) == 1:
        return [from_zero(axes[0], at)]
    assert all(a.start == 0 for a in axes)
    return decode("at", axes)


def _is_whole(length: IntExpr, plan: Rows) -> bool:
    """Whether packs fill a row, as far as is known when the kernel is printed."""
    return all(c % plan.width == 0 or plan.multiple in monomial for monomial, c in length.terms.items())


__all__ = ["RowsPrinter"]
