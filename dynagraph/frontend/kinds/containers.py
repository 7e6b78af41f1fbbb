"""Slots that lists, tuples, dicts, sets and user classes that extend them have in common."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import is_container, is_named_tuple
from dynagraph.frontend.kinds.instances import RANK_OF_OBJECTS, binary_protocol, redefines_operators, truth_of_object
from dynagraph.frontend.kinds.iterators import iterate_object
from dynagraph.frontend.kinds.lookup import (
    MISSING,
    WRAPPERS,
    bound,
    call_special,
    delete_from_instance,
    guard_type,
    in_mro,
    lacks,
    load_from_instance,
    own_attribute,
    special,
    store_in_instance,
)
from dynagraph.frontend.kinds.slots import Slots, has_method, length, own_method, slots_of
from dynagraph.frontend.kinds.values import Const, Iterator, Method, Value
from dynagraph.python_operators import BINARY


class ContainerSlots(Slots):
    def member(self, frame: Frame, value: Any, name: str) -> Value | None:
        """An attribute that only containers of this kind have."""
        return None

    def held_iterator(self, frame: Frame, value: Any) -> Iterator:
        """What the ``__iter__`` of the built-in type gives."""
        raise NotImplementedError

    def as_builtin(self, value: Any) -> Any:
        """The same as a container of the built-in type that its class extends."""
        raise NotImplementedError

    def type_of(self, frame: Frame, value: Any) -> type:
        return value.kind

    def truth(self, frame: Frame, value: Any) -> bool:
        return truth_of_object(frame, value) if _overridden(value.kind) else length(frame.ex, value) > 0

    def rank(self, value: Any, symbol: str, reflected: bool) -> int:
        return RANK_OF_OBJECTS if redefines_operators(value) else self.rank_of_builtin

    rank_of_builtin = 0

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        if redefines_operators(left) or redefines_operators(right):
            return binary_protocol(frame, symbol, left, right)
        return self.operator(frame, symbol, left, right)

    def operator(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        """As `binary`, of the built-in types."""
        return NotImplemented

    written_in_place: tuple[tuple[type, str], ...] = ()  # built-in types, and the symbols of operators that write to them

    def in_place(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        if not any(issubclass(left.kind, kind) and symbol in symbols for kind, symbols in self.written_in_place):
            return NotImplemented
        call(frame, Method(BINARY[symbol].in_place_method, left), [right], {})
        return left

    def unary(self, frame: Frame, name: str, value: Any) -> Value:
        if special(frame, value, f"__{name}__") is None:
            return super().unary(frame, name, value)
        return call_special(frame, value, f"__{name}__")

    def set_item(self, frame: Frame, value: Any, key: Any, item: Any) -> None:
        call(frame, Method("__setitem__", value), [key, item], {})

    def delete_item(self, frame: Frame, value: Any, key: Any) -> None:
        call(frame, Method("__delitem__", value), [key], {})

    def iterate(self, frame: Frame, value: Any) -> Iterator:
        return iterate_object(frame, value) if own_method(value, "__iter__") is not None else self.held_iterator(frame, value)

    def attribute(self, frame: Frame, value: Any, name: str) -> Value:
        kind = value.kind
        if is_container(kind) and not is_named_tuple(kind):
            return load_from_instance(frame, value, name)
        if name == "__class__":
            return Const(kind)
        member = self.member(frame, value, name)
        if member is not None:
            return member
        found = in_mro(kind, name)
        if kind.__module__ != "builtins":
            guard_type(frame, value)
            if found is not MISSING and not isinstance(found, WRAPPERS):
                return bound(frame, value, found, name)
        if name in getattr(value, "fields", ()):
            return own_attribute(frame, value, name, in_slot=False) or throw(AttributeError(lacks(kind.__name__, name)))
        if has_method(value, name):
            return Method(name, value)
        if found is MISSING:
            throw(AttributeError(lacks(kind.__name__, name)))
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of a {kind.__name__}")

    def set_attribute(self, frame: Frame, value: Any, name: str, new: Any) -> None:
        if not is_container(value.kind):
            super().set_attribute(frame, value, name, new)
        store_in_instance(frame, value, name, new)

    def delete_attribute(self, frame: Frame, value: Any, name: str) -> None:
        if not is_container(value.kind):
            super().delete_attribute(frame, value, name)
        delete_from_instance(frame, value, name)


def _overridden(kind: type) -> bool:
    of_python = [vars(k) for k in kind.__mro__ if k.__module__ not in ("builtins", "collections")]
    return any("__bool__" in names or "__len__" in names for names in of_python)


def held_iterator(frame: Frame, value: Any) -> Iterator:
    """What the ``__iter__`` of the built-in type gives."""
    made = slots_of(value).held_iterator(frame, value)  # type: ignore[attr-defined]
    made.born = frame.ex.steps
    return made
