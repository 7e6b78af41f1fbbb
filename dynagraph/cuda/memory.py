"""Device memory statistics, by CuPy's pools, and page-locked memory of the host."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from dynagraph.cuda.devices import DeviceLike, on_device
from dynagraph.cuda.state import is_available, require_cupy, state
from dynagraph.cuda.streams import release_held
from dynagraph.errors import DTypeError, ShapeError

DTYPES = "?bhilqBHILQefdFD"  # the characters of those that devices have
_HOOK = "dynagraph-peak"


def _pool(cupy: Any) -> Any:
    """The pool that this thread allocates from; CuPy's default one where its allocator is none that can be asked."""
    owner = getattr(cupy.cuda.get_allocator(), "__self__", None)
    return owner if hasattr(owner, "used_bytes") and hasattr(owner, "total_bytes") else cupy.get_default_memory_pool()


def memory_allocated(device: DeviceLike = None) -> int:
    """The bytes that arrays take of CuPy's pool on a device (None: the current one), rounded up by array as the pool does."""
    with on_device(device):
        release_held()
        return int(_pool(state.cupy).used_bytes())


def memory_reserved(device: DeviceLike = None) -> int:
    """The bytes that CuPy's pool has got from a device (None: the current one): what arrays take and what it keeps for others."""
    with on_device(device):
        return int(_pool(state.cupy).total_bytes())


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The largest `memory_allocated` of a device (None: the current one) since `reset_peak_memory_stats`, or the first call.

    CuPy keeps no such number.  The first call of either in a thread sets a memory hook of CuPy's there, which from then on reads
    the pool after each allocation of that thread (it takes longer the more arrays there are).  What other threads hold is counted,
    but a peak that they reach and leave between two readings is only seen if they have called one of the two as well.
    """
    return _note_peak(device, fresh=False)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Let `max_memory_allocated` begin anew, with what is allocated now."""
    _note_peak(device, fresh=True)


def _note_peak(device: DeviceLike, fresh: bool) -> int:
    with on_device(device) as scope:
        _watch(state.cupy)
        return _read_pool(scope.index, fresh)


def _read_pool(device: int, fresh: bool = False) -> int:
    with state.lock:  # else a smaller reading could overwrite a larger one
        used = int(_pool(state.cupy).used_bytes())
        state.peaks[device] = used if fresh else max(used, state.peaks.get(device, 0))
        return state.peaks[device]


def _watch(cupy: Any) -> None:
    """Set the hook in this thread: CuPy's hooks belong to threads."""
    hooks = cupy.cuda.memory_hook.get_memory_hooks()
    if _HOOK in hooks:
        return

    class PeakHook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = _HOOK

        def malloc_postprocess(self, *, device_id: int, **details: Any) -> None:
            _read_pool(device_id)

    PeakHook().__enter__()  # for good


def empty_cache(device: DeviceLike = None) -> None:
    """Give back to a device (None: the current one) what CuPy's pool keeps there, and to the host its free page-locked memory."""
    with on_device(device):
        release_held()
        _pool(state.cupy).free_all_blocks()
        state.cupy.get_default_pinned_memory_pool().free_all_blocks()


def is_pinned(array: np.ndarray) -> bool:
    """Whether a NumPy array lies in page-locked memory, whoever locked it.  False where there is no device, and for empty arrays.

    Raises TypeError for what is no NumPy array.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"is_pinned: expected a NumPy array, got {type(array).__name__}")
    if array.size == 0 or not is_available():
        return False
    runtime = state.cupy.cuda.runtime
    low, high = np.lib.array_utils.byte_bounds(array)
    return all(runtime.pointerGetAttributes(address).type == runtime.memoryTypeHost for address in (low, high - 1))


def pinned_empty(shape: Any, dtype: Any = float, order: Literal["C", "F"] = "C") -> np.ndarray:
    """A NumPy array of uninitialised page-locked memory, which devices copy from and to without the processor.

    shape: an int or a sequence of ints.  dtype: booleans, integers, floats or complex numbers.  order: "C" or "F".
    The memory goes back to CuPy's pool when the array and its views are gone.  Page-locked memory is taken from all other
    programs: keep a few arrays and fill them again, instead of many.
    Raises CudaError where there is no device, ShapeError for a negative or too large size, DTypeError for other dtypes.

    >>> batch = dg.pinned_empty((64, 1024), np.float32)
    >>> batch[...] = rows
    >>> x = dg.to_device(batch, "cuda:0", non_blocking=True)
    """
    sizes = _sizes(shape)
    kind = np.dtype(dtype)
    check_dtype("pinned_empty", kind)
    if order not in ("C", "F"):
        raise ValueError(f"pinned_empty: order {order!r}: expected 'C' or 'F'")
    nbytes = math.prod(sizes) * kind.itemsize
    if nbytes > sys.maxsize:
        raise ShapeError(f"pinned_empty: shape {sizes} of {kind} takes {nbytes} bytes, more than can be addressed")
    memory = require_cupy().cuda.alloc_pinned_memory(max(nbytes, 1))
    return np.ndarray(sizes, kind, memory, order=order)  # which keeps the memory


def _sizes(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, Sequence) else (shape,)))
    except TypeError:
        raise TypeError(f"pinned_empty: shape {shape!r}: expected an int or a sequence of ints") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"pinned_empty: shape {sizes}: sizes cannot be negative")
    return sizes


def check_dtype(who: str, dtype: np.dtype) -> None:
    is_bfloat16 = dtype.kind == "V" and dtype.name == "bfloat16" and dtype.isnative
    if dtype.char not in DTYPES and not is_bfloat16:
        raise DTypeError(
            f"{who}: dtype {dtype}: devices have booleans, integers, float16 to float64, bfloat16, complex64 and complex128"
        )
