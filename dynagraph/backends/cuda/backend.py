"""The CUDA backend: graph -> loops -> one CUDA file -> machine code of the device's architecture -> launches."""

from __future__ import annotations

from dataclasses import replace

from dynagraph.backends.cuda.prelude import prelude_for
from dynagraph.backends.cuda.printer import CudaSource
from dynagraph.ir.graph import Graph
from dynagraph.ir.loops import Kernel, LoopProgram
from dynagraph.ir.passes.collapse import merge_loops
from dynagraph.ir.passes.fuse import fuse
from dynagraph.ir.passes.inplace import inplace
from dynagraph.ir.passes.legalize import Splitting, legalize
from dynagraph.ir.passes.lower import lower
from dynagraph.ir.passes.memory_plan import memory_plan

# A hundred processors want several blocks each: rows and columns of fewer than this are reduced in two stages.
PROCESSORS = Splitting(rows=256, long=32768, block=8192, blocks=4096, columns=32, units=256, column_parts=64)


def lower_graph(graph: Graph) -> LoopProgram:
    """The loops of a simplified and decomposed graph as a GPU takes them, planned in memory."""
    legal = legalize(graph.copy(), PROCESSORS)
    takeovers = inplace(legal)
    program = lower(legal, fuse(legal, takeovers), keep_rows=False)
    steps = tuple(merge_loops(s) if isinstance(s, Kernel) else s for s in program.steps)
    return memory_plan(replace(program, steps=steps))


def complete_source(source: CudaSource) -> str:
    """The CUDA file: what it uses of the prelude, then the kernels."""
    return "\n".join([prelude_for(source.functions), source.text])


__all__ = ["complete_source", "lower_graph"]
