"""Kernels whose elements are computed one by one: maps, and transpositions through tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynagraph.backends.cstyle import Scope
from dynagraph.backends.cuda.kernels import KernelPrinter, divided_up
from dynagraph.backends.cuda.schedule import BLOCK, TILE, TILE_ROWS, Map, Tiled, n_iterations, packed, replaced
from dynagraph.ir import expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis, Define, Store


class MapPrinter(KernelPrinter[Map]):
    """A pack, or an element, for each thread."""

    def units(self) -> tuple[IntExpr, int, int]:
        if not self.kernel.axes:
            return IntExpr.of(1), 1, 1
        *outer, last = self.kernel.axes
        return n_iterations(outer) * self._n_packs(last), BLOCK, BLOCK

    def described(self) -> str:
        return f"packs of {self.plan.width}" if self.plan.width > 1 else "an element for a thread"

    def body(self) -> None:
        width = self.plan.width
        axes, body = self.kernel.axes, [s for s in self.kernel.body if isinstance(s, (Define, Store))]
        if not axes:
            self.block(body, Scope())
            return
        *outer, last = axes
        n = self.c.integer(n_iterations(outer) * self._n_packs(last))
        self.threads_over(n)
        if width == 1:
            self.decode("item", axes)
            self.block(body, Scope())
        else:
            self.decode("item", [*outer, replace(last, extent=self._n_packs(last))])
            # what was named after the axis counts packs: name it anew
            name = last.symbol.name
            first = f"{name}_first"
            self.out.line(f"const dg_index {first} = {name} * {width};")
            self._packed_or_rest(body, last, first)
        self.out.close()

    def _n_packs(self, axis: Axis) -> IntExpr:
        return divided_up(axis.extent, self.plan.width)

    def _packed_or_rest(self, body: Sequence[Define | Store], axis: Axis, first: str) -> None:
        """The statements for the pack that begins at `first`; the last one of an axis may be short."""
        extent, width = axis.extent, self.plan.width
        whole = all(c % width == 0 for c in extent.terms.values())
        if not whole:
            self.out.open(f"if ({first} + {width} <= {self.c.integer(extent)})")
        self._packed(body, axis, first)
        if not whole:
            self.out.close(" else {")
            self.out.depth += 1
            name = axis.symbol.name
            start = self.c.integer(axis.start)
            self.out.open(f"for (dg_index {name}_at = {first}; {name}_at < {self.c.integer(extent)}; ++{name}_at)")
            self.out.line(f"const dg_index {name} = {start} + {name}_at;")
            self.block(body, Scope())
            self.out.close()
            self.out.close()

    def _packed(self, body: Sequence[Define | Store], axis: Axis, first: str) -> None:
        name, width = axis.symbol.name, self.plan.width
        statements, loads, stores = packed(body, axis, width, IntExpr.symbol("lane_of_pack", 0, width - 1), {})
        self.load_packs(loads, axis, width, first)
        for pack in stores:
            self.out.line(f"dg_pack<{self.c.memory_type(pack.dtype)}, {width}> {pack.name};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int lane_of_pack = 0; lane_of_pack < {width}; ++lane_of_pack)")
        self.out.line(f"const dg_index {name} = {self.c.integer(axis.start)} + {first} + lane_of_pack;")
        self.block([s for s in statements if isinstance(s, (Define, Store))], Scope())
        self.out.close()
        self.store_packs(stores, axis, width, first)


class TilePrinter(KernelPrinter[Tiled]):
    """A square of elements for each block: what lies along another axis than it is stored is turned in shared memory."""

    def units(self) -> tuple[IntExpr, int, int]:
        return n_iterations(self._axes()), 1, TILE * TILE_ROWS

    def described(self) -> str:
        return "tiles through shared memory"

    def _axes(self) -> list[Axis]:
        """The axes that blocks are numbered by: those of tiles come last."""
        axes = self.kernel.axes
        others = [a for k, a in enumerate(axes[:-1]) if k != self.plan.across]
        tiles = [replace(a, extent=divided_up(a.extent, TILE)) for a in (axes[self.plan.across], axes[-1])]
        return [*others, *tiles]

    def body(self) -> None:
        plan = self.plan
        across, last = self.kernel.axes[plan.across], self.kernel.axes[-1]
        r, c = across.symbol.name, last.symbol.name
        rows, columns = self.c.integer(across.extent), self.c.integer(last.extent)
        body = [s for s in self.kernel.body if isinstance(s, (Define, Store))]
        axes = self._axes()
        for k, e in enumerate(plan.loads):
            self.out.line(f"__shared__ {self.c.memory_type(e.dtype)} tile{k}[{TILE}][{TILE + 1}];")
        self.out.line(f"const int x = threadIdx.x % {TILE}, y = threadIdx.x / {TILE};")
        self.out.line(f"const dg_index n = {self.c.integer(n_iterations(axes))};")
        self.blocks_over("unit", "n")
        self.out.open("")
        self.decode("unit", axes)
        self.out.line(f"const dg_index {r}_first = {r} * {TILE}, {c}_first = {c} * {TILE};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = y; k < {TILE}; k += {TILE_ROWS})")
        self.out.line(f"const dg_index {r} = {r}_first + x, {c} = {c}_first + k;")
        self.out.open(f"if ({r} < {rows} && {c} < {columns})")
        for k, e in enumerate(plan.loads):
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            self.out.line(f"tile{k}[k][x] = {self.c.element(buffer, self.c.integer(index))};")
        self.out.close()
        self.out.close()
        self.out.line("__syncthreads();")
        names = {e: expr.load(f"tile{k}[x]", IntExpr.symbol("k"), e.dtype) for k, e in enumerate(plan.loads)}
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = y; k < {TILE}; k += {TILE_ROWS})")
        self.out.line(f"const dg_index {r} = {r}_first + k, {c} = {c}_first + x;")
        self.out.open(f"if ({r} < {rows} && {c} < {columns})")
        self.block([s for s in replaced(body, names.get) if isinstance(s, (Define, Store))], Scope())
        self.out.close()
        self.out.close()
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()


__all__ = ["MapPrinter", "TilePrinter"]
