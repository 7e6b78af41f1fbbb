"""Devices: their names, which one is current, what they are, on which of them arrays lie."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Union

import numpy as np

from dynagraph.array_libraries import library_of
from dynagraph.cuda import late_errors
from dynagraph.cuda.state import require_cupy, state
from dynagraph.errors import CudaError

DeviceLike = Union[int, str, Any, None]  # 1, "cuda:1", "cuda", a cupy.cuda.Device; None: the current one
_NAME = re.compile(r"cuda(?::(\d+))?", re.ASCII)


def parse_device(device: DeviceLike) -> int | None:
    """The number that a device's name or number says; None: the current one.  Asks nothing of CUDA.

    Raises ValueError for another text, TypeError for another type.

    >>> parse_device("cuda:1"), parse_device(2), parse_device("cuda")
    (1, 2, None)
    """
    if device is None:
        return None
    if isinstance(device, str):
        match = _NAME.fullmatch(device)
        if match is None:
            raise ValueError(f"device {device!r}: expected 'cuda', 'cuda:0', 'cuda:1'..., or a number")
        return None if match.group(1) is None else int(match.group(1))
    number = getattr(device, "id", None)
    if type(device).__name__ == "Device" and isinstance(number, int):
        return number  # CuPy's
    if not isinstance(device, (bool, np.bool_)):
        try:
            return operator.index(device)
        except TypeError:
            pass
    raise TypeError(f"device {device!r}: expected a name like 'cuda:0' or a number, got {type(device).__name__}")


def device_index(device: DeviceLike = None) -> int:
    """The number of a device that is there; CudaError where it is not."""
    number = parse_device(device)
    cupy = require_cupy()
    if number is None:
        return int(cupy.cuda.runtime.getDevice())
    if not 0 <= number < state.count:
        there = "1 device, cuda:0" if state.count == 1 else f"{state.count} devices, cuda:0 to cuda:{state.count - 1}"
        raise CudaError(f"device {device!r}: there is no such device; this process sees {there}")
    return number


def current_device() -> int:
    """The number of the current device of this thread.  Raises CudaError where there is none."""
    return device_index()


def check_flag(what: str, name: str, value: Any) -> None:
    """A stream or a device in its place would be taken for True."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what}: {name}={value!r}: expected True or False; name the other arguments: device=, stream=")


class _Thread(threading.local):
    """The devices that were current before the blocks that this thread is in."""

    def __init__(self) -> None:
        self.devices: list[int] = []


_thread = _Thread()


def enter_device(index: int) -> None:
    runtime = require_cupy().cuda.runtime
    before = int(runtime.getDevice())
    if before != index:
        runtime.setDevice(index)
    _thread.devices.append(before)


def leave_device() -> None:
    before = _thread.devices.pop()
    if not state.is_lost:  # a fork within the block
        state.cupy.cuda.runtime.setDevice(before)


class device:
    """Makes a device current for this thread while a ``with`` block runs; the one before comes back after it, also after an error.

    index_or_name: a number, "cuda:1", or a cupy.cuda.Device.  Blocks nest, and an object may be entered again.
    Raises CudaError where there is no such device, ValueError or TypeError for what is not a device's name or number.

    >>> with dg.cuda.device("cuda:1"):
    ...     x = cupy.zeros(1000)
    """

    def __init__(self, index_or_name: DeviceLike) -> None:
        self.index = device_index(index_or_name)

    def __enter__(self) -> device:
        enter_device(self.index)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        leave_device()

    def __repr__(self) -> str:
        return f"device('cuda:{self.index}')"


on_device = device  # functions have parameters of its name


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work of a device (None: the current one) is done.

    Errors of kernels surface here, as CuPy raises them; those about values, too, with ``config.cuda_errors = "later"``.
    """
    with on_device(device):
        state.cupy.cuda.runtime.deviceSynchronize()
    late_errors.raise_found()


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.  Sizes are in bytes, clock rates in kHz, the width of the memory bus in bits."""

    name: str
    major: int  # the compute capability
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int  # what a kernel may ask for
    registers_per_multi_processor: int
    warp_size: int
    l2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int


_ATTRIBUTES = {
    "multi_processor_count": "MultiProcessorCount",
    "max_threads_per_block": "MaxThreadsPerBlock",
    "max_threads_per_multi_processor": "MaxThreadsPerMultiProcessor",
    "shared_memory_per_block": "MaxSharedMemoryPerBlock",
    "shared_memory_per_block_optin": "MaxSharedMemoryPerBlockOptin",
    "registers_per_multi_processor": "MaxRegistersPerMultiprocessor",
    "warp_size": "WarpSize",
    "l2_cache_size": "L2CacheSize",
    "clock_rate": "ClockRate",
    "memory_clock_rate": "MemoryClockRate",
    "memory_bus_width": "GlobalMemoryBusWidth",
}


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """What a device (None: the current one) is.  Raises CudaError where it is not there.

    >>> dg.cuda.get_device_properties(0).name
    'NVIDIA H200'
    """
    number = device_index(device)
    runtime = state.cupy.cuda.runtime
    found = runtime.getDeviceProperties(number)
    attributes = {
        ours: int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), number)) for ours, name in _ATTRIBUTES.items()
    }
    major, minor, total = int(found["major"]), int(found["minor"]), int(found["totalGlobalMem"])
    return DeviceProperties(found["name"].decode(), major, minor, total, **attributes)


def check_same_device(arrays: Iterable[Any], what: str) -> int | None:
    """The device that all arrays lie on: its number, -1 for the host, None where nothing is an array of NumPy's or CuPy's.

    what: the operation, for the message.
    Raises CudaError where two lie on different devices, the host counting as one: `what`, both devices, and the cure; TypeError
    where `what` is no text, as where arrays are arguments of their own.

    >>> check_same_device([np.ones(2), 3.0], "add")
    -1
    """
    if not isinstance(what, str):
        raise TypeError(f"check_same_device: expected a list of arrays and the operation's name, got {type(what).__name__} for it")
    first, where = -1, None
    for position, array in enumerate(arrays):
        library = library_of(type(array))
        if library is None:
            continue
        number = library.device_of(array)
        if where is None:
            first, where = position, number
        elif number != where:
            one, other = device_name(where), device_name(number)
            cure = f"move one with dg.to_device(x, {other if where < 0 else one!r})"
            raise CudaError(f"{what}: array {first} is on {one}, array {position} on {other}; {cure}")
    return where


def device_name(number: int) -> str:
    """
    >>> device_name(1), device_name(-1)
    ('cuda:1', 'cpu')
    """
    return "cpu" if number < 0 else f"cuda:{number}"
