"""Pickles of what is saved: storages stand in them by number, and this package's globals by PyTorch's names.

Pickle knows a global only by the module that it is in.  So the pickle is made with this package's names, and the opcodes that name
them are replaced.  Classes whose instances PyTorch holds otherwise have a method `_reduced_for_files`, which gives what its
class is made of again.
"""

from __future__ import annotations

import functools
import io
import pickletools
import re
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.serialization import locations
from dynagraph.torch.serialization.names import is_ours, theirs
from dynagraph.torch.storage import LEGACY, TypedStorage, UntypedStorage

_NAMED = re.compile(rb"c(dynagraph\.torch[\w.]*)\n([\w.]+)\n")  # the opcode GLOBAL of protocols below 4
_STORAGES = (TypedStorage, UntypedStorage)


def dumped(obj: Any, storages: Storages, pickle_module: Any, protocol: int) -> bytes:
    """The pickle of an object, with PyTorch's names."""
    file = io.BytesIO()
    pickler = _pickler_class(pickle_module.Pickler)(file, protocol, storages)
    pickler.dump(obj)
    return renamed(file.getvalue(), pickler.named)


@functools.cache
def _pickler_class(base: Any) -> Any:
    inherited = getattr(base, "reducer_override", None)

    class Pickler(base):  # type: ignore[misc]
        def __init__(self, file: Any, protocol: int, storages: Storages):
            super().__init__(file, protocol=protocol)
            self.protocol, self.storages = protocol, storages
            self.named: set[tuple[str, str]] = set()

        def persistent_id(self, value: Any) -> Any:
            return self.storages.persistent_id(value) if isinstance(value, _STORAGES) else None

        def reducer_override(self, value: Any) -> Any:
            reduced = getattr(type(value), "_reduced_for_files", None)
            if reduced is not None:
                return reduced(value, self.protocol)
            if is_ours(getattr(value, "__module__", None)):
                name = value.name if isinstance(value, dtypes.dtype) else getattr(value, "__qualname__", None)
                if name is not None:
                    self.named.add((value.__module__, name))
            return NotImplemented if inherited is None else inherited(self, value)

    return Pickler


def renamed(data: bytes, named: set[tuple[str, str]]) -> bytes:
    """A pickle with PyTorch's names of globals.  `named`: those that were asked for while it was made."""
    found = [(m.decode(), n.decode()) for m, n in _NAMED.findall(data)]
    if data[1:2] < b"\x04" and len(found) == len(named) and set(found) == named:
        # each is named once, and nothing else in the pickle reads like it
        return _NAMED.sub(lambda match: _global(*theirs(match[1].decode(), match[2].decode())), data)
    return _renamed_by_opcodes(data)


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _renamed_by_opcodes(data: bytes) -> bytes:
    """As `renamed`, of any protocol: GLOBAL gets another text, and before STACK_GLOBAL its operands are dropped for a GLOBAL.

    Frames are left out: they would be of another length.
    """
    pieces: list[bytes] = []
    texts: list[str] = []  # pushed last
    memo: list[Any] = []
    places: dict[int, Any] = {}
    start = 0
    for opcode, argument, position in pickletools.genops(data):
        name, value = opcode.name, None
        if name == "FRAME":
            pieces.append(data[start:position])
            start = position + 9
        elif name == "GLOBAL":
            argument = str(argument)
            module, _, qualname = argument.partition(" ")
            if is_ours(module):
                pieces += [data[start:position], _global(*theirs(module, qualname))]
                start = position + len(argument) + 2
        elif name == "STACK_GLOBAL":
            module, qualname = texts[-2:]
            if is_ours(module):
                pieces += [data[start:position], b"00", _global(*theirs(module, qualname))]
                start = position + 1
        elif "UNICODE" in name:
            texts.append(argument)
            continue
        elif name == "MEMOIZE":
            places[len(memo)] = texts[-1] if texts else None
            memo.append(None)
            continue
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            places[argument] = texts[-1] if texts else None
            continue
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            value = places.get(argument)
        if value is None:
            texts.clear()
        else:
            texts.append(value)
    return b"".join([*pieces, data[start:]])


class Storages:
    """The storages of what is saved, in the order in which they were met, each with the number that stands for it in the pickle."""

    def __init__(self) -> None:
        self.with_views = False  # whether files have a place for a view behind the number: those of before zip
        self.itemsizes: dict[str, int] = {}
        self.found: dict[str, UntypedStorage] = {}  # which keeps them alive while others are looked for
        self._numbers: dict[int, str] = {}
        self._dtypes: dict[int, dtypes.dtype] = {}

    def identify(self, value: Any) -> tuple[UntypedStorage, Any, str, int]:
        """Of a storage: its memory, the type that files name, its location and its number of elements."""
        if isinstance(value, TypedStorage):
            storage, dtype = value._untyped_storage, value.dtype
            kind: Any = LEGACY[value.pickle_storage_type()]
        else:
            storage, dtype, kind = value, dtypes.uint8, UntypedStorage
        if storage.nbytes() and self._dtypes.setdefault(storage.data_ptr(), dtype) is not dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        return storage, kind, locations.location_tag(storage), storage.nbytes() // dtype.itemsize

    def persistent_id(self, value: Any) -> Any:
        """What stands for a storage."""
        storage, kind, location, count = self.identify(value)
        key = self._numbers.setdefault(storage._cdata, str(len(self._numbers)))
        self.found[key] = storage
        self.itemsizes[key] = storage.nbytes() // count if count else 1
        return ("storage", kind, key, location, count, None) if self.with_views else ("storage", kind, key, location, count)


__all__ = ["Storages", "dumped", "renamed"]
