"""Locks that a forked child finds free: the threads that held them are not there."""

from __future__ import annotations

import os
import threading
import weakref

_alive: weakref.WeakSet[Locked] = weakref.WeakSet()


class Locked:
    """Holds a `lock`, which is another one in a forked child.  Ask for the attribute each time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _alive.add(self)


def _renew() -> None:
    for locked in list(_alive):
        locked.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_renew)
