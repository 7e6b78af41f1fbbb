"""``torch.cuda.memory``: what CuPy's pool holds on a GPU.  Without CUDA all is zero, and nothing is to be freed."""

from __future__ import annotations

from typing import Any

import dynagraph.cuda as dg
from dynagraph.cuda.devices import device_index
from dynagraph.cuda.state import require_cupy, state
from dynagraph.torch.cuda._devices import index_of, is_initialized
from dynagraph.torch.missing import getattr_of


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors take on a GPU."""
    return dg.memory_allocated(index_of(device)) if is_initialized() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` has been since `reset_peak_memory_stats`, or the first call of either."""
    return dg.max_memory_allocated(index_of(device)) if is_initialized() else 0


def memory_reserved(device: Any = None) -> int:
    """The bytes that the pool has got from a GPU."""
    return dg.memory_reserved(index_of(device)) if is_initialized() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` begin anew."""
    if is_initialized():
        dg.reset_peak_memory_stats(index_of(device))


reset_max_memory_allocated = reset_peak_memory_stats


def empty_cache() -> None:
    """Give back to the GPUs what the pool keeps for later."""
    if is_initialized():
        for number in range(state.count):
            dg.empty_cache(number)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The free and all bytes of a GPU."""
    with dg.device(device_index(index_of(device))):
        free, total = require_cupy().cuda.runtime.memGetInfo()
    return int(free), int(total)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The numbers of this module under PyTorch's names for them; empty without CUDA."""
    if not is_initialized():
        return {}
    allocated, reserved = memory_allocated(device), memory_reserved(device)
    return {
        "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": max_memory_allocated(device),
        "reserved_bytes.all.current": reserved,
    }  # fmt: skip


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The numbers of this module as a text."""
    return "\n".join(f"{name:<30} {value:>16,}" for name, value in memory_stats(device).items())


__getattr__ = getattr_of(__name__)
__all__ = [
    "empty_cache", "max_memory_allocated", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "memory_summary",
    "reset_max_memory_allocated", "reset_peak_memory_stats",
]  # fmt: skip
