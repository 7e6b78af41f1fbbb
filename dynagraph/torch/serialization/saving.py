"""``torch.save``."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.torch.serialization import atomic
from dynagraph.torch.serialization.archive import Writer
from dynagraph.torch.serialization.options import of_thread
from dynagraph.torch.serialization.pickling import Storages, dumped
from dynagraph.torch.storage import UntypedStorage
from dynagraph.torch.utils.serialization import config

DEFAULT_PROTOCOL = 2
MAGIC_NUMBER, PROTOCOL_VERSION = 0x1950A86A20F9469CFC6C, 1001  # what files of before zip begin with


def save(
    obj: object, f: Any, pickle_module: Any = pickle, pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Write an object, with the tensors in it, to a file that `load` and PyTorch's own read.

    `f` is a path or an object with `write`.  A path names the whole new file or what was there before, whatever happens meanwhile:
    the file is written beside it, brought to the disk, and renamed.  Tensors that share memory do so again when they are loaded; a
    view saves all of its memory.

    >>> import io
    >>> from dynagraph import torch
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2)}, file)
    >>> file.seek(0)
    0
    >>> torch.load(file)
    {'weight': tensor([1., 1.])}
    """
    if not isinstance(f, (str, os.PathLike)) and not callable(getattr(f, "write", None)):
        what = f"Buffer of {str(type(f)).strip('<>')} has no callable attribute 'write'"
        raise (
            TypeError(what)
            if hasattr(f, "write")
            else AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute: {what}")
        )
    storages = Storages()
    if _use_new_zipfile_serialization:
        data = dumped(obj, storages, pickle_module, pickle_protocol)
        with atomic.opened(f) as file:
            straight = _straight_to(file) if isinstance(f, (str, os.PathLike)) else None
            _write_archive(file, _folder_of(f), data, storages, _disable_byteorder_record, straight)
        return
    if of_thread.skip_data:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    storages.with_views = True
    data = dumped(obj, storages, pickle_module, pickle_protocol)
    with atomic.opened(f) as file:
        _write_legacy(file, data, storages, pickle_module, pickle_protocol)


def _folder_of(f: Any) -> str:
    """The folder in the archive: the file's name without its ending."""
    name = os.path.basename(os.fsdecode(f)) if isinstance(f, (str, os.PathLike)) else ""
    return (name.rpartition(".")[0] or name if name.isascii() else "") or "archive"


def _bytes_of(storage: UntypedStorage) -> memoryview:
    return memoryview(np.ascontiguousarray(storage.cpu()._row()))


def _straight_to(file: Any) -> Any:
    """Writes to a file of the system, past its buffer, and gives the checksum."""

    def write(data: Any) -> int:
        file.flush()
        return _dispatch.write_crc32(file.fileno(), data)

    return write


def _write_archive(
    file: Any, folder: str, data: bytes, storages: Storages, without_byteorder: bool, straight: Any
) -> None:
    alignment = config.save.storage_alignment
    writer = Writer(file.write, folder, alignment, config.save.compute_crc32, straight)
    writer.add("data.pkl", data)
    writer.add(".format_version", b"1")
    writer.add(".storage_alignment", str(alignment).encode())
    if not without_byteorder:
        writer.add("byteorder", sys.byteorder.encode())
    for key, storage in storages.found.items():
        if of_thread.skip_data:
            writer.add(f"data/{key}", None, storage.nbytes())
        else:
            writer.add(f"data/{key}", _bytes_of(storage))
    writer.close()


def _write_legacy(file: Any, data: bytes, storages: Storages, pickle_module: Any, protocol: int) -> None:
    sizes = {name: struct.calcsize(f"={code}") for name, code in (("short", "h"), ("int", "i"), ("long", "l"))}
    about = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little", "type_sizes": sizes}
    for value in (MAGIC_NUMBER, PROTOCOL_VERSION, about):
        pickle_module.dump(value, file, protocol=protocol)
    file.write(data)
    keys = sorted(storages.found)
    pickle_module.dump(keys, file, protocol=protocol)
    for key in keys:
        storage = storages.found[key]
        file.write(struct.pack("<q", storage.nbytes() // storages.itemsizes[key]))
        file.write(_bytes_of(storage))


__all__ = ["DEFAULT_PROTOCOL", "MAGIC_NUMBER", "PROTOCOL_VERSION", "save"]
