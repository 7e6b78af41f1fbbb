"""``torch.futures``: values that will be there later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that somebody will set.  `wait` waits for it."""

    def __init__(self, *, devices: Any = None):
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Whether the value, or an error, has been set."""
        return self._event.is_set()

    def drive(self) -> None:
        """What `wait` calls first: a subclass does here what makes the value come."""

    def wait(self) -> T:
        """The value, once it has been set; the error that was set is raised."""
        if not self._event.is_set():
            self.drive()
            self._event.wait()
        return self.value()

    def value(self) -> T:
        """The value, which must have been set."""
        if not self._event.is_set():
            raise RuntimeError("The Future has not completed: call wait() before value().")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def set_result(self, result: T) -> None:
        """Set the value, once; callbacks run."""
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which `wait` will raise."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._set(None, result)

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._event.is_set():
                raise RuntimeError("Future can only be marked completed once: it has been already.")
            self._value, self._error = value, error
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def _when_done(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A Future of what ``callback(self)`` gives, which is called when this one is done."""
        following: Future[S] = _Following(self)

        def run() -> None:
            try:
                value = callback(self)
            except Exception as error:  # it is the following one's, whose wait raises it
                following.set_exception(error)
            else:
                following.set_result(value)

        self._when_done(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` when it is done."""
        self._when_done(lambda: callback(self))


class _Following(Future[S]):
    """What `then` gives."""

    def __init__(self, *before: Future[Any]):
        super().__init__()
        self._before = before

    def drive(self) -> None:
        for future in self._before:
            if not future._event.is_set():
                future.drive()


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A Future of the list of Futures, done when all of them are."""
    collected: Future[list[Future[Any]]] = _Following(*futures)
    left = [len(futures)]
    lock = threading.Lock()

    def one() -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            collected.set_result(list(futures))

    for future in futures:
        future._when_done(one)
    if not futures:
        collected.set_result([])
    return collected


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The values of all Futures."""
    return [future.wait() for future in collect_all(futures).wait()]


__all__ = ["Future", "collect_all", "wait_all"]
