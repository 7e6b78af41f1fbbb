"""Executables: what a backend makes of a graph.

`call` runs it from Python and is always there; `native` is the same program for the dispatcher, which runs it without
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynagraph._core._dispatch import Launcher
from dynagraph.backends.kernel_cache import Kernels
from dynagraph.backends.tiers import Better
from dynagraph.ir.graph import Graph
from dynagraph.ir.intexpr import IntExpr


@dataclass(frozen=True)
class NativeProgram:
    """Generated code: ``int entry(void *const *buffers, const int64_t *sizes, const dg_runtime *rt)``."""

    kernels: Kernels  # which the C compiler may still be making
    entry: str
    workspace: IntExpr  # bytes
    release_gil: bool  # worth letting other Python threads run meanwhile
    limits: tuple[IntExpr, ...] = ()  # calls of which one of these does not fit into 64 bits run eagerly
    external_call: Callable[..., None] | None = None  # (number, sizes, operands, results): functions of NumPy's that the code calls
    better: Better | None = None  # what a plan asks for better code

    @property
    def address(self) -> int:
        """Waits for the C compiler, as `keepalive` does."""
        return self.kernels.address(self.entry)

    @property
    def keepalive(self) -> object:
        """What owns the code: it is unloaded when this goes."""
        return self.kernels.library


@dataclass(frozen=True)
class Executable:
    """A program for a graph.  Takes the graph's inputs as arrays in order; gives a tuple of new C-contiguous arrays."""

    call: Callable[..., tuple[Any, ...]]
    native: NativeProgram | None = None
    launcher: Launcher | None = None  # launches the kernels of `call`, once it has been run
    artifacts: Mapping[str, str] = field(default_factory=dict)  # for dump: "loops", "kernels"
    cached: bool = False  # the machine code came from the disk cache
    checked: bool = False  # it looks for errors of its own: every call runs it, and whatever it raises reaches the caller
    repeatable: bool = True  # a function of its inputs: it may run again where a signal came between

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return self.call(*arrays)


Backend = Callable[[Graph], Executable]

__all__ = ["Backend", "Executable", "NativeProgram"]
