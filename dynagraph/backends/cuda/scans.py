"""Kernels that combine along an axis what neighbouring threads have: reductions of columns, and scans."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.cstyle import Scope, combine, initial
from dynagraph.backends.cuda.kernels import KernelPrinter, divided_up
from dynagraph.backends.cuda.schedule import BLOCK, UNROLLED_ROWS, WARP, Columns, Scanned, Walked, n_iterations, packed
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.ir.expr import var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, ColumnReduce, Define, Running, Statement, Store
from dynagraph.ir.passes.lower import combined


class ColumnsPrinter(KernelPrinter[Columns]):
    """Neighbouring columns for each block, whose threads take their rows in turn."""

    def units(self) -> tuple[IntExpr, int, int]:
        (statement,) = (s for s in self.kernel.body if isinstance(s, ColumnReduce))
        return n_iterations(self.kernel.axes) * divided_up(statement.column.extent, self.plan.columns), 1, BLOCK

    def described(self) -> str:
        return f"{self.plan.columns} columns for a block"

    def body(self) -> None:
        plan = self.plan
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, ColumnReduce))
        a, column = r.accumulator, r.column
        kind, name = self.c.number_type(a.dtype), column.symbol.name
        n_rows = BLOCK // plan.columns
        blocks = divided_up(column.extent, plan.columns)
        self.out.line(f"__shared__ {kind} of_row[{n_rows}][{plan.columns + 1}];")
        self.out.line(f"const int x = threadIdx.x % {plan.columns}, y = threadIdx.x / {plan.columns};")
        self.out.line(f"const dg_index blocks = {self.c.integer(blocks)};")
        self.out.line(f"const dg_index n = {self.c.integer(n_iterations(kernel.axes))} * blocks;")
        self.blocks_over("unit", "n")
        self.out.line("const dg_index outer = unit / blocks;")
        self.out.line(f"const dg_index {name} = (unit - outer * blocks) * {plan.columns} + x;")
        self.decode("outer", kernel.axes)
        scope = Scope()
        self.block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{kind} {a.name} = {initial(self.c, a)};")
        self.out.open(f"if ({name} < {self.c.integer(column.extent)})")
        *outer, last = r.axes
        for axis in outer:
            self.c.open_loop(axis)
        start, end = self.c.bounds(last)
        row = last.symbol.name
        self.out.line(f"const dg_index {row}_end = {end};")
        self.out.line(f"#pragma unroll {UNROLLED_ROWS}")
        self.out.open(f"for (dg_index {row} = {start} + y; {row} < {row}_end; {row} += {n_rows})")
        (text,) = self.c.values([a.value], Scope(scope))
        self.out.line(f"{a.name} = {self.combine(a, a.name, text)};")
        for _ in (*outer, last):
            self.out.close()
        self.out.close()
        self.out.line(f"of_row[y][x] = {a.name};")
        self.out.line("__syncthreads();")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int half = {n_rows // 2}; half; half /= 2)")
        self.out.open("if (y < half)")
        self.out.line(f"of_row[y][x] = {self.combine(a, 'of_row[y][x]', 'of_row[y + half][x]')};")
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()
        self.out.open(f"if (y == 0 && {name} < {self.c.integer(column.extent)})")
        self.out.line(f"{a.name} = {self.c.rounded('of_row[0][x]', a.dtype)};")
        self.block(r.stores, Scope(scope))
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()


class ScanPrinter(KernelPrinter[Scanned]):
    """A row for each block.  In each turn a thread scans neighbours, a warp its threads' totals, and each warp those of all."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), 1, self.plan.block

    def described(self) -> str:
        return f"a scan by {self.plan.block} threads" + (f", packs of {self.plan.width}" if self.plan.width > 1 else "")

    def body(self) -> None:
        plan = self.plan
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, Running))
        a, width, warps = r.accumulator, plan.width, plan.block // WARP
        kind = self.c.number_type(a.dtype)
        self.out.line(f"__shared__ {kind} of_warp[{2 * warps}];")
        self.out.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
        self.blocks_over("row", self.c.integer(n_iterations(kernel.axes)))
        self.decode("row", kernel.axes)
        self.block([s for s in kernel.body if isinstance(s, Define)], Scope())
        self.out.line(f"const dg_index length = {self.c.integer(r.axis.extent)};")
        self.out.line(f"{kind} carry = 0;")
        self.out.line("int half = 0;")  # of `of_warp`: one is written to while the other may yet be read
        self.out.open(f"for (dg_index first = 0; first < length; first += {plan.block * width}, half ^= {warps})")
        self.out.line(f"const dg_index at = first + (dg_index)threadIdx.x{f' * {width}' if width > 1 else ''};")
        self.out.line(f"{kind} mine[{width}] = {{}};")
        self._elements(r, [Define(f"{a.name}_value", a.value)], f"mine[{{}}] = {a.name}_value;")
        if width > 1:
            self.out.line("#pragma unroll")
            self.out.line(f"for (int k = 1; k < {width}; ++k) mine[k] = {follow(self.c, a, 'mine[k - 1]', 'mine[k]')};")
        self.out.line(f"{kind} total = mine[{width - 1}];")
        self._scan_lanes(a, "total", WARP)
        self.out.line(f"if (lane == {WARP - 1}) of_warp[half + warp] = total;")
        self.out.line("__syncthreads();")
        self.out.line(f"{kind} totals = of_warp[half + lane % {warps}];")
        self._scan_lanes(a, "totals", warps)
        for name, value, which in (("warps", "totals", "warp"), ("lanes", "total", "lane")):
            self.out.line(f"const {kind} {name}_before = dg_from_lane({value}, {which} ? {which} - 1 : 0, {WARP});")
        self.out.line(f"const {kind} all = dg_from_lane(totals, {warps - 1}, {WARP});")
        self.out.line(f"{kind} before = carry;")
        self.out.line("bool some = first != 0;")
        for which in ("warp", "lane"):
            self.out.line(f"if ({which}) before = some ? {follow(self.c, a, 'before', f'{which}s_before')} : {which}s_before;")
            self.out.line(f"some = some || {which};")
        self.out.line(f"carry = first ? {follow(self.c, a, 'carry', 'all')} : all;")
        behind = self.c.rounded(f"(some ? {follow(self.c, a, 'before', 'mine[{}]')} : mine[{{}}])", a.dtype)
        self._elements(r, r.stores, before=f"const {kind} {a.name} = {behind};")
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()

    def _elements(self, r: Running, items: Sequence[Define | Store], after: str = "", before: str = "") -> None:
        """Statements for each element of a thread, with a line before or after them in which {} is its place."""
        axis, width = r.axis, self.plan.width
        name, start = axis.symbol.name, self.c.integer(axis.start)

        def one(some: Sequence[Statement], place: str) -> None:
            for line in [before] * bool(before):
                self.out.line(line.replace("{}", place))
            self.block([s for s in some if isinstance(s, (Define, Store))], Scope())
            for line in [after] * bool(after):
                self.out.line(line.replace("{}", place))

        if width == 1:
            self.out.open("if (at < length)")
            self.out.line(f"const dg_index {name} = {start} + at;")
            one(items, "0")
            self.out.close()
            return
        statements, loads, stores = packed(items, axis, width, IntExpr.symbol("lane_of_pack", 0, width - 1), {})
        self.out.open(f"if (at + {width} <= length)")
        self.load_packs(loads, axis, width, "at")
        for pack in stores:
            self.out.line(f"dg_pack<{self.c.memory_type(pack.dtype)}, {width}> {pack.name};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int lane_of_pack = 0; lane_of_pack < {width}; ++lane_of_pack)")
        self.out.line(f"const dg_index {name} = {start} + at + lane_of_pack;")
        one(statements, "lane_of_pack")
        self.out.close()
        self.store_packs(stores, axis, width, "at")
        self.out.close(" else {")
        self.out.depth += 1
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = 0; k < {width - 1}; ++k)")  # of a number of places that is known, to stay in registers
        self.out.open("if (at + k < length)")
        self.out.line(f"const dg_index {name} = {start} + at + k;")
        one(items, "k")
        self.out.close()
        self.out.close()
        self.out.close()

    def _scan_lanes(self, a: Accumulator, name: str, lanes: int) -> None:
        if lanes == 1:
            return
        self.out.line("#pragma unroll")
        self.out.open(f"for (int step = 1; step < {lanes}; step *= 2)")
        kind = self.c.number_type(a.dtype)
        self.out.line(f"const {kind} left = dg_from_lane({name}, lane >= step ? lane - step : lane, {WARP});")
        self.out.line(f"if (lane >= step) {name} = {follow(self.c, a, 'left', name)};")
        self.out.close()


