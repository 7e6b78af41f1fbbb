"""Graphs on the emulator: a stand-in of CuPy holds the arrays, g++ compiles the kernels, the CPU runs their threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dynagraph.array_libraries import CuPy
from dynagraph.backends.cuda import backend
from dynagraph.backends.cuda.cublas import CublasLt
from dynagraph.backends.cuda.driver import LaunchFunction, Loaded
from dynagraph.ir.graph import Graph
from tests.cuda import emulator
from tests.cupy_arrays import stand_in


class EmulatedDevice:
    """A `Driver` whose kernels run on the emulator; products of matrices are the stand-in's functions, or `products`."""

    def __init__(self, module: Any, races: bool = False, products: CublasLt | None = None) -> None:
        self.module, self.races, self.products = module, races, products
        self.sources: list[str] = []  # that were loaded, in order

    @property
    def launch_address(self) -> int:
        return emulator.launch_kernel_address()

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> Loaded:
        self.sources.append(source)
        module = emulator.compile(source, self.races)
        return Loaded({name: module.function(name) for name in kernels}, module, False)

    def device(self) -> int:
        return int(self.module.cuda.runtime.getDevice())

    def stream(self) -> int:
        return 0

    def describe(self, error: int) -> str:
        return emulator.last_error()

    def cublas(self) -> CublasLt | None:
        return self.products


class QueuedDevice(EmulatedDevice):
    """Queues kernels on the streams of a stand-in with `cupy.cuda`, which may capture them; arguments are read at the launch.

    launches: of kernels, captured ones apart; modes: of the sources that were loaded.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.machine, self.launches = module.machine, 0
        self.modes: list[str] = []
        self._launch = LaunchFunction(self._queue)

    @property
    def launch_address(self) -> int:
        address = ctypes.cast(self._launch, ctypes.c_void_p).value
        assert address is not None
        return address

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> Loaded:
        self.modes.append(mode)
        return super().load(source, kernels, device, mode)

    def stream(self) -> int:
        return int(self.machine.cuda.get_current_stream().ptr)

    @emulator.device_side
    def _queue(self, function: int, *rest: Any) -> int:
        *sizes, stream, parameters, _ = rest
        addresses = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        bytes_of = emulator.argument_sizes(function)
        given = [(ctypes.c_char * n).from_buffer_copy(ctypes.string_at(addresses[k], n)) for k, n in enumerate(bytes_of)]
        queue = self.machine.queue_at(self.device(), stream or 0)
        self.launches += queue.captured is None
        queue.add(partial(emulator.launch, function, tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6], given))
        return 0


def emulated(graph: Graph, races: bool = False, mode: str = "default", products: CublasLt | None = None) -> Any:
    """A function of NumPy arrays, and NumPy scalars, that runs the graph's kernels on the emulator; products as there."""
    library = CuPy("cupy", stand_in.module())
    executable = backend.compile_graph(graph, library, EmulatedDevice(library.module, races, products), mode)

    def run(*arrays: Any) -> tuple[Any, ...]:
        given = [stand_in.laid(a) if isinstance(a, np.ndarray) else a for a in arrays]
        results = executable(*given)
        for mine, theirs in zip(arrays, given):
            if isinstance(mine, np.ndarray) and mine.flags.writeable:
                mine[...] = theirs.get()  # what was written in place
        return tuple(r.get() if isinstance(r, stand_in.ndarray) else r for r in results)

    return run
