"""Checkpoints of many files with an index: Hugging Face's layout, with parts of tensors by any number of ranks beside it.

One process writes ``model-00001-of-00003.safetensors`` and ``model.safetensors.index.json``, which other packages read.  Of several
ranks each writes files and an index of its own, and nobody waits for another: an index is written when its files are whole, and a
checkpoint is whole when the indexes of all ranks are there.  A `Checkpoint` reads any box of a tensor out of the parts that
cover it, so any number of ranks, split in any way, reads what any other has written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph import safetensors as format
from dynagraph._core import _dispatch
from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.tensor import Tensor, storage_of, wrap
from dynagraph.torch.serialization import atomic, loading
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.sources import new_array

_INDEX = ".index.json"
_MOST_INDEX = 1 << 28  # bytes
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Part:
    """The box of a larger tensor that one rank holds: `tensor` lies at `offsets` in one of sizes `shape`."""

    tensor: Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(slots=True)
class _Place:
    """Where a box of a tensor is: a file, the name there, its offsets and sizes, and its checksum."""

    file: str
    key: str
    offsets: tuple[int, ...] | None
    checksum: int | None


@dataclass(slots=True)
class _Known:
    """A tensor of a checkpoint: its sizes (None: those of the one place), and where its boxes are."""

    shape: tuple[int, ...] | None = None
    places: list[_Place] = field(default_factory=list)


def size_of(text: int | str) -> int:
    """A number of bytes: 5000000000 or "5GB"."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*([KMGT]?I?B)?\s*", text.upper())
    if match is None:
        raise ValueError(f"expected a number of bytes like '5GB' or '200MiB', got {text!r}")
    return int(match[1]) * _UNITS[match[2] or ""] if match[2] != "B" else int(match[1])


def save_sharded(
    state: Mapping[str, Tensor | Part], folder: str | os.PathLike[str], *, max_shard_size: int | str = "5GB", name: str = "model",
    rank: int = 0, ranks: int = 1, metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write a state dict in files of at most so many bytes (a larger tensor has one of its own), with an index.

    With several ranks each calls it with what it has: whole tensors, which one rank alone should write, or a `Part` of one.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks}")
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    tensors, aliases = _once(state)
    arrays = {key: devices.place(t.detach()._array, devices.CPU) for key, t in tensors.items()}
    shards = _split(arrays, size_of(max_shard_size))
    stem = name if ranks == 1 else f"{name}-rank{rank + 1:05d}-of-{ranks:05d}"
    files = [f"{stem}-{k + 1:05d}-of-{len(shards):05d}.safetensors" for k in range(len(shards))]
    if len(files) == 1:
        files = [f"{stem}.safetensors"]
    places: dict[str, str] = {}
    for file, keys in zip(files, shards):
        with atomic.replaced(os.path.join(folder, file)) as opened:
            for chunk in format.chunks({key: arrays[key] for key in keys}, {"format": "pt", **(metadata or {})}, ValueError):
                opened.write(chunk)
        places |= dict.fromkeys(keys, file)
    about: dict[str, Any] = {"total_size": sum(a.nbytes for a in arrays.values()), "rank": rank, "ranks": ranks}
    about["checksums"] = {key: _dispatch.crc32(np.asarray(a, order="C").reshape(-1).view(np.uint8)) for key, a in arrays.items()}
    about["parts"] = {k: {"offsets": list(p.offsets), "shape": list(p.shape)} for k, p in state.items() if isinstance(p, Part)}
    about["aliases"] = aliases
    index = {"metadata": about, "weight_map": places | {alias: places[key] for alias, key in aliases.items()}}
    with atomic.replaced(os.path.join(folder, f"{stem}.safetensors{_INDEX}")) as opened:
        opened.write(json.dumps(index, indent=1).encode())