class WalkPrinter(KernelPrinter[Walked]):
    """A row for each thread."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), BLOCK, BLOCK

    def described(self) -> str:
        return "a thread for a row, in order"

    def body(self) -> None:
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, Running))
        a, axis = r.accumulator, r.axis
        self.threads_over(self.c.integer(n_iterations(kernel.axes)))
        self.decode("item", kernel.axes)
        scope = Scope()
        self.block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = 0;")
        self.c.open_loop(axis)
        inner = Scope(scope)
        self.block([Define(f"{a.name}_value", a.value)], inner)
        first = f"{axis.symbol.name} == {self.c.integer(axis.start)}"
        self.out.line(f"{a.name} = {first} ? {a.name}_value : {follow(self.c, a, a.name, f'{a.name}_value')};")
        self.block(r.stores, inner)
        self.out.close()
        self.out.close()


def follow(c: CudaStyle, a: Accumulator, before: str, value: str) -> str:
    """The running value behind two parts, one after the other."""
    if a.kind in ("sum", "prod"):
        return combine(c, a.kind, a.dtype, before, value)
    return c.expr(combined(a.kind, var(before, a.dtype), var(value, a.dtype)), Scope())


__all__ = ["ColumnsPrinter", "ScanPrinter", "WalkPrinter"]
