"""Kernels that combine along an axis what neighbouring threads have: reductions of columns, and scans."""

from __future__ import annotations

from dynagraph.backends.cstyle import Scope, combine, initial
from dynagraph.backends.cuda.kernels import KernelPrinter, divided_up
from dynagraph.backends.cuda.schedule import BLOCK, UNROLLED_ROWS, WARP, Columns, Scanned, Walked, n_iterations
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.ir import dtypes
from dynagraph.ir.expr import var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Accumulator, ColumnReduce, Define, Running
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
    """A row for each block, which scans a block's width of it at a time."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self.kernel.axes), 1, self.plan.block

    def described(self) -> str:
        return f"a scan by {self.plan.block} threads"

    def body(self) -> None:
        plan = self.plan
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, Running))
        a, axis = r.accumulator, r.axis
        kind, name, warps = self.c.number_type(a.dtype), axis.symbol.name, plan.block // WARP
        start, end = self.c.bounds(axis)
        self.out.line(f"__shared__ {kind} of_warp[{warps}];")
        self.out.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
        self.blocks_over("row", self.c.integer(n_iterations(kernel.axes)))
        self.decode("row", kernel.axes)
        scope = Scope()
        self.block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{kind} carry = 0;")
        self.out.line(f"const dg_index {name}_start = {start}, {name}_end = {end};")
        self.out.open(f"for (dg_index first = {name}_start; first < {name}_end; first += {plan.block})")
        self.out.line(f"const dg_index {name} = first + threadIdx.x;")
        self.out.line(f"{kind} {a.name} = 0;")
        self.out.open(f"if ({name} < {name}_end)")
        (text,) = self.c.values([a.value], Scope(scope))
        self.out.line(f"{a.name} = {text};")
        self.out.close()
        self.out.line("#pragma unroll")
        self.out.open(f"for (int step = 1; step < {WARP}; step *= 2)")
        self.out.line(f"const {kind} before = dg_from_lane({a.name}, lane >= step ? lane - step : lane, {WARP});")
        self.out.open("if (lane >= step)")
        self.out.line(f"{a.name} = {follow(self.c, a, 'before', a.name)};")
        self.out.close()
        self.out.close()
        self.out.line(f"if (lane == {WARP - 1}) of_warp[warp] = {a.name};")
        self.out.line("__syncthreads();")
        self.out.line(f"{kind} prefix = carry;")
        self.out.line(f"bool some = first != {name}_start;")
        self.out.open(f"for (int w = 0; w < {warps}; ++w)")
        self.out.line(f"if (w == warp && some) {a.name} = {follow(self.c, a, 'prefix', a.name)};")
        self.out.line(f"prefix = some ? {follow(self.c, a, 'prefix', 'of_warp[w]')} : of_warp[w];")
        self.out.line("some = true;")
        self.out.close()
        self.out.line("carry = prefix;")
        self.out.open(f"if ({name} < {name}_end)")
        if a.dtype is dtypes.float16:
            self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")
        self.block(r.stores, Scope(scope))
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()
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
