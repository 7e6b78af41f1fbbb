"""Collectives as functions of arrays, which compiled programs call.

A program is made of values: a collective takes arrays and gives a new one.  `exchanged` waits for it; `started` gives a number
that `finished` takes.  Captured code calls these instead of the functions on tensors, with the same messages on the wire: other
ranks may run the same call plainly.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, written
from dynagraph.torch.distributed.groups import group_named
from dynagraph.torch.distributed.work import Work

_numbers = itertools.count(1)
_started: dict[int, tuple[Work, Any]] = {}  # by number: what is under way, and where its result will be

# (group, source, target, details...) -> Work: what the operations do with arrays; `collectives.py` fills it
OPERATIONS: dict[str, Any] = {}


def _room(like: Any, count: int) -> Any:
    return np.empty((count, *like.shape) if count else like.shape, like.dtype)


def exchanged(x: Any, like: Any, count: int, operation: str, group: str, *details: Any, out: Any = None) -> Any:
    """What a collective makes of an array: of the shape of `like`, or `count` of these."""
    target = _room(like, count) if out is None else out
    OPERATIONS[operation](group_named(group), x, target, *details).wait()
    return target


def started(x: Any, like: Any, count: int, operation: str, group: str, *details: Any) -> Any:
    """Start a collective: a number for `finished`."""
    target = _room(like, count)
    number = next(_numbers)
    # the memory of programs is used again before the operation has ended
    _started[number] = OPERATIONS[operation](group_named(group), np.array(x), target, *details), target
    return np.array(number, np.int64)


def finished(handle: Any, like: Any, count: int, out: Any = None) -> Any:
    """Wait for what was started: its result."""
    work, target = _started.pop(int(handle))
    work.wait()
    if out is None:
        return target
    out[...] = target
    return out


class CapturedWork(Work):
    """The Work of an operation that a compiled program has started.  The tensors are written to by `wait`."""

    __slots__ = ("_count", "_handle", "_like", "_targets", "_waited")

    def __init__(self, handle: Any, like: Tensor, count: int, targets: list[Tensor]):
        self._handle, self._like, self._count, self._targets, self._waited = handle, like, count, targets, False

    def wait(self, timeout: Any = None) -> bool:
        if not self._waited:
            self._waited = True
            store(finished(self._handle, self._like._array, self._count), self._targets, self._count)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._waited or _started[int(self._handle)][0].is_completed()

    def is_success(self) -> bool:
        return self.is_completed()

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        return list(self._targets)


def store(result: Any, targets: list[Tensor], count: int) -> None:
    """Put a result, or the `count` parts of it, in tensors."""
    for k, target in enumerate(targets):
        part = result[k] if count and len(targets) > 1 else result
        target._array[...] = part.reshape(target._array.shape)
        written(target)


def captured(
    operation: str, group: Any, source: Any, like: Tensor, count: int, targets: list[Tensor], async_op: bool, *details: Any
) -> Any:
    """What an operation on tensors is in captured code."""
    if async_op:
        handle = started(source, like._array, count, operation, group.group_name, *details)
        return CapturedWork(handle, like, count, targets)
    store(exchanged(source, like._array, count, operation, group.group_name, *details), targets, count)
    return None


__all__ = ["OPERATIONS", "CapturedWork", "captured", "exchanged", "finished", "started", "store"]
