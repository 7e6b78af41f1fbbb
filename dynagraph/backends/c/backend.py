"""The CPU backend: graph -> loops -> one C file -> machine code.

`compile_graph` is the whole pipeline after the target-independent passes; reading it is reading the backend.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from dynagraph.backends.blas import use_blas
from dynagraph.backends.c.entry import ENTRY, PARALLEL_NANOSECONDS, PART_NANOSECONDS
from dynagraph.backends.c.external_calls import external_call_of
from dynagraph.backends.c.headers import with_headers
from dynagraph.backends.c.printer import CSource, print_program
from dynagraph.backends.executable import Executable, NativeProgram
from dynagraph.backends.prelude import prelude_for
from dynagraph.backends.reference import reference
from dynagraph.backends.tiers import in_tiers
from dynagraph.driver import deadline
from dynagraph.ir.graph import Graph
from dynagraph.ir.loops import Kernel, LoopProgram
from dynagraph.ir.passes.collapse import collapse
from dynagraph.ir.passes.finish import finish_calls
from dynagraph.ir.passes.fuse import fuse
from dynagraph.ir.passes.inplace import inplace
from dynagraph.ir.passes.legalize import legalize
from dynagraph.ir.passes.lower import lower
from dynagraph.ir.passes.memory_plan import memory_plan
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.place_results import place_results
from dynagraph.ir.passes.split_index_sets import segment
from dynagraph.ir.size_programs import limits

HEADERS = ("arithmetic.h", "support.h", "blas.h", "sums.h")
WORTH_TIERS = 40  # the weight of a source from which compiling it twice is worth it: it takes about 0.4 s with all optimisations
RELEASE_GIL_NANOSECONDS = 20000.0  # estimated run time from which other Python threads are let in


def compile_graph(graph: Graph) -> Executable:
    """A native program for a graph, which waits for the C compiler where its address is wanted.

    Raises CompilerError where the compiler is missing, and where it refuses the source: then.
    """
    simplified = run_passes(graph)
    program = lower_graph(simplified)
    printed = print_program(program)
    source = complete_source(printed)
    deadline.check()
    kernels, better = in_tiers(source, ENTRY, "_Complex" in printed.text, is_slow=printed.weight >= WORTH_TIERS)
    native = NativeProgram(
        kernels=kernels,
        entry=ENTRY,
        workspace=program.workspace,
        limits=limits(graph, simplified),
        release_gil=estimated_nanoseconds(program) > RELEASE_GIL_NANOSECONDS,
        external_call=external_call_of(program),
        better=better,
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
    reuse = inplace(legal)
    program = finish_calls(lower(legal, fuse(legal, reuse)))
    parts = [segment(collapse(s)) if isinstance(s, Kernel) else [s] for s in program.steps]
    made_of = [k for k, steps in enumerate(parts) for _ in steps]
    return memory_plan(place_results(replace(program, steps=tuple(chain.from_iterable(parts))), made_of))


def complete_source(source: CSource) -> str:
    """The C file: what it uses of the headers and of the prelude, kernels and entry."""
    threshold = f"#define DG_PARALLEL_NANOSECONDS {PARALLEL_NANOSECONDS:.1f}\n#define DG_PART_NANOSECONDS {PART_NANOSECONDS:.1f}\n"
    large = "#define DG_LARGE\n" if source.is_large else ""
    return with_headers(HEADERS, threshold + large, prelude_for(source.functions), source.text)


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
