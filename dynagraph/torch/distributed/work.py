"""``Work``: an operation that was started, and waiting for it.

What is under way is kept in a list of the process, with its buffers: an engine may write to them after the caller has forgotten
the Work.  `advance` has engines get on with all of it.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynagraph.torch.distributed.engines import DistBackendError, DistNetworkError, Engine, Request
from dynagraph.torch.futures import Future

if TYPE_CHECKING:
    from dynagraph.torch.core.tensor import Tensor

_SPINS = 50  # tests in a row, which is a few microseconds

_under_way: list[Work] = []


def advance() -> None:
    """Have engines get on with all that is under way, without waiting: a hook of gradients calls it, for example."""
    for work in tuple(_under_way):
        work._test()


class Work:
    """An operation on tensors that was started.  Its results are there after `wait`, not before."""

    __slots__ = (
        "__weakref__", "_buffers", "_engine", "_error", "_finish", "_future", "_given_up", "_request", "_result", "_timeout",
        "_what",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, request: Request, buffers: Any, finish: Callable[[], None] | None, result: Sequence[Tensor],
        what: str, timeout: float,
    ):  # fmt: skip
        self._engine, self._buffers, self._finish, self._result = engine, buffers, finish, result
        self._what, self._timeout = what, timeout
        self._request: Request | None = request
        self._error: Exception | None = None
        self._future: _FutureOfWork | None = None
        self._given_up = False  # it took too long
        _under_way.append(self)

    def _test(self) -> bool:
        """Whether it has ended; what is left to do then is done."""
        request = self._request
        if request is None:
            return True
        try:
            if not request.Test():
                return False
        except self._engine.errors as error:
            self._ended(failure(self._what, self._engine, error))
            return True
        self._ended(None)
        return True

    def _ended(self, error: Exception | None) -> None:
        _under_way.remove(self)
        if error is None and self._finish is not None:
            try:
                self._finish()
            except RuntimeError as found:  # a message that was shorter than its buffer
                error = found
        self._finish, self._buffers = None, None
        self._error = error
        self._request = None
        if self._future is not None:
            self._future.end()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Wait until the results are in the tensors.  RuntimeError where it failed, or took longer than `timeout`, the group's by
        default."""
        if not self._test():
            self._wait(self._timeout if timeout is None or not timeout else timeout.total_seconds())
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, seconds: float) -> None:
        for _ in range(0 if self._engine.goes_on else _SPINS):
            if self._test():
                return
        end = time.monotonic() + seconds
        for turns in itertools.count():
            if self._test():
                return
            self._engine.rest(self._request, turns)
            if time.monotonic() > end:
                self._given_up = True
                raise DistBackendError(
                    f"[Rank {self._engine.rank}] {self._what} did not end within {seconds:g} s: another rank did not call it, or "
                    "calls its collectives in another order, or has ended.  Collectives that take longer need another `timeout` "
                    "of init_process_group or new_group"
                )

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._test()

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._test() and self._error is None

    def exception(self) -> Exception | None:
        """The error that it ended with."""
        return self._error

    def result(self) -> list[Tensor]:
        """The tensors that were written to."""
        return list(self._result)

    def source_rank(self) -> int:
        """Of what was received: the rank in the group that it came from."""
        raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call.")

    def get_future(self) -> Future[Any]:
        """The list of tensors that were written to, as a Future; callbacks run in the thread that waits or tests."""
        if self._future is None:
            self._future = _FutureOfWork(self)
            if self._request is None:
                self._future.end()
        return self._future


class _FutureOfWork(Future[Any]):
    """Waiting for it is waiting for the Work."""

    def __init__(self, work: Work):
        super().__init__()
        self.work = work

    def end(self) -> None:
        if self.work._error is None:
            self.set_result(self.work.result())
        else:
            self.set_exception(self.work._error)

    def drive(self) -> None:
        self.work.wait()

    def done(self) -> bool:
        return self.work.is_completed()


class Several(Work):
    """Operations that are waited for as one."""

    __slots__ = ("works",)

    def __init__(self, works: Sequence[Work], result: Sequence[Tensor]):
        self.works, self._result = works, result
        self._error, self._future = None, None

    def _test(self) -> bool:
        ended = True
        for work in self.works:
            ended = work._test() and ended
            self._error = self._error or work._error
        if ended and self._future is not None and not Future.done(self._future):
            self._future.end()
        return ended

    @property
    def _request(self) -> Any:  # type: ignore[override]
        return None if self._test() else self

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        for work in self.works:
            work.wait(timeout)
        self._test()
        return True

    synchronize = wait


def failure(what: str, engine: Engine, error: Exception) -> DistBackendError:
    """The error of an engine's error."""
    text = f"[Rank {engine.rank}] {what} failed: {error}"
    if not isinstance(error, DistNetworkError):
        text += ".  Where ranks give tensors of other shapes or dtypes, TORCH_DISTRIBUTED_DEBUG=DETAIL in the environment finds it"
    return DistBackendError(text)


def wait_for_all() -> None:
    """Wait for all that is under way, but for what has taken too long already."""
    for work in tuple(_under_way):
        if not work._given_up:
            work.wait()


__all__ = ["Several", "Work", "advance", "failure", "wait_for_all"]
