"""Write column reductions and scans out for CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynagraph.backends.cuda.kernels import (
    LANE,
    LANE_OF_PACK,
    THREAD,
    THREAD_INDEX,
    ZERO,
    KernelPrinter,
    decode,
    divided_up,
    from_zero,
    in_packs,
    nested_loops,
    threads_over,
)
from dynagraph.backends.cuda.schedule import (
    BLOCK,
    UNROLLED_ROWS,
    WARP,
    Columns,
    ParallelScan,
    SerialScan,
    n_iterations,
)
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import (
    begin_scan,
    choose,
    computed_as,
    identity,
    local,
    rounded,
    running_step,
    scan_step,
    step,
    widened,
)
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, IntLike, apply
from dynagraph.ir.loops import Accumulator, ColumnReduce, Define, ScanLoop, Store
from dynagraph.ir.statements import (
    Assign,
    AxisKind,
    Barrier,
    Code,
    Declare,
    For,
    If,
    Let,
    Powers,
    as_int,
    compare,
    element,
    position,
    value_of,
    where,
)

AT, FIRST = position("at"), position("first")


Lines = Callable[[IntExpr], list[Code]]


def _nothing(place: IntExpr) -> list[Code]:
    return []


class ColumnsPrinter(KernelPrinter[Columns]):
    """Neighbouring columns for each block, whose threads take their rows in turn."""

    def units(self) -> tuple[IntExpr, int, int]:
        (statement,) = (s for s in self.kernel.body if isinstance(s, ColumnReduce))
        return n_iterations(self.kernel.axes) * divided_up(statement.column.extent, self.plan.columns), 1, BLOCK

    def described(self) -> str:
        return f"{self.plan.columns} columns for a block"

    def code(self) -> tuple[Code, ...]:
        columns, axes = self.plan.columns, self.kernel.axes
        (r,) = (s for s in self.kernel.body if isinstance(s, ColumnReduce))
        column, name, n_rows = r.column, r.column.symbol.name, BLOCK // columns
        blocks, outer = position("blocks"), position("outer")
        is_column = compare("lt", position(name), column.extent)
        y, half = position("y"), position("half")

        def of_row(row: IntLike) -> IntExpr:
            return row * IntExpr.of(columns + 1) + position("x")

        def shared(a: Accumulator, row: IntLike) -> Expr:
            return element(f"{a.name}_of_row", of_row(row), computed_as(a.dtype))

        joined = [Assign(f"{a.name}_of_row", step(a, shared(a, y), shared(a, y + half)), of_row(y)) for a in r.accumulators]
        tree = If(compare("lt", y, half), tuple(joined)), Barrier(AxisKind.BLOCK)
        results = [Assign(a.name, rounded(shared(a, 0), a.dtype)) for a in r.accumulators]
        unit: tuple[Code, ...] = (
            Let("outer", position("unit") // blocks),
            Let("block", position("unit") - outer * blocks),
            Let(name, position("block") * columns + position("x")),
            *decode("outer", axes),
            *(s for s in self.kernel.body if isinstance(s, Define)),
            *(Declare(a.name, computed_as(a.dtype), identity(a)) for a in r.accumulators),
            If(is_column, self._rows(r, n_rows)),
            *(Assign(f"{a.name}_of_row", local(a.name, a.dtype), of_row(y)) for a in r.accumulators),
            Barrier(AxisKind.BLOCK),
            *([Powers("half", n_rows // 2, 1, tree, AxisKind.UNROLLED)] if n_rows > 1 else []),
            *where([compare("eq", y, 0), is_column], [*results, *r.stores]),
            Barrier(AxisKind.BLOCK),
        )
        return (
            *(
                Declare(f"{a.name}_of_row", computed_as(a.dtype), size=n_rows * (columns + 1), shared=True)
                for a in r.accumulators
            ),
            Declare("x", dtypes.int32, as_int(THREAD % columns)),
            Declare("y", dtypes.int32, as_int(THREAD // columns)),
            Let("blocks", divided_up(column.extent, columns)),
            Let("n", n_iterations(axes) * blocks),
            For("unit", ZERO, position("n"), unit, AxisKind.BLOCK),
        )

    def _rows(self, r: ColumnReduce, n_rows: int) -> tuple[Code, ...]:
        """A thread's rows of its column."""
        *outer, last = r.axes
        row = last.symbol.name
        taken = tuple(Assign(a.name, step(a, local(a.name, a.dtype), a.value)) for a in r.accumulators)
        rows = For(
            row, last.start + position("y"), position(f"{row}_end"), taken, AxisKind.WARP, step=n_rows, unroll=UNROLLED_ROWS
        )
        return nested_loops(outer, (Let(f"{row}_end", last.start + last.extent), rows))


