"""Devices by PyTorch's names, over NumPy and CuPy arrays."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import numpy as np

# PyTorch's; libraries compare with any of them.  Tensors are on the first two
_TYPES = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps",
    "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class device:
    """Where a tensor is: ``device("cpu")``, ``device("cuda:1")``, ``device("cuda", 1)``; a context that new tensors are made in."""

    __slots__ = ("_before", "index", "type")
    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None):
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        elif isinstance(type, int):
            type, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, int or torch.device, not {type.__class__.__name__}")
        name, colon, number = type.partition(":")
        if name not in _TYPES:
            raise RuntimeError(f"Expected one of {', '.join(_TYPES)} device type at start of device string: {name}")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not number.isdecimal():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        self.type, self.index = name, index
        self._before: list[device | None] = []

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> Any:
        return device, ((self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self) -> device:
        global _default
        self._before.append(_default)
        _default = self
        return self

    def __exit__(self, *_: Any) -> None:
        global _default
        _default = self._before.pop()


_device = device
CPU = device("cpu")
__dynagraph_mutable__ = ("_default",)  # captured code has it guarded
_default: device | None = None


def get_default_device() -> device:
    """Where new tensors are made."""
    return _default or CPU


def set_default_device(device: Any) -> None:
    """Set where new tensors are made; None: on the CPU."""
    global _default
    _default = None if device is None else _device(device)


def of_array(array: Any) -> device:
    """Where an array is."""
    if type(array) is np.ndarray:
        return CPU
    physical = getattr(array, "physical", None)  # of examples: see batching.py
    return device("cuda", int(array.device.id)) if physical is None else of_array(physical)


def library_of(where: device) -> Any:
    """NumPy or CuPy; RuntimeError where there is no GPU."""
    if where.type == "cpu":
        return np
    if where.type == "meta":
        raise RuntimeError("the meta device holds no data, and is not supported")
    if where.type != "cuda":
        raise RuntimeError(f"tensors are on the CPU or on CUDA devices; there is no device {str(where)!r}")
    try:
        return sys.modules.get("cupy") or importlib.import_module("cupy")
    except ImportError:
        raise RuntimeError("device 'cuda' needs CuPy: pip install 'dynagraph[cuda12]', or [cuda13]") from None


def current_gpu(where: device) -> int:
    """The number of the GPU that "cuda" is."""
    return int(library_of(where).cuda.runtime.getDevice())


def scope(where: device) -> Any:
    """A context in which new arrays of a device's library lie there; "cuda" is the current GPU."""
    if where.type == "cpu" or where.index is None:
        return contextlib.nullcontext()
    return library_of(where).cuda.Device(where.index)


def place(array: Any, where: device) -> Any:
    """An array on a device: the array itself where it lies there."""
    library = library_of(where)
    if library is np:
        return array if isinstance(array, np.ndarray) else array.get()
    with scope(where):
        return library.asarray(array)


__all__ = ["CPU", "current_gpu", "device", "get_default_device", "library_of", "of_array", "place", "scope", "set_default_device"]
