"""The engine of CPUs: MPI, by mpi4py.  Importing this module initialises MPI.

MPI gets on with what was started only while it is called, so requests are tested again and again (`work.py`).  Processes of one
machine exchange large arrays in memory that they have in common (`common_memory.py`): MPI carries where the arrays are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI

from dynagraph.torch.distributed.common_memory import BLOCK, BLOCKS, LEAST, Blocks, Common, MisfitError, Pieces, Room, met
from dynagraph.torch.distributed.engines import DistNetworkError, Divided, Engine, Request

_OPS = {
    "SUM": MPI.SUM, "PRODUCT": MPI.PROD, "MIN": MPI.MIN, "MAX": MPI.MAX, "BAND": MPI.BAND, "BOR": MPI.BOR, "BXOR": MPI.BXOR,
}  # fmt: skip
# sums and extremes of truth values are what PyTorch makes of them: any, all
_OPS_OF_BOOL = {
    "SUM": MPI.LOR, "MAX": MPI.LOR, "BOR": MPI.LOR, "PRODUCT": MPI.LAND, "MIN": MPI.LAND, "BAND": MPI.LAND, "BXOR": MPI.LXOR,
}  # fmt: skip
_FLOAT32 = np.dtype(np.float32)
_INTERRUPTED = "a signal's handler has raised an exception within an operation, which is lost"


class Receiving:
    """The request of `MpiEngine.receive`."""

    def __init__(self, request: Any):
        self.request, self.status = request, MPI.Status()

    def Test(self) -> bool:
        return self.request.Test(self.status)  # type: ignore[no-any-return]

    @property
    def source(self) -> int:
        return self.status.Get_source()  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return self.status.Get_count(MPI.BYTE)  # type: ignore[no-any-return]


def _bytes(buffer: Any) -> Any:
    """An array as MPI's bytes: what is moved has no dtype."""
    return [buffer.reshape(-1).view(np.uint8), MPI.BYTE]


class Turn:
    """What a collective waits for until another one has ended."""

    done = False

    def Test(self) -> bool:
        return self.done

    def end(self) -> None:
        self.done = True


class Stepwise:
    """The request of a collective in common memory: `steps` gives the requests that it waits for, one after the other.

    Other processes may wait for a step of any that is under way here, so testing one gets on with all.
    """

    under_way: ClassVar[list[Stepwise]] = []
    lock = threading.Lock()

    def __init__(self, steps: Iterator[Any]):
        self.steps, self.awaited, self.done = steps, None, False
        self.error: Exception | None = None
        self.under_way.append(self)
        self.advance_all()

    @classmethod
    def advance_all(cls) -> None:
        """Get on with all, unless another thread does."""
        if cls.under_way and cls.lock.acquire(blocking=False):
            try:
                for each in tuple(cls.under_way):
                    each._advance()
            finally:
                cls.lock.release()

    @classmethod
    def end_all(cls) -> None:
        """Before a call of MPI's that waits for others: they may wait for what is under way."""
        while cls.under_way:
            cls.advance_all()

    def _advance(self) -> None:
        try:
            while self.awaited is None or self.awaited.Test():
                self.awaited = next(self.steps)
            return
        except StopIteration:
            pass
        except Exception as error:  # whoever waits raises it
            self.error = error
        except BaseException:
            self.error = DistNetworkError(_INTERRUPTED)
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self.done = True
        self.under_way.remove(self)
        self.steps.close()  # type: ignore[attr-defined]

    def Test(self) -> bool:
        if not self.done:
            self.advance_all()
        if self.error is not None:
            raise self.error
        return self.done


