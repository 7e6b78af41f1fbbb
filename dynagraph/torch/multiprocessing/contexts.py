"""`multiprocessing`'s contexts with this package's queues and pipes."""

from __future__ import annotations

import multiprocessing
from multiprocessing import context
from multiprocessing.pool import Pool as _Pool
from typing import Any

from dynagraph.torch.multiprocessing import messages, queue


class _Sharing:
    """Queues, pipes and pools on which tensors travel with their memory."""

    def Pipe(self, duplex: bool = True) -> Any:
        """Both ends of a pipe; without `duplex` the first only receives and the second only sends."""
        return messages.Pipe(duplex)

    def Queue(self, maxsize: int = 0) -> queue.Queue:
        """A queue with a thread that sends."""
        return queue.Queue(maxsize, ctx=self.get_context())  # type: ignore[attr-defined]

    def JoinableQueue(self, maxsize: int = 0) -> queue.JoinableQueue:
        """A queue that can be waited for until all is done."""
        return queue.JoinableQueue(maxsize, ctx=self.get_context())  # type: ignore[attr-defined]

    def SimpleQueue(self) -> queue.SimpleQueue:
        """A queue without a thread."""
        return queue.SimpleQueue(ctx=self.get_context())  # type: ignore[attr-defined]

    def Pool(
        self, processes: int | None = None, initializer: Any = None, initargs: Any = (), maxtasksperchild: int | None = None
    ) -> Any:
        """Processes that are given tasks."""
        return _Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context())  # type: ignore[attr-defined]


class ForkContext(_Sharing, context.ForkContext):
    """Processes are copies of this one."""


class SpawnContext(_Sharing, context.SpawnContext):
    """Processes start anew."""


class ForkServerContext(_Sharing, context.ForkServerContext):
    """Processes are copies of one that has done nothing yet."""


CONTEXTS: dict[str, Any] = {"fork": ForkContext(), "spawn": SpawnContext(), "forkserver": ForkServerContext()}


class DefaultContext(_Sharing, context.DefaultContext):
    """Of the start method that `multiprocessing` has."""

    def __init__(self) -> None:
        super().__init__(multiprocessing.get_context())

    def get_context(self, method: str | None = None) -> Any:
        """That of a start method: "fork", "spawn" or "forkserver"."""
        if method is None:
            method = multiprocessing.get_start_method()
        multiprocessing.get_context(method)  # ValueError where there is none
        return CONTEXTS[method]

    def get_start_method(self, allow_none: bool = False) -> Any:
        """The start method of processes."""
        return multiprocessing.get_start_method(allow_none)

    def set_start_method(self, method: str | None, force: bool = False) -> None:  # type: ignore[override]
        """Set the start method, once."""
        multiprocessing.set_start_method(method, force)


DEFAULT = DefaultContext()

__all__ = ["CONTEXTS", "DEFAULT", "DefaultContext", "ForkContext", "ForkServerContext", "SpawnContext"]
