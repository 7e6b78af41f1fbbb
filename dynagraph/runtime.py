"""Joins the C runtime to the rest, once: the frame hook's watcher, the switches, BLAS, forks."""

from __future__ import annotations

import logging
import types
from typing import Any

import numpy as np
from numpy._core import umath

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.array_libraries import is_array
from dynagraph.backends.blas import find_blas
from dynagraph.frontend.objects import shown_namespace
from dynagraph.frontend.watch import may_be_captured
from dynagraph.signals import is_of_signal

try:
    from dynagraph._core import _frame_hook
except ImportError:  # a CPython version that the hook does not know
    _frame_hook = None  # type: ignore[assignment]


def _apply_switch(name: str) -> None:
    if name == "threads":
        _dispatch.set_threads(config.threads or 0)
    elif name == "pool_limit" and config.pool_limit is not None:
        _dispatch.pool_set_limit(config.pool_limit)
    elif name == "log":
        for topic in config.LOG_TOPICS:
            logging.getLogger(f"dynagraph.{topic}").setLevel(logging.DEBUG if topic in config.log else logging.NOTSET)


def _only_warns() -> bool:
    """Whether NumPy's floating-point error state asks for nothing that generated code does not do."""
    return set(np.geterr().values()) <= {"ignore", "warn"}


def _on_frame(function: types.FunctionType, code: types.CodeType, values: tuple) -> Any:
    """The frame hook's watcher: called as a frame starts in the extent of a broken part."""
    root = getattr(_frame_hook.watched(), "compilation", None)
    if root is None or not may_be_captured(function, code):
        return _frame_hook.SKIP
    return root.on_frame(function, code, values) if any(map(_holds_arrays, values)) else None


def _holds_arrays(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, (np.ndarray, list, tuple, dict)) or is_array(value) or bool(shown_namespace(value))


def start() -> None:
    if _frame_hook is not None:
        _frame_hook.set_watcher(_on_frame)
        _dispatch.set_monitoring_tools(_frame_hook.monitoring_tools())
    _dispatch.set_of_signal(is_of_signal)
    _dispatch.set_errstate(getattr(umath, "_extobj_contextvar", None), _only_warns)
    for name in ("threads", "pool_limit", "log"):
        if getattr(config, name):
            _apply_switch(name)
    config.on_change(_apply_switch)
    blas = find_blas()
    if blas is not None:
        _dispatch.set_blas(blas.functions, blas.ilp64)
