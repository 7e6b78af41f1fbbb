"""Streams and events, and memory that is kept alive until they are done with it."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from types import TracebackType
from typing import Any

from dynagraph.cuda import late_errors
from dynagraph.cuda.devices import DeviceLike, check_flag, device_index, enter_device, leave_device, on_device
from dynagraph.cuda.state import require_cupy, state
from dynagraph.errors import CudaError

_held: deque[tuple[Any, tuple[Any, ...]]] = deque()
_owned: dict[int, Any] = {}  # CuPy's streams of those made here: a garbage collection would destroy one together with ours
_streams: weakref.WeakValueDictionary[tuple[int, int], Stream] = weakref.WeakValueDictionary()


def hold(until: Any, *things: Any) -> None:
    """Keep things alive until the work before an event of CuPy's, or on a stream of CuPy's, is done.

    They are let go by a later call, or by `empty_cache`.
    """
    release_held(8)  # a few at a time: asking takes a microsecond
    _held.append((until, things))


def release_held(most: int | None = None) -> None:
    """Let go of what was held for work that is done; looks at `most` entries, the oldest ones."""
    for _ in range(len(_held) if most is None else most):
        try:
            entry = _held.popleft()
        except IndexError:  # none is left; another thread, or a garbage collection, may have done the same
            return
        if state.is_lost or not entry[0].done:
            _held.append(entry)


class Stream:
    """A queue of work on a device: what is queued runs in order, and beside the work of other streams.

    non_blocking: do not wait for work on the default stream of the device, nor make it wait.  device: where; None: the current one.
    As a context manager it makes its device, and itself there, current for this thread, so that what CuPy and compiled functions do
    goes to it.  Blocks nest.  Streams are equal where they are the same one of CUDA.

    A stream is destroyed by `close()`, or when nothing refers to it any more, in both cases only after its work is done.
    Raises CudaError where there is no device, and wherever it is used after `close()`; TypeError where `non_blocking` is no bool.

    >>> stream = dg.cuda.Stream()
    >>> with stream:
    ...     y = cupy.exp(x)
    >>> stream.synchronize()
    """

    def __init__(self, non_blocking: bool = True, device: DeviceLike = None) -> None:
        check_flag("Stream", "non_blocking", non_blocking)
        with on_device(device) as scope:
            self._set(state.cupy.cuda.Stream(non_blocking=non_blocking), scope.index, True)
        _streams[self._key] = self

    def _set(self, raw: Any, device: int, is_owner: bool) -> None:
        self._raw, self._is_owner, self._blocks = raw, is_owner, 0
        self.device = device
        self._key = (device, int(raw.ptr))
        if is_owner:
            _owned[id(raw)] = raw

    @property
    def cupy_stream(self) -> Any:
        """CuPy's object.  Raises CudaError where the stream is closed."""
        require_cupy()
        raw = self._raw
        if raw is None:
            raise CudaError(f"{self!r} cannot be used any more: make another one")
        return raw

    def __enter__(self) -> Stream:
        with state.lock:
            raw = self.cupy_stream
            self._blocks += 1
        try:
            enter_device(self.device)
            try:
                raw.__enter__()
            except BaseException:
                leave_device()
                raise
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not state.is_lost:
                require_cupy().cuda.runtime.setDevice(self.device)  # CuPy restores the stream of the device that is current
                self.cupy_stream.__exit__(kind, error, trace)
        finally:
            self._leave()
            leave_device()

    def _leave(self) -> None:
        with state.lock:
            self._blocks -= 1

    def synchronize(self) -> None:
        """Wait until all work queued so far is done."""
        raw = self.cupy_stream
        with on_device(self.device):
            raw.synchronize()
        late_errors.raise_found()

    def query(self) -> bool:
        """Whether all work queued so far is done."""
        raw = self.cupy_stream
        with on_device(self.device):
            return bool(raw.done)

    def record(self, event: Event | None = None) -> Event:
        """Record an event (None: a new one) after the work queued so far; gives the event."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work queued from now on wait for an event.  One that was never recorded is not waited for."""
        raw, waited = self.cupy_stream, event._raw
        if waited is not None:
            with on_device(self.device):
                raw.wait_event(waited)

    def wait_stream(self, stream: Any) -> None:
        """Let work queued from now on wait for what is queued on another stream so far."""
        self.wait_event(as_stream(stream).record())

    def close(self) -> None:
        """Wait for its work and destroy it; a second time nothing happens.

        Raises CudaError within a ``with`` block of it, in whatever thread, where it is CuPy's current stream, and where it is not
        one that `Stream` made.
        """
        with state.lock:
            if self._raw is None:
                return
            if not self._is_owner:
                raise CudaError(f"{self!r} was not made by dg.cuda.Stream, and is not closed by it")
            if self._blocks or require_cupy().cuda.get_current_stream(self.device) is self._raw:
                raise CudaError(f"{self!r} is current: leave its `with` block before closing it")
            raw, self._raw = self.cupy_stream, None
            _owned.pop(id(raw), None)
            if _streams.get(self._key) is self:
                del _streams[self._key]
        with on_device(self.device):
            raw.synchronize()
        late_errors.raise_found()

    def __del__(self) -> None:
        raw = getattr(self, "_raw", None)
        if raw is not None and self._is_owner and not sys.is_finalizing():
            _owned.pop(id(raw), None)
            hold(raw)  # memory of its arena is reused by the next stream at its address: its work must be done

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self is other or (self._raw is not None and other._raw is not None and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        closed = ", closed" if self._raw is None else ""
        return f"<Stream 0x{self._key[1]:x} of cuda:{self.device}{closed}>"


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream that this thread's work on a device (None: the current one) goes to: CuPy's current one.

    Gives the very `Stream` that was entered, or one that stands for CuPy's.
    """
    number = device_index(device)
    return _wrapped(state.cupy.cuda.get_current_stream(number), number)


def as_stream(stream: Any) -> Stream:
    """A stream of ours for one of ours or CuPy's; None: the current one.  Raises TypeError for anything else."""
    if stream is None:
        return current_stream()
    if isinstance(stream, Stream):
        return stream
    if not hasattr(stream, "ptr") or not hasattr(stream, "device_id"):
        raise TypeError(f"stream: expected a dg.cuda.Stream, one of CuPy's, or None, got {type(stream).__name__}")
    return _wrapped(stream, device_index(stream.device_id if stream.device_id >= 0 else None))


def _wrapped(raw: Any, device: int) -> Stream:
    found = _streams.get((device, int(raw.ptr)))
    if found is not None and found._raw is raw:
        return found
    made = Stream.__new__(Stream)
    made._set(raw, device, False)
    return made


class Event:
    """A mark in a stream: it is reached when the work queued before it is done.

    enable_timing: needed on both events of `elapsed_time`.  It belongs to the device of the stream where it is first recorded.
    Raises CudaError where there is no device.

    >>> start, end = dg.cuda.Event(enable_timing=True), dg.cuda.Event(enable_timing=True)
    >>> start.record(); y = f(x); end.record()
    >>> end.synchronize()
    >>> print(start.elapsed_time(end), "ms")
    """

    def __init__(self, enable_timing: bool = False) -> None:
        require_cupy()
        self.enable_timing = enable_timing
        self.device: int | None = None
        self._raw: Any = None

    def record(self, stream: Any = None) -> None:
        """Wait for the work queued on a stream so far; None: the current one.  Raises CudaError for one of another device."""
        on = as_stream(stream)
        raw = on.cupy_stream
        if self.device is not None and self.device != on.device:
            raise CudaError(f"event of cuda:{self.device}: cannot be recorded on a stream of cuda:{on.device}; make one there")
        with on_device(on.device):
            if self._raw is None:
                self._raw, self.device = state.cupy.cuda.Event(disable_timing=not self.enable_timing), on.device
            raw.record(self._raw)

    def synchronize(self) -> None:
        """Wait until it is reached.  One that was never recorded is not waited for."""
        require_cupy()
        if self._raw is not None:
            self._raw.synchronize()
        late_errors.raise_found()

    def query(self) -> bool:
        """Whether it is reached, or was never recorded."""
        require_cupy()
        return self._raw is None or bool(self._raw.done)

    def elapsed_time(self, end: Event) -> float:
        """The milliseconds between this event and a later one, in the time of the device.

        Raises CudaError where one is without timing, was not recorded or is not reached, and for events of two devices.
        """
        cupy = require_cupy()
        for event, name in ((self, "start"), (end, "end")):
            if not event.enable_timing:
                raise CudaError(f"elapsed_time: the {name} event takes no times: make it with Event(enable_timing=True)")
            if event._raw is None:
                raise CudaError(f"elapsed_time: the {name} event was not recorded")
            if event.device != self.device:
                raise CudaError(f"elapsed_time: the start event is of cuda:{self.device}, the end event of cuda:{event.device}")
            if not event.query():
                raise CudaError(f"elapsed_time: the {name} event is not reached yet: call end.synchronize() first")
        return float(cupy.cuda.get_elapsed_time(self._raw, end._raw))

    def __del__(self) -> None:
        if state.is_lost and getattr(self, "_raw", None) is not None:
            hold(self._raw)  # for good: it cannot be destroyed in this process
