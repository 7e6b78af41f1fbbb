"""Strings, tuples, dicts and lists of objects that are known while a loop is compiled, where it reads items of theirs."""

from __future__ import annotations

from dynagraph.frontend.kinds.slots import items_of
from dynagraph.frontend.kinds.values import Dict, Object, Sequence
from dynagraph.frontend.loops import elements, fields, iteration, text
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, compare, describe, truth
from dynagraph.frontend.loops.types import Items, Known, Tuple, Value, integer, tuple_of
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const

LONGEST = 16  # tuple
MOST_OBJECTS = 8  # in a list


def opened(b: Builder, value: Value) -> Value:
    """A tuple of somebody's, or a list of a few objects, as its items, a string as text."""
    held = value.type.value if isinstance(value.type, Known) else None
    objects = _objects_in(b, held)
    if objects:
        return objects
    if isinstance(held, Sequence) and held.kind is tuple and len(held.items) <= LONGEST:
        return tuple_of([b.native(item) for item in held.items])
    if text.held_text(value) is None:
        raise NotNative(f"items of {describe(value.type)}")
    return text.as_text(b, value)


def _objects_in(b: Builder, held: object) -> Value | None:
    """What a short list holds, if that is objects: native code does nothing that changes such a list."""
    if not isinstance(held, Sequence) or held.kind is not list or not 0 < len(held.items) <= MOST_OBJECTS:
        return None
    items = [b.ex.resolve(item) for item in items_of(b.top.names, held)]
    if not all(isinstance(item, Object) for item in items):
        return None
    b.fields.are_alike(items)
    return tuple_of([b.native(item) for item in items])


@means("item", Known)
def item(b: Builder, owner: Value, key: Value) -> Value:
    if isinstance(owner.type, Known) and isinstance(owner.type.value, Dict):
        return fields.dict_item(b, owner, key)
    return elements.item(b, opened(b, owner), key)


@means("iterate", Known)
def iterate(b: Builder, owner: Value) -> Value:
    items = opened(b, owner)
    if isinstance(owner.type, Known) and isinstance(owner.type.value, Sequence) and owner.type.value.kind is list:
        assert isinstance(items.type, Tuple)
        return Value(Items(items.type, given=owner.type), items.parts)
    return iteration.iterate(b, items)


@means("unpack", Known)
def unpack(b: Builder, owner: Value, n: int) -> list[Value]:
    return elements.unpacked(b, opened(b, owner), n)


@means("length", Known)
def length(b: Builder, owner: Value) -> Value:
    held = text.held_text(owner)
    return integer(len(held if held is not None else opened(b, owner).items()))


@means("contains", Known)
def contains(b: Builder, owner: Value, value: Value) -> Expr:
    if text.held_text(owner) is not None:
        return text.contains(b, owner, value)  # type: ignore[no-any-return]
    found: Expr = const(False, dtypes.bool_)
    for other in opened(b, owner).items():
        found = call("or", found, truth(b, compare(b, "==", value, other)))
    return found
