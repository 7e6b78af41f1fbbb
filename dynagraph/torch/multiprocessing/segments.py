"""Segments: shared memory of batches, which goes back to the worker that made them.

A worker makes a batch in a `Room`, a part of one of its few segments.  The process that receives it maps a segment once; each
message in it is a lease of that mapping.  When no view of the lease is left, the segment's number goes back to the worker, with the
next request, and another batch is written there.

A segment is not used again where somebody may still see it: while the worker's program has kept a part of the batch, and after a
fork of either process, whose child has the mapping, too.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from math import prod

import numpy as np

from dynagraph._core._dispatch import FileMapping
from dynagraph.torch.core.memory_files import allocate

LEAST_BYTES = 4096  # of memory that is worth a place in a segment
ALIGNMENT = 64
PAGE = 1 << 16  # sizes of segments are multiples
DECAY = 16  # batches until a segment of another size is made, about, where batches have become smaller
LOOSE = 4  # times as much memory as is wanted: a segment that is larger is made anew


class _Counter:
    """How often this process has been forked."""

    count = 0

    def add(self) -> None:
        self.count += 1


_forks = _Counter()
os.register_at_fork(before=_forks.add)


def aligned(n: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-n // ALIGNMENT) * ALIGNMENT


# -- in a worker ------------------------------------------------------------------------------------------------------


class Room:
    """Where a batch is made: a segment, once somebody asks for memory, and how much of it is used."""

    __slots__ = ("_segments", "forks", "is_new", "lease", "mapping", "number", "used", "wanted")

    def __init__(self, segments: OwnSegments, number: int):
        self._segments, self.number = segments, number
        self.mapping: FileMapping | None = None
        self.lease: FileMapping | None = None  # what arrays of the batch are views of
        self.used = self.wanted = 0
        self.is_new = False  # the other process has not mapped it yet
        self.forks = _forks.count

    def place(self, nbytes: int) -> int | None:
        """The place of so many bytes; None where there is no more room."""
        place, size = self.used, aligned(nbytes)
        self.wanted += size
        if self.lease is None:
            self.mapping, self.is_new = self._segments.mapping(self.number, size)
            self.lease = self.mapping.lease()
        if place + size > self.lease.nbytes:
            return None
        self.used += size
        return place

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
        """Memory for an array; None where it had better be elsewhere."""
        nbytes = prod(shape) * dtype.itemsize
        place = self.place(nbytes) if nbytes >= LEAST_BYTES else None
        return None if place is None else np.ndarray(shape, dtype, self.lease, place)


class OwnSegments:
    """The segments that a worker sends batches in: at most `count`."""

    def __init__(self, count: int):
        self._free = list(range(count))
        self._mappings: list[FileMapping | None] = [None] * count
        self._wanted = 0

    def room(self) -> Room | None:
        """For a batch; None while all segments are away."""
        return Room(self, self._free.pop()) if self._free else None

    def mapping(self, number: int, nbytes: int) -> tuple[FileMapping, bool]:
        """A segment that is free, and whether it has been made right now: one that is too small, or far too large, is replaced."""
        nbytes = max(nbytes, self._wanted)
        found = self._mappings[number]
        if found is not None and nbytes <= found.nbytes <= LOOSE * max(nbytes, PAGE):
            return found, False
        self._mappings[number] = None
        made = self._mappings[number] = allocate(-(-nbytes // PAGE) * PAGE)
        return made, True

    def leave(self, room: Room, is_sent: bool) -> bool:
        """The batch is packed; `is_sent`: in its room.  False where the program has kept a part of it: the segment is left to that.

        The caller has no reference to the batch any more.
        """
        self._wanted = max(room.wanted, self._wanted - self._wanted // DECAY)
        if room.lease is None:
            self._free.append(room.number)
            return True
        lease = weakref.ref(room.lease)
        room.lease = None
        if lease() is not None or room.forks != _forks.count:
            self._mappings[room.number] = None
            self._free.append(room.number)
            return False
        if not is_sent:
            if room.is_new:  # of which the other process will not hear
                self._mappings[room.number] = None
            self._free.append(room.number)
        return True

    def returned(self, numbers: list[int]) -> None:
        """Segments are back; of numbers below zero (~number) the memory is left to who has it."""
        for number in numbers:
            if number < 0:
                number = ~number
                self._mappings[number] = None
            self._free.append(number)


_here = threading.local()


def enter(room: Room | None) -> None:
    """Have `array_for_batch` take memory from a room, in this thread."""
    _here.room = room


def array_for_batch(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """In a worker: memory, for a part of a batch, that the process that gets it will have; None if there is none, and elsewhere."""
    room = getattr(_here, "room", None)
    return None if room is None else room.array(shape, dtype)


# -- in the process that receives ---------------------------------------------------------------------------------------


class _Lease(weakref.ref):  # type: ignore[type-arg]
    """Of a message's lease; it is put into `Segments._back` by C code, in whatever thread the last view goes."""

    __slots__ = ("forks", "number")
    number: int
    forks: int


class Segments:
    """The segments that one worker's batches have come in."""

    def __init__(self) -> None:
        self._mappings: dict[int, FileMapping] = {}
        self._away: dict[int, _Lease] = {}
        self._back: deque[_Lease] = deque()

    def lease(self, number: int, file: int | None) -> FileMapping:
        """The memory of a message in a segment.  `file`: of a new one, the descriptor, which this takes."""
        if file is not None:
            self._mappings[number] = FileMapping(file, os.fstat(file).st_size, keep=False)
        lease = self._mappings[number].lease()
        reference = self._away[number] = _Lease(lease, self._back.append)
        reference.number, reference.forks = number, _forks.count
        return lease

    def returned(self) -> list[int]:
        """What `OwnSegments.returned` takes: of leases that have ended since."""
        numbers = []
        while self._back:
            ended = self._back.popleft()
            del self._away[ended.number]
            if ended.forks == _forks.count:
                numbers.append(ended.number)
            else:  # since then there is a process that may have it, too
                del self._mappings[ended.number]
                numbers.append(~ended.number)
        return numbers

    def clear(self) -> None:
        """The worker has ended: the memory goes with what is left of the batches."""
        self._mappings.clear()
        self._away.clear()
        self._back.clear()


__all__ = [
    "ALIGNMENT", "LEAST_BYTES", "OwnSegments", "Room", "Segments", "aligned", "array_for_batch", "enter",
]  # fmt: skip
