"""One call, watched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dynagraph._core._frame_hook import call_watched, set_watcher


class _Calls(threading.local):
    awaited: tuple[Callable, Callable] | None = None  # the function whose frame is to start, and who is then asked


_calls = _Calls()


def _ask(function: Any, code: Any, values: Any) -> Any:
    if _calls.awaited is None or function is not _calls.awaited[0]:
        return None
    callback, _calls.awaited = _calls.awaited[1], None
    return callback(function, code, values)


def watch_one(function: Callable, callback: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, watched; the callback is asked about the function's first frame, in this thread, only."""
    set_watcher(_ask)  # conftest.py puts the one before back
    outer = _calls.awaited
    _calls.awaited = function, callback
    try:
        return call_watched(lambda: function(*args, **kwargs))
    finally:
        _calls.awaited = outer
