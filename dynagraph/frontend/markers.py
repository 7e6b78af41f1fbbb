"""Functions that user code calls, or marks functions with, to steer the capture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from dynagraph.frontend.calls import FOLLOWED, SPECIAL_FUNCTIONS
from dynagraph.frontend.exceptions import refuse
from dynagraph.frontend.executor import Frame
from dynagraph.frontend.values import Const, Value

thread = threading.local()  # `compiling`: set while this thread captures
F = TypeVar("F", bound=Callable[..., Any])


def graph_break() -> None:
    """End the graph here and begin another one behind; without meaning outside of compiled functions.

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
    """Have captures follow calls of a Python function of a library that they call as it is otherwise; gives the function back.

    Captures follow the user's functions by themselves, but not those of packages that lean on compiled code (SciPy,
    scikit-learn...).  Raises TypeError for what is not written in Python: there is nothing to follow.

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


def is_compiling() -> bool:
    """Whether this thread is capturing or compiling a function just now; in captured code the constant True."""
    return getattr(thread, "compiling", False)


def _break_here(frame: Frame) -> Value:
    return refuse("GRAPH_BREAK", "")


SPECIAL_FUNCTIONS[graph_break] = _break_here
SPECIAL_FUNCTIONS[is_compiling] = lambda frame: Const(True)

__all__ = ["allow_in_graph", "graph_break", "is_compiling"]
