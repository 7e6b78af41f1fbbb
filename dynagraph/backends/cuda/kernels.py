"""What the printers of all kinds of kernels share: parameters, loops over blocks and threads, packs.

A subclass for each kind of `schedule.py` says how the work is divided (`units`) and what that is called, and prints the body.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dynagraph.backends.cstyle import Scope, Writer
from dynagraph.backends.cstyle import combine as combine_texts
from dynagraph.backends.cuda.schedule import BLOCK, Pack, Schedule
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import (
    Accumulator,
    Axis,
    Buffer,
    Define,
    Kernel,
    LoopProgram,
    Store,
    indices,
    loaded_buffers,
    stored_buffers,
)

Plan = TypeVar("Plan", bound=Schedule)


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: ``n`` units of work, `per_block` of them for each block of `threads` threads.

    Its parameters are the addresses of buffers, then sizes (by name, each an int64); of a checked variant also the first
    index and the end of each buffer but numbers (each an int64), and the address of the record (see dg_checked in support.h).
    """

    kernel: str
    n: IntExpr
    per_block: int
    threads: int
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    comment: str = ""


@dataclass(frozen=True)
class Variant:
    """What a source is made for: indices of 64 bits; whether all memory begins at multiples of 16 bytes; which inputs are numbers
    of the host's, which become parameters; whether every access to memory is checked, for which none is one of packs.
    """

    wide: bool = False
    packs: bool = True
    by_value: frozenset[int] = frozenset()
    checked: bool = False


USUAL = Variant()


