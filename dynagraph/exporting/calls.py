"""What an export captures: the call, and its result as data.  Captures follow this code (`OPEN_MODULES` in dynagraph/markers.py).

A result is nested tuples: ("array", a), ("tensor", a), ("tuple", (...)), ("none",)...  Arrays in it are copies, so that each is an
output of the program by itself and no view of another.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def traced(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Any, buffers: tuple[Any, ...]) -> Any:
    """The result of the call, and what the buffers hold after it; `buffers`: the dict that each stands in, and its name there."""
    result = described(function(*args, **kwargs), tensor)
    return result, tuple([described(held[name], tensor) for held, name in buffers])


def described(value: Any, tensor: Any) -> Any:
    """A result as data; `tensor`: dynagraph.torch's class, if it is loaded."""
    if tensor is not None and isinstance(value, tensor):
        return ("tensor", np.array(value._array, order="C"))
    kind = type(value)
    if kind is np.ndarray:
        return ("array", np.array(value, order="C"))
    if value is None:
        return ("none",)
    if kind is tuple or kind is list:
        return (kind.__name__, tuple([described(item, tensor) for item in value]))
    if kind is dict:
        return ("dict", tuple(value), tuple([described(item, tensor) for item in value.values()]))
    if issubclass(kind, tuple):
        if hasattr(kind, "_fields"):
            return ("namedtuple", (kind.__name__, tuple(kind._fields)), tuple([described(item, tensor) for item in value]))
        return ("tuple", tuple([described(item, tensor) for item in value]))
    if kind is bool or kind is str:
        return ("constant", value)
    if kind is int or kind is float or kind is complex:
        return ("number", np.array(value))
    if issubclass(kind, np.generic):
        return ("scalar", np.array(value))
    return ("other", kind.__name__)


__all__ = ["described", "traced"]
