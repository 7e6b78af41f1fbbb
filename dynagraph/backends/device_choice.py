"""``dg.compile(device=...)``: programs for the device that was asked for, or that is estimated to be fastest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dynagraph.array_libraries import ArrayLibrary, CuPy
from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.measured_machine import machine_here
from dynagraph.backends.multi_device import compile_placed
from dynagraph.cuda.devices import device_index, on_device
from dynagraph.cuda.state import device_count, require_cupy
from dynagraph.cuda.streams import Event, current_stream
from dynagraph.cuda.transfers import to_device
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.machine_model import Device, Machine, on_paper
from dynagraph.ir.passes.estimate import seconds_on
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.place import Seconds, place
from dynagraph.ir.passes.split_across_gpus import place_and_share
from dynagraph.ir.placement import Placement

HOST = "cpu"
FORCED = 1e9  # times slower than elsewhere is what may run on the asked device


def compile_on(
    device: str, cpu: Backend, cuda: Backend, usual: Callable[[], Mapping[str, Backend]], graph: Graph
) -> Executable:
    """A program for a graph of NumPy arrays: "auto": each part where it is estimated to be fastest, copies counted.

    Else what can run on the named device does, and the rest on the host.  Inputs and outputs stay with the host.
    usual: gives the backends by which the machine is measured, whichever the program is compiled by.
    """
    require_cupy()
    backends = backends_of(cpu, cuda)
    if device == "auto":
        wanted, machine = device, machine_here(usual())
    else:
        wanted, machine = f"cuda:{device_index(device)}", on_paper(count=device_count())
    return compile_placed(place_on(wanted, run_passes(graph), machine), backends, _move, _fetch)


def backends_of(cpu: Backend, cuda: Backend) -> dict[str, Backend]:
    """A backend for each device that is there, by its name; all take graphs of NumPy arrays."""
    backends = {HOST: cpu}
    for number in range(device_count()):
        library = CuPy("cupy", require_cupy())
        backends[f"cuda:{number}"] = functools.partial(_on_device, number, library, cuda)
    return backends


def place_on(device: str, graph: Graph, machine: Machine, home: str = HOST) -> Placement:
    """Where the groups of a decomposed graph run, whose arrays lie at `home`, results included."""
    if device == "auto":
        return place_and_share(graph, machine, home)
    fixed = {node: home if node.ndim else HOST for node in graph.placeholders}
    seconds: Seconds = functools.partial(_forced, device)
    return place(graph, machine, fixed, [home] * len(graph.outputs), seconds)


def _forced(wanted: str, nodes: Sequence[Node], device: Device) -> float:
    return seconds_on(nodes, device) * (1.0 if device.name == wanted else FORCED)


def _on_device(number: int, library: ArrayLibrary, backend: Backend, graph: Graph) -> Executable:
    """A program that runs on one device also where no operand says which: its constants, and what is made of none, lie there."""
    part = graph.copy()
    part.library = library.name
    with on_device(number):
        program = backend(part)

    def call(*arrays: Any) -> tuple[Any, ...]:
        with on_device(number):
            return program(*arrays)

    return replace(program, call=call, launcher=None)


def _move(array: Any, source: str, destination: str) -> Any:
    """In C order, whatever the order of the array's axes is."""
    moved = to_device(array, destination)
    if destination == HOST:
        return np.asarray(moved, order="C")
    with on_device(device_index(destination)):
        return require_cupy().ascontiguousarray(moved)


@dataclass(frozen=True)
class Fetched:
    """An array in page-locked memory that a copy is still filling; an event marks its end."""

    array: np.ndarray
    copied: Event

    def wait(self) -> np.ndarray:
        self.copied.synchronize()
        return np.asarray(self.array, order="C")


def _fetch(array: Any, source: str) -> Fetched:
    return Fetched(to_device(array, HOST, non_blocking=True), current_stream(source).record())


__all__ = ["HOST", "Fetched", "backends_of", "compile_on", "place_on"]
