"""State in native loops: attributes of plain instances, and items of plain dicts at known keys.

What the loop sets is read into variables where it is entered, and written back by each exit before Python goes on.  The variables
are locals of the captured function's frame, named after the object and the attribute, so that their types may change as those of
other locals.  An object has one value in a capture, by however many names it is reached: all of them share its variables.  The
executor, which would see what was there at the entry, is refused the same attributes meanwhile.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction, decode
from dynagraph.frontend.bytecode.liveness import sees_frame
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import SUSPENDS, Executor
from dynagraph.frontend.executor.executor import Frame as CapturedFrame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.executor.wrapping import KEYS
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE
from dynagraph.frontend.guards.sources import Attribute, Key, Returned
from dynagraph.frontend.kinds.lookup import MISSING, Given, guard_type, in_mro, is_data_descriptor, known, lookup, namespace
from dynagraph.frontend.kinds.slots import load_attribute
from dynagraph.frontend.kinds.values import DELETED, Const, Dict, Function, Object
from dynagraph.frontend.loops.builder import FIELD, Builder, handler
from dynagraph.frontend.loops.new_arrays import settled
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, describe, refuse_iterators
from dynagraph.frontend.loops.types import NULL, Known, Value

MOST = 64  # attributes and items of one loop
NUMBERS = (int, float)


@dataclass(frozen=True)
class Place:
    """An attribute of an object, or an item of a dict, by the executor's value."""

    owner: Any
    name: Any
    is_item: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        return id(self.owner), type(self.name), self.name, self.is_item

    @property
    def setter(self) -> Any:
        return dict.__setitem__ if self.is_item else object.__setattr__


class Carried(Exception):
    """Places that the loop sets: it is compiled again, with variables for them."""

    def __init__(self, places: list[Place]):
        self.places = places


@dataclass
class Fields:
    """The places of a loop that are variables, by their names."""

    places: dict[str, Place] = field(default_factory=dict)
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    read: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # the executor's values of what the loop only reads

    alike: dict[int, list[Object]] = field(default_factory=dict)  # by the id of each: those that stand in one list

    def are_alike(self, objects: list[Object]) -> None:
        """What is set of one is likely to be set of the others, too."""
        self.alike.update(dict.fromkeys(map(id, objects), objects))

    def add(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.key not in self.names:
                name = f"{FIELD}{len(self.places)}.{place.name}"
                self.names[place.key] = name
                self.places[name] = place

    def begin(self, b: Builder) -> dict[str, Value]:
        """What they hold where the loop is entered."""
        self.read.clear()
        found = {}
        for name, place in self.places.items():
            held = held_at(b.frames[0].names, place, sets=True)
            assert held is not None
            found[name] = b.outside(held)
            if place.owner.source is not None:
                b.ex.writes(place.owner)  # no other object of its kind is the same one
        return found

    @contextmanager
    def hidden(self, ex: Executor) -> Iterator[None]:
        """The executor does not see what the places hold."""
        before = []
        for place in self.places.values():
            entries = place.owner.items if place.is_item else place.owner.fields
            before.append((entries, place.name, entries.get(place.name)))
            entries[place.name] = Lazy(_Hidden(), None, None)  # type: ignore[arg-type]
        try:
            yield
        finally:
            for entries, name, held in reversed(before):
                if held is None:
                    del entries[name]
                else:
                    entries[name] = held


class _Hidden:
    def wrap(self, obj: Any, source: Any) -> Any:
        refuse("SIDE_EFFECT", "an attribute that the loop sets is read in another way")


# -- what is plain ---------------------------------------------------------------------------------------------------------------


def held_at(names: CapturedFrame, place: Place, sets: bool) -> Any:
    """The executor's value of what stands there, if reading it (and setting it) runs no code; None else."""
    return _held_in_dict(names.ex, place) if place.is_item else _held_in_object(names, place.owner, place.name, sets)


def _held_in_object(names: CapturedFrame, value: Object, name: str, sets: bool) -> Any:
    kind = value.kind
    if value.entries is not None or in_mro(kind, "__getattribute__") is not object.__getattribute__:
        return None
    if sets and in_mro(kind, "__setattr__") is not object.__setattr__:
        return None
    guard_type(names, value)
    found = lookup(names, kind, name)
    in_slot = isinstance(found, types.MemberDescriptorType)
    if in_slot and not found.__objclass__.__flags__ & HEAP_TYPE:
        return None
    if not in_slot and found is not MISSING and (isinstance(found, Given) or is_data_descriptor(found)):
        return None
    if name in value.fields:
        return None if value.fields[name] is DELETED else value.fields[name]
    if value.source is None or isinstance(value.source, Returned):
        return None
    obj = names.ex.objects[value.source]
    if in_slot:
        try:
            held = found.__get__(obj)
        except AttributeError:
            return None
    else:
        held = namespace(obj).get(name, MISSING)
    return None if held is MISSING else Lazy(names.ex, held, Attribute(value.source, name))


def _held_in_dict(ex: Executor, place: Place) -> Any:
    value, key = place.owner, place.name
    if value.kind is not dict or value.is_namespace:
        return None
    if key in value.items:
        return None if value.items[key] is DELETED else value.items[key]
    if value.object is None or value.source is None or isinstance(value.source, Returned):
        return None
    if any(type(k) not in KEYS for k in value.object) or key not in value.object:
        return None
    return Lazy(ex, value.object[key], Key(value.source, key))


# -- attributes ------------------------------------------------------------------------------------------------------------------


def attribute(b: Builder, owner: Any, name: str) -> Value:
    """An attribute of an object of the executor's."""
    if not isinstance(owner, Object):
        return b.native(load_attribute(b.top.names, owner, name))
    place = Place(owner, name)
    found = _variable(b, place)
    if found is not None:
        return found
    read = b.fields.read.get(place.key)
    if read is not None:
        return b.outside(read)
    held = held_at(b.top.names, place, sets=False)
    if type(held) is Lazy and type(held.obj) in NUMBERS:  # as a local's: guarded by its type alone
        b.fields.read[place.key] = held
        return b.outside(held)
    return b.native(load_attribute(b.top.names, owner, name))


def getter_of(b: Builder, owner: Value, name: str) -> Function | None:
    """The function of a property, which may be inlined where the attribute is read."""
    held = owner.type.value if isinstance(owner.type, Known) else None
    if not isinstance(held, Object) or in_mro(held.kind, "__getattribute__") is not object.__getattribute__:
        return None
    found = in_mro(held.kind, name)
    if type(found) is not property or not isinstance(found.fget, types.FunctionType):
        return None
    names = b.top.names
    guard_type(names, held)
    function, code = known(names, found.fget, f"{held.kind.__name__}.{name}"), found.fget.__code__
    if not isinstance(function, Function) or code.co_cellvars or code.co_flags & (SUSPENDS | CO_GENERATOR) or code.co_argcount != 1:
        return None
    return None if sees_frame(decode(code)) or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) else function


