"""Exceptions that signal handlers raise; Python calls handlers anywhere, also within the compiler."""

from __future__ import annotations

import functools
import signal
import traceback
import types
from typing import Any


def is_of_signal(error: BaseException) -> bool:
    """Whether a signal's handler raised it, which is not a failure of the code that it ran in.

    >>> is_of_signal(ValueError("of nobody"))
    False
    """
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {id(_code_of(h)) for h in handlers if callable(h)}
    return any(id(frame.f_code) in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> Any:
    """The code that a call of it runs first, where that is Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not isinstance(handler, (types.FunctionType, types.MethodType)):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", handler)


__all__ = ["is_of_signal"]
