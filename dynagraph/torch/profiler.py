"""``torch.profiler``: marks of regions, which do nothing; Python's own profilers see what runs."""

from __future__ import annotations

import contextlib
import enum
from typing import Any

from dynagraph.torch.missing import getattr_of, refused


class ProfilerActivity(enum.Enum):
    """What a profile would be of."""

    CPU = 0
    CUDA = 2
    XPU = 1
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


class record_function(contextlib.ContextDecorator):
    """A region of a name: a context and a decorator, which does nothing."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def kineto_available() -> bool:
    """False: no trace is written."""
    return False


profile = refused("torch.profiler.profile", "no trace of operations is written; Python's profilers see what runs")

__getattr__ = getattr_of(__name__)
__all__ = ["ProfilerActivity", "kineto_available", "profile", "record_function"]
