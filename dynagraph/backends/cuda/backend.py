"""The CUDA backend: graph -> loops -> one CUDA file -> machine code of the device's architecture -> launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynagraph import config
from dynagraph.array_libraries import ArrayLibrary
from dynagraph.backends.cuda.checks import Checks
from dynagraph.backends.cuda.driver import Driver
from dynagraph.backends.cuda.program import DeviceProgram
from dynagraph.backends.cuda.schedule import OWNER_BLOCKS
from dynagraph.backends.executable import Executable
from dynagraph.ir.external_calls import function_of
from dynagraph.ir.graph import Graph, values_behind
from dynagraph.ir.loops import ExternalCall, Kernel, LoopProgram
from dynagraph.ir.passes.collapse import merge_loops
from dynagraph.ir.passes.epilogues import fuse_epilogues
from dynagraph.ir.passes.fuse import fuse
from dynagraph.ir.passes.inplace import inplace
from dynagraph.ir.passes.legalize import Target, legalize
from dynagraph.ir.passes.lower import lower
from dynagraph.ir.passes.memory_plan import memory_plan
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.scatters import Processors
from dynagraph.ir.passes.split_scans import Parts, split_scans

# A hundred processors want several blocks each: rows and columns of fewer than this are reduced in two stages.
PROCESSORS = Target(
    rows=256, long=32768, block=8192, blocks=4096, columns=32, units=256, column_parts=64, has_half_products=True,
    has_routines=False, in_order=False,
)  # fmt: skip

SCANS = Parts(rows=256, length=8192)


CLAIMS = 16384  # updates: fewer are stored by one kernel instead of three
PLACES = 16  # of which there may be so many for each update: each of them is written to first
SORTS = 1 << 17  # updates: of fewer, each block of owners finds those that are its own in less time than it takes to sort them
PART = 1024  # updates that one warp sorts


def lower_graph(graph: Graph, arithmetic: str = "strict", epilogues: bool = False) -> LoopProgram:
    """The loops of a simplified and decomposed graph as a GPU takes them, planned in memory.

    arithmetic: "strict", or "fast": sums in any order; epilogues: whether products have them.
    """
    legal = legalize(graph.copy(), PROCESSORS)
    reuse = inplace(legal)
    processors = Processors(CLAIMS, PLACES, SORTS, OWNER_BLOCKS, PART, any_order=arithmetic == "fast")
    program = split_scans(lower(legal, fuse(legal, reuse), keep_rows=False, processors=processors), SCANS)
    steps = tuple(merge_loops(s) if isinstance(s, Kernel) else s for s in program.steps)
    program = replace(program, steps=steps)
    return memory_plan(fuse_epilogues(program, arithmetic == "fast") if epilogues else program)


class NotForDevice(Exception):
    """A graph that holds what kernels do not do."""


def compile_graph(graph: Graph, library: ArrayLibrary, driver: Driver, mode: str = "default") -> Executable:
    """A program that runs the graph on the device of its inputs, in a mode of `compile`.  Raises NotForDevice, or CompilerError."""
    simple = run_passes(graph)
    n_results = len(graph.outputs) - graph.n_checks
    scalars = *graph.scalars[:n_results], *[False] * graph.n_checks
    if graph.n_checks > 1 or all(graph.scalars[:n_results]):
        raise NotForDevice("several checks" if graph.n_checks > 1 else "nothing but numbers of the host's")
    on_device, on_host = (_with_outputs(simple, [scalar == host for scalar in scalars]) for host in (False, True))
    if graph.n_checks:
        _bring_check_first(on_device)
    arithmetic = "fast" if mode == "fast" else "strict"
    cublas = driver.cublas()
    program = lower_graph(on_device, arithmetic, epilogues=cublas is not None)
    checked, replays = config.cuda_check, mode == "reduce-overhead"
    checks = Checks(library, graph.name, config.cuda_errors == "later") if graph.n_checks else None
    run = DeviceProgram(on_device, program, on_host, scalars, library, driver, arithmetic, checked, replays, cublas, checks)
    _check(run, library)
    artifacts = {"loops": str(program), "kernels": run.source.text}
    repeatable = all(position is None for position in graph.into)  # arguments are written to in place
    return Executable(run, launcher=run.launcher, artifacts=artifacts, repeatable=repeatable, checked=run.checked)


def _with_outputs(graph: Graph, wanted: Sequence[bool]) -> Graph:
    """The graph with some of its outputs only; it takes the same inputs."""
    part = graph.copy()
    output = part.output_node
    into = part.into
    n_checks = sum(wanted[len(wanted) - graph.n_checks :])
    output.set_args(tuple(node for node, here in zip(part.outputs, wanted) if here))
    output.attrs = {"into": tuple(position for position, here in zip(into, wanted) if here), "n_checks": n_checks}
    part.eliminate_dead_code()
    return part


def _bring_check_first(graph: Graph) -> None:
    """Have the check computed before all that it does not need: the host waits for it while the device computes the rest."""
    check = graph.outputs[-1]
    needed = values_behind(check)
    other = next((node for node in graph.nodes if node.kind == "call_function" and node not in needed), None)
    if other is not None:
        graph.bring_before(other, [check])


def _check(run: DeviceProgram, library: ArrayLibrary) -> None:
    for step in run.program.steps:
        if isinstance(step, ExternalCall) and not _has(library, str(step.call.function)):
            raise NotForDevice(f"{library.name} has no {step.call.function}")


def _has(library: ArrayLibrary, function: str) -> bool:
    try:
        return callable(function_of(library.module, function))
    except AttributeError:
        return False


__all__ = ["NotForDevice", "compile_graph", "lower_graph"]
