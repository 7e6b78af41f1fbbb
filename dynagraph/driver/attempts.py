"""What becomes of a capture: an attempt, whose machine code may still be in the making; an entry of the dispatcher; a program."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.backends.c.regions import CompiledRegion
from dynagraph.backends.executable import Executable
from dynagraph.backends.kernel_cache import Kernels
from dynagraph.frontend.executor.capture import Captured
from dynagraph.ir.graph import Graph
from dynagraph.ir.size_programs import size_program


@dataclass
class Attempt:
    """A capture, and the machine code for it, which the C compiler may still be making.

    `seconds`: it took so far, of which the capture `capture_seconds`; `late`: its deadline has passed meanwhile; `image`: the
    program as later processes read it, or why they cannot.
    """

    code: types.CodeType
    captured: Captured
    executable: Executable | None
    loop: CompiledRegion | None
    capture_seconds: float
    seconds: float = 0.0
    late: bool = False
    image: bytes | str = ""

    def kernels(self) -> list[Kernels]:
        native = self.executable.native if self.executable is not None else None
        return [part.kernels for part in (native, self.loop) if part is not None]

    def is_ready(self) -> bool:
        waiting = [kernels for kernels in self.kernels() if not kernels.is_ready()]  # each is looked at
        return not waiting

    @property
    def background(self) -> float:
        """Seconds that the C compiler worked while nobody waited."""
        return max((kernels.background for kernels in self.kernels()), default=0.0)


@dataclass
class Program:
    """What one capture came to: kept for `dump`, `explain` and `f.last_graph`."""

    captured: Captured
    executable: Executable | None
    capture_seconds: float
    compile_seconds: float

    @property
    def graph(self) -> Graph:
        return self.captured.graph

    @property
    def loops(self) -> list[str]:
        """What became of each of the user's loops, a sentence each."""
        return list(dict.fromkeys(seen.sentence for seen in self.captured.loops_seen()))


def make_entry(
    captured: Captured,
    executable: Executable | None,
    closure: tuple[Any, ...] | None = None,
    measured: bool = False,
    unasked: int = 0,
) -> Any:
    """The guards and the plan of a capture, as the dispatcher takes them; `executable` is None for a graph without operations.

    `measured`: some calls may run eagerly, to see which way is faster.  `unasked`: where plain calls are, so many in a row are made
    without asking the guards.
    """
    native = executable.native if executable is not None else None
    plan: _dispatch.NativePlan | _dispatch.PythonPlan
    if executable is None:
        plan = _dispatch.NativePlan(
            0, None, captured.n_inputs, (), 0, captured.result, False, captured.n_symbols, prologue=captured.prologue
        )
    elif native is None:
        scalars = tuple(scalar for _, _, scalar, _, _ in captured.outputs)
        into = tuple(position for _, _, _, position, _ in captured.outputs)
        axes = tuple(axes for _, _, _, _, axes in captured.outputs)
        plan = _dispatch.PythonPlan(
            executable, captured.n_inputs, captured.result, captured.n_symbols, len(captured.outputs), scalars,
            executable.repeatable, into, captured.graph.n_checks, captured.graph.may_bail_out and not executable.checked,
            captured.prologue, axes, executable.launcher,
        )
    else:
        plan = _dispatch.NativePlan(
            native.address, native.keepalive, captured.n_inputs, captured.outputs, size_program(native.workspace),
            captured.result, native.release_gil, captured.n_symbols, captured.graph.n_checks, native.external_call,
            captured.prologue, tuple(map(size_program, native.limits)), native.better,
        )
    return _dispatch.Entry(captured.guards.program(), captured.guards.n_registers, plan, closure, measured, unasked)


__all__ = ["Attempt", "Program", "make_entry"]
