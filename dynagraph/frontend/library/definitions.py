"""Functions of the standard library as Python defines them: a capture follows these instead of the function that is called.

Their frames are hidden, as C has none: breaks, tracebacks, warnings and logs tell the caller's line.  What they name is taken as
unchanging, so they need no guards.  Built-in functions that are called for every item of a loop (sum, min, max, any, all) and the
methods of containers are no such definitions: followed, they take two to four times as long to capture; and C's methods do not ask
what a subclass redefines.
"""

from __future__ import annotations

import collections
import functools
import logging
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from dynagraph.frontend.executor.calls import bind
from dynagraph.frontend.executor.exceptions import Raised, refuse, said
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.values import Const, Function, Value
from dynagraph.frontend.library.registry import Meaning, meaning

D = TypeVar("D", bound=Callable[..., Any])


def followed(definition: FunctionType) -> Meaning:
    """A meaning: that of a Python function that stands for what is called."""
    defaults = tuple(map(Const, definition.__defaults__ or ()))
    function = Function(definition.__code__, definition.__globals__, definition.__name__, defaults)

    def follow(frame: Frame, /, *args: Any, **kwargs: Any) -> Value:
        try:
            bound = bind(function, list(args), kwargs)
        except Raised as error:  # in the words of a function written in Python
            refuse("WOULD_RAISE", said(error.value))
        return frame.ex.inline(function, bound, frame.depth + 1)

    return follow


def defines(function: Any) -> Callable[[D], D]:
    """Register the definition of a function."""

    def register(definition: D) -> D:
        assert isinstance(definition, FunctionType)
        meaning(function)(followed(definition))
        return definition

    return register


class MISSING:
    """Stands for an argument that is left out."""


@defines(functools.reduce)
def reduce(function: Any, iterable: Any, initial: Any = MISSING, /) -> Any:
    items = iter(iterable)
    value = next(items, MISSING) if initial is MISSING else initial
    if value is MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    for item in items:
        value = function(value, item)
    return value


@defines(operator.countOf)
def count_of(items: Any, wanted: Any, /) -> int:
    count = 0
    for item in items:
        if item is wanted or item == wanted:
            count += 1
    return count


@defines(operator.indexOf)
def index_of(items: Any, wanted: Any, /) -> int:
    for position, item in enumerate(items):
        if item is wanted or item == wanted:
            return position
    raise ValueError("sequence.index(x): x not in sequence")


@defines(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(counts: Any, items: Any, /) -> None:
    for item in items:
        counts[item] = counts.get(item, 0) + 1


@defines(collections.Counter.most_common)
def most_common(self: Any, n: Any = None) -> Any:
    ranked = sorted(self.items(), key=lambda entry: entry[1], reverse=True)
    if n is None or n >= len(ranked):
        return ranked
    return ranked[:n] if n > 0 else []


@defines(logging.Logger.getEffectiveLevel)
def get_effective_level(self: Any) -> Any:
    while self is not None:
        if self.level:
            return self.level
        self = self.parent
    return 0


@defines(logging.Logger.isEnabledFor)
def is_enabled_for(self: Any, level: Any) -> bool:
    """Without the logger's cache."""
    if self.disabled or self.manager._disable >= level:
        return False
    return level >= self.getEffectiveLevel()
