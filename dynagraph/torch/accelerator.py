"""``torch.accelerator``: the GPU, where CuPy finds one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from dynagraph import cuda
from dynagraph.cuda.state import require_cupy
from dynagraph.torch.core.devices import device
from dynagraph.torch.missing import getattr_of


def is_available() -> bool:
    """Whether there is a GPU that CuPy can use."""
    return cuda.is_available()


def current_accelerator(check_available: bool = False) -> device | None:
    """``device("cuda")`` where there is a GPU."""
    return device("cuda") if cuda.is_available() else None


def device_count() -> int:
    """How many GPUs there are."""
    return cuda.device_count()


def current_device_index() -> int:
    """The number of the GPU on which new arrays are made."""
    _check()
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Set the GPU on which new arrays are made, in this thread."""
    _check()
    require_cupy().cuda.Device(_index(device)).use()


set_device_idx = set_device_index


class device_index:
    """A context: the GPU on which new arrays are made; with None, nothing changes."""

    def __init__(self, device: int | None, /):
        self.context: Any = nullcontext() if device is None else cuda.device(device)

    def __enter__(self) -> None:
        self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.context.__exit__(*error)


def synchronize(device: Any = None, /) -> None:
    """Wait until a GPU has done all that it was asked to."""
    _check()
    cuda.synchronize(_index(device))


def current_stream(device: Any = None, /) -> Any:
    """The stream in which a GPU's work is put."""
    _check()
    return cuda.current_stream(_index(device))


def empty_cache() -> None:
    """Give memory that is not in use back to the GPU."""
    _check()
    cuda.empty_cache()


def memory_allocated(device_index: Any = None, /) -> int:
    """Bytes of a GPU's memory that arrays take."""
    _check()
    return cuda.memory_allocated(_index(device_index))


def max_memory_allocated(device_index: Any = None, /) -> int:
    """The most bytes that arrays have taken."""
    _check()
    return cuda.max_memory_allocated(_index(device_index))


def memory_reserved(device_index: Any = None, /) -> int:
    """Bytes of a GPU's memory that CuPy holds."""
    _check()
    return cuda.memory_reserved(_index(device_index))


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    """Have `max_memory_allocated` begin anew."""
    _check()
    cuda.reset_peak_memory_stats(_index(device_index))


def _index(given: Any) -> int | None:
    if given is None or isinstance(given, int):
        return given
    return device(given).index


def _check() -> None:
    if not cuda.is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")


__getattr__ = getattr_of(__name__)
__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
    "empty_cache", "is_available", "max_memory_allocated", "memory_allocated", "memory_reserved", "reset_peak_memory_stats",
    "set_device_idx", "set_device_index", "synchronize",
]  # fmt: skip
