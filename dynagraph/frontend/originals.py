"""The builtins as they were when dynagraph was imported.

The compiler calls them, and its tables say what they mean, by identity.  Where a program has replaced one (``builtins.abs = ...``)
the compiler would call the replacement, so nothing is compiled until the original is back.
"""

from __future__ import annotations

import builtins

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


__all__ = ["replaced"]
