"""State dicts as NumPy's .npz files: `save_file` and `load_file`.  bfloat16 is written as its bits, in uint16, with a note of
the names."""

from __future__ import annotations

import ast
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.serialization import atomic
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.safetensors import host_arrays
from dynagraph.torch.serialization.sources import new_array

_HALVES = "__bfloat16__"  # the array of the names of those that are bfloat16
_AT_ONCE = 1 << 20
_EXPANDS, _LARGE = 1000, 1 << 28  # deflate makes at most 1/1032 of something; that much is refused of what is larger


def save_file(tensors: Mapping[str, Tensor], filename: str | os.PathLike[str]) -> None:
    """Write tensors by their names to a file that np.load reads, and which is there whole or not at all."""
    arrays = host_arrays(tensors)
    halves = [name for name, array in arrays.items() if array.dtype.kind == "V"]
    arrays = {name: array.view(np.uint16) if name in halves else array for name, array in arrays.items()}
    with atomic.replaced(filename) as file:
        np.savez(file, **arrays, **({_HALVES: np.array(halves)} if halves else {}))


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file that np.savez has written, compressed or not; arrays of objects are refused."""
    where = devices.device(device)
    name = os.fspath(filename)
    size = os.path.getsize(filename)
    try:
        with zipfile.ZipFile(filename) as archive:
            if sum(info.compress_size for info in archive.infolist()) > size:
                raise LoadError(f"{name}: its parts have more bytes than the {size} of the file")
            arrays = {info.filename.removesuffix(".npy"): _read(archive, info, size, name) for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise LoadError(f"{name}: not a whole npz file: {error}") from None
    halves = arrays.pop(_HALVES, np.empty(0, "U1"))
    for half in halves.tolist():
        if half in arrays and arrays[half].dtype == np.uint16:
            arrays[half] = arrays[half].view(dtypes.bfloat16.numpy)
    return {key: wrap(devices.place(_known(array, f"{name}, {key}"), where)) for key, array in arrays.items()}


def _known(array: np.ndarray, where: str) -> np.ndarray:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        dtypes.of_numpy(array.dtype)
    except TypeError as error:
        raise LoadError(f"{where}: {error}") from None
    return array


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int, name: str) -> np.ndarray:
    if info.compress_size > size or (info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size):
        raise LoadError(f"{name}: {info.filename!r} has {info.compress_size} bytes in a file of {size}")
    if info.file_size > _LARGE and info.file_size > _EXPANDS * info.compress_size:
        raise LoadError(
            f"{name}: {info.filename!r} expands {info.compress_size} bytes to {info.file_size}; np.load reads it if it is meant"
        )
    with archive.open(info) as member:
        head = member.read(8)
        if head[:6] != b"\x93NUMPY" or head[6] not in (1, 2, 3):
            raise LoadError(f"{name}: {info.filename!r} is no array of NumPy's")
        wide = 2 if head[6] == 1 else 4
        length = int.from_bytes(member.read(wide), "little")
        if length > min(info.file_size, 1 << 20):
            raise LoadError(f"{name}: {info.filename!r} has a header of {length} bytes in {info.file_size}")
        dtype, shape, order = _header(member.read(length), f"{name}, {info.filename}")
        count = int(np.prod(shape, dtype=object)) if shape else 1
        if count * dtype.itemsize != info.file_size - 8 - wide - length:
            raise LoadError(f"{name}: {info.filename!r} has not the bytes of {shape} elements of {dtype}")
        array = new_array(np.dtype(np.uint8), count * dtype.itemsize)
        _fill(member, array, f"{name}, {info.filename}")
    return array.view(dtype).reshape(shape, order=order)


def _header(text: bytes, name: str) -> tuple[np.dtype, tuple[int, ...], Any]:
    try:
        header = ast.literal_eval(text.decode("latin1"))
        shape, dtype = header["shape"], np.dtype(header["descr"])
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise LoadError(f"{name}: its header cannot be read: {error}") from None
    if (
        dtype.hasobject
        or not isinstance(shape, tuple)
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
        or len(shape) > 64
    ):
        raise LoadError(f"{name}: arrays of {dtype} with shape {str(shape)[:80]} are not read")
    return dtype, shape, "F" if header.get("fortran_order") else "C"


def _fill(member: Any, array: np.ndarray, name: str) -> None:
    done = 0
    while piece := member.read(_AT_ONCE):  # (behind the last byte zipfile compares the checksum)
        array[done : done + len(piece)] = np.frombuffer(piece, np.uint8)[: len(array) - done]
        done += len(piece)
    if done != len(array):
        raise LoadError(f"{name}: {done} bytes of {len(array)}: it is cut off")


__all__ = ["load_file", "save_file"]
