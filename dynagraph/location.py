"""A place in the user's program."""

from __future__ import annotations

import sys
import types
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Location:
    """Where in the user's program a node comes from."""

    filename: str
    line: int

    def __str__(self) -> str:
        return f"{self.filename.rsplit('/', 1)[-1]}:{self.line}"


def is_ours(frame: types.FrameType) -> bool:
    """Whether a frame runs code of dynagraph's."""
    return _package_of(frame) == "dynagraph"


def _package_of(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def users_line() -> Location | None:
    """Where the user's code is: the innermost frame that is neither of this package nor of NumPy."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (is_ours(frame) or _package_of(frame) == "numpy"):
        frame = frame.f_back
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def warn_at(frame: types.FrameType | None, message: Any, category: type[Warning], source: Any = None) -> None:
    """Warn of the line that a frame runs; None: there is none."""
    scope = vars(sys) if frame is None else frame.f_globals
    file, line = ("sys", 1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    registry = scope.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, scope.get("__name__", "<string>"), registry, None, source)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn of the user's line that called dynagraph."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    warn_at(frame, message, category)


__all__ = ["Location", "is_ours", "users_line", "warn_at", "warn_caller"]
