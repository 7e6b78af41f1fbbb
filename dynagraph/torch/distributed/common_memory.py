"""Memory that the processes of one machine have in common, and sums of arrays in it.

Nothing is sent but where the arrays lie: each process adds up its part of all arrays, and writes the sums to all of them.  An array
that lies in a `Room` of the group's is summed up where it is; others go through a block of the process's own, piece by piece.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.memory_files import new_file

BLOCK = 1 << 22  # bytes of an array that is not in a room, at once
BLOCKS = 64  # of a process: as many groups may have one
_CHUNK = 1 << 18  # bytes that are added up at once: sums are in the cache when they are written to the others' arrays
_LINE = 64
_WORDS = 3  # that are sent before a sum: the number of the room, the place in it, the bytes of the array
NOWHERE = -1  # in the place of a room's number

Exchange = Callable[[np.ndarray, np.ndarray], Iterator[Any]]  # gives each process's words to all, and what is waited for
Ufunc = Callable[..., Any]


class Room:
    """Memory with a row for each process of a group, which all of them see.

    `rows`: the rows, of bytes, by the number of the process among all.
    """

    def __init__(self, number: int, rows: dict[int, np.ndarray], rank: int):
        self.number, self.rows, self.own = number, rows, rows[rank]
        self.begin = self.own.ctypes.data

    def offset_of(self, array: np.ndarray) -> int | None:
        """Where an array begins in this process's row; None if it is elsewhere."""
        offset = int(array.ctypes.data) - self.begin
        return offset if offset >= 0 and offset + array.nbytes <= self.own.nbytes else None


class Blocks:
    """The room of all processes of a machine, in which each has blocks for arrays that lie elsewhere."""

    def __init__(self, room: Room):
        self.room = room
        self.free = list(range(0, room.own.nbytes, BLOCK))

    def take(self) -> int | None:
        """The place of a block; None where all are taken."""
        return self.free.pop() if self.free else None

    def give_back(self, block: int) -> None:
        """Let another group have it."""
        self.free.append(block)


def machine() -> str:
    """What processes have in common that reach each other by local sockets."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
        parts.append(str(os.stat("/proc/self/ns/net").st_ino))
    return "/".join(parts)


# -- rooms --------------------------------------------------------------------------------------------------------------


def met(tell: Callable[[str], list[str]], ranks: Sequence[int], rank: int, nbytes: int) -> Room | None:
    """A room of those processes that are on this machine, with rows of `nbytes`; None where this one is alone, or there is none.

    All processes call it.  `tell` gives all of them what each says, in the order of `ranks`, their numbers among all; this one has
    the number `rank`.  The memory is a file without a name, which the first of a machine has made and the others open by the
    number that it has there: the system gives it back when the last of them has ended, however it does.
    """
    where = f"{machine()}/{os.stat('/proc/self/ns/pid').st_ino if os.path.exists('/proc/self/ns/pid') else rank}"
    beside = [r for r, other in zip(ranks, tell(where)) if other == where]
    whole = _rounded(nbytes) * len(beside)
    with contextlib.ExitStack() as held:
        offered = ""
        if len(beside) > 1 and beside[0] == rank:
            with contextlib.suppress(OSError):
                file = new_file()
                held.callback(os.close, file)
                os.ftruncate(file, whole)
                offered = f"{os.getpid()} {file} {secrets.randbits(62)}"
        found = tell(offered)[ranks.index(beside[0])]
        memory = _opened(found, whole) if found else None
        seen = tell("" if memory is None else "seen")
        if memory is None or not all(seen[ranks.index(r)] for r in beside):
            return None
    rows = np.frombuffer(memory, np.uint8).reshape(len(beside), -1)
    return Room(int(found.split()[2]), {r: row[:nbytes] for r, row in zip(beside, rows)}, rank)


def _opened(found: str, nbytes: int) -> mmap.mmap | None:
    """The memory of another process's file; None where it is not to be had."""
    process, file, _ = found.split()
    with contextlib.suppress(OSError, ValueError):
        own = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        try:
            return mmap.mmap(own, nbytes)
        finally:
            os.close(own)
    return None


def _rounded(nbytes: int) -> int:
    return -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


# -- sums ---------------------------------------------------------------------------------------------------------------


