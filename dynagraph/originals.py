"""The original builtins and functions of NumPy and the standard library, as they were when dynagraph was imported.

The compiler calls them, and its tables say what they mean, by identity.  It is loaded later, when a program may have replaced some:
its tables are made with the originals in place.  Where a builtin is replaced (``builtins.abs = ...``) nothing is compiled until the
original is back, as the compiler would call the replacement.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.fft
import numpy.random  # noqa: F401  (with NumPy's other modules, below)

# of the console, of imports and of interactive sessions: the compiler leans on none of them
LEFT_TO_PROGRAMS = {
    "_", "print", "input", "open", "help", "exit", "quit", "copyright", "credits", "license", "breakpoint",
    "__import__",
}  # fmt: skip
_NOW = builtins.__dict__
_ORIGINALS = {name: value for name, value in _NOW.items() if name not in LEFT_TO_PROGRAMS}


def replaced() -> str | None:
    """The name of a builtin that is not what it was; None where there is none.  Calls no builtin itself."""
    for name, value in _ORIGINALS.items():
        if _NOW.get(name) is not value:
            return name
    return None


# -- what tables name -----------------------------------------------------------------------------------------------------------

# modules of the standard library whose functions have a meaning to captures
_STANDARD = frozenset({
    "abc", "cmath", "collections", "contextlib", "copy", "dataclasses", "functools", "inspect", "itertools", "logging", "math",
    "operator", "os", "random", "re", "sys", "types", "warnings",
})  # fmt: skip


def _namespaces() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The names of each module, and what is callable among them now."""
    found = [vars(module) for name, module in sys.modules.items() if name in _STANDARD or name.split(".")[0] == "numpy"]
    return [(names, {name: value for name, value in names.items() if callable(value)}) for names in found]


_NAMESPACES = _namespaces()


@contextmanager
def in_place() -> Iterator[None]:
    """Put back for a while what programs have replaced in NumPy and the standard library, and then their replacements again."""
    changed = [
        (names, name, value, names[name])
        for names, then in _NAMESPACES
        for name, value in then.items()
        if name in names and names[name] is not value
    ]
    for names, name, value, _ in changed:
        names[name] = value
    try:
        yield
    finally:
        for names, name, _, replacement in changed:
            names[name] = replacement


__all__ = ["LEFT_TO_PROGRAMS", "in_place", "replaced"]
