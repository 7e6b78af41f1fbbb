"""Arrays in the format of safetensors: a length of 8 bytes, a JSON header with dtype, shape and place of each, then their bytes.

Read by mapping the file: nothing is copied before it is used.  Headers are checked whole before any array is made of one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.errors import ExportError
from dynagraph.ir import dtypes

MOST_HEADER = 100_000_000  # bytes, as the format's own readers have it
_NAMES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
_DTYPES = {theirs: own for own, theirs in _NAMES.items()}
_KEYS = {"dtype", "shape", "data_offsets"}


def chunks(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, error: type[Exception] = ExportError
) -> Iterator[Any]:  # fmt: skip
    """The file in pieces of bytes.  Arrays of wide items come first, so that each begins at a multiple of its item's size."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {} if not metadata else {"__metadata__": dict(metadata)}
    offset = 0
    for name in order:
        array = arrays[name]
        dtype = dtypes.from_numpy(array.dtype)
        if dtype is None or dtype.name not in _NAMES:
            raise error(f"safetensors: {name} is of {array.dtype}, which the format does not have")
        end = offset + array.nbytes
        header[name] = {"dtype": _NAMES[dtype.name], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        yield np.asarray(arrays[name], order="C").reshape(-1).view(np.uint8).data


def size(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> int:
    """How many bytes `chunks` gives."""
    pieces = chunks(arrays, metadata)
    return 8 + len([next(pieces), next(pieces)][1]) + sum(array.nbytes for array in arrays.values())


@dataclass(frozen=True, slots=True)
class Entry:
    """One array of a file: its dtype, shape, and the bytes that are its own, from the beginning of the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def entries(
    read: Callable[[int, int], bytes], size: int, name: str = "safetensors", error: type[Exception] = ExportError
) -> tuple[dict[str, Entry], dict[str, str]]:
    """The arrays of a file of `size` bytes, of which ``read(offset, count)`` gives some, and its metadata; `error` for no such
    file."""

    def refuse(why: str) -> Exception:
        return error(f"{name}: not a safetensors file: {why}")

    if size < 8:
        raise refuse(f"{size} bytes are too few")
    length = int.from_bytes(read(0, 8), "little")
    if length > min(MOST_HEADER, size - 8):
        raise refuse(f"a header of {length} bytes in a file of {size}")
    try:
        header = json.loads(read(8, length).decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as fault:
        raise refuse(f"its header cannot be read: {fault}") from None
    if not isinstance(header, dict):
        raise refuse("its header is no object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise refuse("its metadata are not texts")
    start = 8 + length
    found: dict[str, Entry] = {}
    for key, entry in header.items():
        why = _fault(entry, size - start)
        if why:
            raise refuse(f"{key}: {why}")
        begin, end = entry["data_offsets"]
        dtype = dtypes.BY_NAME[_DTYPES[entry["dtype"]]].numpy
        found[key] = Entry(dtype, tuple(entry["shape"]), start + begin, start + end)
    position = start
    for key, each in sorted(found.items(), key=lambda item: (item[1].begin, item[1].end)):
        if each.begin != position:
            raise refuse(f"{key} begins at {each.begin - start}, and the one before ends at {position - start}")
        position = each.end
    if position != size:
        raise refuse(f"{size - position} bytes belong to no array")
    return found, metadata


def view_of(data: np.ndarray, entry: Entry) -> np.ndarray:
    """An array in the bytes of a file, as a view of these; a copy where it does not begin at a multiple of its item's alignment."""
    part = data[entry.begin : entry.end]
    if part.ctypes.data % entry.dtype.alignment:
        part = part.copy()
    return part.view(entry.dtype).reshape(entry.shape)


def parsed(
    data: np.ndarray, name: str = "safetensors", error: type[Exception] = ExportError
) -> tuple[dict[str, np.ndarray], dict[str, str]]:  # fmt: skip
    """The arrays in the bytes of a file, as read-only views of these, and its metadata; `error` for what is no such file."""
    places, metadata = entries(lambda offset, count: data[offset : offset + count].tobytes(), data.size, name, error)
    found = {key: view_of(data, entry) for key, entry in places.items()}
    for array in found.values():
        array.flags.writeable = False
    return found, metadata


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _fault(entry: Any, n_bytes: int) -> str | None:
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        return "its entry must have dtype, shape and data_offsets"
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        return f"unknown dtype {entry['dtype']!r}"
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(d) is int and 0 <= d < 1 << 63 for d in shape):
        return f"bad shape {str(shape)[:80]}"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(o) is int for o in offsets):
        return "bad data_offsets"
    if not 0 <= offsets[0] <= offsets[1] <= n_bytes:
        return f"it lies at {offsets}, outside of the {n_bytes} bytes that there are"
    needed = math.prod(shape) * dtypes.BY_NAME[_DTYPES[entry["dtype"]]].itemsize
    has = offsets[1] - offsets[0]
    return None if needed == has else f"{needed} bytes by dtype and shape, {has} by its place"


__all__ = ["Entry", "chunks", "entries", "parsed", "size", "view_of"]
