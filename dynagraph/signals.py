"""Exceptions that signals' handlers raise: Python calls handlers anywhere, within the compiler too."""

from __future__ import annotations

import signal
import traceback


def is_of_signal(error: BaseException) -> bool:
    """Whether a signal's handler raised it, which is no failure of the code that it ran in.

    >>> is_of_signal(ValueError("of nobody"))
    False
    """
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {id(getattr(getattr(h, "__func__", h), "__code__", h)) for h in handlers if callable(h)}
    return any(id(frame.f_code) in codes for frame, _ in traceback.walk_tb(error.__traceback__))


__all__ = ["is_of_signal"]
