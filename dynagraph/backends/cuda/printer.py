"""Print the kernels of a loop program as CUDA C, and say how each is launched.

Comes after `ir/passes/memory_plan.py`.  `schedule.py` decides how threads share a kernel's work; a printer for each way spells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynagraph.backends.cstyle import Writer
from dynagraph.backends.cuda.kernels import USUAL, KernelPrinter, Launch, Variant
from dynagraph.backends.cuda.maps import MapPrinter, TilePrinter
from dynagraph.backends.cuda.rows import RowsPrinter
from dynagraph.backends.cuda.scans import ColumnsPrinter, ScanPrinter, SerialScanPrinter
from dynagraph.backends.cuda.scatters import OrderedPrinter, OwnedPrinter, SortPrinter
from dynagraph.backends.cuda.schedule import Columns, Map, Ordered, Owned, ParallelScan, Rows, SerialScan, Sorting, Tiled, schedule
from dynagraph.ir.loops import ExternalCall, Kernel, LibraryCall, LoopProgram, RoutineCall

MOST_BLOCKS = 1 << 22  # of a grid: what is more than this many blocks' is done in turns
PRINTERS: Mapping[type, type[KernelPrinter[Any]]] = {
    Map: MapPrinter,
    Tiled: TilePrinter,
    Rows: RowsPrinter,
    Columns: ColumnsPrinter,
    ParallelScan: ScanPrinter,
    SerialScan: SerialScanPrinter,
    Ordered: OrderedPrinter,
    Owned: OwnedPrinter,
    Sorting: SortPrinter,
}
CudaStep = Launch | LibraryCall | ExternalCall


@dataclass(frozen=True)
class CudaSource:
    """CUDA C text of all kernels, the names of the prelude's functions that it uses, and the steps of the program in order."""

    text: str
    functions: frozenset[str]
    steps: tuple[CudaStep, ...]


def print_program(program: LoopProgram, variant: Variant = USUAL) -> CudaSource:
    """The kernels of a program (the prelude is not included)."""
    out = Writer()
    out.line(f"typedef {'int64_t' if variant.wide else 'int32_t'} dg_index;")
    functions: set[str] = set()
    steps: list[CudaStep] = []
    for step in program.steps:
        if isinstance(step, Kernel):
            plan = schedule(step, variant.packs and not variant.checked)
            printer = PRINTERS[type(plan)](program, step, plan, variant, out)
            steps.append(printer.run())
            functions |= printer.c.used_functions
        else:
            assert not isinstance(step, RoutineCall)  # legalize refuses them
            steps.append(step)
    return CudaSource(str(out), frozenset(functions), tuple(steps))


__all__ = ["MOST_BLOCKS", "CudaSource", "CudaStep", "Launch", "Variant", "print_program"]
