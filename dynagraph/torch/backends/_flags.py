"""Flags of a library, as attributes of a module that a context can set for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def set_flags(module: str, values: dict[str, Any]) -> tuple[Any, ...]:
    """Set attributes of a module, except to None; gives what they were."""
    attributes = vars(sys.modules[module])
    before = tuple(attributes[name] for name in values)
    attributes.update({name: value for name, value in values.items() if value is not None})
    return before


@contextmanager
def flags(module: str, values: dict[str, Any]) -> Iterator[None]:
    """Set attributes of a module within a context."""
    before = set_flags(module, values)
    try:
        yield
    finally:
        vars(sys.modules[module]).update(zip(values, before))


__all__ = ["flags", "set_flags"]
