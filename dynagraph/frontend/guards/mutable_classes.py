"""Classes whose attributes captured code sets: guarded by their contents, because each call changes their version."""

from __future__ import annotations

import gc
import weakref
from typing import Any

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes made by Python code, whose attributes may change
_volatile: dict[int, tuple[Any, set[str]]] = {}  # by identity: a metaclass may define its own hash


def make_volatile(cls: type, name: str) -> None:
    """Note that captured code sets ``cls.name``."""
    key = id(cls)
    if key not in _volatile:
        _volatile[key] = (weakref.ref(cls, lambda _: _volatile.pop(key, None)), set())
    _volatile[key][1].add(name)


def volatile_names(cls: type) -> set[str]:
    """The attributes of the class itself that captured code sets."""
    found = _volatile.get(id(cls))
    return found[1] if found is not None else set()


def is_volatile(cls: type) -> bool:
    return bool(_volatile) and any(id(base) in _volatile for base in cls.__mro__)


def class_namespace(cls: type) -> dict[str, Any]:
    """The dict that ``cls.__dict__`` shows."""
    return gc.get_referents(type.__dict__["__dict__"].__get__(cls))[0]
