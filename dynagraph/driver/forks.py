"""What works on in a forked child, where the threads that held locks do not exist: locks of its own, and properties without any."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
_alive: weakref.WeakSet[Locked] = weakref.WeakSet()


class Locked:
    """Holds a `lock`, which is another one in a forked child.  Ask for the attribute each time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _alive.add(self)


class cached_property(Generic[T]):
    """As in functools, whose one computes under a lock in Python 3.11: a child that was forked meanwhile waits for ever."""

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        found = vars(instance)[self.function.__name__] = self.function(instance)  # found there from now on
        return found


def _renew() -> None:
    for locked in list(_alive):
        locked.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_renew)
