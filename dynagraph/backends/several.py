"""Programs that run where they are asked to, or where it is estimated to be fastest: ``dg.compile(device=...)``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.array_libraries import ArrayLibrary, CuPy
from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.placed import compile_placed
from dynagraph.cuda.devices import device_index, on_device
from dynagraph.cuda.state import device_count, require_cupy
from dynagraph.cuda.transfers import to_device
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.machines import Device, Machine, on_paper
from dynagraph.ir.passes.estimate import seconds_on
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.place import Seconds, place
from dynagraph.ir.placement import Placement

HOST = "cpu"
FORCED = 1e9  # times slower than elsewhere is what may run on the asked device


def compile_on(device: str, cpu: Backend, cuda: Backend, graph: Graph) -> Executable:
    """A program for a graph of NumPy arrays: "auto": each part where it is estimated to be fastest, copies counted.

    Else what can run on the named device does, and the rest on the host.  Inputs and outputs stay with the host.
    """
    cupy: Any = require_cupy()
    wanted = device if device == "auto" else f"cuda:{device_index(device)}"
    placement = place_on(wanted, run_passes(graph), on_paper(count=device_count()))
    on_cuda = functools.partial(_as_arrays_of, CuPy("cupy", cupy), cuda)
    return compile_placed(placement, {**dict.fromkeys(placement.machine.names, on_cuda), HOST: cpu}, _move)


def place_on(device: str, graph: Graph, machine: Machine, home: str = HOST) -> Placement:
    """Where the groups of a decomposed graph run, whose arrays lie at `home`, results included."""
    seconds: Seconds = seconds_on if device == "auto" else functools.partial(_forced, device)
    fixed = {node: home if node.ndim else HOST for node in graph.placeholders}
    return place(graph, machine, fixed, [home] * len(graph.outputs), seconds)


def _forced(wanted: str, nodes: Sequence[Node], device: Device) -> float:
    return seconds_on(nodes, device) * (1.0 if device.name == wanted else FORCED)


def _as_arrays_of(library: ArrayLibrary, backend: Backend, graph: Graph) -> Executable:
    part = graph.copy()
    part.library = library.name
    return backend(part)


def _move(array: Any, source: str, destination: str) -> Any:
    """In C order, whatever the order of the array's axes is."""
    moved = to_device(array, destination)
    if destination == HOST:
        return np.asarray(moved, order="C")
    with on_device(device_index(destination)):
        return require_cupy().ascontiguousarray(moved)


__all__ = ["HOST", "compile_on", "place_on"]
