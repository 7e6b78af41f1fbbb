"""The engine of GPUs: NCCL, by CuPy.

A process has the GPU that is current when its first tensor is sent; the identifier that ranks meet by goes by way of the engine
of the host.  Operations run on a stream of the engine, which waits for what has been started on the current one; a request has
ended when an event behind it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import nccl

from dynagraph.torch.distributed.common_memory import divide
from dynagraph.torch.distributed.engines import Alone, DistBackendError, Divided, Engine, Request

_TYPES = {
    "int8": nccl.NCCL_INT8, "uint8": nccl.NCCL_UINT8, "bool": nccl.NCCL_UINT8, "int32": nccl.NCCL_INT32,
    "uint32": nccl.NCCL_UINT32, "int64": nccl.NCCL_INT64, "uint64": nccl.NCCL_UINT64, "float16": nccl.NCCL_FLOAT16,
    "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64,
}  # fmt: skip
_OPS = {"SUM": nccl.NCCL_SUM, "PRODUCT": nccl.NCCL_PROD, "MIN": nccl.NCCL_MIN, "MAX": nccl.NCCL_MAX}


def available() -> bool:
    """Whether there is a GPU."""
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0  # type: ignore[no-any-return]
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


class _Event:
    """The request of what runs on a stream."""

    source: int
    nbytes: int

    def __init__(self, event: Any):
        self.event = event

    def Test(self) -> bool:
        return self.event.done  # type: ignore[no-any-return]


class NcclEngine(Engine):
    """Processes with a GPU each."""

    device = "cuda"
    errors = (nccl.NcclError, cupy.cuda.runtime.CUDARuntimeError)

    def __init__(self, communicator: Any, host: Engine):
        self.communicator, self.host = communicator, host
        self.rank, self.size = host.rank, host.size
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        return np.dtype(np.float32) if dtype.kind == "V" else dtype  # CuPy's NCCL names no bfloat16

    def _run(self, what: Callable[[int], Any]) -> _Event:
        """``what(stream)`` on the engine's stream, after what the current one has been given."""
        self.stream.wait_event(cupy.cuda.get_current_stream().record())
        what(self.stream.ptr)
        return _Event(self.stream.record())

    def _reduced(self, buffer: Any, op: str) -> tuple[int, int, int]:
        """Count, type and operation of what is reduced: complex numbers are pairs, sums of bools are maxima."""
        if op not in _OPS:
            raise DistBackendError(f"NCCL has no reduction {op}")
        kind, count = buffer.dtype, buffer.size
        if kind.kind == "c":
            kind, count = np.dtype(f"f{kind.itemsize // 2}"), 2 * count
        if kind.kind == "b":
            op = {"SUM": "MAX", "PRODUCT": "MIN"}.get(op, op)
        if kind.name not in _TYPES:
            raise DistBackendError(f"NCCL reduces no {kind.name}")
        return count, _TYPES[kind.name], _OPS[op]

    def all_reduce(self, buffer: Any, op: str, divisor: int = 1) -> Request:
        about = self._reduced(buffer, op)
        divide(buffer, divisor)  # before: sums of float16 may be too large
        return self._run(lambda stream: self.communicator.allReduce(buffer.data.ptr, buffer.data.ptr, *about, stream))

    def reduce(self, buffer: Any, op: str, root: int, divisor: int = 1) -> Request:
        about = self._reduced(buffer, op)
        request = self._run(lambda stream: self.communicator.reduce(buffer.data.ptr, buffer.data.ptr, *about, root, stream))
        return request if divisor == 1 or root != self.rank else Divided(request, buffer, divisor)

    def reduce_scatter(self, source: Any, target: Any, op: str, divisor: int = 1) -> Request:
        about = self._reduced(target, op)
        request = self._run(lambda stream: self.communicator.reduceScatter(source.data.ptr, target.data.ptr, *about, stream))
        return request if divisor == 1 else Divided(request, target, divisor)

    def broadcast(self, buffer: Any, root: int) -> Request:
        pointer, count = buffer.data.ptr, buffer.nbytes
        return self._run(lambda stream: self.communicator.broadcast(pointer, pointer, count, nccl.NCCL_UINT8, root, stream))

    def all_gather(self, source: Any, target: Any) -> Request:
        return self._run(
            lambda stream: self.communicator.allGather(
                source.data.ptr, target.data.ptr, source.nbytes, nccl.NCCL_UINT8, stream
            )
        )

    def _messages(self, sends: Sequence[tuple[int, int, int]], receives: Sequence[tuple[int, int, int]]) -> Request:
        """Messages (address, bytes, the other rank) as one operation."""

        def exchange(stream: int) -> None:
            nccl.groupStart()
            for address, count, other in sends:
                self.communicator.send(address, count, nccl.NCCL_UINT8, other, stream)
            for address, count, other in receives:
                self.communicator.recv(address, count, nccl.NCCL_UINT8, other, stream)
            nccl.groupEnd()

        return self._run(exchange)

    def gather(self, source: Any, target: Any | None, root: int) -> Request:
        n = source.nbytes
        receives = [] if target is None else [(target.data.ptr + k * n, n, k) for k in range(self.size)]
        return self._messages([(source.data.ptr, n, root)], receives)

    def scatter(self, source: Any | None, target: Any, root: int) -> Request:
        n = target.nbytes
        sends = [] if source is None else [(source.data.ptr + k * n, n, k) for k in range(self.size)]
        return self._messages(sends, [(target.data.ptr, n, root)])

    def all_to_all(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int]) -> Request:
        return self._messages(_parts(source, source_counts), _parts(target, target_counts))

    def send(self, buffer: Any, to: int, tag: int) -> Request:
        return self._messages([(buffer.data.ptr, buffer.nbytes, to)], [])

    def receive(self, buffer: Any, origin: int | None, tag: int) -> Any:
        if origin is None:
            raise DistBackendError("NCCL receives from a rank that is named: give `src`")
        request: Any = self._messages([], [(buffer.data.ptr, buffer.nbytes, origin)])
        request.source, request.nbytes = origin, buffer.nbytes
        return request

    def barrier(self) -> Request:
        self.stream.synchronize()
        return self.host.barrier()

    def part(self, ranks: Sequence[int]) -> Engine:
        return joined(self.host.part(ranks))

    def abort(self, status: int) -> None:
        self.host.abort(status)

    def close(self) -> None:
        self.communicator.destroy()


def _parts(buffer: Any, counts: Sequence[int]) -> list[tuple[int, int, int]]:
    found, address = [], buffer.data.ptr
    for other, count in enumerate(counts):
        if count:
            found.append((address, count * buffer.itemsize, other))
        address += count * buffer.itemsize
    return found


def joined(host: Engine) -> Engine:
    """The engine of the same processes' GPUs."""
    if type(host) is Alone:
        return Alone()
    identifier = np.zeros(nccl.NCCL_UNIQUE_ID_BYTES if hasattr(nccl, "NCCL_UNIQUE_ID_BYTES") else 128, np.int8)
    if host.rank == 0:
        identifier[:] = nccl.get_unique_id()
    request = host.broadcast(identifier, 0)
    while not request.Test():
        pass
    return NcclEngine(nccl.NcclCommunicator(host.size, tuple(map(int, identifier)), host.rank), host)


__all__ = ["NcclEngine", "available", "joined"]
