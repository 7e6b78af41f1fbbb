"""Deques in native loops: lists that gain and lose items at both ends.  Those with bounds are left to Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dynagraph.frontend.kinds.values import Sequence
from dynagraph.frontend.loops import calls, lists
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, describe, number
from dynagraph.frontend.loops.types import NOTHING, Deque, List, Tuple, Type, Value, is_number
from dynagraph.ir.expr import call

means("length", Deque)(lists.length)
means("truth", Deque)(lists.is_not_empty)
means("contains", Deque)(lists.contains)


def type_of(value: Any, site: Any) -> Type | None:
    """The type in which native code takes one; None: it does not."""
    return _as_deque(lists.type_of(list(value), site)) if value.maxlen is None else None


def type_of_followed(value: Sequence, site: Any) -> Type | None:
    """The same of one that the executor follows."""
    kind = None if value.maxlen is not None else lists.type_of_followed(replace(value, kind=list), site)
    return _as_deque(kind)


def _as_deque(kind: Type | None) -> Deque | None:
    return Deque(kind.item, kind.site) if isinstance(kind, List) else None


@means("item", Deque)
def item(b: Builder, owner: Value, key: Value) -> Value:
    if not is_number(key.type):
        raise NotNative("a slice of a deque")
    return lists.item(b, owner, key)


@means("set_item", Deque)
def set_item(b: Builder, owner: Value, key: Value, value: Value) -> None:
    lists.set_item(b, owner, key, value)


@calls.meaning(deque)
def deque_(b: Builder, *args: Value) -> Value:
    """``deque(...)`` of a list or a tuple."""
    if len(args) > 1:
        raise NotNative("a deque with a bound")
    given = args[0] if args else None
    if given is None or isinstance(given.type, Tuple):
        made = lists.made_of(b, [] if given is None else given.items())
    elif type(given.type) is List and given.type.item is not None:
        made = lists.copy(b, given)
    elif type(given.type) is List:
        made = _of_unknown(b, given)
    else:
        raise NotNative(f"a deque of {describe(given.type)}")
    return Value(_as_deque(made.type), made.parts)  # type: ignore[arg-type]


def _of_unknown(b: Builder, given: Value) -> Value:
    """Of a list into which nothing was put yet."""
    b.require(call("eq", lists.length(b, given).only, number(0)))
    return lists.made_of(b, [])


# -- methods -------------------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[..., Value]] = {}


def _method(function: Callable[..., Value]) -> Callable[..., Value]:
    METHODS[function.__name__] = function
    return function


@means("method", Deque)
def method(b: Builder, owner: Value, name: str, args: list[Value]) -> Value:
    found = METHODS.get(name)
    if found is None or len(args) != (name in ("append", "appendleft", "extend")):
        raise NotNative(f".{name} of a deque")
    return found(b, owner, *args)


@_method
def append(b: Builder, owner: Value, value: Value) -> Value:
    return lists.append_(b, owner, value)


@_method
def appendleft(b: Builder, owner: Value, value: Value) -> Value:
    b.effect()
    lists.append(b, owner, value, "list_append_left")
    return Value(NOTHING)


@_method
def pop(b: Builder, owner: Value) -> Value:
    return lists.pop(b, owner)


@_method
def popleft(b: Builder, owner: Value) -> Value:
    kind = lists.item_of(owner)
    b.require(lists.is_not_empty(b, owner))
    found = lists.load_items(b, lists.items_of(b, owner.only), number(0), kind)
    b.effect()
    lists.pointer(b, "list_pop_left", owner.only)
    return found


@_method
def clear(b: Builder, owner: Value) -> Value:
    return lists.clear(b, owner)


@_method
def extend(b: Builder, owner: Value, values: Value) -> Value:
    """By a list, or another deque, with items of the same type."""
    if not isinstance(values.type, List) or values.type.item is None or values.type.item != lists.item_of(owner):
        raise NotNative(f"a deque is extended by {describe(values.type)}")
    b.effect()
    lists.pointer(b, "list_extend", owner.only, values.only)
    return Value(NOTHING)
