"""The zip files that checkpoints are: records under one folder, nothing compressed, bytes of storages at multiples of 64.

`Writer` gives the layout of PyTorch's own, to the byte: sizes and checksums stand behind the data and in the directory, not before
it, and a field of padding (``FB``, then Z's) makes each record begin where it shall.  `Reader` believes the directory only as
far as the file's size bears it out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.sources import Source

LOCAL = b"PK\x03\x04"
_HEADER = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_DESCRIPTOR, _DESCRIPTOR64 = struct.Struct("<4s3I"), struct.Struct("<4sI2Q")
_UTF8, _SIZES_BEHIND, _ENCRYPTED = 1 << 11, 1 << 3, 1
_MOST = 0xFFFFFFFF  # of 32 bits, and what stands there for more
_MADE_BY, _NEEDS = 0x031E, 0x002D
_LONGEST_COMMENT = 0xFFFF
_ZEROS = bytes(1 << 20)
_LARGE = 1 << 16  # bytes that are written straight to the file


@dataclass(frozen=True, slots=True)
class Record:
    """What the directory says of one: where its header is, its bytes, their checksum (0: not computed)."""

    header: int
    size: int
    checksum: int


class Writer:
    """Writes records one behind the other, to a function of bytes.  `close` writes the directory.

    `straight`: a function that writes large data and gives its checksum, in one pass over it.
    """

    def __init__(
        self, write: Callable[[Any], Any], folder: str, alignment: int = 64, checksums: bool = True,
        straight: Callable[[Any], int] | None = None,
    ):  # fmt: skip
        self._straight = straight if checksums else None
        self._write, self.folder, self.alignment, self.checksums = write, folder, alignment, checksums
        self.position = 0
        self._directory: list[tuple[bytes, Record]] = []
        self._sum_of_all = 0

    def _put(self, data: Any) -> None:
        self._write(data)
        self.position += len(data)

    def add(self, name: str, data: Any, size: int | None = None) -> None:
        """A record of bytes; `data` None: of `size` bytes whose place is left empty."""
        full = f"{self.folder}/{name}".encode()
        header, size = self.position, len(data) if size is None else size
        flags = _UTF8 | (_SIZES_BEHIND if size else 0)
        padding = self._padding(len(full), size)
        self._put(_HEADER.pack(LOCAL, 0, flags, 0, 0, 0, 0, 0, 0, len(full), len(padding)) + full + padding)
        checksum = 0
        if data is None:
            for begin in range(0, size, len(_ZEROS)):
                self._put(_ZEROS[: size - begin])
        elif self._straight is not None and size >= _LARGE:
            checksum = self._straight(data)
            self.position += size
        else:
            checksum = _dispatch.crc32(data) if self.checksums and size else 0
            self._put(data)
        if size:
            form = _DESCRIPTOR64 if max(header, size) >= _MOST else _DESCRIPTOR
            self._put(form.pack(b"PK\x07\x08", checksum, size, size))
        self._directory.append((full, Record(header, size, checksum)))
        self._sum_of_all = _dispatch.crc32(checksum.to_bytes(4, "little"), self._sum_of_all)

    def _padding(self, name: int, size: int) -> bytes:
        wide = self._wide(size, self.position)
        start = self.position + _HEADER.size + name + len(wide) + 4
        fill = -start % self.alignment
        return wide + struct.pack("<2sH", b"FB", fill) + b"Z" * fill

    @staticmethod
    def _wide(size: int, header: int) -> bytes:
        """The field of 64 bits: those numbers that do not fit in 32."""
        numbers = ([size, size] if size >= _MOST else []) + ([header] if header >= _MOST else [])
        return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""

    def close(self) -> None:
        """Write the directory: the file is whole then."""
        names = _dispatch.crc32(b"\n".join(name for name, _ in self._directory))
        self.add("version", b"3\n")
        self.add(".data/serialization_id", f"{names:020d}{self._sum_of_all:020d}".encode())
        begin, count = self.position, len(self._directory)
        for name, record in self._directory:
            wide = self._wide(record.size, record.header)
            size, header = min(record.size, _MOST), min(record.header, _MOST)
            flags = _UTF8 | (_SIZES_BEHIND if record.size else 0)
            row = (b"PK\x01\x02", 0, 0, flags, 0, 0, 0, record.checksum, size, size, len(name), len(wide), 0, 0, 0, 0, header)
            self._put(_CENTRAL.pack(*row) + name + wide)
        end = self.position
        self._put(_END64.pack(b"PK\x06\x06", _END64.size - 12, _MADE_BY, _NEEDS, 0, 0, count, count, end - begin, begin))
        self._put(_LOCATOR.pack(b"PK\x06\x07", 0, end, 1))
        few = min(count, 0xFFFF)
        self._put(_END.pack(b"PK\x05\x06", 0, 0, few, few, min(end - begin, _MOST), min(begin, _MOST), 0))


class Reader:
    """The records of a file by their names, without the folder that all of them are in."""

    def __init__(self, source: Source):
        self.source = source
        self.folder = ""
        self.records: dict[str, Record] = {}
        count, size, begin = self._end()
        self._read_directory(source.read(begin, size), count)

    def _refuse(self, why: str) -> LoadError:
        return LoadError(f"{self.source.name}: not a whole zip file: {why}")

    def _end(self) -> tuple[int, int, int]:
        """The number of records, and the size and place of the directory."""
        source = self.source
        tail_size = min(source.size, _END.size + _LONGEST_COMMENT)
        tail = source.read(source.size - tail_size, tail_size)
        place = tail.rfind(b"PK\x05\x06")
        if place < 0 or len(tail) - place < _END.size:
            raise self._refuse("it has no directory at its end, so it is cut off or damaged")
        *_, count, size, begin, comment = _END.unpack_from(tail, place)
        end = source.size - len(tail) + place
        if end + _END.size + comment != source.size:
            raise self._refuse("something stands behind its directory")
        locator = end - _LOCATOR.size
        if locator >= 0 and (found := source.read(locator, _LOCATOR.size)).startswith(b"PK\x06\x07"):
            place64 = _LOCATOR.unpack(found)[2]
            if place64 + _END64.size > locator:
                raise self._refuse("its directory is not where it says")
            magic, *_, count, size, begin = _END64.unpack(source.read(place64, _END64.size))
            if magic != b"PK\x06\x06":
                raise self._refuse("its directory is not where it says")
        if begin + size > end:
            raise self._refuse(f"its directory of {size} bytes at {begin} does not fit in {source.size} bytes")
        return count, size, begin

    def _read_directory(self, directory: bytes, count: int) -> None:
        at, total = 0, 0
        for _ in range(count):
            if len(directory) - at < _CENTRAL.size or directory[at : at + 4] != b"PK\x01\x02":
                raise self._refuse("its directory ends too soon")
            _, _, _, flags, method, _, _, checksum, packed, size, n, e, c, _, _, _, header = _CENTRAL.unpack_from(directory, at)
            at += _CENTRAL.size
            name, extra = directory[at : at + n].decode("utf-8", "replace"), directory[at + n : at + n + e]
            at += n + e + c
            if at > len(directory):
                raise self._refuse("its directory ends too soon")
            size, packed, header = self._wide(extra, size, packed, header)
            if method or flags & _ENCRYPTED or packed != size:
                raise self._refuse(f"{name!r} is compressed or encrypted, which checkpoints are not")
            folder, slash, short = name.partition("/")
            if not slash or (self.records and folder != self.folder):
                raise self._refuse(f"{name!r} is not in the folder of the others")
            if short in self.records:
                raise self._refuse(f"{name!r} stands twice in its directory")
            self.folder = folder
            self.records[short] = Record(header, size, checksum)
            total += size
        if total > self.source.size:
            raise self._refuse(f"its records have {total} bytes, and the file {self.source.size}")

    def _wide(self, extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
        while len(extra) >= 4:
            kind, length = struct.unpack_from("<2H", extra)
            if kind == 1:
                numbers = [int.from_bytes(extra[k : k + 8], "little") for k in range(4, min(4 + length, len(extra)) - 7, 8)]
                wanted = [value == _MOST for value in (size, packed, header)]
                if sum(wanted) > len(numbers):
                    break
                size, packed, header = (numbers.pop(0) if w else v for w, v in zip(wanted, (size, packed, header)))
                return size, packed, header
            extra = extra[4 + length :]
        if _MOST in (size, packed, header):
            raise self._refuse("a record's size is missing")
        return size, packed, header

    def place(self, name: str) -> int:
        """Where the bytes of a record begin; LoadError where they are not within the file."""
        record = self.records.get(name)
        if record is None:
            raise LoadError(f"{self.source.name}: the archive has no record {name!r}")
        magic, *_, n, e = _HEADER.unpack(self.source.read(record.header, _HEADER.size))
        begin: int = record.header + _HEADER.size + n + e
        if magic != LOCAL or begin + record.size > self.source.size:
            raise LoadError(f"{self.source.name}: {name} is not where the directory says: the file is damaged")
        return begin

    def read(self, name: str) -> bytes:
        """The bytes of a record, checked."""
        place = self.place(name)  # (before memory is asked for)
        data = np.empty(self.records[name].size, np.uint8)
        self._fill(name, place, data)
        return data.tobytes()

    def fill(self, name: str, data: np.ndarray) -> None:
        """Read a record into an array of as many bytes, checked."""
        self._fill(name, self.place(name), data)

    def _fill(self, name: str, place: int, data: np.ndarray) -> None:
        found, said = self.source.fill(place, data), self.records[name].checksum
        if said and found != said:
            raise LoadError(
                f"{self.source.name}: {name} has the checksum {found:08x}, and was written with {said:08x}: it is damaged"
            )


__all__ = ["LOCAL", "Reader", "Record", "Writer"]
