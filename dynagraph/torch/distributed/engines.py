"""Engines: what moves and reduces arrays between processes.

An `Engine` is one group of processes that know each other.  Its operations take contiguous arrays, start at once and give a
request; none waits.  What tensors, lists of tensors, other dtypes and gaps in memory make of them is the matter of
`collectives.py`, the same for all engines.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dynagraph.torch.distributed.common_memory import Room, divide

_YIELDS = 2000  # tests that give the processor to other processes in between; then the process sleeps
_NAP = 5e-5


class DistError(RuntimeError):
    """An error of torch.distributed."""


class DistBackendError(DistError):
    """An engine could not do what it was asked for, or another process did not take part."""


class DistNetworkError(DistError):
    """A connection failed."""


class DistStoreError(DistError):
    """A store failed."""


class QueueEmptyError(DistStoreError):
    """A queue of a store is empty."""


class Request(Protocol):
    """An operation that was started."""

    def Test(self) -> bool:
        """Whether it has ended.  Engines may get on with their work only within this call."""


class Engine(ABC):
    """Processes that exchange arrays.  All arrays are contiguous; what an operation writes to, and what it reads, is the engine's
    until its request has ended.

    `rank` is this process's place among `size`.  `device`: the type of device that the arrays are on.  All processes must call
    the operations of the collective kind in the same order.
    """

    device = "cpu"
    rank = 0
    size = 1
    goes_on = True  # with what was started while nobody calls it
    errors: tuple[type[Exception], ...] = ()  # what operations and requests may raise

    @abstractmethod
    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        """The dtype in which arrays of a dtype are added up."""

    @abstractmethod
    def all_reduce(self, buffer: Any, op: str, divisor: int = 1) -> Request:
        """The sum (or what `op` says: SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR) of all buffers, in each of them.

        It is divided by `divisor`, which is the same in all processes, where it is made.
        """

    @abstractmethod
    def reduce(self, buffer: Any, op: str, root: int, divisor: int = 1) -> Request:
        """As `all_reduce`, in the buffer of the root alone."""

    @abstractmethod
    def reduce_scatter(self, source: Any, target: Any, op: str, divisor: int = 1) -> Request:
        """As `all_reduce` of all sources, of which the processes get a part each; `source` is `size` times as long as `target`."""

    @abstractmethod
    def broadcast(self, buffer: Any, root: int) -> Request:
        """The root's buffer, in each of them."""

    @abstractmethod
    def all_gather(self, source: Any, target: Any) -> Request:
        """All sources, one behind the other."""

    @abstractmethod
    def gather(self, source: Any, target: Any | None, root: int) -> Request:
        """As `all_gather`, at the root; `target` is None elsewhere."""

    @abstractmethod
    def scatter(self, source: Any | None, target: Any, root: int) -> Request:
        """A part of the root's source to each; `source` is None elsewhere."""

    @abstractmethod
    def all_to_all(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int]) -> Request:
        """To each process a part of the source; the parts that came, one behind the other.  Counts are numbers of elements."""

    @abstractmethod
    def send(self, buffer: Any, to: int, tag: int) -> Request:
        """To one process, which receives with the same tag."""

    @abstractmethod
    def receive(self, buffer: Any, origin: int | None, tag: int) -> Any:
        """From one process, or (None) whichever is first.  The request has `source` and `nbytes` once it has ended."""

    @abstractmethod
    def barrier(self) -> Request:
        """It ends when all processes have called it."""

    def rest(self, request: Any, turns: int) -> None:
        """Wait a moment for a request that has been tested so often.  Engines that learn of its end wait for that."""
        time.sleep(0 if turns < _YIELDS else _NAP)

    def room(self, tell: Callable[[str], list[str]], nbytes: int) -> Room | None:
        """Memory with `nbytes` for each process, in which arrays are reduced fastest; None where there is none.

        All processes call it.  `tell` gives each process what all of them say.
        """
        return None

    @abstractmethod
    def part(self, ranks: Sequence[int]) -> Engine:
        """The engine of some of the processes, of which this is one; all of them call it."""

    @abstractmethod
    def abort(self, status: int) -> None:
        """End all processes."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the engine holds."""


class Divided:
    """The request of a sum that is divided when it is there."""

    def __init__(self, request: Any, total: Any, by: int):
        self.request, self.total, self.by = request, total, by

    def Test(self) -> bool:
        if not self.request.Test():
            return False
        divide(self.total, self.by)
        self.by = 1
        return True


class Done:
    """The request of what has ended."""

    def Test(self) -> bool:
        return True


DONE = Done()


class Alone(Engine):
    """The engine of one process: what it sends comes back."""

    def reduced_as(self, dtype: np.dtype) -> np.dtype:
        return dtype

    def all_reduce(self, buffer: Any, op: str, divisor: int = 1) -> Request:
        divide(buffer, divisor)
        return DONE

    def reduce(self, buffer: Any, op: str, root: int, divisor: int = 1) -> Request:
        return self.all_reduce(buffer, op, divisor)

    def broadcast(self, buffer: Any, root: int) -> Request:
        return DONE

    def reduce_scatter(self, source: Any, target: Any, op: str, divisor: int = 1) -> Request:
        self.all_gather(source, target)
        return self.all_reduce(target, op, divisor)

    def all_gather(self, source: Any, target: Any) -> Request:
        target[...] = source
        return DONE

    def gather(self, source: Any, target: Any | None, root: int) -> Request:
        return self.all_gather(source, target)

    def scatter(self, source: Any | None, target: Any, root: int) -> Request:
        return self.all_gather(source, target)

    def all_to_all(self, source: Any, source_counts: Sequence[int], target: Any, target_counts: Sequence[int]) -> Request:
        return self.all_gather(source, target)

    def send(self, buffer: Any, to: int, tag: int) -> Request:
        raise DistBackendError("send: this process is alone in its group, and nobody can receive from it")

    def receive(self, buffer: Any, origin: int | None, tag: int) -> Any:
        raise DistBackendError("recv: this process is alone in its group, and nobody can send to it")

    def barrier(self) -> Request:
        return DONE

    def part(self, ranks: Sequence[int]) -> Engine:
        return self

    def close(self) -> None:
        """It holds nothing."""

    def abort(self, status: int) -> None:
        raise SystemExit(status)


__all__ = [
    "DONE", "Alone", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "Divided", "Engine",
    "QueueEmptyError", "Request",
]  # fmt: skip