class ScanPrinter(KernelPrinter[ParallelScan]):
    """A row for each block.  In each turn a thread scans neighbours, a warp its threads' totals, and each warp those of all."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), 1, self.plan.block

    def described(self) -> str:
        return f"a scan by {self.plan.block} threads" + (f", packs of {self.plan.width}" if self.plan.width > 1 else "")

    def code(self) -> tuple[Code, ...]:
        plan, axes = self.plan, self.kernel.axes
        (r,) = (s for s in self.kernel.body if isinstance(s, ScanLoop))
        self.r, self.wide = r, computed_as(r.accumulator.dtype)
        warps, turn = plan.block // WARP, plan.block * plan.width
        row: tuple[Code, ...] = (
            *decode("row", axes),
            *(s for s in self.kernel.body if isinstance(s, Define)),
            Let("length", r.axis.extent),
            Declare("carry", self.wide, expr.const(0, self.wide)),
            Declare("half", dtypes.int32, expr.const(0, dtypes.int32)),  # of `of_warp`: the other may yet be read
            For("first", ZERO, position("length"), self._turn(warps), step=turn),
            Barrier(AxisKind.BLOCK),
        )
        return (
            Declare("of_warp", self.wide, size=2 * warps, shared=True),
            Declare("lane", dtypes.int32, as_int(THREAD % WARP)),
            Declare("warp", dtypes.int32, as_int(THREAD // WARP)),
            For("row", ZERO, n_iterations(axes), row, AxisKind.BLOCK),
        )

    def _var(self, name: str) -> Expr:
        return expr.var(name, self.r.accumulator.dtype)

    def _follow(self, before: Expr, value: Expr) -> Expr:
        return running_step(self.r.accumulator, before, value)

    def _mine(self, place: IntLike) -> Expr:
        return element("mine", place, self.wide)

    def _turn(self, warps: int) -> tuple[Code, ...]:
        """The elements that a block takes at a time."""
        a, width, half = self.r.accumulator, self.plan.width, position("half")
        some = expr.var("some", dtypes.bool_)
        some_before: list[Code] = []
        value = Define(f"{a.name}_value", a.value)
        scanned: list[Code] = []
        if width > 1:
            k = position("k")
            neighbours = Declare("left", self.wide, self._mine(k - 1)), Declare("right", self.wide, self._mine(k))
            following = Assign("mine", self._follow(self._var("left"), self._var("right")), k)
            scanned.append(For("k", IntExpr.of(1), IntExpr.of(width), (*neighbours, following), AxisKind.UNROLLED))
        for which in ("warp", "lane"):
            before = self._var(f"{which}s_before")
            joined = choose(some, self._follow(self._var("before"), before), before)
            is_behind = compare("ne", position(which), 0)
            some_before += [If(is_behind, (Assign("before", joined),)), Assign("some", expr.call("or", some, is_behind))]
        everything, first = self._var("all"), compare("ne", FIRST, 0)
        return (
            Let("at", FIRST + THREAD_INDEX * width),
            Declare("mine", self.wide, size=width, is_zeroed=True),
            *self._elements([value], after=lambda place: [Assign("mine", widened(self._var(value.name)), place)]),
            *scanned,
            Declare("total", self.wide, self._mine(width - 1)),
            *self._scan_lanes("total", WARP),
            If(compare("eq", LANE, WARP - 1), (Assign("of_warp", self._var("total"), half + position("warp")),)),
            Barrier(AxisKind.BLOCK),
            Declare("totals", self.wide, element("of_warp", half + LANE % warps, self.wide)),
            *self._scan_lanes("totals", warps),
            Declare("warps_before", self.wide, self._lane_before("totals", "warp")),
            Declare("lanes_before", self.wide, self._lane_before("total", "lane")),
            Declare("all", self.wide, self._from_lane("totals", value_of(warps - 1))),
            Declare("before", self.wide, self._var("carry")),
            Declare("some", dtypes.bool_, first),
            *some_before,
            Assign("carry", choose(first, self._follow(self._var("carry"), everything), everything)),
            *self._elements(self.r.stores, before=self._running_value),
            Assign("half", expr.call("xor", expr.var("half", dtypes.int32), expr.const(warps, dtypes.int32))),
        )

    def _running_value(self, place: IntExpr) -> list[Code]:
        a, own = self.r.accumulator, self._var("own")
        value = choose(expr.var("some", dtypes.bool_), self._follow(self._var("before"), own), own)
        return [Declare("own", self.wide, self._mine(place)), Declare(a.name, self.wide, rounded(value, a.dtype))]

    def _elements(self, items: Sequence[Define | Store], before: Lines = _nothing, after: Lines = _nothing) -> list[Code]:
        """Statements for each element of a thread, with others before or after them that know its place."""
        axis, width, length = self.r.axis, self.plan.width, position("length")

        def one(some: Sequence[Define | Store], place: IntExpr) -> list[Code]:
            return [*before(place), *some, *after(place)]

        if width == 1:
            return [If(compare("lt", AT, length), (from_zero(axis, AT), *one(items, ZERO)))]
        pack = in_packs(items, axis, width, "at", lambda some: one(some, LANE_OF_PACK))
        k = position("k")
        rest = If(compare("lt", AT + k, length), (from_zero(axis, AT + k), *one(items, k)))
        # of a number of places that is known, to stay in registers
        places = For("k", ZERO, IntExpr.of(width - 1), (rest,), AxisKind.UNROLLED)
        return [If(compare("le", AT + width, length), tuple(pack), (places,))]

    def _scan_lanes(self, name: str, lanes: int) -> list[Code]:
        if lanes == 1:
            return []
        bit = position("step")
        is_behind = compare("ge", LANE, bit)
        source = Expr("select", (is_behind, value_of(LANE - bit), value_of(LANE)), dtypes.int64)
        left = Declare("left", self.wide, self._from_lane(name, source))
        joined = If(is_behind, (Assign(name, self._follow(self._var("left"), self._var(name))),))
        return [Powers("step", 1, lanes // 2, (left, joined), AxisKind.UNROLLED)]

    def _lane_before(self, name: str, which: str) -> Expr:
        return self._from_lane(name, value_of(apply("max", position(which) - 1, ZERO)))

    def _from_lane(self, name: str, lane: Expr) -> Expr:
        return Expr("from_lane", (self._var(name), lane, value_of(WARP)), self.wide)


class SerialScanPrinter(KernelPrinter[SerialScan]):
    """A row for each thread."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), BLOCK, BLOCK

    def described(self) -> str:
        return "a thread for a row, in order"

    def code(self) -> tuple[Code, ...]:
        (r,) = (s for s in self.kernel.body if isinstance(s, ScanLoop))
        defines = [s for s in self.kernel.body if isinstance(s, Define)]
        axes = self.kernel.axes
        scan = nested_loops([r.axis], scan_step(r, running_step))
        return threads_over(axes, n_iterations(axes), [*defines, begin_scan(r), *scan])


__all__ = ["ColumnsPrinter", "ScanPrinter", "SerialScanPrinter"]
