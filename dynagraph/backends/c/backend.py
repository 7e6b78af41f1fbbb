"""The CPU backend: graph -> loops -> one C file -> machine code.

`compile_graph` is the whole pipeline after the target-independent passes; reading it is reading the backend.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from importlib import resources
from itertools import chain

from dynagraph import deadline
from dynagraph.backends.blas import use_blas
from dynagraph.backends.c.call_outs import call_out_of
from dynagraph.backends.c.printer import ENTRY, PARALLEL_NANOSECONDS, PART_NANOSECONDS, CSource, print_program
from dynagraph.backends.executable import Executable, NativeProgram
from dynagraph.backends.kernel_cache import get_library
from dynagraph.backends.prelude import prelude_for
from dynagraph.backends.reference import reference
from dynagraph.ir.graph import Graph
from dynagraph.ir.loops import Kernel, LoopProgram
from dynagraph.ir.passes.collapse import collapse
from dynagraph.ir.passes.fuse import fuse
from dynagraph.ir.passes.inplace import inplace
from dynagraph.ir.passes.legalize import legalize
from dynagraph.ir.passes.lower import lower
from dynagraph.ir.passes.memory_plan import memory_plan
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.segment import segment
from dynagraph.ir.size_programs import limits

RELEASE_GIL_NANOSECONDS = 20000.0  # estimated run time from which other Python threads are let in


def compile_graph(graph: Graph) -> Executable:
    """A native program for a graph.  Raises CompilerError where the C compiler is missing or refuses the source."""
    simplified = run_passes(graph)
    program = lower_graph(simplified)
    source = complete_source(print_program(program))
    deadline.check()
    kernels = get_library(source)
    native = NativeProgram(
        address=kernels.address(ENTRY),
        keepalive=kernels.library,
        workspace=program.workspace,
        limits=limits(graph, simplified),
        release_gil=estimated_nanoseconds(program) > RELEASE_GIL_NANOSECONDS,
        call_out=call_out_of(program),
    )
    return Executable(
        call=reference(graph),
        native=native,
        artifacts={"loops": str(program), "kernels": source},
        cached=kernels.from_cache,
    )


def lower_graph(graph: Graph) -> LoopProgram:
    """The loops of a simplified and decomposed graph, planned in memory."""
    legal = legalize(graph.copy())
    takeovers = inplace(legal)
    program = lower(legal, fuse(legal, takeovers))
    steps = chain.from_iterable(segment(collapse(s)) if isinstance(s, Kernel) else [s] for s in program.steps)
    return memory_plan(replace(program, steps=tuple(steps)))


def complete_source(source: CSource) -> str:
    """The C file: runtime header, what it uses of the prelude, support code, kernels and entry."""
    threshold = f"#define DG_PARALLEL_NANOSECONDS {PARALLEL_NANOSECONDS:.1f}\n#define DG_PART_NANOSECONDS {PART_NANOSECONDS:.1f}\n"
    sums = support("sums.h") if source.has_sums else ""
    return "\n".join([runtime_header(), prelude_for(source.functions), threshold, support("support.h"), sums, source.text])


@functools.cache
def runtime_header() -> str:
    return resources.files("dynagraph._core").joinpath("runtime.h").read_text()


@functools.cache
def support(name: str) -> str:
    return resources.files("dynagraph.backends.c").joinpath(name).read_text()


def estimated_nanoseconds(program: LoopProgram) -> float:
    """A rough estimate of the serial run time."""
    total = 0.0
    for step in program.steps:
        cost = step.cost
        if isinstance(step, Kernel):
            for axis in step.axes:
                cost *= axis.hint
        total += cost
    return total


__all__ = ["compile_graph", "lower_graph"]


use_blas()
