"""``torch.cpu``: the host by the names that `torch.cuda` has for GPUs; its work is done when a call returns."""

from __future__ import annotations

import contextlib
from typing import Any

from dynagraph.torch.missing import getattr_of


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """The text "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: all work is done."""


class Stream:
    """A queue of work that is always done."""

    def __init__(self, priority: int = -1):
        self.priority = priority

    def wait_stream(self, stream: Stream) -> None:
        """Nothing: all work is done."""

    def record_event(self) -> Event:
        """An event that is reached."""
        return Event()

    def wait_event(self, event: Event) -> None:
        """Nothing: events are reached."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Event:
    """A mark that is always reached."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Nothing: all work is done."""

    def synchronize(self) -> None:
        """Nothing: it is reached."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing: it is reached."""


_CURRENT = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream that there is."""
    return _CURRENT


class StreamContext(contextlib.nullcontext):
    """A context that changes nothing."""

    def __init__(self, stream: Stream | None):
        super().__init__(stream)


def stream(stream: Stream | None) -> StreamContext:
    """A context that changes nothing."""
    return StreamContext(stream)


__getattr__ = getattr_of(__name__)
