"""Load shared objects from memory.  No file and no descriptor is left behind."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator

from dynagraph._core._dispatch import Library
from dynagraph.errors import CompilerError

UNLOADED = "dynagraph-load-"  # begins the names of files that live until they are loaded
_numbers = itertools.count(1)


def load(image: bytes, *folders: str | os.PathLike[str]) -> Library:
    """Load an image: from memory; where that cannot be, from a file that is taken away at once.

    folders: where files may be written, besides the usual ones, which may be on a disk that allows no execution.
    Raises CompilerError where the image does not load.
    """
    reasons: list[str] = []
    for place in _places(folders):
        try:
            return place(image)
        except OSError as error:
            reasons.append(str(error))
    raise CompilerError(f"compiled code does not load: {'; '.join(dict.fromkeys(reasons))}")


def _places(folders: tuple[str | os.PathLike[str], ...]) -> Iterator[Callable[[bytes], Library]]:
    if hasattr(os, "memfd_create"):
        yield _from_memory
    for folder in (tempfile.gettempdir(), *folders, "/dev/shm"):
        if os.path.isdir(folder):
            yield lambda image, folder=folder: _from_file(image, folder)  # type: ignore[misc]


def _from_memory(image: bytes) -> Library:
    fd = os.memfd_create("dynagraph-kernel", os.MFD_CLOEXEC)
    with open(fd, "wb") as file:
        file.write(image)
        file.flush()
        return Library(unique_path(fd))


def unique_path(fd: int) -> str:
    """A path of a descriptor that no library was ever loaded by.

    The loader takes libraries of equal paths for the same one, and descriptors' numbers are used again.  Empty and dot components
    mean nothing: here they are the binary digits of a counter.

    >>> unique_path(5) != unique_path(5)
    True
    """
    digits = "".join("./" if digit == "1" else "/" for digit in f"{next(_numbers):b}")
    return f"/proc/self/fd/{digits}{fd}"


def _from_file(image: bytes, folder: str | os.PathLike[str]) -> Library:
    # the counter as well: a random name may come again
    with tempfile.NamedTemporaryFile(prefix=f"{UNLOADED}{next(_numbers)}-", suffix=".so", dir=folder) as file:
        file.write(image)
        file.flush()
        return Library(file.name)


__all__ = ["UNLOADED", "load", "unique_path"]
