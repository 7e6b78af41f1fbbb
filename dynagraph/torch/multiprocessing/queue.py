"""Queues of `multiprocessing`'s interface, on pipes that tensors travel on with their memory.

An object is packed where it is put, not by the thread that sends it: tensors are moved into shared memory while nobody writes to
them, and what cannot be pickled is an error of `put`.
"""

from __future__ import annotations

import errno
import threading
import time
import weakref
from collections import deque
from multiprocessing import queues
from multiprocessing.util import Finalize, is_exiting
from queue import Empty
from typing import Any

from dynagraph.torch.multiprocessing.messages import Connection, Message, Pipe


class Queue(queues.Queue):  # type: ignore[type-arg]
    """First in, first out, for any number of processes; what waits is sent by a thread."""

    _reader: Any
    _writer: Any

    def __init__(self, maxsize: int = 0, *, ctx: Any):
        super().__init__(maxsize, ctx=ctx)
        self._reader.close()
        self._writer.close()
        self._reader, self._writer = Pipe(duplex=False)
        self._reset()

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an object; `queue.Full` if there is no place after `timeout` seconds, or at once without `block`."""
        super().put(Message(obj), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next object; `queue.Empty` if there is none after `timeout` seconds, or at once without `block`."""
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        until = None if timeout is None else time.monotonic() + timeout
        if not self._rlock.acquire(block, timeout):
            raise Empty
        try:
            if not block or until is not None:
                left = 0.0 if until is None or not block else max(0.0, until - time.monotonic())
                if not self._reader.poll(left):
                    raise Empty
            received = self._reader.received()
            self._sem.release()
        finally:
            self._rlock.release()
        return received.value()

    def _start_thread(self) -> None:
        self._buffer.clear()
        self._thread = threading.Thread(
            target=_feed, name="QueueFeederThread", daemon=True,
            args=(self._buffer, self._notempty, self._writer, self._wlock, self._reader, self._ignore_epipe,
                  self._on_queue_feeder_error, self._sem),
        )  # fmt: skip
        self._thread.start()
        if not self._joincancelled:
            self._jointhread = Finalize(self._thread, Queue._finalize_join, [weakref.ref(self._thread)], exitpriority=-5)
        self._close = Finalize(self, Queue._finalize_close, [self._buffer, self._notempty], exitpriority=10)


def _feed(
    buffer: deque[Any], not_empty: threading.Condition, writer: Connection, lock: Any, reader: Connection, ignores_no_reader: bool,
    on_error: Any, places: Any,
) -> None:  # fmt: skip
    """Send what is put into a buffer, until the queue's sentinel."""
    while True:
        with not_empty:
            while not buffer:
                not_empty.wait()
        message: Any = None
        try:
            message = buffer.popleft()
            if message is queues._sentinel:  # type: ignore[attr-defined]
                reader.close()
                writer.close()
                return
            with lock:
                writer.post(message)
        except Exception as error:
            if (ignores_no_reader and getattr(error, "errno", 0) == errno.EPIPE) or is_exiting():
                return
            places.release()  # the object is not in the queue
            on_error(error, message)
        finally:
            message = None  # its memory is the receiver's, while this waits


class JoinableQueue(Queue, queues.JoinableQueue):  # type: ignore[type-arg]
    """A queue whose objects are counted until somebody calls `task_done` for each."""


class SimpleQueue(queues.SimpleQueue):  # type: ignore[type-arg]
    """First in, first out, without a thread: `put` may wait until something is received."""

    _reader: Any
    _writer: Any

    def __init__(self, *, ctx: Any):
        super().__init__(ctx=ctx)
        self._reader.close()
        self._writer.close()
        self._reader, self._writer = Pipe(duplex=False)
        self._poll = self._reader.poll

    def get(self) -> Any:
        """The next object."""
        with self._rlock:
            received = self._reader.received()
        return received.value()

    def put(self, obj: Any) -> None:
        """Put an object."""
        message = Message(obj)
        with self._wlock:
            self._writer.post(message)


__all__ = ["JoinableQueue", "Queue", "SimpleQueue"]
