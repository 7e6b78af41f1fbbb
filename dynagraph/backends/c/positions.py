"""argmax and argmin of rows: lanes find the extreme of each block, then the first element equal to the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynagraph.backends.c.nests import (
    UNSTOPPED_EXTENT,
    ZERO,
    at_most,
    end_of,
    is_at_most,
    lanes_loop,
    nest,
)
from dynagraph.backends.c.reductions import LANE, as_wide, extreme_lanes, lane_of, lane_plan
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import beats, computed_as, extreme, identity, is_better, is_nan, local, widened
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, Axis, Reduce, expr_cost
from dynagraph.ir.statements import (
    Assign,
    Block,
    Break,
    Code,
    Declare,
    For,
    If,
    Let,
    Safepoint,
    While,
    compare,
    element,
    position,
)

SEARCH_BLOCK = 32768  # bytes in which an extreme is found before where it is
KEPT_BLOCK = 1024  # ... or elements, where they are kept
SEARCH_STEP = 64  # elements of which one is looked for at a time
SEARCHED_COST = 2.0  # in additions: dearer values are kept until it is known where the extreme is
FOUND = local("found", dtypes.int32)


def positions(r: Reduce) -> tuple[Code, ...]:
    """The positions of first extremes; a NaN is the extreme of all."""
    assert not r.stores
    found: list[Code] = []
    for a in r.accumulators:
        found.append(Declare(a.best, computed_as(a.value.dtype), identity(extreme(a))))
        searched = len(r.axes) == 1 and lane_plan(Reduce(r.axes, (extreme(a),))) > 0
        found.append(Block(_Search(r.axes[0], a).code() if searched else _in_order(r.axes, a)))
    return tuple(found)


def _in_order(axes: Sequence[Axis], a: Accumulator) -> tuple[Code, ...]:
    """One element after the other: short rows, and complex numbers, of which the imaginary part hardly ever tells."""
    value, best, here = local("value", a.value.dtype), local(a.best, a.value.dtype), position("position")
    is_new = expr.call("or", compare("eq", here, 0), is_better(a, value, best))
    taken: Code = If(is_new, (Assign(a.best, value), Assign(a.name, here)))
    if a.value.dtype.is_complex:
        real, old = expr.call("real", value), expr.call("real", best)
        worse = expr.call("lt", *((real, old) if a.kind == "argmax" else (old, real)))
        likely = expr.call("or", expr.call("not", worse), is_nan(expr.call("imag", value)))
        taken = If(likely, (taken,), is_rare=True)
    body = Declare("value", computed_as(a.value.dtype), widened(a.value)), taken, Assign("position", here + 1)
    return Declare("position", None, ZERO), *nest(axes, body)


@dataclass(frozen=True)
class _Search:
    """The extreme of each block, and then the first element of the block with the best one that is equal to it.

    Values that cost something are kept: of the block that is looked at, and of the best one so far.  What is the extreme of
    bools is known beforehand.
    """

    axis: Axis
    a: Accumulator

    @property
    def name(self) -> str:
        return self.axis.symbol.name

    @property
    def best(self) -> Expr:
        return local(self.a.best, self.a.value.dtype)

    @property
    def size(self) -> int:
        return KEPT_BLOCK if self.is_kept else SEARCH_BLOCK // as_wide(self.a.value.dtype)

    @property
    def is_kept(self) -> bool:
        return expr_cost([self.a.value]) > SEARCHED_COST

    def _variable(self, what: str) -> IntExpr:
        return position(f"{self.name}_{what}")

    def code(self) -> tuple[Code, ...]:
        a, end = self.a, Let(f"{self.name}_end", end_of(self.axis))
        if a.value.dtype.is_bool:
            best = self.best
            known = Assign(a.best, expr.const(a.kind == "argmax", dtypes.bool_))
            is_found = expr.call("ne", FOUND, expr.const(0, dtypes.int32))
            turned = Assign(a.best, expr.call("select", is_found, best, expr.call("not", best)))
            return end, known, *self._find(a.value, self.axis.start, self._variable("end")), turned
        kept = [Declare("kept", computed_as(a.value.dtype), size=2 * self.size, aligned=True), Declare("turn", None, ZERO)]
        at = position("best_at")
        blocks = For(f"{self.name}_at", self.axis.start, self._variable("end"), self._block(), step=self.size)
        value = self._kept(1 - position("turn"), at) if self.is_kept else a.value
        found = self._find(value, at, at_most(self._variable("end"), at, self.size))
        return end, Declare("best_at", None, self.axis.start), *(kept if self.is_kept else ()), blocks, *found

    def _kept(self, turn: IntExpr, first: IntExpr) -> Expr:
        place = turn * self.size + position(self.name) - first
        return element("kept", place, computed_as(self.a.value.dtype))

    def _block(self) -> tuple[Code, ...]:
        """The extreme of the block that begins at `at`."""
        a, at, stop = self.a, self._variable("at"), self._variable("stop")
        body: list[Code] = [Let(f"{self.name}_stop", at_most(self._variable("end"), at, self.size))]
        searched = extreme(a)
        if self.is_kept:
            value = self._kept(position("turn"), at)
            index: IntExpr = value.value[1]  # type: ignore[index]
            body.append(For(self.name, at, stop, (Assign("kept", widened(a.value), index),)))
            searched = Accumulator(searched.name, searched.kind, searched.dtype, value)
        body += extreme_lanes([searched], self.axis, at, stop, may_stop=False)
        here, best = lane_of(searched, 0), self.best
        better = beats(a, here, best)
        taken: list[Code] = [Assign(a.best, here), Assign("best_at", at)]
        if self.is_kept:
            taken.append(Assign("turn", 1 - position("turn")))
        if a.value.dtype.is_inexact:  # nothing is better than NaN
            better = expr.call("or", better, is_nan(here))
            taken.append(If(is_nan(best), (Break(),)))
        body.append(If(better, tuple(taken)))
        return (*body, *self._safepoint())

    def _safepoint(self) -> tuple[Code, ...]:
        return () if is_at_most(self.axis.extent, UNSTOPPED_EXTENT) else (Safepoint(),)

    def _find(self, value: Expr, start: IntExpr, end: IntExpr) -> tuple[Code, ...]:
        """The first element that is the extreme: first the piece that holds it, by loops that vectorise."""
        base, last = self._variable("base"), position("search_end")
        equal = expr.call("eq", widened(value), self.best)
        found: list[Code] = [Declare("found", dtypes.int32, expr.const(0, dtypes.int32)), Let("search_end", end)]
        found.append(Declare(f"{self.name}_base", None, start))
        if self.a.value.dtype.is_inexact:
            nan = is_nan(local("value", self.a.value.dtype))
            found.append(If(is_nan(self.best), (self._find_in_order(value, nan), Assign(f"{self.name}_base", last))))
        some = Assign("found", expr.call("or", FOUND, expr.cast(equal, dtypes.int32)))
        step = lanes_loop(IntExpr.of(SEARCH_STEP), Let(self.name, base + LANE), some)
        leave = If(expr.call("ne", FOUND, expr.const(0, dtypes.int32)), (Break(),))
        further = Assign(f"{self.name}_base", base + SEARCH_STEP)
        found.append(While(compare("le", base + SEARCH_STEP, last), (step, leave, *self._safepoint(), further)))
        same = expr.call("eq", local("value", self.a.value.dtype), self.best)
        return *found, self._find_in_order(value, same)

    def _find_in_order(self, value: Expr, test: Expr) -> For:
        here = position(self.name) - self.axis.start
        taken = Assign("found", expr.const(1, dtypes.int32)), Assign(self.a.name, here), Break()
        body = Declare("value", computed_as(self.a.value.dtype), widened(value)), If(test, taken)
        return For(self.name, self._variable("base"), position("search_end"), body)
