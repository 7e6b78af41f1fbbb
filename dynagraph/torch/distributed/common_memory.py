"""Memory that the processes of one machine have in common, and collectives in it.

Nothing is sent but where the arrays lie: of a sum, each process adds up its part of all arrays, and writes it to all of them.  An
array that lies in a `Room` of the group's is read where it is; others go through a block of the process's own, piece by piece.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
import socket
import weakref
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

LEAST = 1 << 14  # bytes of arrays that go through common memory: smaller ones are sent sooner

Exchange = Callable[[np.ndarray, np.ndarray], Iterator[Any]]  # gives each process's words to all, and what is waited for
Otherwise = Callable[[], Iterator[Any]]
Ufunc = Callable[..., Any]
UFUNCS: dict[str, Ufunc] = {
    "SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "BAND": np.bitwise_and, "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}  # fmt: skip


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


# -- collectives ----------------------------------------------------------------------------------------------------------


class Piece:
    """Some of the arrays of a collective.  `seen`: what of it this process lets the others see."""

    seen: np.ndarray

    def leave(self, block: np.ndarray) -> None:
        """Put what others need where they see it."""
        block.reshape(self.seen.shape)[...] = self.seen

    def take(self, arrays: list[np.ndarray]) -> None:
        """Do this process's part of the work, with what all processes have left."""
        raise NotImplementedError

    def fetch(self, block: np.ndarray) -> None:
        """Take what others have put in this process's block."""


