"""What is read from: files, mapped or by descriptor, and objects with `read` and `seek`.  Nothing is read beyond the end.

A `Source` knows its size, so that what a file says of itself is compared with it before memory is asked for.
"""

from __future__ import annotations

import io
import mmap
import os
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.torch.serialization.errors import LoadError

_BYTES = np.dtype(np.uint8)
_AT_ONCE = 1 << 20
_LARGE = 1 << 20  # bytes
_POPULATED = getattr(mmap, "MAP_POPULATE", 0)
_SEEKABLE = (
    ". You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to "
    "load "
    "from it instead."
)


class Source:
    """Bytes by their place: of an object with `read` and `seek`, from where it stands."""

    def __init__(self, file: Any, name: str = ""):
        self.file = file
        self.name = name or _name_of(file)
        try:
            self.start = file.tell()
            self.size = max(file.seek(0, os.SEEK_END) - self.start, 0)
            file.seek(self.start)
        except (io.UnsupportedOperation, AttributeError) as error:
            if any(word in str(error) for word in ("seek", "tell")):
                raise type(error)(str(error) + _SEEKABLE) from None
            raise

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise LoadError(
                f"{self.name}: {count} bytes at {offset} are wanted, and the file has {self.size}: it is cut off or damaged"
            )

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes from a place."""
        self._check(offset, count)
        array = np.empty(count, _BYTES)
        self._fill(offset, array)
        return array.tobytes()

    def fill(self, offset: int, array: np.ndarray) -> int:
        """Read into an array of bytes; the checksum of what was read."""
        self._check(offset, len(array))
        return self._fill(offset, array)

    def _fill(self, offset: int, array: np.ndarray) -> int:
        self.file.seek(self.start + offset)
        done, checksum = 0, 0
        while done < len(array):
            piece = self.file.read(min(len(array) - done, _AT_ONCE))
            if not piece:
                raise LoadError(f"{self.name}: the file ends at {offset + done}, where {len(array) - done} bytes more are wanted")
            array[done : done + len(piece)] = np.frombuffer(piece, _BYTES)
            checksum = _dispatch.crc32(piece, checksum)
            done += len(piece)
        return checksum


class FileSource(Source):
    """A file of the system, read at places without moving it, straight into memory; large arrays by several threads."""

    def __init__(self, file: Any, name: str = ""):
        super().__init__(file, name)
        self.descriptor = file.fileno()

    def _fill(self, offset: int, array: np.ndarray) -> int:
        done, checksum = _dispatch.read_crc32(self.descriptor, self.start + offset, array)
        if done != len(array):
            raise LoadError(f"{self.name}: the file ends at {offset + done}, where {len(array) - done} bytes more are wanted")
        return checksum


class MemorySource(Source):
    """Bytes that are in memory: of io.BytesIO, and mapped files."""

    def __init__(self, data: Any, name: str, start: int = 0):
        self.data = np.frombuffer(data, _BYTES) if not isinstance(data, np.ndarray) else data
        self.name, self.start, self.size = name, start, max(len(self.data) - start, 0)

    def _fill(self, offset: int, array: np.ndarray) -> int:
        begin = self.start + offset
        array[:] = self.data[begin : begin + len(array)]
        return _dispatch.crc32(array)


def _name_of(file: Any) -> str:
    name = getattr(file, "name", None)
    return str(name) if isinstance(name, (str, os.PathLike)) else type(file).__name__


def is_plain_file(file: Any) -> bool:
    """Whether its bytes are those of its descriptor (not of what decompresses them)."""
    raw = getattr(file, "raw", file)
    return isinstance(raw, io.FileIO) and type(file) in (io.FileIO, io.BufferedReader, io.BufferedRandom)


def source_of(file: Any) -> Source:
    """The source for an open file, from where it stands."""
    if is_plain_file(file):
        return FileSource(file)
    if type(file) is io.BytesIO:
        return MemorySource(file.getvalue(), "BytesIO", file.tell())
    return Source(file)


def new_array(dtype: np.dtype, count: int, source: Source | None = None) -> np.ndarray:
    """Memory for what is read.  The pages of large arrays are there by few calls of the system, not by a fault for each:
    now, or where `source` is a file by the threads that read it.

    (NumPy asks for huge pages, which a system whose memory is in pieces may take longer to find than a file takes to be read.)
    """
    size = count * dtype.itemsize
    if size < _LARGE or not _POPULATED:
        return np.empty(count, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0 if isinstance(source, FileSource) else _POPULATED)
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype, count)


__all__ = ["FileSource", "MemorySource", "Source", "is_plain_file", "new_array", "source_of"]