class MpiEngine(Engine):
    """The processes of a communicator.  `ranks`: their numbers among all.  `blocks`: memory that those of this machine have in
    common."""

    errors = (MPI.Exception, MisfitError, DistNetworkError)
    goes_on = False

    def __init__(self, communicator: Any, ranks: Sequence[int], blocks: Blocks | None = None):
        self.communicator, self.ranks = communicator, tuple(ranks)
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.common: Common | None = None
        self.words: Any = None  # the communicator of what is told about arrays in common memory, in the order of its collectives
        if blocks is not None and all(rank in blocks.room.rows for rank in ranks):
            self.common = Common(blocks, ranks, self.rank, Turn)
            self.words = communicator.Dup()

    # -- common memory --

    def _in_common_memory(self, pieces: Pieces, otherwise: Callable[[], Any]) -> Request:
        assert self.common is not None

        def exchange(told: np.ndarray, every: np.ndarray) -> Iterator[Any]:
            yield self.words.Iallgather(_bytes(told), _bytes(every))

        def by_messages() -> Iterator[Any]:
            yield otherwise()

        return Stepwise(self.common.run(pieces, exchange, by_messages))

    def room(self, tell: Callable[[str], list[str]], nbytes: int) -> Room | None:
        if self.common is None:
            return None
        room = met(tell, self.ranks, self.ranks[self.rank], nbytes)
        if room is not None:
            self.common.rooms.add(room)
        return room

    def rest(self, request: Any, turns: int) -> None:
        Stepwise.advance_all()
        super().rest(request, turns)

    # -- operations --

    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        # halves are added in float32 and rounded once; MPI knows no bfloat16
        return _FLOAT32 if dtype.itemsize == 2 and dtype.kind in "fV" else dtype

    def _op(self, buffer: Any, op: str) -> Any:
        return (_OPS_OF_BOOL if buffer.dtype.kind == "b" else _OPS)[op]

    def all_reduce(self, buffer: Any, op: str, divisor: int = 1) -> Request:
        def by_messages(communicator: Any) -> Request:
            return _divided(communicator.Iallreduce(MPI.IN_PLACE, buffer, self._op(buffer, op)), buffer, divisor)

        if self.common is None or buffer.nbytes <= LEAST:
            return by_messages(self.communicator)
        pieces = self.common.reduce(buffer.reshape(-1), op, divisor)
        return self._in_common_memory(pieces, lambda: by_messages(self.words))

    def reduce(self, buffer: Any, op: str, root: int, divisor: int = 1) -> Request:
        source, target = (MPI.IN_PLACE, buffer) if root == self.rank else (buffer, None)

        def by_messages(communicator: Any) -> Request:
            request = communicator.Ireduce(source, target, self._op(buffer, op), root)
            return _divided(request, buffer, divisor if root == self.rank else 1)

        if self.common is None or buffer.nbytes <= LEAST:
            return by_messages(self.communicator)
        pieces = self.common.reduce(buffer.reshape(-1), op, divisor, root)
        return self._in_common_memory(pieces, lambda: by_messages(self.words))

    def reduce_scatter(self, source: Any, target: Any, op: str, divisor: int = 1) -> Request:
        def by_messages(communicator: Any) -> Request:
            return _divided(communicator.Ireduce_scatter_block(source, target, self._op(source, op)), target, divisor)

        if self.common is None or source.nbytes <= LEAST:
            return by_messages(self.communicator)
        pieces = self.common.reduce_scatter(source, target.reshape(-1), op, divisor)
        return self._in_common_memory(pieces, lambda: by_messages(self.words))

    def broadcast(self, buffer: Any, root: int) -> Request:
        if self.common is None or buffer.nbytes <= LEAST:
            return self.communicator.Ibcast(_bytes(buffer), root)  # type: ignore[no-any-return]
        pieces = self.common.broadcast(buffer.reshape(-1), root)
        return self._in_common_memory(pieces, lambda: self.words.Ibcast(_bytes(buffer), root))

    def all_gather(self, source: Any, target: Any) -> Request:
        if self.common is None or source.nbytes <= LEAST:
            return self.communicator.Iallgather(_bytes(source), _bytes(target))  # type: ignore[no-any-return]
        pieces = self.common.all_gather(source.reshape(-1), target)
        return self._in_common_memory(pieces, lambda: self.words.Iallgather(_bytes(source), _bytes(target)))

    def gather(self, source: Any, target: Any | None, root: int) -> Request:
        return self.communicator.Igather(  # type: ignore[no-any-return]
            _bytes(source), None if target is None else _bytes(target), root
        )

    def scatter(self, source: Any | None, target: Any, root: int) -> Request:
        return self.communicator.Iscatter(  # type: ignore[no-any-return]
            None if source is None else _bytes(source), _bytes(target), root
        )

    def all_to_all(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int]) -> Request:
        size = source.itemsize
        return self.communicator.Ialltoallv(  # type: ignore[no-any-return]
            [_bytes(source)[0], [n * size for n in source_counts], None, MPI.BYTE],
            [_bytes(target)[0], [n * size for n in target_counts], None, MPI.BYTE],
        )

    def send(self, buffer: Any, to: int, tag: int) -> Request:
        return self.communicator.Isend(_bytes(buffer), to, tag)  # type: ignore[no-any-return]

    def receive(self, buffer: Any, origin: int | None, tag: int) -> Any:
        return Receiving(self.communicator.Irecv(_bytes(buffer), MPI.ANY_SOURCE if origin is None else origin, tag))

    def barrier(self) -> Request:
        return self.communicator.Ibarrier()  # type: ignore[no-any-return]

    def part(self, ranks: Sequence[int]) -> Engine:
        Stepwise.end_all()
        made = self.communicator.Create_group(self.communicator.Get_group().Incl(list(ranks)))
        blocks = None if self.common is None else self.common.blocks
        return MpiEngine(made, [self.ranks[r] for r in ranks], blocks)

    def abort(self, status: int) -> None:
        MPI.COMM_WORLD.Abort(status)

    def close(self) -> None:
        if self.common is not None:
            self.common.close()
        if not MPI.Is_finalized():
            self.communicator.Free()
            if self.words is not None:
                self.words.Free()


def _divided(request: Any, total: Any, by: int) -> Request:
    return request if by == 1 else Divided(request, total, by)


def world() -> Engine:
    """The engine of all processes that mpiexec started, with messages of its own."""
    communicator = MPI.COMM_WORLD.Dup()
    ranks = range(communicator.Get_size())
    room = met(communicator.allgather, ranks, communicator.Get_rank(), BLOCK * BLOCKS)
    return MpiEngine(communicator, ranks, None if room is None else Blocks(room))


__all__ = ["MpiEngine", "world"]
