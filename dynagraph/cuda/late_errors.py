"""What programs on a device find wrong with their arguments and nobody waits for: ``config.cuda_errors = "later"``.

As with errors of CUDA's own, the call that was given a wrong index has long returned, with results that mean nothing.  It is raised
by the next call that asks for a check, or waits for the device, once the device has come so far.
"""

from __future__ import annotations

import collections
import os
import threading
from typing import Any

import numpy as np

from dynagraph.errors import CudaError, make_final

MOST = 256  # checks under way: the host waits for the first one of more

_waiting: collections.deque[tuple[str, np.ndarray, Any]] = collections.deque()  # name, byte, event: in the order of their calls
_lock = threading.RLock()  # a signal's handler may call a program, too


def note(name: str, byte: np.ndarray, copied: Any) -> None:
    """Remember a check of a function, which lies in `byte` once the event is reached; CudaError where an earlier one has failed."""
    _waiting.append((name, byte, copied))
    raise_found(len(_waiting) - MOST)


def raise_found(wait_for: int = 0) -> None:
    """CudaError where a check that is known by now has failed; so many of them, the oldest, are waited for."""
    failed = ""
    with _lock:
        while _waiting and not failed and (wait_for > 0 or _waiting[0][2].done):
            name, byte, copied = _waiting.popleft()
            copied.synchronize()
            failed = name if byte[0] else ""
            wait_for -= 1
    if failed:
        error = CudaError(
            f"{failed}: an earlier call was given an index, or another value, for which the function raises an error; its results "
            "mean nothing, and it may have written to its arguments. With DYNAGRAPH_CUDA_ERRORS=now the call itself raises it"
        )
        make_final(error)
        raise error


def _after_fork() -> None:
    """The child can use none of its parent's events."""
    global _lock
    _lock = threading.RLock()
    _waiting.clear()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["note", "raise_found"]
