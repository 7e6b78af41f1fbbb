"""The engine of CPUs: MPI, by mpi4py.  Importing this module initialises MPI.

MPI gets on with what was started only while it is called, so requests are tested again and again (`work.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dynagraph.torch.distributed.engines import Engine, Request

_OPS = {
    "SUM": MPI.SUM, "PRODUCT": MPI.PROD, "MIN": MPI.MIN, "MAX": MPI.MAX, "BAND": MPI.BAND, "BOR": MPI.BOR, "BXOR": MPI.BXOR,
}  # fmt: skip
# sums and extremes of truth values are what PyTorch makes of them: any, all
_OPS_OF_BOOL = {
    "SUM": MPI.LOR, "MAX": MPI.LOR, "BOR": MPI.LOR, "PRODUCT": MPI.LAND, "MIN": MPI.LAND, "BAND": MPI.LAND, "BXOR": MPI.LXOR,
}  # fmt: skip
_FLOAT32 = np.dtype(np.float32)


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


class MpiEngine(Engine):
    """The processes of a communicator."""

    errors = (MPI.Exception,)
    goes_on = False

    def __init__(self, communicator: Any):
        self.communicator = communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()

    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        # halves are added in float32 and rounded once; MPI knows no bfloat16
        return _FLOAT32 if dtype.itemsize == 2 and dtype.kind in "fV" else dtype

    def _op(self, buffer: Any, op: str) -> Any:
        return (_OPS_OF_BOOL if buffer.dtype.kind == "b" else _OPS)[op]

    def all_reduce(self, buffer: Any, op: str) -> Request:
        return self.communicator.Iallreduce(MPI.IN_PLACE, buffer, self._op(buffer, op))  # type: ignore[no-any-return]

    def reduce(self, buffer: Any, op: str, root: int) -> Request:
        source, target = (MPI.IN_PLACE, buffer) if root == self.rank else (buffer, None)
        return self.communicator.Ireduce(source, target, self._op(buffer, op), root)  # type: ignore[no-any-return]

    def reduce_scatter(self, source: Any, target: Any, op: str) -> Request:
        return self.communicator.Ireduce_scatter_block(source, target, self._op(source, op))  # type: ignore[no-any-return]

    def broadcast(self, buffer: Any, root: int) -> Request:
        return self.communicator.Ibcast(_bytes(buffer), root)  # type: ignore[no-any-return]

    def all_gather(self, source: Any, target: Any) -> Request:
        return self.communicator.Iallgather(_bytes(source), _bytes(target))  # type: ignore[no-any-return]

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
        return MpiEngine(self.communicator.Create_group(self.communicator.Get_group().Incl(list(ranks))))

    def abort(self, status: int) -> None:
        MPI.COMM_WORLD.Abort(status)

    def close(self) -> None:
        if not MPI.Is_finalized():
            self.communicator.Free()


def world() -> Engine:
    """The engine of all processes that mpiexec started, with messages of its own."""
    return MpiEngine(MPI.COMM_WORLD.Dup())


__all__ = ["MpiEngine", "world"]
