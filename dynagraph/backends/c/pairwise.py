"""Pairwise sums and products in NumPy's order.  Positions along the axes that are taken as one are one count, `at`."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.c.nests import ZERO, end_of, nest
from dynagraph.backends.c.reductions import taken
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import computed_as, local, rounded, step, widened
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, IntLike, apply
from dynagraph.ir.loops import Accumulator, Axis, Define, Reduce, expressions, substitute
from dynagraph.ir.ops import Walk
from dynagraph.ir.passes.collapse import one_divisor
from dynagraph.ir.statements import (
    Address,
    Assign,
    AxisKind,
    Block,
    Break,
    Call,
    Code,
    Declare,
    For,
    If,
    Let,
    Powers,
    Safepoint,
    While,
    compare,
    element,
    position,
)

FAR = 65536  # real numbers of a sum that are too long for the caches nearby
SUM_BLOCKS = 512  # real numbers of a sum that are computed before they are added up
DEEPEST = 48  # divisions of a sum by two
AT, N, END, DONE, ROW, FIRST = map(position, ("at", "n", "end", "done", "row", "first"))
ALONG = position("l")

Place = tuple[str, IntExpr]  # an element of a buffer or array


def in_order(r: Reduce, walk: Walk, outer: Sequence[Axis]) -> tuple[Code, ...]:
    """A reduction in the order of a walk.  `outer`: the axes of the kernel."""
    count = len(r.axes) - walk.axes
    turns, together = r.axes[:count], r.axes[count:]
    if not together:
        added = [add(a, a.value) for a in r.accumulators]
        return nest(turns, taken(r, [*added, *r.stores]), expressions((r,)))
    body = _Sum(r, walk, together, outer).code()
    return nest(turns, body, within=together)


def add(a: Accumulator, value: Expr) -> Assign:
    """A step of the accumulation in turn, which halves are rounded after."""
    return Assign(a.name, rounded(step(a, local(a.name, a.dtype), value), a.dtype))


class _Sum:
    """Elements along axes that are walked as one."""

    def __init__(self, r: Reduce, walk: Walk, axes: Sequence[Axis], outer: Sequence[Axis]):
        self.r, self.walk, self.axes, self.outer = r, walk, axes, outer
        self.names = [axis.symbol.name for axis in axes]
        self.width = 2 if r.accumulators[0].dtype.is_complex else 1  # real numbers in an element
        self.most = SUM_BLOCKS // self.width  # elements that are added up by one call
        self.in_memory = self._in_memory()

    def code(self) -> tuple[Code, ...]:
        return self._tree() if self.walk.tree else (Block(self._pairwise()),)

    def _pairwise(self) -> tuple[Code, ...]:
        length = IntExpr.of(1)
        for axis in self.axes:
            length = length * axis.extent
        known, chunk, part = length.constant, self.walk.chunk, self.r.part
        start = self.axes[0].start if len(self.axes) == 1 else ZERO
        found: list[Code] = [Declare("at", None, start), Declare("n", None, length)]
        if part is not None:
            numbers = part.index, IntExpr.of(part.levels), IntExpr.of(self.width)
            found.append(Call("dg_subtree", (*numbers, Address("at"), Address("n"))))
        if len(self.axes) > 1:
            found += self._positions()
        if self.r.accumulators[0].kind == "prod":
            return *found, *self._products()
        if chunk is not None and (known is None or known > chunk):
            return *found, *self._chunks(IntExpr.of(chunk), self._run())
        if not self.r.takes_all:
            return *found, *self._run()
        if (known is not None and known <= self.most and part is None) or self.in_memory:
            return *found, *self._leaf(known if part is None else None), *self._added()
        return *found, *self._recursion()

    def _chunks(self, size: IntExpr, body: Sequence[Code]) -> tuple[Code, ...]:
        """The elements, `size` at a time: `n` is how many."""
        left = position("left")
        part = Assign("n", _least(left, size)), *body, Assign("left", left - size)
        return Declare("left", None, N), While(compare("gt", left, 0), part)

    def _added(self) -> list[Code]:
        return [add(a, self._sum_of(a)) for a in self.r.accumulators]

    @staticmethod
    def _sum_of(a: Accumulator) -> Expr:
        return local(f"{a.name}_sum", a.dtype)

    def _advance(self) -> list[Code]:
        """To the next element, where the positions along several axes are counted."""
        if len(self.axes) == 1:
            return []
        last = self.names[-1]
        return [Assign(last, position(last) + 1), *self._carry()]

    def _carry(self) -> list[Code]:
        """Where the innermost position is at its end, the one around it goes on."""
        found: list[Code] = []
        for name, around in zip(self.names[:0:-1], self.names[-2::-1]):
            again = Assign(name, position(f"{name}_start")), Assign(around, position(around) + 1)
            found.append(If(compare("eq", position(name), position(f"{name}_end")), again))
        return found

    def _here(self, at: IntExpr) -> list[Code]:
        """The loop variable of the element `at`, where there is one axis only."""
        return [Let(self.names[0], at)] if len(self.axes) == 1 else []

    def _positions(self) -> list[Code]:
        """Where along each axis the element `at` is."""
        first = self.r.part is None
        found: list[Code] = [] if first else [Declare("before", None, AT)]
        before = position("before")
        for k, axis in reversed(list(enumerate(self.axes))):
            name = axis.symbol.name
            found += [Let(f"{name}_start", axis.start), Let(f"{name}_end", end_of(axis))]
            further = ZERO if first else before % axis.extent if k else before
            found.append(Declare(name, None, position(f"{name}_start") + further))
            if k and not first:
                found.append(Assign("before", before // axis.extent))
        return found

    # -- products and masks -----------------------------------------------------------------------------------------
    def _products(self) -> tuple[Code, ...]:
        """Of halves: in turn, and rounded at the end of each inner loop."""
        steps = [Assign(a.name, step(a, local(a.name, a.dtype), a.value)) for a in self.r.accumulators]
        one: tuple[Code, ...] = *self._here(AT), *steps, *self.r.stores, *self._advance(), Assign("at", AT + 1)
        ends = [Assign(a.name, rounded(local(a.name, a.dtype), a.dtype)) for a in self.r.accumulators]
        body: tuple[Code, ...] = Let("end", AT + N), While(compare("lt", AT, END), one), *ends
        return body if self.walk.chunk is None else self._chunks(IntExpr.of(self.walk.chunk), body)

    def _run(self) -> tuple[Code, ...]:
        """The sum of one inner loop: of `n` elements from `at` on, or of each run of those that are taken."""
        chosen = self.r.accumulators[0].chosen
        if chosen is None:
            return self._recursion()
        taken = local("taken", dtypes.bool_)
        run_end, names = position("run_end"), self.names if len(self.names) > 1 else []
        body: list[Code] = [self._seek("at", chosen, taken), Declare("run_end", None, AT)]
        body += [Let(f"{name}_run", position(name)) for name in names]
        body += [self._seek("run_end", chosen, expr.call("not", taken)), Assign("n", run_end - AT)]
        body.append(If(compare("eq", N, 0), (Break(),)))
        body += [Assign(name, position(f"{name}_run")) for name in names]
        if self.in_memory:
            body += [*self._leaf(None), *self._added(), Assign("at", AT + N)]
        else:
            body += self._recursion()
        return Let("end", AT + N), While(compare("lt", AT, END), tuple(body))

    def _seek(self, at: str, chosen: Expr, test: Expr) -> Code:
        """Count `at` up to the first element of which the test is true, or to the end of the inner loop."""
        here = position(at)
        found = Define("taken", chosen), If(test, (Break(),))
        return While(compare("lt", here, END), (*self._here(here), *found, *self._advance(), Assign(at, here + 1)))

    # -- pairwise ---------------------------------------------------------------------------------------------------
    def _recursion(self) -> tuple[Code, ...]:
        """Divide what is left until it is short enough, add that up, and add it to what stands left of it: no recursive calls."""
        accumulators, depth, half = self.r.accumulators, position("depth"), position("half")
        lefts = {a: element(f"{a.name}_left", depth - 1, computed_as(a.dtype)) for a in accumulators}
        remaining = element("remaining", depth - 1, dtypes.int64)
        nothing = expr.const(0, dtypes.int64)
        is_left = expr.call("ne", remaining, nothing)
        divided = (
            Call("dg_half", (N, IntExpr.of(self.width)), result="half"),
            Assign("remaining", N - half, depth),
            Assign("n", half),
            Assign("depth", depth + 1),
        )
        joined = [Assign(f"{a.name}_sum", step(a, lefts[a], self._sum_of(a))) for a in accumulators]
        up: tuple[Code, ...] = If(is_left, (Break(),)), *joined, Assign("depth", depth - 1)
        turn = (
            While(compare("gt", N, self.most), divided),
            *self._leaf(None),
            Assign("at", AT + N),
            While(compare("gt", depth, 0), up),
            If(compare("eq", depth, 0), (*self._added(), Break())),
            *(Assign(f"{a.name}_left", self._sum_of(a), depth - 1) for a in accumulators),
            Assign("n", remaining),
            Assign("remaining", nothing, depth - 1),
            Safepoint(),
        )
        arrays = [Declare(f"{a.name}_left", computed_as(a.dtype), size=DEEPEST) for a in accumulators]
        return Declare("remaining", None, size=DEEPEST), *arrays, Declare("depth", None, ZERO), While(None, turn)

    def _leaf(self, length: int | None) -> tuple[Code, ...]:
        """``{name}_sum``: the sum of `n` elements from `at` on, where they lie, or of a copy of them."""
        copies: tuple[Code, ...] = ()
        places = [(place, step) for place, step in self.in_memory]
        if not places:
            sources, copies = self._copies(length)
            places = [(source, 1) for source in sources]
        n = N if length is None else IntExpr.of(length)
        calls: list[Code] = []
        for a, ((name, index), apart) in zip(self.r.accumulators, places):
            dtype = computed_as(a.dtype)
            function, last = ("sum", self._is_far(a)) if apart == 1 else ("steps", IntExpr.of(apart))
            args = Address(name, index, dtype.real), n * self.width, last
            calls.append(Call(f"dg_{function}_{dtype.suffix}", args, f"{a.name}_sum", a.dtype))
        return *copies, *calls

    def _is_far(self, a: Accumulator) -> IntExpr | Expr:
        """Whether all that the kernel adds up is too long for the caches, where it is in memory."""
        if not self.in_memory:
            return ZERO
        index: IntExpr = a.value.value[1]  # type: ignore[index]
        total = IntExpr.of(self.width)
        for axis in (*self.outer, *self.r.axes):
            if index.coefficient(axis.symbol) != 0:
                total = total * axis.extent
        known = total.constant
        return compare("gt", total, FAR) if known is None else IntExpr.of(known > FAR)

    def _in_memory(self) -> list[tuple[Place, int]]:
        """Where the elements of each accumulator are, and how far apart, if that is known of all of them."""
        plain = not self.r.stores and len(self.axes) == 1
        if not plain or any(a.value.op != "load" or a.dtype.is_half for a in self.r.accumulators):
            return []
        found = [self._place(a) for a in self.r.accumulators]
        return [place for place in found if place is not None] if all(found) else []

    def _place(self, a: Accumulator) -> tuple[Place, int] | None:
        buffer: str
        index: IntExpr
        buffer, index = a.value.value  # type: ignore[misc]
        step = index.coefficient(self.axes[-1].symbol)
        known = None if step is None else step.constant
        if not known or (known != 1 and a.dtype.is_complex):
            return None
        return self._first(buffer, index), known

    def _first(self, buffer: str, index: IntExpr) -> Place:
        return buffer, index.substitute({self.names[-1]: AT})

    # -- copies -----------------------------------------------------------------------------------------------------
    def _copies(self, length: int | None) -> tuple[list[Place], tuple[Code, ...]]:
        """Statements that compute the elements, and what is stored on the way; where they are stored, or else a copy of them."""
        stored = [self._stored(a) for a in self.r.accumulators]
        size = self.most if length is None else max(1, length)
        found: list[Code] = [
            Declare(f"{a.name}_copy", computed_as(a.dtype), size=size, aligned=True)
            for a, place in zip(self.r.accumulators, stored)
            if place is None
        ]
        n = N if length is None else IntExpr.of(length)
        divisor = one_divisor(self.axes[-1], (self.r,)) if len(self.axes) == 1 else None
        if divisor is not None and divisor > 1:
            found += self._rows(stored, n, divisor)
        elif len(self.axes) == 1:
            found.append(For("l", ZERO, n, (Let(self.names[0], AT + ALONG), *_elements(self.r, stored, ALONG))))
        else:
            found += self._pieces(stored, n)
        places = [place or (f"{a.name}_copy", ZERO) for a, place in zip(self.r.accumulators, stored)]
        return places, tuple(found)

    def _stored(self, a: Accumulator) -> Place | None:
        if a.dtype.is_half or len(self.axes) > 1:
            return None
        stores = [s for s in self.r.stores if s.value == a.value and s.place is None]
        if not stores or stores[0].index.coefficient(self.axes[-1].symbol) != 1:
            return None
        return self._first(stores[0].buffer, stores[0].index)

    def _pieces(self, stored: Sequence[Place | None], n: IntExpr) -> tuple[Code, ...]:
        """The innermost of several axes, to its end, until there are `n` elements."""
        name, left, rest = self.names[-1], position("left"), position("rest")
        elements = Let(name, FIRST + ALONG), *_elements(self.r, stored, DONE + ALONG)
        piece = (
            Let("first", position(name)),
            Let("rest", n - DONE),
            Let("left", position(f"{name}_end") - FIRST),
            Let("row", _least(left, rest)),
            For("l", ZERO, ROW, elements),
            Assign("done", DONE + ROW),
            Assign(name, position(name) + ROW),
            *self._carry(),
        )
        return Declare("done", None, ZERO), While(compare("lt", DONE, n), piece)

    def _rows(self, stored: Sequence[Place | None], n: IntExpr, size: int) -> tuple[Code, ...]:
        """Along an axis that is rows of `size` elements: one row after the other, without divisions in between."""
        (name,) = self.names
        number = position(f"{name}_row")
        (row,) = substitute((self.r,), {name: number * size + IntExpr.symbol(name, 0, size - 1)})
        assert isinstance(row, Reduce)
        left, rest = position("left"), position("rest")
        elements = Let(name, FIRST + ALONG), *_elements(row, stored, DONE + ALONG)
        piece = (
            Let(f"{name}_row", (AT + DONE) // size),
            Let("first", (AT + DONE) % size),
            Let("rest", n - DONE),
            Let("left", size - FIRST),
            Let("row", _least(left, rest)),
            For("l", ZERO, ROW, elements),
            Assign("done", DONE + ROW),
        )
        return Declare("done", None, ZERO), While(compare("lt", DONE, n), piece)

    # -- the parts of one -------------------------------------------------------------------------------------------
    def _tree(self) -> tuple[Code, ...]:
        (axis,) = self.axes
        count = axis.extent.constant
        assert count is not None
        places, copies = self._copies(count)
        width, steps, totals = position("w"), [], []
        for a, (name, index) in zip(self.r.accumulators, places):
            left, right = (element(name, index + k, computed_as(a.dtype)) for k in (ALONG, ALONG + width))
            steps.append(Assign(name, step(a, left, right), index + ALONG))
            totals.append(add(a, element(name, index, computed_as(a.dtype))))
        pairs: list[Code] = []
        if count > 1:
            inner = For("l", ZERO, IntExpr.of(count), tuple(steps), AxisKind.LANE, step=2 * width)
            pairs.append(Powers("w", 1, count // 2, (inner,)))
        return Declare("at", None, axis.start), *copies, *pairs, *totals


def _least(a: IntExpr, b: IntExpr) -> IntExpr:
    return apply("min", a, b)


def _elements(r: Reduce, stored: Sequence[Place | None], place: IntLike) -> list[Code]:
    """One element: what is copied, and what is stored."""
    copied = [
        Assign(f"{a.name}_copy", widened(a.value), IntExpr.of(place)) for a, at in zip(r.accumulators, stored) if at is None
    ]
    return [*copied, *r.stores]


__all__ = ["add", "in_order"]
