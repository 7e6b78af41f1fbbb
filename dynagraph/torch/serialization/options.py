"""What is set about saving and loading: for the process in ``torch.utils.serialization.config``, for a thread by `skip_data`."""

from __future__ import annotations

import mmap
import threading
from enum import Enum
from typing import Any

from dynagraph.torch.utils.serialization import config

__dynagraph_mutable__ = ("config",)


class LoadEndianness(Enum):
    """The byte order of files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that files without a record of it are taken to have; None: little."""
    found: LoadEndianness | None = config.load.endianness
    return found


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order that files without a record of it are taken to have."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    config.load.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` writes checksums."""
    return config.save.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Set whether `save` writes checksums.  Other readers of zip files may refuse files without."""
    config.save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """How ``load(mmap=True)`` maps files: mmap.MAP_PRIVATE or mmap.MAP_SHARED."""
    return config.load.mmap_flags


class set_default_mmap_options:
    """How ``load(mmap=True)`` maps files from now on, or within a ``with``: MAP_PRIVATE (writes stay in this process) or MAP_SHARED
    (they reach the file)."""

    def __init__(self, flags: int):
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got "
                f"{flags}"
            )
        self.prev = config.load.mmap_flags
        config.load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        config.load.mmap_flags = self.prev


class _OfThread(threading.local):
    skip_data = False
    map_location: Any = None


of_thread = _OfThread()


class skip_data:
    """Within it files are written with space where the bytes of storages would be, and tensors are loaded without their numbers."""

    def __init__(self, materialize_fake_tensors: bool = False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = of_thread.skip_data
        of_thread.skip_data = True

    def __exit__(self, *_: Any) -> None:
        of_thread.skip_data = self._before