def _variable(b: Builder, place: Place) -> Value | None:
    """What a place holds now, if it is a variable."""
    name = b.fields.names.get(place.key)
    if name is None:
        return None
    held = b.frames[0].locals.get(name)
    if held is None:
        raise NotNative("a function that calls itself reads what the loop sets")
    return held


def _set(b: Builder, place: Place, value: Value, others: Iterable[Place]) -> None:
    b.effect()
    if place.key not in b.fields.names:
        names = b.top.names
        if held_at(names, place, sets=True) is None:
            raise NotNative(f"{_said(place)} is set, which is no plain one that is there already")
        raise Carried([place, *(p for p in others if held_at(names, p, sets=True) is not None)])
    value = settled(b, value)
    refuse_iterators([value])
    if value.type == NULL:
        raise NotNative("nothing is set")
    b.frames[0].locals[b.fields.names[place.key]] = value


def _said(place: Place) -> str:
    return f"[{place.name!r}] of a dict" if place.is_item else f".{place.name} of a {place.owner.kind.__name__}"


@handler("STORE_ATTR")
def store_attr(b: Builder, i: Instruction) -> None:
    value, owner = b.popn(2)
    held = owner.type.value if isinstance(owner.type, Known) else None
    if not isinstance(held, Object):
        raise NotNative(f"an attribute of {describe(owner.type)} is set")
    stored = {j.value for f in b.frames for j in f.program.instructions if j.op == "STORE_ATTR"}
    alike = b.fields.alike.get(id(held), [held])
    _set(b, Place(held, i.value), value, (Place(other, name) for other in alike for name in sorted(stored)))


@handler("DELETE_ATTR")
def delete_attr(b: Builder, i: Instruction) -> None:
    raise NotNative("an attribute is deleted")


# -- items of dicts --------------------------------------------------------------------------------------------------------------


def _item(owner: Value, key: Value) -> Place | None:
    assert isinstance(owner.type, Known)
    held = key.type.value if isinstance(key.type, Known) else None
    name = held.value if isinstance(held, Const) else key.number
    if not isinstance(owner.type.value, Dict) or type(name) not in (str, int):
        return None
    return Place(owner.type.value, name, is_item=True)


def dict_item(b: Builder, owner: Value, key: Value) -> Value:
    """``owner[key]`` of a dict of the executor's."""
    place = _item(owner, key)
    if place is None:
        raise NotNative(f"a subscript of {describe(owner.type)}")
    found = _variable(b, place)
    if found is not None:
        return found
    held = b.fields.read.get(place.key)
    if held is None:
        held = held_at(b.top.names, place, sets=False)
        if held is None:
            raise NotNative(f"{_said(place)} is read")
        b.fields.read[place.key] = held
    return b.outside(held)


@means("set_item", Known)
def set_item(b: Builder, owner: Value, key: Value, value: Value) -> None:
    place = _item(owner, key)
    if place is None:
        raise NotNative(f"an item of {describe(owner.type)} is set")
    _set(b, place, value, ())


__all__ = ["Carried", "Fields", "Place", "attribute", "dict_item", "getter_of"]