def summed(
    blocks: Blocks, block: int | None, ranks: Sequence[int], own: int, flat: np.ndarray, ufunc: Ufunc, exchange: Exchange,
    room: Room | None, otherwise: Callable[[], Iterator[Any]], check: Callable[[np.ndarray], None],
) -> Iterator[Any]:  # fmt: skip
    """Reduce the arrays of processes; the result is in each of them.  Gives what is to be waited for, one after the other.

    `block`: what this process puts arrays in that lie in no room; None: there is none.  `room`: one in which the array may lie.
    `ranks`: the processes; `own`: this one's place among them.  `otherwise`: what is done where a process has no block.
    `check`: is given the bytes of all arrays.
    """
    offset = None if room is None else room.offset_of(flat)
    told = np.array([NOWHERE, 0, flat.nbytes], np.int64)
    every = np.empty((len(ranks), _WORDS), np.int64)
    pieces = _pieces(flat, len(ranks), own)
    if block is None:
        pass  # also where the array is in a room: others may ask for a block
    elif room is not None and offset is not None:
        told[:2] = room.number, offset
    else:
        told[:2] = blocks.room.number, block
        pieces[0].leave(_array_at(blocks.room.own, block, pieces[0].flat))
    yield from exchange(told, every)
    check(every[:, 2])
    numbers = set(every[:, 0].tolist())
    if block is None or NOWHERE in numbers:
        yield from otherwise()
        return
    if room is not None and numbers == {room.number}:
        whole = Piece(flat, len(ranks), own)
        whole.add([_array_at(room.rows[r], at, flat) for r, at in zip(ranks, every[:, 1])], ufunc)
        yield from exchange(told, every)
        return
    yield from _by_blocks(blocks, block, ranks, pieces, ufunc, exchange, every, numbers != {blocks.room.number})


def _by_blocks(
    blocks: Blocks, block: int, ranks: Sequence[int], pieces: list[Piece], ufunc: Ufunc, exchange: Exchange,
    every: np.ndarray, some_elsewhere: bool,
) -> Iterator[Any]:  # fmt: skip
    """The first piece is in its block already, but for processes whose array lies elsewhere."""
    rows = blocks.room.rows
    told = np.array([blocks.room.number, block, 0], np.int64)
    for k, piece in enumerate(pieces):
        mine = _array_at(blocks.room.own, block, piece.flat)
        if k or some_elsewhere:
            piece.leave(mine)
            yield from exchange(told, every)
        arrays = [_array_at(rows[r], at, piece.flat) for r, at in zip(ranks, every[:, 1])]
        arrays[piece.own] = piece.flat
        piece.add(arrays, ufunc)
        yield from exchange(told, every)
        piece.fetch(mine)


def _pieces(flat: np.ndarray, count: int, own: int) -> list[Piece]:
    length = BLOCK // flat.itemsize
    return [Piece(flat[k : k + length], count, own) for k in range(0, flat.size, length)]


def _array_at(row: np.ndarray, offset: int, like: np.ndarray) -> np.ndarray:
    return row[offset : offset + like.nbytes].view(like.dtype)


class Piece:
    """Some of an array, of which each process adds up a part."""

    def __init__(self, flat: np.ndarray, count: int, own: int):
        self.flat, self.own = flat, own
        step = max(1, _LINE // flat.itemsize)  # no two processes write to one line of the cache
        ends = [min(flat.size, flat.size * k // count // step * step) for k in range(count)] + [flat.size]
        self.parts = [slice(a, b) for a, b in itertools.pairwise(ends)]

    def _of_others(self) -> Iterator[slice]:
        for k, part in enumerate(self.parts):
            if k != self.own:
                yield part

    def leave(self, block: np.ndarray) -> None:
        """Put what others add up where they see it."""
        for part in self._of_others():
            block[part] = self.flat[part]

    def fetch(self, block: np.ndarray) -> None:
        """Take the sums of others from where they have put them."""
        for part in self._of_others():
            self.flat[part] = block[part]

    def add(self, arrays: list[np.ndarray], ufunc: Ufunc) -> None:
        """Add up this process's part, in the order of processes, and write it to all arrays."""
        part = self.parts[self.own]
        length = max(1, _CHUNK // self.flat.itemsize)
        room = np.empty(min(length, part.stop - part.start), self.flat.dtype)
        with np.errstate(all="ignore"):
            for begin in range(part.start, part.stop, length):
                cut = slice(begin, min(begin + length, part.stop))
                total = room[: cut.stop - begin]
                ufunc(arrays[0][cut], arrays[1][cut], out=total)
                for other in arrays[2:]:
                    ufunc(total, other[cut], out=total)
                for array in arrays:
                    array[cut] = total


__all__ = ["BLOCK", "BLOCKS", "Blocks", "Room", "machine", "met", "summed"]
