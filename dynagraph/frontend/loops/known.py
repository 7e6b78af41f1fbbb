"""Strings, tuples, sets, dicts and lists of objects that are known while a loop is compiled, where it reads items of theirs."""

from __future__ import annotations

from dynagraph.frontend.kinds.slots import items_of
from dynagraph.frontend.kinds.values import Dict, Object, Sequence, Set
from dynagraph.frontend.loops import elements, fields, iteration, text
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import F64, NotNative, compare, describe, truth
from dynagraph.frontend.loops.types import Items, Known, Scalar, Tuple, Value, integer, is_python_number, tuple_of
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const

LONGEST = 16  # tuple
MOST_OBJECTS = 8  # in a list
MOST_MEMBERS = 32  # of a set


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
    if isinstance(owner.type, Known) and isinstance(owner.type.value, Set):
        return _is_one_of(b, value, owner.type.value)
    found: Expr = const(False, dtypes.bool_)
    for other in opened(b, owner).items():
        found = call("or", found, truth(b, compare(b, "==", value, other)))
    return found


def _is_one_of(b: Builder, value: Value, owner: Set) -> Expr:
    """Whether a set, which native code does not change, has a value."""
    if len(owner.items) > MOST_MEMBERS:
        raise NotNative(f"`in` a set of more than {MOST_MEMBERS}")
    found: Expr = const(False, dtypes.bool_)
    for held in sorted(owner.items, key=_rank):
        found = call("or", found, _equals(b, value, held))
    return b.temporary(found)


def _rank(held: object) -> str:
    """What members of Python's own types are sorted by: sets have strings in another order in each process."""
    if type(held) is int:
        return hex(held)
    if type(held) is tuple:
        return ",".join(map(_rank, held))
    return repr(held) if type(held) in (float, bool, str, type(None)) else ""


def _equals(b: Builder, value: Value, held: object) -> Expr:
    """Whether a value is the same member of a set as an object: equal, and of the same hash."""
    kind = value.type
    if isinstance(kind, Tuple):
        same = type(held) is tuple and len(held) == len(kind.items)
        found: Expr = const(same, dtypes.bool_)
        for mine, its in zip(value.items(), held if same else ()):  # type: ignore[call-overload]
            found = call("and", found, _equals(b, mine, its))
        return found
    is_text = text.is_string(value)
    if not is_text and not (is_python_number(kind) or (isinstance(kind, Scalar) and (kind.dtype.is_integer or kind.dtype is F64))):
        raise NotNative(f"{describe(kind)} in a set")
    if type(held) not in (int, float, bool, str, tuple, type(None)) or held != held:
        raise NotNative(f"`in` a set of {type(held).__name__}s")
    if isinstance(held, str) is not is_text or isinstance(held, (tuple, type(None))):
        return const(False, dtypes.bool_)
    return truth(b, compare(b, "==", value, b.native(b.ex.constant(held))))
