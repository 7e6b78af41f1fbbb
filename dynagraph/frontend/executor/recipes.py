"""Recipes: what the dispatcher does when the graph has run, as data; and the functions that they call to make objects."""

from __future__ import annotations

import collections
import functools
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dynagraph.array_libraries import ArrayLibrary
from dynagraph.frontend.bytecode.assemble import called_from
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.kinds.values import DELETED, UNKNOWN_KEYS, Array, ObjectKey
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import concrete

Recipe = tuple[Any, ...]
Fills = list[tuple[Any, tuple[Any, ...]]]  # functions, and their arguments after the object: what completes it


class CannotBuild(Break):
    """A value that no recipe gives.  `born`: the step at which it was made, before which a capture may end."""

    def __init__(self, detail: str, born: int = 0):
        super().__init__("UNSUPPORTED_RESULT", None, detail)
        self.born = born


class Recipes(ABC):
    """Makes the recipes of values: what the slots of kinds ask it for."""

    ex: CaptureState

    @abstractmethod
    def build(self, value: Any) -> Recipe:
        """The recipe of a value."""

    @abstractmethod
    def array(self, array: Array) -> Recipe:
        """An output, or a view of one."""

    @abstractmethod
    def output(self, node: Node, scalar: bool) -> Recipe:
        """What the program gives of a node."""

    @abstractmethod
    def remade(self, value: Any) -> Recipe:
        """What says itself how it is made."""


def fields(results: Recipes, value: Any) -> Recipe:
    return ("dict", tuple((k, results.build(v)) for k, v in value.fields.items() if v is not DELETED))


def check_keys(keys: Any) -> None:
    for key in keys:
        if isinstance(key, UNKNOWN_KEYS) and not (isinstance(key, ObjectKey) and key.of_value):
            raise CannotBuild("a dict or set with keys whose classes say what they are equal to", key.born)
        if isinstance(key, (tuple, frozenset)):
            check_keys(key)


WHEN_FILLED: list[Any] = []  # effects that are done when all objects that the call makes are filled


# -- what recipes call --------------------------------------------------------------------------------------------------------


class DeviceView:
    """Makes a view of an array that only its library can look at: `steps` are functions of the op table, with attributes."""

    def __init__(self, library: ArrayLibrary, steps: tuple[tuple[Callable[..., Any], dict[str, Any]], ...]):
        self.library, self.steps = library, steps

    def __call__(self, base: Any, values: tuple[int, ...]) -> Any:
        sizes = {f"s{k}": value for k, value in enumerate(values)}
        view = base
        for function, attrs in self.steps:
            view = function(self.library.module, view, **{name: concrete(value, sizes) for name, value in attrs.items()})
        if view.size and not self.library.may_share_memory(view, base):
            raise SystemError(f"dynagraph: a view that {self.library.name} copies")
        return view


def new_exception(cls: type, args: tuple[Any, ...]) -> Any:
    made = cls.__new__(cls, *args)
    made.args = args
    return made


def set_traceback(error: BaseException, places: tuple[tuple[Any, int, dict[str, Any]], ...]) -> None:
    """Raise the error through frames that stand where the captured code raised it, innermost first."""
    function: Any = _raise
    args: tuple[Any, ...] = (error,)
    for code, line, scope in places:
        function, args = types.FunctionType(called_from(code, line), scope), (function, *args)
    try:
        function(*args)
    except BaseException as caught:
        first = last = caught.__traceback__.tb_next  # type: ignore[union-attr]
    for _ in places[1:]:
        last = last.tb_next  # type: ignore[union-attr]
    last.tb_next = None  # type: ignore[union-attr]
    error.__traceback__ = first
    while first is not None:
        first.tb_frame.clear()  # the error is in there
        first = first.tb_next
    del error, function, args, last  # the frames refer to this one


def _raise(error: BaseException) -> None:
    raise error


def set_entry(owner: Any, name: Any, value: Any) -> None:
    owner.__dict__[name] = value


def new_function(code: Any, scope: Any, name: str, defaults: Any, closure: Any, named: Any) -> Any:
    made = types.FunctionType(code, scope, code.co_name, defaults, closure)
    made.__qualname__ = name
    made.__kwdefaults__ = named
    return made


def dict_of(keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(zip(keys, values))


def new_list(cls: type, items: list[Any], fields: dict[str, Any]) -> Any:
    made: Any = list.__new__(cls)
    list.extend(made, items)
    return with_fields(made, fields)


def new_dict(cls: type, items: dict[Any, Any], fields: dict[str, Any]) -> Any:
    base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
    made: Any = base.__new__(cls)
    for key, value in items.items():
        base.__setitem__(made, key, value)
    return with_fields(made, fields)


def with_fields(made: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def new_partial(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return functools.partial(function, *args, **named)


def with_attributes(made: Any, fields: dict[str, Any]) -> Any:
    vars(made).update(fields)
    return made


def call_with(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*args, **named)


def bind(descriptor: Any, owner: Any) -> Any:
    """What reading a method written in C gives: CPython crashes where the class is left out and the method asks for it."""
    return descriptor.__get__(owner, type(owner))
