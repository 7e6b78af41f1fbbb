"""The registry of meanings: what a call means that is not followed into the code of what is called.

A meaning is registered for an object, ``(frame, *args, **kwargs) -> value``; or for a code object (of functions that are made anew)
or for what is called by its type, ``(frame, called, args, kwargs) -> value``: a kind of value, or a class of the caller's objects.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

Meaning = Callable[..., Any]
Ending = Callable[[Any, list[Any]], None]
M = TypeVar("M", bound=Meaning)
E = TypeVar("E", bound=Ending)

_MEANINGS: dict[Any, Meaning] = {}
_PACKAGES: dict[str, Callable[[], None]] = {}  # that register their meanings when a call of theirs is first met
_ENDINGS: list[Ending] = []  # called with the executor and the values that leave it, where a capture ends
_TOP_LEVEL: set[str] = set()  # of these, so that most calls need not ask further


def instances(kind: type) -> Any:
    """The key of what calls of a type's instances mean."""
    return instances, kind


def meaning(*keys: Any) -> Callable[[M], M]:
    """Register what calling these means: objects, code objects, or `instances` of a type."""

    def register(implementation: M) -> M:
        _MEANINGS.update(dict.fromkeys(keys, implementation))
        return implementation

    return register


def package(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that registers the meanings of packages, which are not imported before the user does."""

    def register(function: Callable[[], None]) -> Callable[[], None]:
        _PACKAGES.update(dict.fromkeys(names, function))
        _TOP_LEVEL.update(name.partition(".")[0] for name in names)
        return function

    return register


def ending(function: E) -> E:
    """Register a function that may change what a capture hands on, before it is decided how that is made."""
    _ENDINGS.append(function)
    return function


def at_ending(ex: Any, values: list[Any]) -> None:
    """The capture ends, and hands on these values, beside what its effects have."""
    for function in _ENDINGS:
        function(ex, values)


def meaning_of(key: Any) -> Meaning | None:
    """What calling this means; None where nothing is registered."""
    found = _MEANINGS.get(key)
    if found is None and _PACKAGES and type(key) not in (CodeType, tuple):
        module = getattr(key, "__module__", None) or _class_of_method(key).__module__
        if str(module).partition(".")[0] in _TOP_LEVEL and _load_package(f"{module}."):
            return _MEANINGS.get(key)
    return found


def _class_of_method(method: Any) -> Any:
    """The class of a method written in C."""
    return getattr(method, "__objclass__", None) or type(getattr(method, "__self__", None))


def _load_package(module: str) -> bool:
    """Register the meanings of the package that a module is of; False where there are none that are not registered yet."""
    found = [_PACKAGES.pop(name) for name in list(_PACKAGES) if module.startswith(f"{name}.")]
    for register in found:
        register()
    return bool(found)


__all__ = ["at_ending", "ending", "instances", "meaning", "meaning_of", "package"]
