"""Deadlines for compiling: set around the work, checked wherever time goes.

Nothing else ends a capture or a pass in the middle; what is raised passes through the compiler like a KeyboardInterrupt, and
nothing of the work stays.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 16  # of a loop, after which its pace is looked at, again and again
SURE = 2.0  # a moment's delay is no reason to give up


class OutOfTime(BaseException):
    """The deadline of this thread has passed.  No `Exception`: handlers of errors must not take it for one."""


class _Thread(threading.local):
    end = math.inf


_thread = _Thread()


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Have `check` raise OutOfTime in this block once so many seconds have passed; None: never.

    >>> with within(3600):
    ...     check()
    """
    before = _thread.end
    _thread.end = math.inf if seconds is None else time.perf_counter() + seconds
    try:
        yield
    finally:
        _thread.end = before


def check() -> None:
    """Raise OutOfTime after the deadline, once: what cleans up after it has the time that it takes."""
    if time.perf_counter() > _thread.end:
        _thread.end = math.inf
        raise OutOfTime


class Pace:
    """How quickly the turns of a loop are captured: one that cannot be done in time is given up at once."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.done = 0

    def turn(self, left: int) -> None:
        """One more turn is done; `left`: those that are known to follow.

        Raises OutOfTime, once, where these would take twice the time that is left, if they took as long as those before.
        """
        self.done += 1
        if self.done % TURNS or _thread.end == math.inf:
            return
        now = time.perf_counter()
        if (now - self.begun) / self.done * left > SURE * (_thread.end - now):
            _thread.end = math.inf
            raise OutOfTime


def leave(seconds: float) -> None:
    """Move the deadline, where fewer seconds are left: for work that is known to be worth them."""
    if _thread.end != math.inf:
        _thread.end = max(_thread.end, time.perf_counter() + seconds)


def seconds_left() -> float:
    """Until the deadline; infinity where there is none."""
    return _thread.end - time.perf_counter()


__all__ = ["OutOfTime", "Pace", "check", "leave", "seconds_left", "within"]
