"""The table of doors: which Python callable means what.  The families (elementwise.py...) fill it when imported.

A door is found by the identity of the callable: a patched ``np.sum`` is another callable, one that is not in the table.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from dynagraph.errors import DTypeError, ShapeError
from dynagraph.frontend.numpy_door.builder import Builder, Unsupported

Implementation = Callable[..., Any]
F = TypeVar("F", bound=Implementation)


@dataclass(frozen=True, eq=False)
class Door:
    """What one NumPy callable means.  ``door(b, *args, **kwargs)`` appends nodes and gives nodes or Python values.

    `returns`: "value" (a 0-d result is a NumPy scalar), "array" (it is a 0-d array), "same" (it is of the kind of the
    first operand).  `at_default` names the parameters that the graph has nothing for: they must have their default.
    `takes_out`: the parameter `out` (of ufuncs also the operands behind the inputs) takes what the arrays to be written hold
    now, and the result is what they hold then.
    `calls_out`: the compiled program calls NumPy's function.
    """

    name: str
    implementation: Implementation
    returns: str = "value"
    at_default: frozenset[str] = field(default_factory=frozenset)
    takes_out: bool = False
    calls_out: bool = False

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.implementation)

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
            if self.at_default:
                self._check_defaults(b, args, kwargs)
            return self.implementation(b, *args, **kwargs)
        except (ShapeError, DTypeError, IndexError, OverflowError, ZeroDivisionError) as error:
            raise Unsupported("NUMPY_ERROR", f"{self.name}: {error}") from error
        except (TypeError, ValueError) as error:  # arguments come as the user gave them: what is none, NumPy will say
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{self.name}: {error}") from error

    def _check_defaults(self, b: Builder, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        bound = self.signature.bind(b, *args, **kwargs).arguments
        for name in self.at_default & bound.keys():
            default = self.signature.parameters[name].default
            given = bound[name]
            if given is not default and not (type(given) is type(default) and given == default):
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"{self.name}: the argument {name}= is not captured; leave it out")


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
    *functions: Any, method: str | None = None, returns: str = "value", at_default: Iterable[str] = (), takes_out: bool = False
) -> Callable[[F], F]:
    """Register the implementation as the door of NumPy functions, and of an ndarray method with the same signature."""

    def register(implementation: F) -> F:
        name = method or ""
        for function in functions:
            name = function.__name__
            register_function(function, Door(name, implementation, returns, frozenset(at_default), takes_out))
        if method is not None:
            register_method(method, Door(name, implementation, returns, frozenset(at_default), takes_out))
        return implementation

    return register


def numpy_method(
    *names: str, returns: str = "value", at_default: Iterable[str] = (), takes_out: bool = False
) -> Callable[[F], F]:
    """Register the decorated implementation as the door of ndarray methods whose signature is not the function's."""

    def register(implementation: F) -> F:
        for name in names:
            register_method(name, Door(f"ndarray.{name}", implementation, returns, frozenset(at_default), takes_out))
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
