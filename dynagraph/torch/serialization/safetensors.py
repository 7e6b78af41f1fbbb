"""State dicts in the format of safetensors: `save_file`, `load_file`, `save` and `load` as ``safetensors.torch`` has them.

The format is read and written by `dynagraph/safetensors.py`; the package of this name is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dynagraph import safetensors as format
from dynagraph.torch.core import devices
from dynagraph.torch.core.layouts import strided
from dynagraph.torch.core.tensor import Tensor, storage_of, wrap
from dynagraph.torch.serialization import atomic
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.sources import FileSource, MemorySource, Source, new_array


def host_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The arrays of tensors, in the host's memory; RuntimeError where two tensors share theirs, which the file could not say."""
    found: dict[str, np.ndarray] = {}
    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor).__name__}")
        if tensor.layout is not strided:
            raise ValueError(f"{name} is sparse: safetensors has dense tensors only")
        found[name] = devices.place(tensor.detach()._array, devices.CPU)
        other = owners.setdefault(id(storage_of(tensor)), name)
        if other != name and np.may_share_memory(found[name], found[other]):
            raise RuntimeError(
                f"{other} and {name} share memory, which safetensors cannot say: save one of them, or a clone of it; "
                f"torch.save keeps "
                "what is shared"
            )
    return found


def save_file(tensors: Mapping[str, Tensor], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by their names to a file, which is there whole or not at all."""
    arrays = host_arrays(tensors)
    with atomic.replaced(filename) as file:
        for chunk in format.chunks(arrays, metadata, ValueError):
            file.write(chunk)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The file as bytes."""
    return b"".join(format.chunks(host_arrays(tensors), metadata, ValueError))


def load_file(filename: str | os.PathLike[str], device: Any = "cpu", *, mmap: bool = False) -> dict[str, Tensor]:
    """The tensors of a file.  ``mmap=True`` maps it: what is written to the tensors stays in this process."""
    where = devices.device(device)
    if mmap:
        data = np.asarray(np.memmap(filename, np.uint8, "c")) if os.path.getsize(filename) else np.empty(0, np.uint8)
        source: Source = MemorySource(data, os.fspath(filename))
        return _tensors(source, lambda entry: format.view_of(data, entry), where)
    with open(filename, "rb") as file:
        source = FileSource(file)
        return _tensors(source, lambda entry: read_entry(source, entry), where)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file's bytes."""
    source = MemorySource(data, "safetensors")
    return _tensors(source, lambda entry: read_entry(source, entry), devices.CPU)


def read_entry(source: Source, entry: format.Entry) -> np.ndarray:
    """One array of a file."""
    array = new_array(np.dtype(np.uint8), entry.end - entry.begin, source)
    source.fill(entry.begin, array)
    return array.view(entry.dtype).reshape(entry.shape)


def _tensors(source: Source, array_of: Callable[[format.Entry], np.ndarray], where: devices.device) -> dict[str, Tensor]:
    found, _ = format.entries(source.read, source.size, source.name, LoadError)
    return {name: wrap(devices.place(array_of(entry), where)) for name, entry in found.items()}


def names_in(filename: str | os.PathLike[str]) -> Iterable[str]:
    """The names of a file's tensors."""
    with open(filename, "rb") as file:
        source = FileSource(file)
        return format.entries(source.read, source.size, source.name, LoadError)[0]


__all__ = ["load", "load_file", "save", "save_file"]
