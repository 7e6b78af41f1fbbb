"""Checks of values on a device: whether the caller gave an index, a target or a probability for which the plain function raises.

A check is one bool, a result of the program, which is computed before anything of the caller's is written.  Its byte is copied to
page-locked memory as soon as it is there, with an event behind it; the host launches what may run in any case, and then waits for
the event alone.  Where the check has failed the program bails out: the plain function runs, and raises.  No kernel needs a check to
stay within its memory: places are moved inside where they are used.

With ``config.cuda_errors = "later"`` nobody waits (see `dynagraph/cuda/late_errors.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import ArrayLibrary
from dynagraph.cuda import late_errors
from dynagraph.errors import BackendError


class CheckFailedError(BackendError):
    """A program bails out, and has changed nothing: the call is the plain function's."""


@dataclass(frozen=True)
class _Copy:
    """Of a check, which is under way to the host: `byte` has it once `copied` is reached."""

    byte: np.ndarray  # which keeps its memory
    copied: Any
    stream: Any


class Checks:
    """The check of one program, in all of its calls.  `later`: what has failed is raised at some later time."""

    def __init__(self, library: ArrayLibrary, name: str, later: bool):
        self.name, self.later = name, later
        self._cuda: Any = library.module.cuda  # type: ignore[attr-defined]
        self._copies: dict[int, _Copy] = {}  # of calls under way: by the address of the check, which is no other call's

    def ask(self, address: int) -> None:
        """Have the current stream send a check to the host, once its kernels have made it: the bool at an address on the device."""
        memory, stream, runtime = self._cuda.alloc_pinned_memory(1), self._cuda.get_current_stream(), self._cuda.runtime
        abandoned = self._copies.pop(address, None)  # of a call that was interrupted
        if abandoned is not None:
            abandoned.stream.synchronize()
        copy = _Copy(np.frombuffer(memory, np.uint8, 1), self._cuda.Event(disable_timing=True), stream)
        self._copies[address] = copy  # first: whatever is raised in between, the memory is not used for something else
        runtime.memcpyAsync(memory.ptr, address, 1, runtime.memcpyDeviceToHost, stream.ptr)
        copy.copied.record(stream)
        if self.later:
            late_errors.note(self.name, *self._taken(address))

    def settle(self, address: int) -> None:
        """Wait until a check is known.  CheckFailedError where it has failed."""
        self._copies[address].copied.synchronize()
        byte, _ = self._taken(address)
        if byte[0]:
            raise CheckFailedError(f"{self.name}: an index, or another value, is one for which the plain function raises")

    def _taken(self, address: int) -> tuple[np.ndarray, Any]:
        copy = self._copies.pop(address)
        return copy.byte, copy.copied


__all__ = ["CheckFailedError", "Checks"]