def _once(state: Mapping[str, Tensor | Part]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, and of those that are one tensor by several names the other names."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name, value in state.items():
        if isinstance(value, Part):
            _check_box(name, value.offsets, tuple(value.tensor.shape), value.shape)
            tensors[name] = value.tensor
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor or a Part, got {type(value).__name__}")
        place = (id(storage_of(value)), value.storage_offset(), tuple(value.shape), tuple(value.stride()), value.dtype)
        other = seen.setdefault(place, name)
        if other == name or not value.numel():
            tensors[name] = value
        else:
            aliases[name] = other
    return tensors, aliases


def _check_box(name: str, offsets: Sequence[int], sizes: Sequence[int], shape: Sequence[int]) -> None:
    fits = len(offsets) == len(sizes) == len(shape) and all(o >= 0 and o + n <= whole for o, n, whole in zip(offsets, sizes, shape))
    if not fits:
        raise ValueError(f"{name}: a part of sizes {tuple(sizes)} at {tuple(offsets)} is not within {tuple(shape)}")


def _split(arrays: Mapping[str, np.ndarray], most: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    size = 0
    for name, array in arrays.items():
        if shards[-1] and size + array.nbytes > most:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += array.nbytes
    return shards


class Checkpoint:
    """A checkpoint in a folder: one file, or an index and its files, of safetensors or of `torch.save`.

    Files are mapped, so that reading a part of a tensor reads no more of them.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str = "model"):
        self.folder = os.fspath(folder)
        self._known: dict[str, _Known] = {}
        self._aliases: dict[str, str] = {}
        self._files: dict[str, dict[str, np.ndarray]] = {}
        self._read_indexes(name)

    def _refuse(self, why: str) -> LoadError:
        return LoadError(f"{self.folder}: not a whole checkpoint: {why}")

    def _read_indexes(self, name: str) -> None:
        stem = re.escape(name)
        found = sorted(
            f
            for f in os.listdir(self.folder)
            if re.fullmatch(rf"({stem}(-rank\d+-of-\d+)?|pytorch_{stem})\.(safetensors|bin){_INDEX}", f)
        )
        plain = [f for f in (f"{name}.safetensors", f"pytorch_{name}.bin") if os.path.exists(os.path.join(self.folder, f))]
        if not found:
            if not plain:
                raise FileNotFoundError(f"{self.folder}: no checkpoint named {name!r}: neither an index nor a file of it")
            for key in self._file(plain[0]):
                self._known[key] = _Known(places=[_Place(plain[0], key, None, None)])
            return
        ranks = [self._add(self._index(file), file) for file in found]
        if sorted(r for r, _ in ranks) != list(range(ranks[0][1])) or len({n for _, n in ranks}) != 1:
            raise self._refuse(f"of {ranks[0][1]} ranks there are the indexes of {sorted(r + 1 for r, _ in ranks)}")

    def _index(self, file: str) -> dict[str, Any]:
        path = os.path.join(self.folder, file)
        if os.path.getsize(path) > _MOST_INDEX:
            raise self._refuse(f"{file} has {os.path.getsize(path)} bytes")
        with open(path, "rb") as opened:
            try:
                index = json.load(opened)
            except (ValueError, RecursionError) as error:
                raise self._refuse(f"{file} cannot be read: {error}") from None
        if (
            not isinstance(index, dict)
            or not isinstance(index.get("weight_map"), dict)
            or not isinstance(index.get("metadata", {}), dict)
        ):
            raise self._refuse(f"{file} is no index")
        return index

    def _add(self, index: dict[str, Any], where: str) -> tuple[int, int]:
        about = index.get("metadata", {})
        parts, checksums, aliases = (about.get(k, {}) for k in ("parts", "checksums", "aliases"))
        rank, ranks = about.get("rank", 0), about.get("ranks", 1)
        if not all(isinstance(x, dict) for x in (parts, checksums, aliases)) or type(rank) is not int or type(ranks) is not int:
            raise self._refuse(f"{where} is no index")
        for key, file in index["weight_map"].items():
            if not isinstance(file, str) or file != os.path.basename(file) or file in ("", ".", ".."):
                raise self._refuse(f"{where} names {str(file)[:100]!r}, which is no file of the folder")
            if isinstance(aliases.get(key), str):
                self._aliases[key] = aliases[key]
                continue
            known = self._known.setdefault(key, _Known())
            part = parts.get(key)
            offsets = None
            if part is not None:
                offsets, shape = (_numbers(part, k) for k in ("offsets", "shape"))
                if offsets is None or shape is None or (known.places and known.shape != shape):
                    raise self._refuse(f"{where}: the part of {key} does not fit the others")
                known.shape = shape
            elif known.places:
                raise self._refuse(f"{key} is in two files, and is no part")
            known.places.append(_Place(file, key, offsets, checksums.get(key)))
        return rank, ranks

    def _file(self, file: str) -> dict[str, np.ndarray]:
        if file not in self._files:
            path = os.path.join(self.folder, file)
            if not os.path.exists(path):
                raise self._refuse(f"{file} is missing")
            if file.endswith(".bin"):
                state = loading.load(path, "cpu", weights_only=True)
                self._files[file] = {key: value.detach()._array for key, value in state.items()}
            else:
                data = np.asarray(np.memmap(path, np.uint8, "r")) if os.path.getsize(path) else np.empty(0, np.uint8)
                self._files[file] = format.parsed(data, path, LoadError)[0]
        return self._files[file]

    def __iter__(self) -> Any:
        return iter([*self._known, *self._aliases])

    def __contains__(self, name: str) -> bool:
        return name in self._known or name in self._aliases

    def _array(self, place: _Place) -> np.ndarray:
        found = self._file(place.file).get(place.key)
        if found is None:
            raise self._refuse(f"{place.file} has no {place.key}")
        return found

    def _of(self, name: str) -> _Known:
        found = self._known.get(self._aliases.get(name, name))
        if found is None:
            raise KeyError(f"{self.folder} has no {name}")
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a whole tensor."""
        known = self._of(name)
        return self._array(known.places[0]).shape if known.shape is None else known.shape

    def dtype(self, name: str) -> dtypes.dtype:
        """The dtype of a tensor."""
        return dtypes.of_numpy(self._array(self._of(name).places[0]).dtype)

    def read(self, name: str, offsets: Sequence[int] | None = None, sizes: Sequence[int] | None = None) -> Tensor:
        """A tensor, or the box of it at `offsets` of `sizes`; LoadError where the parts do not cover it or are damaged."""
        known, shape = self._of(name), self.shape(name)
        begin = tuple(offsets) if offsets is not None else (0,) * len(shape)
        wanted = tuple(sizes) if sizes is not None else tuple(n - o for n, o in zip(shape, begin))
        _check_box(name, begin, wanted, shape)
        dtype = self._array(known.places[0]).dtype
        result = new_array(dtype, int(np.prod(wanted, dtype=object)) if wanted else 1).reshape(wanted)
        covered = sum(self._copy(place, result, begin, shape) for place in self._disjoint(name, known, len(shape)))
        if covered != result.size:
            raise self._refuse(f"of the {result.size} elements of {name} that are wanted the parts have {covered}")
        return wrap(result)

    def _disjoint(self, name: str, known: _Known, dimensions: int) -> list[_Place]:
        """The parts of a tensor, of which two are the same box or have nothing in common; of the same box one."""
        found: dict[Any, _Place] = {}
        for place in known.places:
            box = tuple((o, o + n) for o, n in zip(place.offsets or (0,) * dimensions, self._array(place).shape))
            for other in found:
                if other != box and all(a < d and c < b for (a, b), (c, d) in zip(box, other)):
                    raise self._refuse(f"parts of {name} lie over one another")
            found.setdefault(box, place)
        return list(found.values())

    def _copy(self, place: _Place, result: np.ndarray, begin: tuple[int, ...], shape: tuple[int, ...]) -> int:
        """Copy what one part has of a box; how many elements."""
        array = self._array(place)
        at = place.offsets or (0,) * len(shape)
        if array.dtype != result.dtype or len(at) != array.ndim or any(o + n > s for o, n, s in zip(at, array.shape, shape)):
            raise self._refuse(f"{place.file}: {place.key} is not of the sizes and dtype that the index has")
        low = [max(b, o) for b, o in zip(begin, at)]
        high = [min(b + n, o + m) for b, n, o, m in zip(begin, result.shape, at, array.shape)]
        if any(a >= b for a, b in zip(low, high)):
            return 0
        source = array[tuple(slice(a - o, b - o) for a, b, o in zip(low, high, at))]
        is_whole = source.size == array.size and place.checksum is not None
        if is_whole and _dispatch.crc32(array.reshape(-1).view(np.uint8)) != place.checksum:
            where = f"{self.folder}: {place.file}: {place.key}"
            raise LoadError(f"{where} is damaged, or of another checkpoint: its checksum is another")
        result[tuple(slice(a - b, c - b) for a, c, b in zip(low, high, begin))] = source
        return int(source.size)


def _numbers(part: Any, key: str) -> tuple[int, ...] | None:
    found = part.get(key) if isinstance(part, dict) else None
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in found):
        return None
    return tuple(found)


def load_sharded(
    folder: str | os.PathLike[str], names: Iterable[str] | None = None, *, name: str = "model", device: Any = "cpu"
) -> dict[str, Tensor]:  # fmt: skip
    """The tensors of a checkpoint, or some of them, put together of whatever parts it was written in.  What is tied stays so."""
    checkpoint, where = Checkpoint(folder, name), devices.device(device)
    found: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {}
    for key in checkpoint if names is None else names:
        own = checkpoint._aliases.get(key, key)
        if own not in shared:
            shared[own] = wrap(devices.place(checkpoint.read(own)._array, where))
        found[key] = shared[own]
    return found


__all__ = ["Checkpoint", "Part", "load_sharded", "save_sharded", "size_of"]