class _Sum(Piece):
    """A reduction, of which each process computes a part and writes it to all arrays, or to that of `root`."""

    def __init__(self, flat: np.ndarray, own: int, count: int, ufunc: Ufunc, divisor: int, root: int | None):
        self.seen, self.own, self.ufunc, self.divisor, self.root = flat, own, ufunc, divisor, root
        step = max(1, _LINE // flat.itemsize)  # no two processes write to one line of the cache
        ends = [min(flat.size, flat.size * k // count // step * step) for k in range(count)] + [flat.size]
        self.parts = [slice(a, b) for a, b in itertools.pairwise(ends)]

    def _of_others(self) -> Iterator[slice]:
        for k, part in enumerate(self.parts):
            if k != self.own:
                yield part

    def leave(self, block: np.ndarray) -> None:
        for part in self._of_others():
            block[part] = self.seen[part]

    def fetch(self, block: np.ndarray) -> None:
        if self.root in (None, self.own):
            for part in self._of_others():
                self.seen[part] = block[part]

    def take(self, arrays: list[np.ndarray]) -> None:
        own = [array[self.parts[self.own]] for array in arrays]
        for cut, total in _totals(own, self.ufunc, self.divisor):
            for part in own if self.root is None else (own[self.root],):
                part[cut] = total


class _Part(Piece):
    """A reduction of which each process gets a part."""

    def __init__(self, rows: np.ndarray, target: np.ndarray, own: int, ufunc: Ufunc, divisor: int):
        self.seen, self.target, self.own, self.ufunc, self.divisor = rows, target, own, ufunc, divisor

    def take(self, arrays: list[np.ndarray]) -> None:
        parts = [array.reshape(self.seen.shape)[self.own] for array in arrays]
        for cut, total in _totals(parts, self.ufunc, self.divisor):
            self.target[cut] = total  # which may be a part of the source


class _Rows(Piece):
    """All processes' arrays, in each of them."""

    def __init__(self, source: np.ndarray, rows: np.ndarray):
        self.seen, self.rows = source, rows

    def take(self, arrays: list[np.ndarray]) -> None:
        for row, array in zip(self.rows, arrays):
            row[...] = array


class _Copy(Piece):
    """One process's array, in each of them."""

    def __init__(self, flat: np.ndarray, root: int, here: bool):
        self.seen, self.root, self.here = flat, root, here

    def leave(self, block: np.ndarray) -> None:
        if self.here:
            super().leave(block)

    def take(self, arrays: list[np.ndarray]) -> None:
        if not self.here:
            self.seen[...] = arrays[self.root]


def _totals(arrays: list[np.ndarray], ufunc: Ufunc, divisor: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Reduce arrays in the order of processes, some elements after the other: which, and the result, until the next ones."""
    size, length = arrays[0].size, max(1, _CHUNK // arrays[0].itemsize)
    room = np.empty(min(size, length), arrays[0].dtype)
    with np.errstate(all="ignore"):
        for begin in range(0, size, length):
            cut = slice(begin, min(begin + length, size))
            total = room[: cut.stop - begin]
            ufunc(arrays[0][cut], arrays[1][cut], out=total)
            for other in arrays[2:]:
                ufunc(total, other[cut], out=total)
            divide(total, divisor)
            yield cut, total


def divide(total: np.ndarray, by: int) -> None:
    """Make an average of a sum, where `by` is not 1."""
    if by & (by - 1):
        np.divide(total, total.dtype.type(by), out=total)
    elif by != 1:
        np.multiply(total, total.dtype.type(1 / by), out=total)  # the same bits, and faster


class MisfitError(RuntimeError):
    """Processes give arrays of other sizes."""


Pieces = Callable[["int | None"], list[Piece]]


def _array_at(row: np.ndarray, offset: int, like: np.ndarray) -> np.ndarray:
    return row[offset : offset + like.nbytes].view(like.dtype)


def _cuts(flat: np.ndarray, nbytes: int | None) -> list[slice]:
    """All of an array, or pieces of so many bytes."""
    length = max(flat.size, 1) if nbytes is None else max(1, nbytes // flat.itemsize)
    return [slice(k, k + length) for k in range(0, max(flat.size, 1), length)]


class Common:
    """What a group, all of whose processes are on this machine, has of the memory that they have in common.

    `ranks`: their numbers among all; `own`: this one's place among them.  `turn` makes what a collective waits for, until `end` is
    called: one at a time uses the block.
    """

    def __init__(self, blocks: Blocks, ranks: Sequence[int], own: int, turn: Callable[[], Any]):
        self.blocks, self.ranks, self.own, self.new_turn = blocks, tuple(ranks), own, turn
        self.block = blocks.take()  # what this process puts arrays in that lie in no room; None: all are taken
        self.rooms: weakref.WeakSet[Room] = weakref.WeakSet()  # in which arrays of all processes may lie
        self.last = turn()  # ends when the last collective so far has ended
        self.last.end()

    def close(self) -> None:
        """Let other groups have the block."""
        if self.block is not None:
            self.blocks.give_back(self.block)
            self.block = None

    def run(self, pieces: Pieces, exchange: Exchange, otherwise: Otherwise) -> Iterator[Any]:
        """A collective: gives what is to be waited for, one after the other.

        ``pieces(bytes)``: the parts of the work of which each needs so many bytes of common memory; None: one of all.
        `otherwise`: what is done where a process has no block.
        """
        before, mine = self.last, self.new_turn()
        self.last = mine
        try:
            if not before.done:
                yield before
            yield from self._exchanged(pieces, exchange, otherwise)
        finally:
            mine.end()

    def _exchanged(self, pieces: Pieces, exchange: Exchange, otherwise: Otherwise) -> Iterator[Any]:
        (whole,) = pieces(None)
        told = np.array([NOWHERE, 0, whole.seen.nbytes], np.int64)
        every = np.empty((len(self.ranks), _WORDS), np.int64)
        room = next((room for room in self.rooms if room.offset_of(whole.seen) is not None), None)
        parts: list[Piece] = []
        if self.block is None:
            pass  # also where the array is in a room: others may ask for a block
        elif room is not None:
            told[:2] = room.number, room.offset_of(whole.seen)
        else:
            told[:2], parts = (self.blocks.room.number, self.block), pieces(BLOCK)
            parts[0].leave(_array_at(self.blocks.room.own, self.block, parts[0].seen))
        yield from exchange(told, every)
        self._check_bytes(every[:, 2])
        numbers = set(every[:, 0].tolist())
        if NOWHERE in numbers:
            yield from otherwise()
        elif room is not None and numbers == {room.number}:
            whole.take([_array_at(room.rows[r], at, whole.seen) for r, at in zip(self.ranks, every[:, 1])])
            yield from exchange(told, every)
        else:
            yield from self._by_blocks(parts or pieces(BLOCK), exchange, every, numbers != {self.blocks.room.number})

    def _by_blocks(self, parts: list[Piece], exchange: Exchange, every: np.ndarray, some_elsewhere: bool) -> Iterator[Any]:
        """The first piece is in its block already, but for processes whose array lies elsewhere."""
        rows = self.blocks.room.rows
        assert self.block is not None
        told = np.array([self.blocks.room.number, self.block, 0], np.int64)
        for k, piece in enumerate(parts):
            mine = _array_at(self.blocks.room.own, self.block, piece.seen)
            if k or some_elsewhere:
                piece.leave(mine)
                yield from exchange(told, every)
            arrays = [_array_at(rows[r], at, piece.seen) for r, at in zip(self.ranks, every[:, 1])]
            arrays[self.own] = piece.seen
            piece.take(arrays)
            yield from exchange(told, every)
            piece.fetch(mine)

    def _check_bytes(self, sizes: np.ndarray) -> None:
        mine = sizes[self.own]
        for rank, size in zip(self.ranks, sizes.tolist()):
            if size != mine:
                raise MisfitError(f"rank {rank} has given {size} bytes where {mine} are expected")

    # -- what is done --

    def reduce(self, flat: np.ndarray, op: str, divisor: int, root: int | None = None) -> Pieces:
        """The reduction of all arrays in that of `root`; None: in each of them."""

        def pieces(nbytes: int | None) -> list[Piece]:
            return [_Sum(flat[cut], self.own, len(self.ranks), UFUNCS[op], divisor, root) for cut in _cuts(flat, nbytes)]

        return pieces

    def reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: str, divisor: int) -> Pieces:
        """The reduction of all sources, a part in each target."""
        rows = source.reshape(len(self.ranks), -1)

        def pieces(nbytes: int | None) -> list[Piece]:
            cuts = _cuts(target, None if nbytes is None else nbytes // len(self.ranks))
            return [_Part(rows[:, cut], target[cut], self.own, UFUNCS[op], divisor) for cut in cuts]

        return pieces

    def all_gather(self, source: np.ndarray, target: np.ndarray) -> Pieces:
        """All sources in each target."""
        rows = target.reshape(len(self.ranks), -1)
        return lambda nbytes: [_Rows(source[cut], rows[:, cut]) for cut in _cuts(source, nbytes)]

    def broadcast(self, flat: np.ndarray, root: int) -> Pieces:
        """The root's array in each."""
        return lambda nbytes: [_Copy(flat[cut], root, root == self.own) for cut in _cuts(flat, nbytes)]


__all__ = ["BLOCK", "BLOCKS", "LEAST", "UFUNCS", "Blocks", "Common", "MisfitError", "Pieces", "Room", "divide", "machine", "met"]
