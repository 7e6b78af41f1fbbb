"""Memory that processes share: files without names, which travel as descriptors.

The kernel counts who holds a descriptor or a mapping and frees what nobody does, whoever is killed.  Whether an array lies in such
memory is seen from the array: NumPy's views name what they are of.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from dynagraph._core._dispatch import FileMapping

_HAS_MEMORY_FILES = hasattr(os, "memfd_create")


def new_file() -> int:
    """The descriptor of an empty file without a name."""
    if _HAS_MEMORY_FILES:
        return os.memfd_create("dynagraph", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # whose name is gone already
        return os.dup(file.fileno())


def _reserve(file: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(file, 0, nbytes)
    else:
        os.ftruncate(file, nbytes)


def allocate(nbytes: int) -> FileMapping:
    """Memory that other processes can map; OSError, and no signal at a later write, where there is not enough."""
    file = new_file()
    try:
        _reserve(file, nbytes)
        return FileMapping(file, nbytes)
    except BaseException:
        os.close(file)
        raise


def mapping_of(array: Any) -> FileMapping | None:
    """The shared memory that an array of NumPy's lies in; None if in other memory."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if type(base) is FileMapping else None


def identity(file: int) -> tuple[int, int]:
    """Of an open file: the same in all processes."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino


__all__ = ["allocate", "identity", "mapping_of", "new_file"]
