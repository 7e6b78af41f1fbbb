"""Collectives as functions of arrays, which compiled programs call.

A program is made of values: a collective takes arrays and gives a new one.  `exchanged` waits for it; `started` gives a number
that `finished` takes.  Captured code calls these instead of the functions on tensors, with the same messages on the wire: other
ranks may run the same call plainly.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, written
from dynagraph.torch.distributed.groups import group_named
from dynagraph.torch.distributed.work import Work

_numbers = itertools.count(1)
_started: dict[int, tuple[Work, Any]] = {}  # by number: what is under way, and where its result will be

# (group, source, target, details...) -> Work: what the operations do with arrays; the modules of the operations fill it
OPERATIONS: dict[str, Any] = {}


def exchanged(x: Any, shape: tuple[int, ...], operation: str, group: str, *details: Any, out: Any = None) -> Any:
    """What a collective makes of an array: of this shape, and of the dtype of the array."""
    target = np.empty(shape, x.dtype) if out is None else out
    OPERATIONS[operation](group_named(group), x, target, *details).wait()
    return target


def started(x: Any, shape: tuple[int, ...], operation: str, group: str, *details: Any) -> Any:
    """Start a collective: a number for `finished`."""
    target = np.empty(shape, x.dtype)
    number = next(_numbers)
    # the memory of programs is used again before the operation has ended
    _started[number] = OPERATIONS[operation](group_named(group), np.array(x), target, *details), target
    return np.array(number, np.int64)


def finished(handle: Any, shape: tuple[int, ...], dtype: Any, out: Any = None) -> Any:
    """Wait for what was started: its result, of this shape and dtype."""
    work, target = _started.pop(int(handle))
    work.wait()
    if out is None:
        return target
    out[...] = target
    return out


def runs_plainly(why: str) -> None:
    """End the program before the call that is captured, with this reason; nothing happens in other code."""


class CapturedWork(Work):
    """The Work of an operation that a compiled program has started.  The tensors are written to by `wait`."""

    __slots__ = ("_dtype", "_handle", "_origin", "_shape", "_targets", "_waited")

    def __init__(self, handle: Any, shape: tuple[int, ...], dtype: Any, targets: list[Tensor]):
        self._handle, self._shape, self._dtype, self._targets = handle, shape, dtype, targets
        self._waited = False
        self._origin: int | None = None  # of a message: the sender's rank in the group
        self._error, self._future = None, None

    def wait(self, timeout: Any = None) -> bool:
        if not self._waited:
            self._waited = True
            store(finished(self._handle, self._shape, self._dtype), self._targets)
            if self._future is not None:
                self._future.end()
        return True

    synchronize = wait

    def _test(self) -> bool:
        if not self._waited and _started[int(self._handle)][0].is_completed():
            self.wait()
        return self._waited

    @property
    def _request(self) -> Any:  # type: ignore[override]
        return None if self._waited else self

    def is_completed(self) -> bool:
        return self._test()

    def is_success(self) -> bool:
        return self._test()

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        return list(self._targets)

    def source_rank(self) -> int:
        return super().source_rank() if self._origin is None else self._origin

    _source_rank = source_rank


def store(result: Any, targets: Sequence[Tensor]) -> None:
    """Put a result, or the parts of it that are one behind the other, in tensors."""
    if len(targets) == 1:
        parts = [result]
    elif all(target._array.shape == result.shape[1:] for target in targets):
        parts = [result[k] for k in range(len(targets))]
    else:
        parts, flat, start = [], result.reshape(-1), 0
        for target in targets:
            parts.append(flat[start : start + target._array.size])
            start += target._array.size
    for part, target in zip(parts, targets):
        target._array[...] = part.reshape(target._array.shape)
        written(target)


def captured(
    operation: str, group: Any, source: Any, shape: tuple[int, ...], targets: list[Tensor], async_op: bool, *details: Any
) -> Any:
    """What an operation on tensors is in captured code: its result has this shape, and the source's dtype."""
    if async_op:
        return CapturedWork(started(source, shape, operation, group.group_name, *details), shape, source.dtype, targets)
    store(exchanged(source, shape, operation, group.group_name, *details), targets)
    return None


def nothing(dtype: Any = np.uint8) -> Any:
    """What stands for a source where a rank has none."""
    return np.empty((0,), dtype)


__all__ = ["OPERATIONS", "CapturedWork", "captured", "exchanged", "finished", "nothing", "runs_plainly", "started", "store"]
