"""Backends by name, and a user's own callable as a backend."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from dynagraph.array_libraries import NUMPY, named
from dynagraph.backends import device as device_backend
from dynagraph.backends import numpy as numpy_backend
from dynagraph.backends.c import backend as c_backend
from dynagraph.backends.c.regions import CompiledRegion, compile_region
from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.reference import reference
from dynagraph.backends.toolchain import find_compiler
from dynagraph.errors import BackendError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import Sizes, bind_sizes, concrete
from dynagraph.ir.regions import Region
from dynagraph.ir.shapes import hint_of
from dynagraph.location import warn_caller

_log = logging.getLogger("dynagraph.kernels")
UserBackend = Callable[[Graph, Sequence[Any]], Callable[..., Any]]  # graph, example inputs


def get_backend(backend: Union[str, UserBackend], mode: str = "default", device: str | None = None) -> Backend:
    """The backend of a name of `BACKENDS`, or a user's ``backend(graph, example_inputs)`` made into one.

    A user's backend gives back a callable, which takes the graph's inputs and gives a tuple or list of its outputs.
    mode: as `compile` takes it, for graphs of arrays on a device.
    device: where graphs of NumPy arrays run: "cuda", "cuda:1", "auto"...; None and "cpu": on the host.
    Raises BackendError for an unknown name.

    >>> callable(get_backend("reference"))
    True
    """
    if callable(backend):
        return functools.partial(_compile_with, backend)
    return _by_name(backend, mode, None if device == "cpu" else device)


@functools.cache
def _by_name(backend: str, mode: str, device: str | None) -> Backend:
    """One object for the same options: who compares these finds them equal."""
    return functools.partial(_by_library, _own_backend(backend), mode, device)


def _own_backend(backend: str) -> Backend:
    if backend not in BACKENDS:
        raise BackendError(
            f"unknown backend {backend!r}; known ones are {', '.join(sorted(BACKENDS))}, "
            "or pass a callable(graph, example_inputs)"
        )
    return BACKENDS[backend]


def _by_library(backend: Backend, mode: str, device: str | None, graph: Graph) -> Executable:
    """Graphs of arrays that lie on a device run there, whatever the backend for NumPy's is."""
    if graph.library != NUMPY.name:
        return _on_device(mode, graph)
    if device is None:
        return backend(graph)
    from dynagraph.backends.device_choice import compile_on  # for those who ask for devices

    return compile_on(device, backend, functools.partial(_on_device, mode), backends_here, graph)


def backends_here() -> dict[str, Backend]:
    """A backend for each device of this machine: "cpu", and "cuda:0", "cuda:1"... for graphs of NumPy arrays."""
    from dynagraph.backends.device_choice import backends_of  # for those who ask for devices

    return backends_of(cpu, functools.partial(_on_device, "default"))


def _on_device(mode: str, graph: Graph) -> Executable:
    """Kernels of our own; through the library's functions, op by op, what these do not do or where there is no driver."""
    from dynagraph.backends.cuda import backend as cuda_backend  # for those who use CuPy
    from dynagraph.backends.cuda.driver import driver_of

    library = named(graph.library)
    driver = driver_of(library)
    if driver is not None:
        try:
            return cuda_backend.compile_graph(graph, library, driver, mode)
        except cuda_backend.NotForDevice as reason:
            _log.info("%s runs op by op: %s", graph.name, reason)
    return device_backend.compile_graph(graph)


def loop_compiler(backend: Union[str, UserBackend]) -> Callable[[Region], CompiledRegion] | None:
    """What compiles native loops beside this backend, for the host; None where they stay in Python."""
    own = backend in ("cpu", "c") and find_compiler() is not None
    return compile_region if own else None


# -- the CPU, with or without a compiler ----------------------------------------------------------------------------


def cpu(graph: Graph) -> Executable:
    """Machine code by the C compiler; without one, NumPy with planned buffers, which is said once."""
    if find_compiler() is None:
        _say_that_no_compiler_was_found()
        return numpy_backend.compile_graph(graph)
    return c_backend.compile_graph(graph)


@functools.cache
def _say_that_no_compiler_was_found() -> None:
    warn_caller(
        "dynagraph found no C compiler (cc, gcc or clang): compiled functions run through NumPy, correctly but slower; "
        "install one, or pip install 'dynagraph[compiler]'; backend='numpy' silences this",
        RuntimeWarning,
    )


BACKENDS: Mapping[str, Backend] = {
    "cpu": cpu,
    "c": c_backend.compile_graph,
    "numpy": numpy_backend.compile_graph,
    "reference": reference,
}


# -- a user's backend -----------------------------------------------------------------------------------------------


def example_inputs(graph: Graph) -> list[Any]:
    """Zeros of the inputs' dtypes, and of their shapes as seen at capture: arrays of the graph's library."""
    xp = named(graph.library).module
    return [xp.zeros(tuple(map(hint_of, n.shape)), n.dtype.numpy) for n in graph.placeholders]


def _compile_with(backend: UserBackend, graph: Graph) -> Executable:
    name = getattr(backend, "__qualname__", repr(backend))
    graph = graph.copy()
    program = backend(graph.copy(), example_inputs(graph))  # a copy again: it may be rewritten over there
    if not callable(program):
        raise BackendError(f"backend {name}: must give back a callable for the graph, got {type(program).__name__}")

    own = named(graph.library).module.asarray
    as_arrays = [np.asarray if scalar else own for scalar in graph.scalars]

    def call(*arrays: Any) -> tuple[Any, ...]:
        return _checked(name, graph.outputs, program(*arrays), bind_sizes(graph, arrays), as_arrays)

    return Executable(call, repeatable=False)


def _checked(
    name: str, expected: Sequence[Node], results: Any, sizes: Sizes, as_arrays: Sequence[Callable[[Any], Any]]
) -> tuple[Any, ...]:
    """The results as arrays, if they are what the graph says."""
    if not isinstance(results, (tuple, list)) or len(results) != len(expected):
        given = f"{len(results)} of them" if isinstance(results, (tuple, list)) else type(results).__name__
        raise BackendError(
            f"backend {name}: its program must give a tuple of the graph's {len(expected)} outputs, got {given}"
        )
    arrays = tuple(as_array(result) for as_array, result in zip(as_arrays, results))
    for node, array in zip(expected, arrays):
        shape = concrete(node.shape, sizes)
        if dtypes.from_numpy(array.dtype) is not node.dtype or array.shape != shape:
            raise BackendError(
                f"backend {name}: output {node.name} must be {node.dtype}{list(shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
    return arrays


__all__ = ["BACKENDS", "UserBackend", "backends_here", "cpu", "example_inputs", "get_backend"]
