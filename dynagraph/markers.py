"""Functions that steer the capture: `graph_break`, `allow_in_graph`, `mark_dynamic` and the like."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from dynagraph.array_libraries import is_array

# of this package, yet followed as the user's code is
OPEN_MODULES = frozenset(
    {
        "dynagraph.autodiff.arguments",
        "dynagraph.autodiff.check_gradients",
        "dynagraph.autodiff.custom",
        "dynagraph.autodiff.mapping",
        "dynagraph.autodiff.transforms",
        "dynagraph.exporting.calls",
        "dynagraph.frontend.library.definitions",
        "dynagraph.frontend.library.heapq",
        "dynagraph.pytree",
    }
)
AT_CAPTURE: set[Any] = set()  # functions of this package that captures call: the same result for the same arguments, for ever
FOLLOWED: weakref.WeakSet[Any] = weakref.WeakSet()  # functions of opaque packages that the user allows
F = TypeVar("F", bound=Callable[..., Any])


class _Thread(threading.local):
    compiling = False  # while this thread captures, or loads the compiler


thread = _Thread()


def graph_break() -> None:
    """Break the graph here, and begin another one after it; does nothing outside of compiled functions.

    >>> import numpy as np, dynagraph as dg
    >>> @dg.compile
    ... def f(x):
    ...     y = x + 1
    ...     dg.graph_break()
    ...     return y * 2
    >>> f(np.ones(2)), sum(f.stats.breaks.values())
    (array([4., 4.]), 1)
    """


def allow_in_graph(fn: F) -> F:
    """Have captures follow a library's Python function, which they would otherwise call as it is; gives the function back.

    Captures follow the user's functions by themselves, but not those of packages that lean on compiled code (SciPy,
    scikit-learn...).  Raises TypeError for a function that is not written in Python.

    >>> import dynagraph as dg
    >>> dg.allow_in_graph(len)
    Traceback (most recent call last):
        ...
    TypeError: allow_in_graph: expected a function written in Python, got <built-in function len>
    """
    if not isinstance(fn, FunctionType):
        raise TypeError(f"allow_in_graph: expected a function written in Python, got {fn!r}")
    FOLLOWED.add(fn)
    return fn


def at_capture(fn: F) -> F:
    """Have captures call a function of this package, with arguments that are known, and take what it gives as a constant."""
    AT_CAPTURE.add(fn)
    return fn


def is_compiling() -> bool:
    """Whether this thread is capturing or compiling a function just now; in captured code the constant True."""
    return thread.compiling


_marked: dict[int, tuple[Any, frozenset[int]]] = {}  # id of an array -> a reference to it, its axes


def mark_dynamic(array: Any, axis: Any = None) -> None:
    """Have programs for this array take any size along `axis` (an int, several, or None for all of them).

    >>> import numpy as np, dynagraph as dg
    >>> batch = np.zeros((8, 3))
    >>> dg.mark_dynamic(batch, 0)
    """
    if not isinstance(array, np.ndarray) and not is_array(array):
        raise TypeError(f"mark_dynamic: expected an array, got {type(array).__name__}")
    axes = range(array.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not isinstance(a, int) or not -array.ndim <= a < array.ndim:
            raise ValueError(f"mark_dynamic: axis {a!r} of an array of {array.ndim} dimensions")
    key = id(array)
    known = marked_axes(array)
    reference = weakref.ref(array, lambda _: _marked.pop(key, None))
    _marked[key] = (reference, known | frozenset(a % array.ndim for a in axes))


def marked_axes(array: Any) -> frozenset[int]:
    found = _marked.get(id(array))
    return found[1] if found is not None and found[0]() is array else frozenset()


__all__ = [
    "AT_CAPTURE", "FOLLOWED", "OPEN_MODULES", "allow_in_graph", "at_capture", "graph_break", "is_compiling", "mark_dynamic",
    "marked_axes", "thread",
]  # fmt: skip
