"""``torch.cuda.streams``: streams and events."""

from __future__ import annotations

from typing import Any

import dynagraph.cuda as dg
from dynagraph.cuda.devices import device_index
from dynagraph.cuda.state import require_cupy
from dynagraph.cuda.streams import as_stream, hold
from dynagraph.torch.core import devices
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.cuda._devices import index_of
from dynagraph.torch.missing import getattr_of


class Stream:
    """A queue of work on a GPU; a context that makes it current.

    `priority` is kept for those who ask; CUDA is not told it.
    """

    def __init__(self, device: Any = None, priority: int = 0):
        self._stream = dg.Stream(device=index_of(device))
        self.priority = priority

    @property
    def device(self) -> devices.device:
        return devices.device("cuda", self._stream.device)

    @property
    def device_index(self) -> int:
        return self._stream.device

    @property
    def cuda_stream(self) -> int:
        return int(self._stream.cupy_stream.ptr)

    stream_id = cuda_stream

    def synchronize(self) -> None:
        """Wait until all work queued so far is done."""
        self._stream.synchronize()

    def query(self) -> bool:
        """Whether all work queued so far is done."""
        return self._stream.query()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (None: a new one) after the work queued so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work queued from now on wait for an event."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let work queued from now on wait for what is queued on another stream so far."""
        self._stream.wait_stream(stream._stream)

    def __enter__(self) -> Stream:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stream.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._stream == other._stream

    def __hash__(self) -> int:
        return hash(self._stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


def _wrapped(raw: Any) -> Stream:
    made = object.__new__(Stream)
    made._stream, made.priority = raw, 0
    return made


class ExternalStream(Stream):
    """A stream of another library, by its pointer."""

    def __init__(self, stream_ptr: int, device: Any = None):
        number = device_index(index_of(device))
        self._stream = as_stream(require_cupy().cuda.ExternalStream(stream_ptr, number))
        self.priority = 0


class Event:
    """A mark in a stream, reached when the work queued before it is done; with `enable_timing` times between two can be taken."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if interprocess or external:
            raise RuntimeError("torch.cuda.Event: events of other processes and of graphs are not supported")
        self._event = dg.Event(enable_timing=enable_timing)
        self.blocking = blocking  # how the host waits: it sleeps or spins as the driver chooses

    def record(self, stream: Stream | None = None) -> None:
        """Wait for the work queued on a stream so far; None: the current one."""
        self._event.record(None if stream is None else stream._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let work queued on a stream from now on wait for it; None: the current one."""
        (dg.current_stream() if stream is None else stream._stream).wait_event(self._event)

    def query(self) -> bool:
        """Whether it is reached, or was never recorded."""
        return self._event.query()

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds between this event and a later one."""
        return self._event.elapsed_time(end_event._event)

    def synchronize(self) -> None:
        """Wait until it is reached."""
        self._event.synchronize()

    @property
    def cuda_event(self) -> int:
        return 0 if self._event._raw is None else int(self._event._raw.ptr)

    @property
    def device(self) -> devices.device | None:
        number = self._event.device
        return None if number is None else devices.device("cuda", number)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


def current_stream(device: Any = None) -> Stream:
    """The stream that work on a GPU goes to."""
    return _wrapped(dg.current_stream(index_of(device)))


def default_stream(device: Any = None) -> Stream:
    """The stream that work goes to where no other is chosen."""
    with dg.device(index_of(device)):
        return _wrapped(as_stream(require_cupy().cuda.Stream.null))


def set_stream(stream: Stream | None) -> None:
    """Let this thread's work go to a stream."""
    if stream is not None:
        require_cupy().cuda.runtime.setDevice(stream.device_index)
        stream._stream.cupy_stream.use()


class StreamContext:
    """A context: work goes to a stream; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> Stream | None:
        return None if self.stream is None else self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def stream(stream: Stream | None) -> StreamContext:
    """A context: work goes to a stream; None changes nothing."""
    return StreamContext(stream)


def record_stream(self: Tensor, stream: Stream) -> None:
    """Keep a tensor's memory from being used anew until the work queued on a stream so far is done."""
    if not self.is_cuda:
        raise NotImplementedError(f"record_stream: the tensor is on {self.device}; only memory of GPUs is used by streams")
    hold(stream.record_event()._event._raw, self._array)


Tensor.record_stream = record_stream


def is_current_stream_capturing() -> bool:
    """Whether the current stream's work is being captured in a graph."""
    return dg.is_available() and bool(dg.current_stream().cupy_stream.is_capturing())


__getattr__ = getattr_of(__name__)
__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "is_current_stream_capturing",
    "record_stream", "set_stream", "stream",
]  # fmt: skip
