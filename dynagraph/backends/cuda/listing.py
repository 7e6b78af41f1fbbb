"""CUDA listings for people: source, registers and spills of each kernel; no device is needed."""

from __future__ import annotations

from dynagraph.backends.cuda.backend import lower_graph
from dynagraph.backends.cuda.nvrtc import Cubin, Resources, compile_cuda, find
from dynagraph.backends.cuda.printer import CudaSource, Launch, print_program
from dynagraph.backends.cuda.program import complete_source
from dynagraph.errors import CompilerError
from dynagraph.ir.graph import Graph
from dynagraph.ir.loops import LibraryCall, LoopProgram, render
from dynagraph.ir.passes.pipeline import run as run_passes

ARCHITECTURE = 90  # Hopper's


def program_of(graph: Graph) -> LoopProgram:
    """The loops of a captured graph, as they are printed for a GPU with cuBLASLt."""
    return lower_graph(run_passes(graph), epilogues=True)


def loops(graph: Graph) -> str:
    return render(program_of(graph))


def kernels(graph: Graph, architecture: int = ARCHITECTURE) -> str:
    """The kernels of a captured graph, headed by registers, spills, shared memory and launch of each.

    They are compiled by NVRTC for the architecture; where that cannot be done, the head says why.
    """
    source = print_program(program_of(graph))
    try:
        cubin = compile_cuda(complete_source(source), architecture)
    except CompilerError as error:
        head = [f"not compiled: {error}"]
    else:
        head = [_compiled_for(architecture, cubin), *(_rows(source, cubin) or ["no kernels: nothing is computed"])]
    return "\n".join([*(f"// {line}" for line in head), "", source.text.rstrip()])


def _compiled_for(architecture: int, cubin: Cubin) -> str:
    if cubin.kind == "cubin":
        return f"compiled for sm_{architecture}"
    return f"compiled to PTX: {find().name} does not know sm_{architecture}, whose driver says what kernels take"


def _rows(source: CudaSource, cubin: Cubin) -> list[str]:
    rows = []
    for step in source.steps:
        if isinstance(step, Launch):
            blocks = f"ceil(({step.n}) / {step.per_block})" if step.per_block > 1 else f"{step.n}"
            takes = f": {describe(cubin.resources[step.kernel])}" if step.kernel in cubin.resources else ""
            rows.append(f"{step.kernel}<<<{blocks}, {step.threads}>>>{takes}")
        else:
            epilogue = step.epilogue if isinstance(step, LibraryCall) else None
            rows.append(f"call: {step.comment}" + ("" if epilogue is None else f": {epilogue}"))
    return rows


def describe(r: Resources) -> str:
    """
    >>> describe(Resources(registers=28, spill_stores=0, spill_loads=0, stack=0, shared=384, constant=0))
    '28 registers, no spills, 384 bytes shared'
    """
    spills = f"{r.spill_stores} bytes spilled, {r.spill_loads} loaded" if r.spill_stores or r.spill_loads else "no spills"
    return f"{r.registers} registers, {spills}, {r.shared} bytes shared" + (f", {r.stack} bytes of stack" if r.stack else "")


__all__ = ["ARCHITECTURE", "describe", "kernels", "loops", "program_of"]
