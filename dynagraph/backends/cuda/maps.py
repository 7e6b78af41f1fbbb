"""Print map kernels in CUDA C: elementwise kernels, and transpositions through tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynagraph.backends.cuda.kernels import (
    THREAD,
    ZERO,
    KernelPrinter,
    decode,
    divided_up,
    from_zero,
    in_packs,
    plain,
    threads_over,
)
from dynagraph.backends.cuda.schedule import BLOCK, TILE, TILE_ROWS, Map, Tiled, n_iterations, replaced
from dynagraph.ir import dtypes, expr
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis
from dynagraph.ir.statements import (
    AxisKind,
    Barrier,
    Block,
    Code,
    Declare,
    For,
    If,
    Let,
    Move,
    as_int,
    compare,
    position,
    where,
)

TURNS = TILE // TILE_ROWS  # elements of a tile for each thread


class MapPrinter(KernelPrinter[Map]):
    """A pack, or an element, for each thread."""

    def units(self) -> tuple[IntExpr, int, int]:
        if not self.kernel.axes:
            return IntExpr.of(1), 1, 1
        *outer, last = self.kernel.axes
        return n_iterations(outer) * self._n_packs(last), BLOCK, BLOCK

    def described(self) -> str:
        return f"packs of {self.plan.width}" if self.plan.width > 1 else "an element for a thread"

    def code(self) -> tuple[Code, ...]:
        width, axes, body = self.plan.width, self.kernel.axes, plain(self.kernel.body)
        if not axes:
            return body
        *outer, last = axes
        n = n_iterations(outer) * self._n_packs(last)
        if width == 1:
            return threads_over(axes, n, body)
        # what is named after the axis counts packs: it is named anew within
        first = Let(f"{last.symbol.name}_first", position(last.symbol.name) * width)
        packs = replace(last, extent=self._n_packs(last))
        return threads_over([*outer, packs], n, [first, *self._packed_or_rest(last)])

    def _n_packs(self, axis: Axis) -> IntExpr:
        return divided_up(axis.extent, self.plan.width)

    def _packed_or_rest(self, axis: Axis) -> list[Code]:
        """The statements for the pack that begins at `first`; the last one of an axis may be short."""
        extent, width, name = axis.extent, self.plan.width, axis.symbol.name
        body, first = plain(self.kernel.body), position(f"{name}_first")
        pack = in_packs(body, axis, width, f"{name}_first")
        if all(c % width == 0 for c in extent.terms.values()):
            return pack
        rest = For(f"{name}_at", first, extent, (from_zero(axis, position(f"{name}_at")), *body))
        return [If(compare("le", first + width, extent), tuple(pack), (rest,))]


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

    def code(self) -> tuple[Code, ...]:
        across, last = self.kernel.axes[self.plan.across], self.kernel.axes[-1]
        axes, x, k = self._axes(), position("x"), position("k")
        tiles = [
            Declare(f"tile{n}", e.dtype, size=TILE * (TILE + 1), shared=True, as_stored=True)
            for n, e in enumerate(self.plan.loads)
        ]
        kept = [Declare(f"early{n}", e.dtype, size=TURNS, as_stored=True) for n, e in enumerate(self.plan.early)]
        to_tiles = [_move(f"tile{n}", k * (TILE + 1) + x, e) for n, e in enumerate(self.plan.loads)]
        to_registers = [_move(f"early{n}", position("turn"), e) for n, e in enumerate(self.plan.early)]
        there = {e: expr.load(f"tile{n}", x * (TILE + 1) + k, e.dtype) for n, e in enumerate(self.plan.loads)}
        there |= {e: expr.load(f"early{n}", position("turn"), e.dtype) for n, e in enumerate(self.plan.early)}
        body = plain(replaced(self.kernel.body, there.get))
        first = [Let(f"{axis.symbol.name}_first", position(axis.symbol.name) * TILE) for axis in (across, last)]
        one_tile: tuple[Code, ...] = (
            *decode("unit", axes),
            *first,
            *kept,
            *([self._each(across, last, k, x, to_registers)] if kept else []),
            self._each(across, last, x, k, to_tiles),
            Barrier(AxisKind.BLOCK),
            self._each(across, last, k, x, body),
        )
        return (
            *tiles,
            Declare("x", dtypes.int32, as_int(THREAD % TILE)),
            Declare("y", dtypes.int32, as_int(THREAD // TILE)),
            Let("n", n_iterations(axes)),
            For("unit", ZERO, position("n"), (Block(one_tile), Barrier(AxisKind.BLOCK)), AxisKind.BLOCK),
        )

    def _each(self, across: Axis, last: Axis, row: IntExpr, column: IntExpr, body: Sequence[Code]) -> For:
        """A thread's elements of a tile, one in each turn, of which `k` is the row."""
        found: list[Code] = [Let("k", position("y") + position("turn") * TILE_ROWS)]
        tests = []
        for axis, place in ((across, row), (last, column)):
            name = axis.symbol.name
            found.append(Let(name, position(f"{name}_first") + place))
            tests.append(compare("lt", position(name), axis.extent))
        inner = *found, *where(tests, body)
        return For("turn", ZERO, IntExpr.of(TURNS), inner, AxisKind.UNROLLED)


def _move(name: str, place: IntExpr, load: Expr) -> Move:
    buffer: str
    index: IntExpr
    buffer, index = load.value  # type: ignore[misc]
    return Move(name, place, buffer, index)


__all__ = ["MapPrinter", "TilePrinter"]
