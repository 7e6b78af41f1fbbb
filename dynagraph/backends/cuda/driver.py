"""CUDA drivers: what loads and launches kernels: CuPy's device, or a test's emulator."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from dynagraph.array_libraries import ArrayLibrary
from dynagraph.backends.cuda import nvrtc
from dynagraph.backends.cuda.cublas import CublasLt, find_or_none
from dynagraph.cuda.state import require_cupy, state
from dynagraph.errors import BackendError, CudaError, make_final

LaunchFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)


@dataclass(frozen=True)
class Loaded:
    """Kernels that can be launched on one device: what the driver knows each by, and what keeps them there."""

    functions: Mapping[str, int]
    keepalive: object
    from_cache: bool


class Driver(Protocol):
    """Loads kernels and says how they are launched."""

    launch_address: int
    """Of a C function with the parameters of ``cuLaunchKernel``, which gives 0 or CUDA's number of an error."""

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> Loaded:
        """Compile CUDA C for a device and load it there.  Raises CompilerError."""

    def device(self) -> int:
        """The number of the current device."""

    def stream(self) -> int:
        """The address of the stream that is current on it."""

    def describe(self, error: int) -> str:
        """CUDA's words for an error."""

    def cublas(self) -> CublasLt | None:
        """What multiplies matrices; None: functions of the arrays' library do."""


class CuPyDriver:
    """CuPy's current stream and device, kernels compiled by NVRTC with our own options."""

    def __init__(self, module: ModuleType):
        self.cuda: Any = module.cuda
        self._library = ctypes.CDLL("libcuda.so.1")
        address = ctypes.cast(self._library.cuLaunchKernel, ctypes.c_void_p).value
        assert address is not None
        self.launch_address = address
        self._thread = threading.local()
        require_cupy()  # notes that this process uses CUDA: what is forked from it cannot

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> Loaded:
        on = self.cuda.Device(device)
        cubin = nvrtc.compile_cuda(source, int(on.compute_capability), mode)
        with on:
            module = self.cuda.function.Module()
            module.load(cubin.image)
            functions = {name: module.get_function(name) for name in kernels}
        return Loaded({name: int(f.ptr) for name, f in functions.items()}, (module, functions), cubin.from_cache)

    def device(self) -> int:
        if state.is_lost:
            try:
                require_cupy()  # says why
            except CudaError as error:
                make_final(error)  # the plain run would only say it worse
                raise
        if not hasattr(self._thread, "has_context"):
            self.cuda.runtime.free(0)  # without a context of its own, the driver refuses a thread's launches
            self._thread.has_context = True
        return int(self.cuda.runtime.getDevice())

    def stream(self) -> int:
        return int(self.cuda.get_current_stream().ptr)

    def describe(self, error: int) -> str:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(error, ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def cublas(self) -> CublasLt | None:
        with contextlib.suppress(ImportError):
            _ = self.cuda.cublas  # CuPy loads its cuBLAS when it is first asked for it, and then it is what is found
        return find_or_none()


_installed: dict[ModuleType, Driver] = {}  # for modules that are no CuPy of a real device


def install(module: ModuleType, driver: Driver | None) -> None:
    """Run the kernels of a library's arrays by a driver of one's own; None: no longer."""
    if driver is None:
        _installed.pop(module, None)
    else:
        _installed[module] = driver


def driver_of(library: ArrayLibrary) -> Driver | None:
    """What runs the kernels for arrays of a library; None where there is nothing."""
    installed = _installed.get(library.module)
    return installed if installed is not None else _of_cupy(library.module)


@functools.cache
def _of_cupy(module: ModuleType) -> Driver | None:
    try:
        return CuPyDriver(module) if hasattr(module, "RawModule") and module.is_available() else None
    except OSError:  # no driver's library: CuPy runs on another one, of AMD's say
        return None


class LaunchError(BackendError):
    """A kernel was not launched, or a product not started: nothing of it has run."""


def launch_error(driver: Driver, kernel: str, error: int) -> LaunchError:
    """What CUDA's number of an error means for a kernel."""
    return LaunchError(f"kernel {kernel} was not launched: CUDA error {error}, {driver.describe(error)}")


__all__ = ["CuPyDriver", "Driver", "LaunchError", "LaunchFunction", "Loaded", "driver_of", "install", "launch_error"]
