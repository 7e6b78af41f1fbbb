"""Collectives as functions of arrays, which compiled programs call.

A program is made of values: a collective takes arrays and gives a new one.  `exchanged` waits for it; `started` gives a number
that `finished` takes.  Captured code calls these instead of the functions on tensors, with the same messages on the wire: other
ranks may run the same call plainly.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, written
from dynagraph.torch.distributed.groups import group_named
from dynagraph.torch.distributed.work import Work, advance
from dynagraph.torch.futures import Future

_numbers = itertools.count(1)
_started: dict[int, tuple[Work, Any]] = {}  # by number: what is under way, and where its result will be

# by number, as `_started`: the Work, the array, where its parts begin, and how many are still to be taken
_parts: dict[int, tuple[Work, np.ndarray, list[int], int]] = {}

WHOLES: weakref.WeakValueDictionary[str, np.ndarray] = weakref.WeakValueDictionary()  # arrays that parts may lie in, by name

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


def started_where_it_lies(operation: str, group: str, place: str, details: tuple[Any, ...], *parts: Any) -> Any:
    """As `started`, of the parts of one array: of the memory with that name itself where they lie in it one after the other."""
    number = next(_numbers)
    target = WHOLES.get(place)
    if target is None or not _fills(target, parts):
        target = np.concatenate([part.reshape(-1) for part in parts])
    starts = np.cumsum([0, *(part.size for part in parts)]).tolist()
    work = OPERATIONS[operation](group_named(group), target, target, *details)
    _parts[number] = work, target, starts, len(parts)
    return np.array(number, np.int64)


def _fills(whole: np.ndarray, parts: Sequence[Any]) -> bool:
    """Whether parts lie one after the other from the beginning of an array to its end."""
    at = whole.ctypes.data
    for part in parts:
        if part.ctypes.data != at or part.dtype != whole.dtype or not part.flags.c_contiguous:
            return False
        at += part.nbytes
    return bool(at == whole.ctypes.data + whole.nbytes)


def finished_part(handle: Any, part: Any, number: int, out: Any = None) -> Any:
    """Wait for what `started_where_it_lies` has begun: what has become of the part with this number."""
    work, target, starts, left = _parts.pop(int(handle))
    work.wait()
    if left > 1:
        _parts[int(handle)] = work, target, starts, left - 1
    found = target[starts[number] : starts[number + 1]].reshape(part.shape)
    if out is None:
        return found
    if out.ctypes.data != found.ctypes.data:
        out[...] = found
    return out


def advanced(x: Any) -> Any:
    """Have engines get on with what is under way, once an array is there."""
    advance()
    return np.array(0, np.int64)


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

    def get_future(self) -> Future[Any]:
        return CapturedFuture(self, None)


class CapturedFuture(Future[Any]):
    """The Future of what a compiled program has started, or of what `then` makes of it: `wait` runs it."""

    def __init__(self, before: Any, callback: Any):
        self._before, self._callback, self._has_value = before, callback, False
        self._value = None

    def wait(self) -> Any:
        if not self._has_value:
            self._before.wait()
            self._value = self._before.result() if self._callback is None else self._callback(self._before)
            self._has_value = True
        return self._value

    def value(self) -> Any:
        if not self._has_value:
            raise RuntimeError("The Future has not completed: call wait() before value().")
        return self._value

    def done(self) -> bool:
        return self._has_value or (self._callback is None and self._before.is_completed())

    def drive(self) -> None:
        self.wait()

    def then(self, callback: Any) -> Any:
        return CapturedFuture(self, callback)

    def _when_done(self, callback: Any) -> None:
        self.wait()
        callback()

    @property
    def _event(self) -> Any:  # type: ignore[override]
        return self

    is_set = done


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


__all__ = [
    "OPERATIONS", "WHOLES", "CapturedFuture", "CapturedWork", "advanced", "captured", "exchanged", "finished",
    "finished_part", "nothing", "runs_plainly", "started", "started_where_it_lies", "store",
]  # fmt: skip
