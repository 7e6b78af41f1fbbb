"""The table of doors: which Python callable means what.  The families (elementwise.py...) fill it when imported.

A door is found by the identity of the callable: a patched ``np.sum`` is another callable, one that is not in the table.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dynagraph.doors.numpy.builder import Builder, Unsupported
from dynagraph.driver.forks import cached_property
from dynagraph.errors import DTypeError, ShapeError

Implementation = Callable[..., Any]
F = TypeVar("F", bound=Implementation)
DISPATCHER: Any = type(np.where)  # what NumPy makes of its functions that know __array_function__


@dataclass(frozen=True, eq=False)
class Door:
    """What one NumPy callable means.  ``door(b, *args, **kwargs)`` appends nodes and gives nodes or Python values.

    `like`: NumPy's callable, whose signature says what the arguments are called and what they are where they are not given.  The
    implementation names those that it has something for; the others must have their default.  Without it the implementation's own
    signature counts.
    `returns`: "value" (a 0-d result is a NumPy scalar), "array" (it is a 0-d array), "same" (it is of the kind of the
    first operand).
    `takes_out`: the parameter `out` (of ufuncs also the operands after the inputs) takes what the arrays to be written hold
    now, and the result is what they hold then.
    `calls_out`: the compiled program calls NumPy's function.
    `has_effect`: others see that it is called.
    """

    name: str
    implementation: Implementation
    returns: str = "value"
    like: object = None
    takes_out: bool = False
    calls_out: bool = False
    has_effect: bool = False

    @cached_property
    def signature(self) -> inspect.Signature:
        """The builder, and then NumPy's parameters."""
        if self._numpys is None:
            return inspect.signature(self.implementation)
        return self._numpys.replace(parameters=[_BUILDER, *self._numpys.parameters.values()])

    @cached_property
    def _numpys(self) -> inspect.Signature | None:
        try:
            return None if self.like is None else inspect.signature(self.like)  # type: ignore[arg-type]
        except ValueError:  # some functions in C tell nothing
            return None

    @cached_property
    def _named(self) -> Mapping[str, inspect.Parameter]:
        """The implementation's parameters after the builder."""
        return dict(list(inspect.signature(self.implementation).parameters.items())[1:])

    def __call__(self, b: Builder, /, *args: Any, **kwargs: Any) -> Any:  # NumPy has parameters named b
        fallback = _FALLBACKS.get(self.name)
        if fallback is None:
            return self._called(b, args, kwargs)
        try:
            return self._called(b, args, kwargs)
        except Unsupported as refusal:
            if refusal.reason == "NUMPY_ERROR":
                raise
            return fallback(b, *args, **kwargs)

    def _called(self, b: Builder, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            if self._numpys is not None:
                args, kwargs = self._bound(self._numpys, args, kwargs)
            return self.implementation(b, *args, **kwargs)
        except (ShapeError, DTypeError, IndexError, OverflowError, ZeroDivisionError) as error:
            raise Unsupported("NUMPY_ERROR", f"{self.name}: {error}") from error
        except (TypeError, ValueError) as error:  # arguments come as the user gave them: what is none, NumPy will say
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{self.name}: {error}") from error

    def _bound(self, numpys: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments by the names that the implementation has for them; the first one by its position."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, value in numpys.bind(*args, **kwargs).arguments.items():
            place = self._places[name]
            if place == "named":
                named[name] = value
            elif place == "positional":
                positional.append(value)
            elif place == "*":
                positional += value
            elif place == "**":
                named |= value
            else:
                self._check_default(name, value, numpys.parameters[name].default)
        for name, default in self._wanted:
            if self._places[name] == "named":
                named.setdefault(name, default)
            elif len(positional) < list(self._places).index(name) + 1:
                positional.append(default)
        return positional, named

    @cached_property
    def _places(self) -> Mapping[str, str]:
        """How the implementation takes each of NumPy's parameters; "": not at all."""
        assert self._numpys is not None
        takes_all = any(p.kind is p.VAR_KEYWORD for p in self._named.values())
        places: dict[str, str] = {}
        for name, p in self._numpys.parameters.items():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                places[name] = "*" if p.kind is p.VAR_POSITIONAL else "**"
            elif p.kind is p.POSITIONAL_ONLY or not places:
                places[name] = "positional"
            else:
                places[name] = "named" if takes_all or name in self._named else ""
        return places

    @cached_property
    def _wanted(self) -> Sequence[tuple[str, Any]]:
        """NumPy's defaults for what the implementation has none for."""
        assert self._numpys is not None
        required = {name for name, p in self._named.items() if p.default is p.empty}
        return [(n, p.default) for n, p in self._numpys.parameters.items() if n in required and p.default is not p.empty]

    def _check_default(self, name: str, given: Any, default: Any) -> None:
        if name not in _IGNORED and given is not default and not (type(given) is type(default) and given == default):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{self.name}: the argument {name}= is not captured; leave it out")


_BUILDER = inspect.Parameter("builder", inspect.Parameter.POSITIONAL_ONLY)
_IGNORED = frozenset(("subok",))  # subclasses of ndarray never come here
_FUNCTIONS: dict[int, tuple[object, Door]] = {}  # id of the callable -> the callable, kept so that the id stays its own
_FALLBACKS: dict[str, Door] = {}  # by the name of the door: what takes the calls that it declines
_UFUNC_METHODS: dict[tuple[int, str], Door] = {}  # np.add.reduce is a new object each time it is looked up
_METHODS: dict[str, Door] = {}
_OPERATORS: dict[str, Door] = {}
ATTRIBUTES: dict[str, Callable[[Builder, Any], Any]] = {}


def lookup(function: object) -> Door | None:
    """The door of a callable; None where NumPy's meaning of it is not known here.

    >>> lookup(np.sum).name
    'sum'
    """
    if type(function) is types.BuiltinMethodType and type(function.__self__) is np.ufunc:
        return _UFUNC_METHODS.get((id(function.__self__), function.__name__))
    entry = _FUNCTIONS.get(id(function))
    return None if entry is None else entry[1]


def method(name: str) -> Door | None:
    """The door of an ndarray method; its first argument is the array."""
    return _METHODS.get(name)


def operator_door(symbol: str) -> Door:
    """The door of an operator; raises KeyError where there is none."""
    return _OPERATORS[symbol]


def functions() -> list[tuple[object, Door]]:
    """Every callable of the table with its door, ufunc methods apart."""
    return list(_FUNCTIONS.values())


def methods() -> dict[str, Door]:
    return dict(_METHODS)


def operators() -> dict[str, Door]:
    return dict(_OPERATORS)


def register_function(function: object, door: Door) -> None:
    _FUNCTIONS[id(function)] = (function, door)
    behind = getattr(function, "_implementation", None)
    if type(behind) is type(len):  # NumPy's own code calls the C functions behind its public ones
        _FUNCTIONS[id(behind)] = (behind, door)


def register_fallback(function: object, door: Door) -> None:
    """Have `door` take the calls that the function's own door declines."""
    _FALLBACKS[_FUNCTIONS[id(function)][1].name] = door


def register_ufunc_method(ufunc: np.ufunc, name: str, door: Door) -> None:
    _UFUNC_METHODS[id(ufunc), name] = door


def register_method(name: str, door: Door) -> None:
    _METHODS[name] = door


def register_operator(symbol: str, door: Door) -> None:
    _OPERATORS[symbol] = door


def numpy_function(
    *functions: Any, method: str | None = None, returns: str = "value", takes_out: bool = False, like: Any = None
) -> Callable[[F], F]:
    """Register the implementation as the door of NumPy functions, and of the ndarray method that means the same.

    `like` has the signature where NumPy does not tell the right one.
    """

    def register(implementation: F) -> F:
        name = method or ""
        for function in functions:
            name = function.__name__
            register_function(function, Door(name, implementation, returns, like or function, takes_out))
        if method is not None:
            register_method(method, Door(name, implementation, returns, getattr(np.ndarray, method), takes_out))
        return implementation

    return register


def numpy_method(*names: str, returns: str = "value", takes_out: bool = False) -> Callable[[F], F]:
    """Register the decorated implementation as the door of ndarray methods that mean something else than the function."""

    def register(implementation: F) -> F:
        for name in names:
            register_method(name, Door(f"ndarray.{name}", implementation, returns, getattr(np.ndarray, name), takes_out))
        return implementation

    return register


def operator(symbol: str, returns: str = "value") -> Callable[[F], F]:
    """Register the decorated implementation as the door of an operator."""

    def register(implementation: F) -> F:
        register_operator(symbol, Door(symbol, implementation, returns))
        return implementation

    return register


def attribute(*names: str) -> Callable[[F], F]:
    """Register the decorated implementation, ``(b, node) -> value``, as the meaning of ndarray attributes."""

    def register(implementation: F) -> F:
        for name in names:
            ATTRIBUTES[name] = implementation
        return implementation

    return register