class KernelPrinter(ABC, Generic[Plan]):
    """One kernel."""

    def __init__(self, program: LoopProgram, kernel: Kernel, plan: Plan, variant: Variant, out: Writer):
        self.program, self.kernel, self.plan, self.variant, self.out = program, kernel, plan, variant, out
        self.loaded, self.stored = loaded_buffers(kernel.body), stored_buffers(kernel.body)
        self.memory = [program.buffers[name] for name in sorted(self.loaded | self.stored)]
        numbered = enumerate(self.memory) if variant.checked else ()
        self.c = CudaStyle(out, {b.name: k for k, b in numbered if not self._is_number(b)})

    def run(self) -> Launch:
        kernel, memory = self.kernel, self.memory
        symbols = sorted(self._size_symbols(), key=lambda s: int(s[1:]))
        n, per_block, threads = self.units()
        parameters = [self._parameter(b, b.name in self.stored, b.name in self.loaded) for b in memory]
        parameters += [f"const int64_t {s}_size" for s in symbols]
        if self.variant.checked:
            parameters += [f"const int64_t {name}_{edge}" for name in self.c.checked for edge in ("low", "end")]
            parameters.append("int64_t *record")
        self.out.line()
        self.out.line(f"/* {kernel.comment}: {self.described()} */")
        bounds = f"{threads}, 1" if self.wants_registers() else str(threads)
        self.out.line(f'extern "C" __global__ void __launch_bounds__({bounds})')
        self.out.open(f"{kernel.name}({', '.join(parameters)})")
        for b in memory:
            if self._is_number(b):
                self.out.line(f"const {self.c.memory_type(b.dtype)} {b.name}[1] = {{{b.name}_value}};")
        for s in symbols:
            self.out.line(f"const dg_index {s} = (dg_index){s}_size;")
        self.body()
        self.out.close()
        names = tuple(b.name for b in memory)
        return Launch(kernel.name, n, per_block, threads, names, tuple(symbols), kernel.comment)

    @abstractmethod
    def units(self) -> tuple[IntExpr, int, int]:
        """Units of work, how many of them a block does at a time, and its threads."""

    @abstractmethod
    def described(self) -> str:
        """How threads share the work, in a few words."""

    @abstractmethod
    def body(self) -> None:
        """Print what the kernel does."""

    def wants_registers(self) -> bool:
        """Whether registers matter more than threads: else the compiler spills a few, so that a processor takes another block."""
        return False

    def _is_number(self, buffer: Buffer) -> bool:
        return buffer.role == "input" and buffer.position in self.variant.by_value

    def _parameter(self, b: Buffer, stored: bool, loaded: bool) -> str:
        kind = self.c.memory_type(b.dtype)
        if self._is_number(b):
            return f"const {kind} {b.name}_value"
        if stored:  # what is only written to is nobody else's; what is read too may be read as it was written
            return f"{kind} *{'' if loaded else '__restrict__ '}{b.name}"
        return f"const {kind} *__restrict__ {b.name}"

    def _size_symbols(self) -> set[str]:
        found = {s.name for axis in self.kernel.axes for s in axis.extent.symbols()}
        found |= {s.name for index in indices(self.kernel.body) for s in index.symbols()}
        return {s for s in found if s[0] == "s" and s[1:].isdigit()}

    # -- loops ----------------------------------------------------------------------------------------------------------
    def decode(self, item: str, axes: Sequence[Axis]) -> None:
        """Loop variables from the number of an iteration, last axis fastest."""
        if not axes:
            return
        rest = item
        for axis in reversed(axes[1:]):
            extent = self.c.integer(axis.extent)
            name = axis.symbol.name
            self.out.line(f"const dg_index {name}_rest = {rest} / ({extent});")
            self.out.line(f"const dg_index {name} = {rest} - {name}_rest * ({extent});")
            rest = f"{name}_rest"
        self.out.line(f"const dg_index {axes[0].symbol.name} = {rest};")

    def blocks_over(self, name: str, n: str, per_block: int = 1) -> None:
        """Open a loop of which each block takes turns."""
        each = f" * {per_block}" if per_block > 1 else ""
        self.out.open(
            f"for (dg_index {name} = (dg_index)blockIdx.x{each}; {name} < {n}; {name} += (dg_index)gridDim.x{each})"
        )

    def threads_over(self, n: str) -> None:
        """Open a loop over items of which each thread takes turns."""
        self.out.line(f"const dg_index n = {n};")
        self.out.open(
            f"for (dg_index item = (dg_index)blockIdx.x * {BLOCK} + threadIdx.x; item < n; item += (dg_index)gridDim.x * {BLOCK})"
        )

    @contextlib.contextmanager
    def where(self, tests: Sequence[str]) -> Iterator[None]:
        """Lines for those threads for which all tests hold."""
        if tests:
            self.out.open(f"if ({' && '.join(tests)})")
        yield
        if tests:
            self.out.close()

    # -- statements -----------------------------------------------------------------------------------------------------
    def block(self, items: Iterable[Define | Store], scope: Scope) -> None:
        self.c.block(list(items), scope)

    def combine(self, a: Accumulator, left: str, right: str) -> str:
        return combine_texts(self.c, a.kind, a.dtype, left, right)

    # -- packs ----------------------------------------------------------------------------------------------------------
    def at_first(self, pack: Pack, axis: Axis, first: str) -> str:
        """The address of the first element of a pack."""
        index = pack.index.substitute({axis.symbol.name: IntExpr.symbol(first) + axis.start})
        return f"{pack.buffer} + ({self.c.integer(index)})"

    def load_packs(self, packs: Sequence[Pack], axis: Axis, width: int, first: str) -> None:
        for pack in packs:
            kind = self.c.memory_type(pack.dtype)
            self.out.line(
                f"const dg_pack<{kind}, {width}> {pack.name} = dg_load_pack<{kind}, {width}>({self.at_first(pack, axis, first)});"
            )

    def store_packs(self, packs: Sequence[Pack], axis: Axis, width: int, first: str) -> None:
        for pack in packs:
            self.out.line(f"dg_store_pack({self.at_first(pack, axis, first)}, {pack.name});")


def divided_up(n: IntExpr, size: int) -> IntExpr:
    """How many parts of a size it takes."""
    return (n + (size - 1)) // size if size > 1 else n


__all__ = ["USUAL", "KernelPrinter", "Launch", "Variant", "divided_up"]
