"""Slots of functions, bound methods, partials, getters and weak references.  Calls: executor/calls.py."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterable
from typing import Any

from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.recipes import (
    Fills,
    Recipe,
    Recipes,
    bind,
    call_with,
    fields,
    new_function,
    new_partial,
    with_attributes,
)
from dynagraph.frontend.guards.guards import NoAttribute
from dynagraph.frontend.guards.sources import Attribute
from dynagraph.frontend.kinds.lookup import lacks
from dynagraph.frontend.kinds.slots import Slots, load_attribute, same, slots
from dynagraph.frontend.kinds.values import (
    DELETED,
    NULL,
    Cell,
    Const,
    Dict,
    Function,
    Getter,
    Method,
    Object,
    Partial,
    Sequence,
    Value,
    WeakReference,
)

SET_CONTENTS = types.CellType.cell_contents.__set__  # type: ignore[attr-defined]


class TrueSlots(Slots):
    def truth(self, frame: Frame, value: Any) -> bool:
        return True

@slots(Cell)
class CellSlots(TrueSlots):
    def parts(self, value: Cell) -> Iterable[Any]:
        return [value.value]

    def is_filled_later(self, value: Cell) -> bool:
        return True

    def empty(self, results: Recipes, value: Cell) -> tuple[Recipe, Fills]:
        return ("make", types.CellType, ()), [] if value.value is NULL else [(SET_CONTENTS, (value.value,))]


@slots(Getter)
class GetterSlots(TrueSlots):
    def parts(self, value: Getter) -> Iterable[Any]:
        return [*value.args, *value.kwargs.values()]

    def recipe(self, results: Recipes, value: Getter) -> Recipe:
        return ("make", call_with, (("const", value.kind), *_built(results, value.args, value.kwargs)))


@slots(WeakReference)
class WeakReferenceSlots(TrueSlots):
    def type_of(self, frame: Frame, value: WeakReference) -> type:
        return weakref.ReferenceType

    def parts(self, value: WeakReference) -> Iterable[Any]:
        return [value.referent]

    def recipe(self, results: Recipes, value: WeakReference) -> Recipe:
        return ("make", weakref.ref, (results.build(value.referent),))


def _built(results: Recipes, args: Iterable[Any], kwargs: dict[str, Any]) -> tuple[Recipe, Recipe]:
    return ("tuple", tuple(results.build(a) for a in args)), ("dict", tuple((k, results.build(v)) for k, v in kwargs.items()))


OF_FUNCTION = ("__name__", "__qualname__", "__doc__", "__module__")
PARTS_OF_FUNCTION = ("__annotations__", "__defaults__", "__kwdefaults__", "__type_params__")


@slots(Function)
class FunctionSlots(TrueSlots):
    def type_of(self, frame: Frame, value: Function) -> type:
        return types.FunctionType

    def to_python(self, frame: Frame, value: Function) -> Any:
        return value.object if value.object is not None else super().to_python(frame, value)

    def attribute(self, frame: Frame, value: Function, name: str) -> Value:
        return _attribute_of_function(frame, value, name)

    def set_attribute(self, frame: Frame, value: Function, name: str, new: Any) -> None:
        if not _may_be_set(name, new):
            super().set_attribute(frame, value, name, new)
        value.fields[name] = new
        if name == "__qualname__":
            value.name = new.value
        if value.source is not None:
            frame.ex.writes(value)
            frame.ex.effect(setattr, value, Const(name), new)

    def parts(self, value: Function) -> Iterable[Any]:
        return [*value.fields.values(), *value.defaults, *value.kwdefaults.values(), *value.closure]

    def is_filled_later(self, value: Function) -> bool:
        return True

    def empty(self, results: Recipes, value: Function) -> tuple[Recipe, Fills]:
        defaults, named = _built(results, value.defaults, value.kwdefaults)
        closure, _ = _built(results, value.closure, {})
        none = ("const", None)
        parts = [defaults if value.defaults else none, closure if value.closure else none, named if value.kwdefaults else none]
        made = ("make", new_function, (("const", value.code), ("const", value.globals), ("const", value.name), *parts))
        return made, [(setattr, (Const(k), v)) for k, v in value.fields.items() if v is not DELETED]


def _attribute_of_function(frame: Frame, value: Function, name: str) -> Value:
    if name in value.fields:
        field = value.fields[name]
        return frame.ex.resolve(field) if field is not DELETED else throw(AttributeError(lacks("function", name)))
    if value.source is not None:
        if name in vars(value.object) or name in (*OF_FUNCTION, *PARTS_OF_FUNCTION, "__wrapped__"):
            if hasattr(value.object, name):
                return frame.ex.wrap(getattr(value.object, name), Attribute(value.source, name))
        elif not hasattr(value.object, name):
            frame.ex.guards.require(NoAttribute(value.source, name))
            throw(AttributeError(lacks("function", name)))
    elif name in PARTS_OF_FUNCTION:
        return _part_of_function(frame, value, name)
    elif name in OF_FUNCTION:
        doc = value.code.co_consts[0] if value.code.co_consts else None
        return Const(
            {
                "__name__": value.code.co_name,
                "__qualname__": value.name,
                "__doc__": doc if isinstance(doc, str) else None,
                "__module__": value.globals.get("__name__"),
            }[name]
        )
    if name == "__code__":
        return Const(value.code)
    if name == "__get__":
        return Method("__get__", value)
    if not hasattr(types.FunctionType, name):
        throw(AttributeError(lacks("function", name)))
    return refuse("ATTRIBUTE", f".{name} of a function")


def _part_of_function(frame: Frame, value: Function, name: str) -> Value:
    """Of a function made by the captured code."""
    if name == "__annotations__":
        made = value.fields[name] = Dict({})
        return made
    if name == "__defaults__":
        return Sequence(tuple, list(value.defaults)) if value.defaults else Const(None)
    if name == "__kwdefaults__" and not value.kwdefaults:
        return Const(None)
    if name == "__type_params__" and hasattr(types.FunctionType, name):
        return Sequence(tuple, [])
    return refuse("ATTRIBUTE", f".{name} of a function")


def _may_be_set(name: str, new: Any) -> bool:
    """Whether a function takes this attribute as it is, and goes on being the same program."""
    if name in ("__name__", "__qualname__"):
        return isinstance(new, Const) and type(new.value) is str
    if name == "__annotations__":
        return isinstance(new, Dict)
    return name in ("__doc__", "__module__") or not hasattr(types.FunctionType, name)


@slots(Method)
class MethodSlots(TrueSlots):
    def type_of(self, frame: Frame, value: Method) -> type:
        return types.MethodType if not isinstance(value.function, str) else super().type_of(frame, value)

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        if not isinstance(right, Method) or symbol not in ("==", "!="):
            return NotImplemented
        return Const(_same_method(frame, left, right) is (symbol == "=="))

    def attribute(self, frame: Frame, value: Method, name: str) -> Value:
        if name == "__self__":
            return value.owner
        if name == "__func__" and not isinstance(value.function, str):
            return value.function
        if isinstance(value.function, Function) and name in OF_FUNCTION:
            return load_attribute(frame, value.function, name)
        return refuse("ATTRIBUTE", f".{name} of a method")

    def parts(self, value: Method) -> Iterable[Any]:
        return [value.owner, value.function]

    def recipe(self, results: Recipes, value: Method) -> Recipe:
        if isinstance(value.function, str):
            return ("make", getattr, (results.build(value.owner), ("const", value.function)))
        if isinstance(value.function, Const) and not isinstance(value.function.value, types.BuiltinFunctionType):
            found = value.function.value  # which a subclass may have redefined
            return ("make", bind, (("const", found), results.build(value.owner)))
        return ("make", types.MethodType, (results.build(value.function), results.build(value.owner)))


def _same_method(frame: Frame, left: Method, right: Method) -> bool:
    """Whether two bound methods are equal: one function of one object."""
    functions = left.function, right.function
    if any(isinstance(f, str) for f in functions):
        return functions[0] == functions[1] and same(frame, left.owner, right.owner)
    return same(frame, *functions) and same(frame, left.owner, right.owner)


@slots(Partial)
class PartialSlots(TrueSlots):
    def attribute(self, frame: Frame, value: Partial, name: str) -> Value:
        if name in ("func", "args", "keywords"):
            if is_partial(value.function):  # which is flattened, unless somebody has asked it for its __dict__
                refuse("ATTRIBUTE", f".{name} of a partial of a partial of the caller's")
            return {"func": value.function, "args": Sequence(tuple, list(value.args)), "keywords": Dict(dict(value.kwargs))}[name]
        if name in value.fields:
            return frame.ex.resolve(value.fields[name])
        if not hasattr(functools.partial, name):
            throw(AttributeError(lacks("functools.partial", name)))
        return refuse("ATTRIBUTE", f".{name} of a partial")

    def set_attribute(self, frame: Frame, value: Partial, name: str, new: Any) -> None:
        if hasattr(functools.partial, name):
            super().set_attribute(frame, value, name, new)
        value.fields[name] = new

    def parts(self, value: Partial) -> Iterable[Any]:
        return [value.function, *value.args, *value.kwargs.values(), *value.fields.values()]

    def recipe(self, results: Recipes, value: Partial) -> Recipe:
        made = ("make", new_partial, (results.build(value.function), *_built(results, value.args, value.kwargs)))
        return ("make", with_attributes, (made, fields(results, value))) if value.fields else made


def is_partial(value: Any) -> bool:
    return isinstance(value, Object) and value.kind is functools.partial
