"""Availability of CUDA: whether it can be used, and what is missing.  Everything that needs a device asks `require_cupy` first."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any

from dynagraph.errors import CudaError

_INITIALIZATION, _INSUFFICIENT_DRIVER, _NO_DEVICE = 3, 35, 100  # of cudaError_t
_FORK_CURE = (
    'CUDA does not survive a fork: start processes with multiprocessing.get_context("spawn"), or use CUDA only after the fork'
)


class State:
    """What the first use found."""

    def __init__(self) -> None:
        self.cupy: Any = None
        self.count = 0
        self.user = 0  # the process that used CUDA
        self.is_lost = False  # this process was forked from it
        self.peaks: dict[int, int] = {}  # device -> bytes
        self.peers: set[tuple[int, int]] = set()  # pairs of devices that were let reach each other's memory
        self.lock = threading.RLock()  # a garbage collection may come back to it in the same thread


state = State()


def _after_fork() -> None:
    state.is_lost = state.is_lost or state.user != 0
    state.lock = threading.RLock()  # another thread of the parent may have had it


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_after_fork)


def require_cupy() -> Any:
    """CuPy's module, with at least one device; CudaError with the cure where there is none.  Notes that CUDA is used."""
    if state.is_lost:
        raise CudaError(f"CUDA was used by process {state.user} before it forked process {os.getpid()}; {_FORK_CURE}")
    if state.cupy is not None and sys.modules.get("cupy") is state.cupy:
        return state.cupy
    module = _import()
    count = _count(module)
    with state.lock:
        state.cupy, state.count, state.user, state.peaks, state.peers = module, count, os.getpid(), {}, set()
    return module


def _import() -> Any:
    try:
        import cupy  # an optional dependency
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise _missing(f"CuPy cannot be imported: {error}", "install it anew") from error
        cure = 'pip install "dynagraph[cuda13]" for drivers of CUDA 13, or "dynagraph[cuda12]" for those of CUDA 12'
        raise _missing("CuPy is not installed", cure) from None
    except Exception as error:  # broken installations raise many kinds of errors
        raise _missing(f"CuPy cannot be imported: {type(error).__name__}: {error}", "install it anew") from error
    return cupy


def _count(cupy: Any) -> int:
    runtime = cupy.cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise _missing(*_explained(runtime, error)) from error
    if count == 0:
        raise _missing(*_NOTHING)
    return count


_NOTHING = ("the driver sees no CUDA device", "see what nvidia-smi lists, and whether CUDA_VISIBLE_DEVICES hides it")


def _explained(runtime: Any, error: Any) -> tuple[str, str]:
    """What is missing, and the cure."""
    if error.status == _NO_DEVICE:
        return _NOTHING
    if error.status == _INITIALIZATION:
        return "CUDA could not be initialised", f"where this process was forked from one that had used CUDA: {_FORK_CURE}"
    if error.status != _INSUFFICIENT_DRIVER:
        return f"CUDA cannot be used: {error}", "install or update the driver of the GPU"
    driver, built = runtime.driverGetVersion(), _version(runtime.runtimeGetVersion())
    if driver == 0:
        return f"there is no NVIDIA driver (CuPy was built with CUDA {built})", "install the driver of the GPU"
    cure = "update the driver, or install the CuPy that fits it"
    return f"the NVIDIA driver is too old: it is of CUDA {_version(driver)}, CuPy was built with CUDA {built}", cure


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _missing(what: str, cure: str) -> CudaError:
    return CudaError(f"{what}: {cure}; `dynagraph doctor` shows what is there")


def is_available() -> bool:
    """Whether CuPy, a driver and at least one device are there, and may be used by this process.  Never raises, never warns.

    The first call imports CuPy and initialises CUDA: processes forked later cannot use it.

    >>> import dynagraph as dg
    >>> device = "cuda:0" if dg.cuda.is_available() else "cpu"
    """
    return device_count() > 0


def device_count() -> int:
    """How many devices this process can use; 0 where `is_available` is False."""
    try:
        if "cupy" in sys.modules:
            require_cupy()
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                require_cupy()
    except Exception:  # also what else a broken driver may raise
        return 0
    return state.count
