"""Connect the C runtime to config switches and signals, once; driver/compiler.py connects it to the compiler."""

from __future__ import annotations

import logging

import numpy as np
from numpy._core import umath

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.driver.signals import is_of_signal


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


def start() -> None:
    _dispatch.set_of_signal(is_of_signal)
    _dispatch.set_errstate(getattr(umath, "_extobj_contextvar", None), _only_warns)
    for name in ("threads", "pool_limit", "log"):
        if getattr(config, name):
            _apply_switch(name)
    config.on_change(_apply_switch)
