"""Files of before PyTorch 1.6: pickles one behind the other, then the bytes of storages; and tar files of before 0.1.10."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from dynagraph.torch._utils import _rebuild_tensor
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.dtypes import uint8
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.saving import MAGIC_NUMBER, PROTOCOL_VERSION
from dynagraph.torch.storage import TypedStorage, UntypedStorage

_SIZE = 8  # bytes of the number of elements before those of a storage


def parts(given: Any, least: int, name: str) -> tuple[Any, str, Any, int]:
    """Of what stands for a storage in a pickle: its type, key, place and number of elements."""
    if not isinstance(given, tuple) or len(given) < least or given[0] not in ("storage", b"storage"):
        raise LoadError(f"{name}: something stands in it that is no storage: {str(given)[:100]}")
    kind, key, location, count = given[1:5]
    key = key.decode("ascii", "replace") if isinstance(key, bytes) else key
    if type(key) is not str or type(count) is not int or count < 0:
        raise LoadError(f"{name}: a storage has no key or number of elements: {str(given)[:100]}")
    return kind, key, location, count


def dtype_of(kind: Any, name: str) -> DType:
    """The dtype of a storage by the type that a file names."""
    found = uint8 if kind is UntypedStorage else getattr(kind, "dtype", None)
    if not isinstance(found, DType):
        raise LoadError(f"{name}: {str(kind)[:100]} is no type of storages")
    return found


def load(loader: Any, data: bytes, may_be_tar: bool) -> tuple[Any, int]:
    """The object in a file, and where it ends.  `loader`: that of `loading.py`."""
    name = loader.source.name
    if may_be_tar and data[257:262] == b"ustar":
        return _of_tar(loader, data), len(data)
    nothing = _no_storages(name)
    magic, place = loader.unpickled(data, name, nothing)
    if magic != MAGIC_NUMBER:
        raise LoadError(f"{name}: Invalid magic number; corrupt file? It is no file of torch.save")
    version, place = loader.unpickled(data, name, nothing, place)
    if version != PROTOCOL_VERSION:
        raise LoadError(f"{name}: Invalid protocol version: {str(version)[:100]}")
    about, place = loader.unpickled(data, name, nothing, place)
    swap = isinstance(about, dict) and about.get("little_endian", True) != (sys.byteorder == "little")
    found: dict[str, TypedStorage] = {}
    locations: dict[str, Any] = {}

    def persistent_load(given: Any) -> Any:
        if isinstance(given, tuple) and given and given[0] in ("module", b"module"):
            return given[1]  # a class, with its source
        kind, key, location, count = parts(given, 5, name)
        dtype = dtype_of(kind, name)
        if key not in found:
            if count * dtype.itemsize > len(data):
                raise LoadError(f"{name}: a storage of {count * dtype.itemsize} bytes in a file of {len(data)}")
            # zeros: what is made of tensors that have no numbers yet, as sparse ones are, is checked
            storage = loader.restored(np.zeros(count, dtype.numpy), location)
            found[key], locations[key] = TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True), location
            if sum(s.nbytes() for s in found.values()) > len(data):
                raise LoadError(f"{name}: storages of more bytes than the {len(data)} of the file")
        return _view(found[key], given[5] if len(given) > 5 else None, name)

    result, place = loader.unpickled(data, name, persistent_load, place)
    keys, place = loader.unpickled(data, name, nothing, place)
    if not isinstance(keys, list) or set(keys) != set(found) or len(keys) != len(found):
        raise LoadError(f"{name}: the storages that it lists are not those that stand in it")
    for key in keys:
        place = _fill(found[key], data, place, swap, name)
    return result, place


def _no_storages(name: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        raise LoadError(f"{name}: a storage stands where there can be none")

    return refuse


def _view(storage: TypedStorage, view: Any, name: str) -> TypedStorage:
    """A part of a storage: of files in which storages could be views of others."""
    if view is None:
        return storage
    if not isinstance(view, tuple) or len(view) != 3 or not all(type(n) is int and n >= 0 for n in view[1:]):
        raise LoadError(f"{name}: a view of a storage is described by {str(view)[:100]}")
    _, offset, count = view
    if offset + count > storage.size():
        raise LoadError(f"{name}: a view of elements {offset} to {offset + count} of {storage.size()}")
    size = storage.dtype.itemsize
    part = storage.untyped()[offset * size : (offset + count) * size]
    return TypedStorage(wrap_storage=part, dtype=storage.dtype, _internal=True)


def _fill(storage: TypedStorage, data: bytes, place: int, swap: bool, name: str) -> int:
    """Give a storage its numbers, which begin at a place with how many there are; where they end."""
    size, dtype = storage.nbytes(), storage.dtype
    begin, end = place + _SIZE, place + _SIZE + size
    count = int.from_bytes(data[place:begin], "big" if swap != (sys.byteorder == "big") else "little")
    if end > len(data) or count != size // dtype.itemsize:
        raise LoadError(
            f"{name}: a storage of {size} bytes is wanted at {place}, and the file has {len(data)}: it is cut off or damaged"
        )
    row = np.frombuffer(data, dtype.numpy, count, begin)
    source = UntypedStorage.from_buffer((row.byteswap() if swap else row).view(np.uint8)) if size else None
    if source is not None:
        storage.untyped().copy_(source)
    return end


def _of_tar(loader: Any, data: bytes) -> Any:
    """A tar file of a pickle, its storages and tensors.  Nothing is unpacked to the disk."""
    name = loader.source.name
    if loader.pickle_module is None:
        raise LoadError(
            f"{name}: Cannot use ``weights_only=True`` with files saved in the legacy .tar format; with weights_only=False "
            f"they can "
            "run any code"
        )
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:") as tar:
            members = {}
            for key in ("storages", "tensors", "pickle"):
                info = tar.getmember(key)
                if info.size > len(data) or not info.isreg() or info.issparse():
                    raise LoadError(f"{name}: {key} is no plain file of the {len(data)} bytes")
                members[key] = tar.extractfile(info).read()  # type: ignore[union-attr]
    except (tarfile.TarError, KeyError, AttributeError) as error:
        raise LoadError(f"{name}: not a whole tar file of torch.save: {error}") from None
    return _TarReader(loader, members, name).load()


class _TarReader:
    def __init__(self, loader: Any, members: dict[str, bytes], name: str):
        self.loader, self.members, self.name = loader, members, name
        self.objects: dict[Any, Any] = {}

    def load(self) -> Any:
        """The object."""
        self._storages()
        self._tensors()
        return self.loader.unpickled(self.members["pickle"], self.name, self._known)[0]

    def _known(self, given: Any) -> Any:
        return given[0] if isinstance(given, tuple) else self.objects[int(given)]

    def _storages(self) -> None:
        data, none = self.members["storages"], _no_storages(self.name)
        count, place = self.loader.unpickled(data, self.name, none)
        for _ in range(count):
            (key, location, kind), place = self.loader.unpickled(data, self.name, none, place)
            dtype = dtype_of(kind, self.name)
            size = int.from_bytes(data[place : place + _SIZE], "little")
            if place + _SIZE + size * dtype.itemsize > len(data):
                raise LoadError(f"{self.name}: a storage of {size} elements does not fit in its {len(data)} bytes")
            row = np.frombuffer(data, dtype.numpy, size, place + _SIZE).copy()
            storage = self.loader.restored(row, location)
            self.objects[key] = TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
            place += _SIZE + size * dtype.itemsize
        views, place = self.loader.unpickled(data, self.name, none, place)
        for target, root, offset, size in views:
            self.objects[target] = _view(self.objects[root], (target, offset, size), self.name)

    def _tensors(self) -> None:
        data, none = self.members["tensors"], _no_storages(self.name)
        rebuild = _rebuild_tensor
        count, place = self.loader.unpickled(data, self.name, none)
        for _ in range(count):
            (key, storage, _), place = self.loader.unpickled(data, self.name, none, place)
            dimensions = int.from_bytes(data[place : place + 4], "little")
            numbers = np.frombuffer(data, "<i8", 2 * dimensions + 1, place + 8).tolist()
            place += 8 + 8 * len(numbers)
            shape, stride, offset = tuple(numbers[:dimensions]), tuple(numbers[dimensions:-1]), numbers[-1]
            self.objects[key] = rebuild(self.objects[storage], offset, shape, stride)


__all__ = ["dtype_of", "load", "parts"]
