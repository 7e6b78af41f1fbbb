"""CUDA kernel printer base: parameters, loops over blocks and threads, packs.

A subclass for each kind of `schedule.py` says how the work is divided (`units`) and what that is called, and prints the body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from dynagraph.backends.cstyle import Writer
from dynagraph.backends.cuda.schedule import BLOCK, MOST_THREADS, Pack, Schedule, packed
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.backends.spelling import Speller
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.loops import (
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
from dynagraph.ir.statements import AxisKind, Code, Declare, For, Let, LoadPack, StorePack, divided, position, where

Plan = TypeVar("Plan", bound=Schedule)
ZERO = IntExpr.of(0)
# of a block; unsigned, which is fast to divide, and as an index, of which the compiler knows that sums do not overflow
THREAD, THREAD_INDEX = position("threadIdx.x"), position("(dg_index)threadIdx.x")
LANE, LANE_OF_PACK = position("lane"), position("lane_of_pack")


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
        bounds = f"{threads}, {MOST_THREADS // threads}" if self.wants_registers() else str(threads)
        self.out.line(f'extern "C" __global__ void __launch_bounds__({bounds})')
        self.out.open(f"{kernel.name}({', '.join(parameters)})")
        for b in memory:
            if self._is_number(b):
                self.out.line(f"const {self.c.memory_type(b.dtype)} {b.name}[1] = {{{b.name}_value}};")
        for s in symbols:
            self.out.line(f"const dg_index {s} = (dg_index){s}_size;")
        Speller(self.c).body(self.code())
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
    def code(self) -> tuple[Code, ...]:
        """What each thread does."""

    def wants_registers(self) -> bool:
        """Whether registers matter more than threads: else the compiler spills a few, so that a processor takes another block.

        A processor then takes one block's threads at most, `MOST_THREADS`, and each may have 64 registers.
        """
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


def divided_up(n: IntExpr, size: int) -> IntExpr:
    """How many parts of a size it takes."""
    return (n + (size - 1)) // size if size > 1 else n


def decode(item: str, axes: Sequence[Axis]) -> list[Code]:
    """Loop variables from the number of an iteration, last axis fastest."""
    found: list[Code] = []
    for axis in reversed(axes[1:]):
        name, rest = axis.symbol.name, position(item)
        found.append(Let(f"{name}_rest", divided(rest, axis.extent)[0]))
        found.append(Let(name, rest - position(f"{name}_rest") * axis.extent))
        item = f"{name}_rest"
    return [*found, Let(axes[0].symbol.name, position(item))] if axes else []


def threads_over(axes: Sequence[Axis], n: IntExpr, body: Sequence[Code]) -> tuple[Code, ...]:
    """A loop over `n` iterations of axes, of which each thread takes turns."""
    loop = For("item", ZERO, position("n"), (*decode("item", axes), *body), AxisKind.PARALLEL, step=BLOCK)
    return Let("n", n), loop


def nested_loops(axes: Sequence[Axis], body: Sequence[Code]) -> tuple[Code, ...]:
    """One thread's loops over axes."""
    for axis in reversed(axes):
        name, end = axis.symbol.name, axis.start + axis.extent
        if axis.extent.constant is not None:
            body = (For(name, axis.start, end, tuple(body)),)
        else:
            body = Let(f"{name}_end", end), For(name, axis.start, position(f"{name}_end"), tuple(body))
    return tuple(body)


def from_zero(axis: Axis, at: IntExpr) -> Let:
    """The loop variable of an axis from the number of its turn."""
    return Let(axis.symbol.name, axis.start + at)


def plain(body: Iterable[object]) -> tuple[Define | Store, ...]:
    return tuple(s for s in body if isinstance(s, (Define, Store)))


# -- packs --------------------------------------------------------------------------------------------------------------


def first_of(pack: Pack, axis: Axis, first: str) -> IntExpr:
    """The index of the first element of a pack."""
    return pack.index.substitute({axis.symbol.name: IntExpr.symbol(first) + axis.start})


def in_packs(
    items: Sequence[Define | Store],
    axis: Axis,
    width: int,
    first: str,
    one: Callable[[Sequence[Define | Store]], Sequence[Code]] = lambda items: items,
    own: Sequence[Expr] = (),
    kept: Mapping[Expr, Expr] = MappingProxyType({}),
    multiple: Symbol | None = None,
) -> list[Code]:
    """Statements for the pack of neighbours from `first` on: packs are loaded, each element is computed, packs are stored.

    `one`: what is done with the statements of one element; `own`: packs are stored where these hold.
    """
    lane = IntExpr.symbol("lane_of_pack", 0, width - 1)
    statements, loads, stores = packed(items, axis, width, lane, kept, multiple)
    found: list[Code] = [LoadPack(p.name, p.buffer, first_of(p, axis, first), p.dtype, width) for p in loads]
    found += [Declare(p.name, p.dtype, pack=width) for p in stores]
    each = from_zero(axis, IntExpr.symbol(first) + LANE_OF_PACK), *one(plain(statements))
    found.append(For("lane_of_pack", ZERO, IntExpr.of(width), each, AxisKind.UNROLLED))
    return [*found, *where(own, [StorePack(p.name, p.buffer, first_of(p, axis, first)) for p in stores])]


__all__ = [
    "LANE", "LANE_OF_PACK", "THREAD", "THREAD_INDEX", "USUAL", "ZERO", "KernelPrinter", "Launch", "Variant", "decode", "divided_up",
    "first_of", "from_zero", "in_packs", "nested_loops", "plain", "threads_over",
]  # fmt: skip
