"""CUDA devices, streams, events and memory, thin over CuPy: ``dg.cuda``.

CuPy is imported at the first use, never with dynagraph.  Errors of CUDA and CuPy (out of memory, failed kernels) come as they are;
what is missing or does not fit is a `CudaError` that says so.
"""

from dynagraph.cuda.devices import (
    DeviceProperties,
    check_same_device,
    current_device,
    device,
    get_device_properties,
    synchronize,
)
from dynagraph.cuda.memory import (
    empty_cache,
    is_pinned,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
)
from dynagraph.cuda.state import device_count, is_available
from dynagraph.cuda.streams import Event, Stream, current_stream

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "check_same_device",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_properties",
    "is_available",
    "is_pinned",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "synchronize",
]
