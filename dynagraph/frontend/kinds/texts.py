"""Texts of values: ``str``, ``repr`` and ``format``, f-strings and ``%``."""

from __future__ import annotations

import types
from collections import deque
from typing import Any

import numpy as np

from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import held_value
from dynagraph.frontend.kinds.lookup import call_special, in_mro
from dynagraph.frontend.kinds.slots import PURE, own_method, plain, slots_of
from dynagraph.frontend.kinds.values import Const, Object
from dynagraph.ir.shapes import SymInt


class Shown:
    """An object of the captured code as `str.format` and its like see it: its texts are those that its class gives."""

    def __init__(self, frame: Frame, value: Any):
        self.frame, self.value = frame, value

    def __str__(self) -> str:
        return text_of(self.frame, self.value, "__str__")

    def __repr__(self) -> str:
        return text_of(self.frame, self.value, "__repr__")

    def __format__(self, specification: str) -> str:
        return text_of(self.frame, self.value, "__format__", specification)


class Hidden:
    """What has no text that is known: a text that needs it is not made."""

    def __init__(self, stop: Break):
        self.stop = stop.with_traceback(None)

    def _refuse(self, *args: Any) -> Any:
        raise self.stop

    __str__ = __repr__ = __format__ = __int__ = __float__ = __index__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        raise self.stop


def shown_if_asked(frame: Frame, value: Any, done: dict[int, Any]) -> Any:
    """As `shown`, for one of several values that a text may name."""
    try:
        return shown(frame, value, done)
    except Break as stop:
        return Hidden(stop)


def shown(frame: Frame, value: Any, done: dict[int, Any] | None = None) -> Any:
    """A Python object that has the texts of a value."""
    done = {} if done is None else done
    value = frame.ex.resolve(value)
    if id(value) in done:
        return done[id(value)]
    if _has_own_text(value):
        return Shown(frame, value)
    made = slots_of(value).shown(frame, value, done)
    return _with_text(_number_known(frame, plain(frame, value))) if made is NotImplemented else made


def _number_known(frame: Frame, value: Any) -> Any:
    """A symbolic number as it is now, guarded; where ever other ones are made text, Python had better do that."""
    if not isinstance(value, SymInt):
        return value
    if frame.ex.profile.is_restless_text((frame.code, frame.ip), value.hint) and frame.ex.may_break:
        refuse("UNSUPPORTED_VALUE", "the text of a number that changes")
    return int(value)


def _has_own_text(value: Any) -> bool:
    if isinstance(value, Object):
        return True
    found = [own_method(value, name) for name in ("__str__", "__repr__", "__format__")]
    return any(f is not None and f.__module__ != "collections" for f in found)


TEXTUAL: tuple[type, ...] = (
    list, dict, set, deque, np.dtype, type(Ellipsis), type({}.keys()), type({}.values()), type({}.items()),
)  # fmt: skip


def _with_text(obj: Any) -> Any:
    """The object itself, if its text is a matter of its value."""
    of_module = isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, types.ModuleType)
    if not isinstance(obj, (*PURE, *TEXTUAL)) and type(obj) is not type and not of_module:
        refuse("UNSUPPORTED_VALUE", "the text of an object")
    return obj


def texts_of(frame: Frame, function: Any, args: Any, kwargs: dict[str, Any]) -> Const:
    """``str.format`` or ``%``: a text made of texts."""
    done: dict[int, Any] = {}
    given = [shown(frame, a, done) for a in args]
    named = {k: shown_if_asked(frame, v, done) for k, v in kwargs.items()}
    try:
        return Const(function(*given, **named))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if any(isinstance(frame.ex.resolve(a), Object) for a in (*args, *kwargs.values())):
            refuse("UNSUPPORTED_VALUE", f"text made of an object ({error})")
        return throw(error)


def formatted(frame: Frame, value: Any, conversion: int, specification: str) -> Const:
    """What an f-string makes of a value."""
    convert = (lambda x: x, str, repr, ascii)[conversion]
    return texts_of(frame, lambda obj: format(convert(obj), specification), [value], {})


def text_of(frame: Frame, value: Any, name: str, specification: str = "") -> str:
    """``str(value)``, ``repr(value)`` or ``format(value)`` of an object whose class says it in Python, or of an exception."""
    found = in_mro(value.kind, name)
    if name == "__format__" and found is object.__format__:
        if specification:
            throw(TypeError(f"unsupported format string passed to {value.kind.__name__}.__format__"))
        return text_of(frame, value, "__str__")
    if name == "__str__" and found is object.__str__:
        return text_of(frame, value, "__repr__")
    if isinstance(found, type(text_of)):
        text = plain(frame, call_special(frame, value, name, *([Const(specification)] if name == "__format__" else [])))
        return text if isinstance(text, str) else throw(TypeError(f"{name} returned non-string (type {type(text).__name__})"))
    if issubclass(value.kind, BaseException) and value.source is None:
        return _text_of_exception(frame, value, name)
    if getattr(value, "value", None) is not None and hasattr(value.kind, "__members__"):
        member = plain(frame, value)
        return format(member, specification) if name == "__format__" else getattr(value.kind, name)(member)
    held = held_value(frame.ex, value) if isinstance(value, Object) else None
    if held is not None and name == "__format__" and not specification:
        return text_of(frame, value, "__str__")
    if held is not None:
        return format(held.value, specification) if name == "__format__" else getattr(type(held.value), name)(held.value)
    return refuse("UNSUPPORTED_VALUE", f"{name} of a {value.kind.__name__}")


def _text_of_exception(frame: Frame, value: Object, name: str) -> str:
    args = plain(frame, value.fields["args"])
    if name == "__repr__":
        return value.kind.__name__ + (repr(args) if len(args) != 1 else f"({args[0]!r})")
    if issubclass(value.kind, KeyError) and len(args) == 1:
        return repr(args[0])
    return "" if not args else str(args[0]) if len(args) == 1 else str(args)
