"""The engine of processes that no MPI has started: collectives over the sockets of a `Mesh`.

Each collective is a generator that gives what it waits for (`mesh.Task`).  Large arrays go around a ring in blocks, several of
which are on their way at once; small ones go along trees, or from each to each.  Processes of one machine exchange large arrays in
memory that they have in common (`common_memory.py`), and send each other where the arrays are.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.distributed.common_memory import (
    BLOCK,
    BLOCKS,
    LEAST,
    UFUNCS,
    Blocks,
    Common,
    Pieces,
    Room,
    divide,
    met,
)
from dynagraph.torch.distributed.engines import DistNetworkError, Engine
from dynagraph.torch.distributed.mesh import Handle, Key, Mesh, MisfitError, Receive, Steps

_FEW = 8  # processes that send small arrays to each other
_SEGMENT = 1 << 18  # bytes of a message within a collective
_UNDER_WAY = 4  # blocks of a collective at once
_REST = 1.0  # seconds between two looks at the clock
_FLOAT32 = np.dtype(np.float32)
_ANY_TAG = (1 << 64) - 1


def _into(function: Any) -> Callable[[Any, Any], None]:
    def combine(into: Any, other: Any) -> None:
        with np.errstate(all="ignore"):
            function(into, other, out=into)

    return combine


_OPS = {name: _into(ufunc) for name, ufunc in UFUNCS.items()}


class Running:
    """A request: something of a mesh that has been started."""

    __slots__ = ("handle", "mesh", "ranks")

    def __init__(self, mesh: Mesh, handle: Handle, ranks: Sequence[int] = ()):
        self.mesh, self.handle, self.ranks = mesh, handle, ranks

    def Test(self) -> bool:
        if not self.handle.done:
            self.mesh.progress()
            if not self.handle.done:
                return False
        if self.handle.error is not None:
            raise self.handle.error
        return True

    @property
    def source(self) -> int:
        return self.ranks.index(self._received().origin)

    @property
    def nbytes(self) -> int:
        return self._received().nbytes

    def _received(self) -> Receive:
        assert isinstance(self.handle, Receive)
        return self.handle


def _bytes(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


def _segments(array: Any, size: int = _SEGMENT) -> list[memoryview]:
    whole = _bytes(array)
    return [whole[k : k + size] for k in range(0, whole.nbytes, size)]


def _cuts(length: int, parts: int) -> list[slice]:
    """A length in nearly equal parts."""
    ends = [length * k // parts for k in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


class SocketEngine(Engine):
    """Processes, by their numbers in the mesh."""

    errors = (DistNetworkError, MisfitError)

    def __init__(self, mesh: Mesh, ranks: Sequence[int], name: str = ""):
        self.mesh, self.ranks = mesh, tuple(ranks)
        self.rank, self.size = self.ranks.index(mesh.rank), len(self.ranks)
        # the same in all its processes, and not that of another group
        self.name = f"{name}/{','.join(map(str, ranks))}"
        self.number = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=7).digest(), "little")
        self.started = 0  # collectives
        self.parts: dict[tuple[int, ...], int] = {}  # how many groups of some of the processes there were
        self.common: Common | None = None
        self._use_common_memory()

    # -- what collectives are made of --

    def _start(self, operation: Callable[..., Steps], *arguments: Any) -> Running:
        self.started += 1
        key = Key(self.number, self.started, 0)
        return Running(self.mesh, self.mesh.run(operation(key, *arguments), self.ranks, key))

    def _send(self, to: int, key: Key, part: int, content: memoryview) -> Handle:
        return self.mesh.send(self.ranks[to % self.size], key._replace(part=part), content)

    def _receive(self, origin: int, key: Key, part: int, content: memoryview) -> Handle:
        return self.mesh.receive(key._replace(part=part), content, (self.ranks[origin % self.size],))

    def _several(self, blocks: Iterator[Steps], key: Key) -> Steps:
        """Parts of a collective, some of them at once."""
        running: deque[Handle] = deque()
        for block in blocks:
            running.append(self.mesh.part(block, key))
            if len(running) == _UNDER_WAY:
                yield running.popleft()
        yield from running

    # -- reductions --

    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        return _FLOAT32 if dtype.itemsize == 2 and dtype.kind in "fV" else dtype  # halves are rounded once

    def all_reduce(self, buffer: Any, op: str, divisor: int = 1) -> Running:
        flat = buffer.reshape(-1)
        if flat.nbytes > LEAST and self.common is not None:
            pieces = self.common.reduce(flat, op, divisor)
            return self._start(self._in_common_memory, pieces, self._around, flat, _OPS[op], divisor)
        if flat.nbytes > LEAST:
            return self._start(self._around, flat, _OPS[op], divisor)
        return self._start(self._each_to_each if self.size <= _FEW else self._up_and_down, flat, _OPS[op], divisor)

    def _each_to_each(self, key: Key, flat: Any, op: Any, divisor: int) -> Steps:
        """All processes reduce all arrays, in the order of ranks."""
        every = np.empty((self.size, flat.size), flat.dtype)
        every[self.rank] = flat
        others = [k for k in range(self.size) if k != self.rank]
        waits = [self._receive(k, key, k, _bytes(every[k])) for k in others]
        waits += [self._send(k, key, self.rank, _bytes(every[self.rank])) for k in others]
        yield from waits
        flat[...] = every[0]
        for row in every[1:]:
            op(flat, row)
        divide(flat, divisor)

    def _up_and_down(self, key: Key, flat: Any, op: Any, divisor: int) -> Steps:
        yield from self._up(key, flat, op, 0, 0)
        if not self.rank:
            divide(flat, divisor)
        yield from self._down(key, _bytes(flat), 0, 1)

    def _around(self, key: Key, flat: Any, op: Any, divisor: int) -> Steps:
        """A ring for each block; in all processes a part's sum is that of one process."""
        length = max(1, _SEGMENT * self.size // flat.itemsize)
        starts = range(0, flat.size, length)
        blocks = (self._ring(key, n, flat[k : k + length], op, divisor) for n, k in enumerate(starts, 1))
        yield from self._several(blocks, key)

    def _ring(self, key: Key, number: int, flat: Any, op: Any, divisor: int) -> Steps:
        size, rank = self.size, self.rank
        first = number * 2 * size  # of the numbers of its messages
        parts = [flat[cut] for cut in _cuts(flat.size, size)]
        # whole parts come when this process's own have been received, so that their places are free
        whole = [self._receive(rank - 1, key, first + size + k, _bytes(parts[(rank - k) % size])) for k in range(size - 1)]
        yield from self._sums(key, first, parts, op)
        divide(parts[(rank + 1) % size], divisor)
        for k in range(size - 1):
            if k:
                yield whole[k - 1]
            yield self._send(rank + 1, key, first + size + k, _bytes(parts[(rank + 1 - k) % size]))
        yield whole[-1]

    def _sums(self, key: Key, first: int, parts: list[Any], op: Any) -> Steps:
        """The half of a ring at whose end each process has the sum of one part, that of the next process."""
        size, rank = self.size, self.rank
        rooms = [np.empty_like(parts[0], shape=max(p.size for p in parts)) for _ in range(min(2, size - 1))]

        def coming(k: int) -> tuple[Any, Handle]:
            room = rooms[k % 2][: parts[(rank - 1 - k) % size].size]
            return room, self._receive(rank - 1, key, first + k, _bytes(room))

        room, receive = coming(0)
        for k in range(size - 1):
            sent = self._send(rank + 1, key, first + k, _bytes(parts[(rank - k) % size]))
            yield receive
            mine, (room, receive) = room, coming(k + 1) if k + 2 < size else (room, receive)
            part = parts[(rank - 1 - k) % size]
            op(part, mine)
            yield sent

    # -- common memory --

    def share_memory(self, tell: Callable[[str], list[str]]) -> None:
        """Have memory in common with the processes of this machine.  All processes call it."""
        room = met(tell, self.ranks, self.mesh.rank, BLOCK * BLOCKS)
        if room is not None:
            self.mesh.blocks = Blocks(room)
            self._use_common_memory()

    def _use_common_memory(self) -> None:
        """Where all processes are on one machine: all of them know it."""
        blocks = self.mesh.blocks
        if blocks is not None and all(rank in blocks.room.rows for rank in self.ranks):
            self.common = Common(blocks, self.ranks, self.rank, Handle)

    def room(self, tell: Callable[[str], list[str]], nbytes: int) -> Room | None:
        if self.common is None:
            return None
        room = met(tell, self.ranks, self.mesh.rank, nbytes)
        if room is not None:
            self.common.rooms.add(room)
        return room

    def _in_common_memory(self, key: Key, pieces: Pieces, otherwise: Callable[..., Steps], *arguments: Any) -> Steps:
        assert self.common is not None
        return self.common.run(pieces, self._exchange_of(key), lambda: otherwise(key, *arguments))  # type: ignore[return-value]

    def _exchange_of(self, key: Key) -> Callable[[np.ndarray, np.ndarray], Steps]:
        """What tells all processes a few words, in a collective."""
        rounds = itertools.count()

        def exchange(told: np.ndarray, every: np.ndarray) -> Steps:
            first = next(rounds) * self.size  # of the numbers of its messages
            every[self.rank] = told
            others = [k for k in range(self.size) if k != self.rank]
            waits = [self._receive(k, key, first + k, _bytes(every[k])) for k in others]
            waits += [self._send(k, key, first + self.rank, _bytes(every[self.rank])) for k in others]
            yield from waits

        return exchange

    def reduce(self, buffer: Any, op: str, root: int, divisor: int = 1) -> Running:
        flat = buffer.reshape(-1)
        if flat.nbytes > LEAST and self.common is not None:
            pieces = self.common.reduce(flat, op, divisor, root)
            return self._start(self._in_common_memory, pieces, self._reduced, flat, _OPS[op], root, divisor)
        return self._start(self._reduced, flat, _OPS[op], root, divisor)

    def _reduced(self, key: Key, flat: Any, op: Any, root: int, divisor: int) -> Steps:
        if self.rank != root:
            flat = flat.copy()
        length = max(1, _SEGMENT // flat.itemsize)
        starts = range(0, flat.size, length)
        yield from self._several((self._up(key, flat[k : k + length], op, root, n) for n, k in enumerate(starts)), key)
        if self.rank == root:
            divide(flat, divisor)

    def _up(self, key: Key, flat: Any, op: Any, root: int, part: int) -> Steps:
        """Sums along a binomial tree."""
        place = (self.rank - root) % self.size
        room = None
        step = 1
        while step < self.size:
            if place & step:
                yield self._send(self.rank - step, key, part, _bytes(flat))
                return
            if place + step < self.size:
                room = np.empty_like(flat) if room is None else room
                yield self._receive(self.rank + step, key, part, _bytes(room))
                op(flat, room)
            step *= 2

    def reduce_scatter(self, source: Any, target: Any, op: str, divisor: int = 1) -> Running:
        arguments = source.reshape(self.size, -1), target.reshape(-1), _OPS[op], divisor
        if source.nbytes > LEAST and self.common is not None:
            pieces = self.common.reduce_scatter(source, arguments[1], op, divisor)
            return self._start(self._in_common_memory, pieces, self._scattered, *arguments)
        return self._start(self._scattered, *arguments)

    def _scattered(self, key: Key, source: Any, target: Any, op: Any, divisor: int) -> Steps:
        length = max(1, _SEGMENT // target.itemsize)
        starts = range(0, target.size, length)
        blocks = (
            self._block(key, n * self.size, source[:, k : k + length], target[k : k + length], op) for n, k in enumerate(starts)
        )
        yield from self._several(blocks, key)
        divide(target, divisor)

    def _block(self, key: Key, first: int, source: Any, target: Any, op: Any) -> Steps:
        rows = [np.array(source[(k - 1) % self.size]) for k in range(self.size)]  # the ring ends at the part of the next one
        yield from self._sums(key, first, rows, op)
        target[...] = rows[(self.rank + 1) % self.size]

    # -- movements --

    def broadcast(self, buffer: Any, root: int) -> Running:
        if buffer.nbytes > LEAST and self.common is not None:
            pieces = self.common.broadcast(buffer.reshape(-1), root)
            return self._start(self._in_common_memory, pieces, self._broadcast, buffer, root)
        return self._start(self._broadcast, buffer, root)

    def _broadcast(self, key: Key, buffer: Any, root: int) -> Steps:
        yield from self._several((self._down(key, part, root, k) for k, part in enumerate(_segments(buffer))), key)

    def _down(self, key: Key, content: memoryview, root: int, part: int) -> Steps:
        """From the root to all, along a binomial tree."""
        place = (self.rank - root) % self.size
        step = 1
        while step < self.size and not place & step:
            step *= 2
        if place:
            yield self._receive(self.rank - step, key, part, content)
        sends = []
        while step > 1:
            step //= 2
            if place + step < self.size:
                sends.append(self._send(self.rank + step, key, part, content))
        yield from sends

    def all_gather(self, source: Any, target: Any) -> Running:
        rows = target.reshape(self.size, -1)
        if source.nbytes > LEAST and self.common is not None:
            pieces = self.common.all_gather(source.reshape(-1), target)
            return self._start(self._in_common_memory, pieces, self._all_gathered, source, rows)
        return self._start(self._all_gathered, source, rows)

    def _all_gathered(self, key: Key, source: Any, target: Any) -> Steps:
        target[self.rank] = source.reshape(-1)
        rows = [_segments(row) for row in target]
        yield from self._several((self._passed(key, n * self.size, [r[n] for r in rows]) for n in range(len(rows[0]))), key)

    def _passed(self, key: Key, first: int, parts: list[memoryview]) -> Steps:
        """A ring in which each passes on what came."""
        size, rank = self.size, self.rank
        coming = [self._receive(rank - 1, key, first + k, parts[(rank - 1 - k) % size]) for k in range(size - 1)]
        for k in range(size - 1):
            sent = self._send(rank + 1, key, first + k, parts[(rank - k) % size])
            yield coming[k]
            yield sent

    def gather(self, source: Any, target: Any | None, root: int) -> Running:
        return self._start(self._gathered, source, target, root)

    def _gathered(self, key: Key, source: Any, target: Any | None, root: int) -> Steps:
        if target is None:
            yield self._send(root, key, 0, _bytes(source))
            return
        rows = target.reshape(self.size, -1)
        rows[self.rank] = source.reshape(-1)
        yield from [self._receive(k, key, 0, _bytes(rows[k])) for k in range(self.size) if k != self.rank]

    def scatter(self, source: Any | None, target: Any, root: int) -> Running:
        return self._start(self._dealt, source, target, root)

    def _dealt(self, key: Key, source: Any | None, target: Any, root: int) -> Steps:
        if source is None:
            yield self._receive(root, key, 0, _bytes(target))
            return
        rows = source.reshape(self.size, -1)
        target.reshape(-1)[...] = rows[self.rank]
        yield from [self._send(k, key, 0, _bytes(rows[k])) for k in range(self.size) if k != self.rank]

    def all_to_all(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int]) -> Running:
        outward = np.split(source.reshape(-1), np.cumsum(source_counts)[:-1])
        inward = np.split(target.reshape(-1), np.cumsum(target_counts)[:-1])
        return self._start(self._exchanged, outward, inward)

    def _exchanged(self, key: Key, outward: list[Any], inward: list[Any]) -> Steps:
        inward[self.rank][...] = outward[self.rank]
        far = [(self.rank + k) % self.size for k in range(1, self.size)]  # each process begins with another
        coming = [self._receive(k, key, 0, _bytes(inward[k])) for k in far]
        yield from [self._send(k, key, 0, _bytes(outward[k])) for k in far]
        yield from coming

    def barrier(self) -> Running:
        return self._start(self._met)

    def _met(self, key: Key) -> Steps:
        """In each round a process hears of twice as many."""
        step, nothing = 1, memoryview(bytearray())
        while step < self.size:
            sent = self._send(self.rank + step, key, step, nothing)
            yield self._receive(self.rank - step, key, step, nothing)
            yield sent
            step *= 2

    # -- messages --

    def send(self, buffer: Any, to: int, tag: int) -> Running:
        return Running(self.mesh, self.mesh.send(self.ranks[to], Key(self.number, 0, tag & _ANY_TAG), _bytes(buffer)))

    def receive(self, buffer: Any, origin: int | None, tag: int) -> Running:
        others = [r for r in self.ranks if r != self.mesh.rank]
        origins = others if origin is None else [self.ranks[origin]]
        return Running(self.mesh, self.mesh.receive(Key(self.number, 0, tag & _ANY_TAG), _bytes(buffer), origins), self.ranks)

    # -- the engine itself --

    def rest(self, request: Any, turns: int) -> None:
        self.mesh.wait_for(request.handle, _REST)

    def part(self, ranks: Sequence[int]) -> Engine:
        chosen = tuple(self.ranks[r] for r in ranks)
        count = self.parts[chosen] = self.parts.get(chosen, 0) + 1
        self.mesh.users += 1
        return SocketEngine(self.mesh, chosen, f"{self.name}/{count}")

    def abort(self, status: int) -> None:
        self.mesh.leave(f"it has exited with status {status}")
        os._exit(status)

    def close(self) -> None:
        if self.common is not None:
            self.common.close()
        self.mesh.users -= 1
        if not self.mesh.users:
            self.mesh.leave()


__all__ = ["SocketEngine"]
