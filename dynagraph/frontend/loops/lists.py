"""Lists in native loops: references to native lists, whose items are all of one type.

A list that is empty where it is made has items of the type that is first put into it: the loop is then compiled again, with that
type known from the beginning.  What does not fit is left to Python, which has the same list object before it and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.kinds.values import Array as ArrayValue
from dynagraph.frontend.kinds.values import Const, Number, Sequence
from dynagraph.frontend.loops import calls, elements, iteration, unions
from dynagraph.frontend.loops.builder import Builder, variable
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import LEAST, MOST, NotNative, as_int, describe, exact, number
from dynagraph.frontend.loops.sites import Settled, Stays
from dynagraph.frontend.loops.types import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NOTHING,
    SMALL,
    Bool,
    Char,
    Complex,
    Deque,
    Float,
    Int,
    List,
    ListItems,
    RangeObject,
    Scalar,
    Slice,
    Tuple,
    Type,
    Value,
    int_value,
    is_number,
    width_of,
)
from dynagraph.frontend.loops.unions import Either
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import from_numpy
from dynagraph.ir.expr import Expr, call, const, var
from dynagraph.ir.regions import POINTER, Changed, Checked, Field, LoadSlot, SetLength, Slot, StoreSlot, slots_of_variable
from dynagraph.ir.shapes import SymInt

I64 = dtypes.int64
DEEPEST = 4  # lists of lists


# -- types ---------------------------------------------------------------------------------------------------------------


def item_kind(kind: Type) -> Type:
    """The type of an item as lists hold it."""
    if isinstance(kind, Int):
        return INT
    if isinstance(kind, Tuple):
        return Tuple(tuple(map(item_kind, kind.items)))
    if isinstance(kind, (Float, Complex, Bool, Scalar, Char, List, Either)) and not isinstance(kind, Deque):
        return kind
    raise NotNative(f"a list of {describe(kind)}")


def settled(kind: Type | None, sites: dict[Any, Type]) -> Type | None:
    """A type with what is known by now of lists that were empty."""
    if isinstance(kind, List):
        item = unions.common(kind.item, sites.get(kind.site)) if kind.item else sites.get(kind.site)
        return type(kind)(settled(item or kind.item, sites), kind.site)
    if isinstance(kind, Tuple):
        items = [settled(i, sites) for i in kind.items]
        return Tuple(tuple(i for i in items if i is not None))
    return kind


def _common(kinds: Iterable[Type | None]) -> Type | None:
    """The type of items; None: they have none, or too many."""
    found: Type | None = None
    for kind in kinds:
        if kind is None:
            return None
        if found is None or (isinstance(found, List) and found.item is None and isinstance(kind, List)):
            found = kind
        elif found != kind and not (isinstance(kind, List) and kind.item is None and isinstance(found, List)):
            found = unions.common(found, kind)
            if found is None:
                return None
    return found


SIMPLE: dict[type, Type] = {float: FLOAT, bool: BOOL, complex: COMPLEX}


def type_of(value: Any, site: Any, depth: int = 0) -> Type | None:
    """The type in which native code takes a Python object as an item; None: it does not."""
    simple = SIMPLE.get(type(value))
    if simple is not None:
        return simple
    if type(value) is int:
        return INT if LEAST <= value <= MOST else None
    if type(value) is str:
        return Char() if len(value) == 1 else None
    if isinstance(value, np.generic):
        dtype = from_numpy(value.dtype)
        return None if dtype is None or dtype is dtypes.bfloat16 else Scalar(dtype)
    if depth >= DEEPEST:
        return None
    if type(value) is tuple:
        items = [type_of(v, site, depth + 1) for v in value]
        return Tuple(tuple(i for i in items if i is not None)) if None not in items else None
    if type(value) is list:
        kinds = set(map(type, value))
        if len(kinds) == 1 and kinds <= SIMPLE.keys():
            item: Type | None = SIMPLE[kinds.pop()]
        elif kinds == {int}:
            item = INT if min(value) >= LEAST and max(value) <= MOST else None
        else:
            item = _common(type_of(v, site, depth + 1) for v in value)
        return None if item is None and value else List(item, (site, depth))
    return None


def type_of_followed(value: Any, site: Any, depth: int = 0) -> Type | None:
    """The same of a value that the executor follows."""
    held = getattr(value, "obj", None)
    if held is not None and not isinstance(value, Sequence):
        return type_of(held, site, depth)
    if isinstance(value, Const):
        return INT if isinstance(value.value, SymInt) else type_of(value.value, site, depth)
    if isinstance(value, Number):
        return COMPLEX if value.node.dtype.is_complex else FLOAT
    if isinstance(value, ArrayValue):
        dtype = value.node.dtype
        return Scalar(dtype) if value.is_scalar and from_numpy(dtype.numpy) is not None and dtype is not dtypes.bfloat16 else None
    if not isinstance(value, Sequence) or value.kind not in (list, tuple) or depth >= DEEPEST:
        return None
    kinds = [type_of_followed(v, site, depth + 1) for v in value.items]
    if value.kind is tuple:
        return Tuple(tuple(k for k in kinds if k is not None)) if None not in kinds else None
    item = _common(kinds)
    return None if item is None and kinds else List(item, (site, depth))


_ROWS = {Int: "int", Float: "float", Complex: "complex", Bool: "bool", Char: "char"}


def parameter_row(kind: Type | None, slot: int, box: Callable[[Type | None], Any]) -> tuple[Any, ...]:
    """How the dispatcher's NativeLoop takes a value of a type that `type_of` gave; `box` gives the box of an item of a list."""
    if kind is None:
        return ("none", slot)
    if isinstance(kind, Scalar):
        return ("scalar", slot, kind.dtype.numpy)
    if isinstance(kind, List):
        name = "deque" if isinstance(kind, Deque) else "list"
        return (name, slot, width_of(kind.item), parameter_row(kind.item, 0, box), box(kind.item))
    if isinstance(kind, Tuple):
        rows = []
        for item in kind.items:
            rows.append(parameter_row(item, slot, box))
            slot += width_of(item)
        return ("tuple", tuple(rows))
    if isinstance(kind, Either):
        return ("either", slot, tuple(parameter_row(k, slot + kind.at(k), box) for k in kind.kinds))
    return (_ROWS[type(kind)], slot)


# -- items ---------------------------------------------------------------------------------------------------------------


def _site(b: Builder) -> tuple[Any, ...]:
    return tuple((id(f.program), f.ip) for f in b.before)


def pointer(b: Builder, function: str, *args: Expr) -> Expr:
    name = b.fresh(POINTER)
    b.emit(Checked(name, function, args, b.way_out()))
    return variable(name, POINTER)


def _slots(kind: Type, items: Expr, index: Expr) -> list[tuple[Slot, Any]]:
    found, at, width = [], 0, width_of(kind)
    for _, part in kind.parts:
        found.append((Slot(items, index, width, at), part))
        at += slots_of_variable(part)
    return found


def items_of(b: Builder, owner: Expr) -> Expr:
    name = b.fresh(POINTER)
    b.emit(Field(name, owner, "items"))
    return variable(name, POINTER)


def load_items(b: Builder, items: Expr, index: Expr, kind: Type) -> Value:
    parts = []
    for slot, part in _slots(kind, items, index):
        name = b.fresh(part)
        b.emit(LoadSlot(name, slot))
        parts.append(variable(name, part))
    return Value(kind, tuple(parts))


def _store(b: Builder, items: Expr, index: Expr, kind: Type, value: Value) -> None:
    for (slot, part), given in zip(_slots(kind, items, index), unions.held(value, kind).parts):
        b.emit(StoreSlot(slot, given, part == POINTER))


def _fitting(b: Builder, owner: Value, value: Value) -> Type:
    """The type of the list's items, which the value is of."""
    kind = owner.type
    assert isinstance(kind, List)
    given = item_kind(value.type)
    if kind.item is None:
        raise Settled(kind.site, given)
    if isinstance(given, List) and given.item is None and isinstance(kind.item, List) and kind.item.item is not None:
        raise Settled(given.site, kind.item.item)
    if isinstance(kind.item, List) and kind.item.item is None and isinstance(given, List) and given.item is not None:
        raise Settled(kind.item.site, given.item)
    wider = unions.common(kind.item, given)
    if wider != kind.item:
        if wider is not None and b.sites.get(kind.site) != wider and b.sites.widens:
            raise Settled(kind.site, wider)
        raise NotNative(f"{describe(value.type)} is put into a list of others")
    return kind.item


def item_of(owner: Value) -> Type:
    kind = owner.type
    assert isinstance(kind, List)
    if kind.item is None:
        raise NotNative("an item of a list of which none is known")
    return kind.item


@means("length", List)
def length(b: Builder, owner: Value) -> Value:
    name = b.fresh(I64)
    b.emit(Field(name, owner.only, "length"))
    return int_value(var(name, I64), 0, SMALL)


@means("truth", List)
def is_not_empty(b: Builder, owner: Value) -> Expr:
    return call("gt", length(b, owner).only, number(0))


def _position(b: Builder, owner: Value, key: Value) -> Expr:
    return elements.position(b, elements.index(b, key), length(b, owner).only).only


@means("item", List)
def item(b: Builder, owner: Value, key: Value) -> Value:
    if isinstance(key.type, Slice):
        return _slice(b, owner, key)
    if not is_number(key.type):
        raise NotNative(f"a subscript by {describe(key.type)}")
    at = _position(b, owner, key)
    return load_items(b, items_of(b, owner.only), at, item_of(owner))


def _slice(b: Builder, owner: Value, key: Value) -> Value:
    start, n, by = elements.slice_of(b, key, length(b, owner).only)
    if by.op != "const" or by.value not in (1, -1):
        raise NotNative("a slice of a list with a step")
    if by.value == -1:
        start = b.temporary(exact("add", exact("sub", start, n), number(1)))
        start = b.temporary(Expr("select", (call("gt", n, number(0)), start, number(0)), I64))
    made = pointer(b, "list_slice", owner.only, start, exact("add", start, n))
    if by.value == -1:
        pointer(b, "list_reverse", made)
    return Value(List(_settling(b, owner), _site(b)), (made,))


def _settling(b: Builder, owner: Value) -> Type:
    kind = owner.type
    assert isinstance(kind, List)
    if kind.item is None:
        raise NotNative("a copy of a list of which no item is known")
    return kind.item


@means("set_item", List)
def set_item(b: Builder, owner: Value, key: Value, value: Value) -> None:
    if not is_number(key.type):
        raise NotNative("a slice of a list is set")
    kind = _fitting(b, owner, value)
    at = _position(b, owner, key)
    b.emit(Changed(owner.only))
    _store(b, items_of(b, owner.only), at, kind, value)


@means("delete_item", List)
def delete_item(b: Builder, owner: Value, key: Value) -> None:
    if not is_number(key.type):
        raise NotNative("a slice of a list is deleted")
    b.effect()
    pointer(b, "list_remove", owner.only, _position(b, owner, key))


def append(b: Builder, owner: Value, value: Value, function: str = "list_append") -> None:
    try:
        kind = _fitting(b, owner, value)
    except NotNative:
        site = owner.type.site  # type: ignore[attr-defined]
        if site in b.may_stay and b.is_in_loop():
            raise Stays(site, True) from None
        raise
    _store(b, pointer(b, function, owner.only), number(0), kind, value)


def made_of(b: Builder, items: list[Value]) -> Value:
    """``[...]``."""
    site = _site(b)
    kinds = {item_kind(i.type) for i in items}
    found = unions.common_of(kinds) if kinds else None
    if kinds and found is None:
        raise NotNative("a list of several types")
    kind = settled(unions.common(found, b.sites.get(site)) if kinds else b.sites.get(site), b.sites)
    owner = pointer(b, "list_new", number(len(items)), number(width_of(kind)))
    if items and kind is not None:
        memory = items_of(b, owner)
        for k, value in enumerate(items):
            _store(b, memory, number(k), kind, value)
    return Value(List(kind, site), (owner,))


# -- instructions --------------------------------------------------------------------------------------------------------


def list_append(b: Builder, i: Instruction) -> None:
    value = b.pop()
    owner = b.top.stack[-i.value]
    if not isinstance(owner.type, List):
        raise NotNative(f"an item is put into {describe(owner.type)}")
    append(b, owner, value)


def list_extend(b: Builder, i: Instruction) -> None:
    values = b.pop()
    owner = b.top.stack[-i.value]
    if not isinstance(owner.type, List) or not isinstance(values.type, Tuple):
        raise NotNative(f"{describe(owner.type)} is extended by {describe(values.type)}")
    for value in values.items():
        _fitting(b, owner, value)
    made = made_of(b, values.items())
    if made.type != owner.type:
        raise NotNative("a list is extended by items of several types")
    pointer(b, "list_extend", owner.only, made.only)  # all of them at once, or none


# -- operators -----------------------------------------------------------------------------------------------------------


@means("binary", List)
def binary(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    if symbol == "*" and isinstance(left.type, (Int, Bool)):
        left, right = right, left
    if symbol == "*" and isinstance(left.type, List) and isinstance(right.type, (Int, Bool)):
        made = pointer(b, "list_repeat", left.only, as_int(right))
        kind = left.type.item
        if kind is None:
            raise NotNative("an empty list is repeated")
        return _widened(b, Value(List(kind, _site(b)), (made,)), unions.common(kind, b.sites.get(_site(b))))
    if symbol == "+" and type(left.type) is List and type(right.type) is List:
        both = None if None in (left.type.item, right.type.item) else unions.common(left.type.item, right.type.item)
        kind = both and unions.common(both, b.sites.get(_site(b)))
        left, right = (_widened(b, v, kind) for v in (left, right))
        return Value(List(kind, _site(b)), (pointer(b, "list_concat", left.only, right.only),))
    raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")


def _widened(b: Builder, owner: Value, kind: Type | None) -> Value:
    """A list, or a new one whose items may be of more types."""
    item = owner.type.item  # type: ignore[attr-defined]
    if item == kind and kind is not None:
        return owner
    if not isinstance(kind, Either) or not is_number(item):
        raise NotNative("lists of several types are joined")
    given = number(width_of(kind)), number(kind.kinds.index(item)), number(kind.at(item))
    return Value(List(kind, _site(b)), (pointer(b, "list_tagged", owner.only, *given),))


@means("in_place", List)
def in_place(b: Builder, symbol: str, owner: Value, value: Value) -> Value:
    if symbol != "+":
        raise NotNative(f"{symbol}= of a list")
    extend(b, owner, value)
    return owner


@means("unpack", List)
def unpack(b: Builder, owner: Value, n: int) -> list[Value]:
    b.require(call("eq", length(b, owner).only, number(n)))
    items, kind = items_of(b, owner.only), item_of(owner)
    return [load_items(b, items, number(k), kind) for k in range(n)]


@calls.meaning(list)
def list_(b: Builder, *args: Value) -> Value:
    """``list(...)`` of a range or a list."""
    if not args:
        return made_of(b, [])
    (value,) = args
    if isinstance(value.type, RangeObject):
        start, left, step = iteration.iterate(b, value).parts
        return Value(List(INT, _site(b)), (pointer(b, "list_range", start, left, step),))
    if not isinstance(value.type, List):
        raise NotNative(f"list of {describe(value.type)}")
    return copy(b, value)


@means("contains", List)
def contains(b: Builder, owner: Value, value: Value) -> Expr:
    return call("ge", _found(b, owner, value), number(0))


def _found(b: Builder, owner: Value, value: Value) -> Expr:
    """Where the first item equal to a number is; -1: nowhere."""
    kind = item_of(owner)
    if isinstance(kind, (Int, Bool)) and isinstance(value.type, (Int, Bool)):
        return b.checked("list_find_int", I64, owner.only, as_int(value))
    if isinstance(kind, Float) and isinstance(value.type, Float):
        b.require(call("eq", value.only, value.only))  # the same NaN would be found by its identity
        return b.checked("list_find_float", I64, owner.only, value.only)
    raise NotNative(f"{describe(value.type)} is looked for in a list")


# -- iterators -----------------------------------------------------------------------------------------------------------


@means("iterate", List)
def iterate(b: Builder, owner: Value) -> Value:
    assert isinstance(owner.type, List)
    return Value(ListItems(owner.type), (owner.only, number(0)))


@means("has_next", ListItems)
def has_next(b: Builder, iterator: Value) -> Expr | None:
    assert isinstance(iterator.type, ListItems)
    if iterator.type.owner.item is None:
        b.require(call("eq", length(b, Value(iterator.type.owner, iterator.parts[:1])).only, number(0)))
        return const(False, dtypes.bool_)
    return call("lt", iterator.parts[1], length(b, Value(iterator.type.owner, iterator.parts[:1])).only)


@means("next", ListItems)
def next_item(b: Builder, iterator: Value) -> tuple[Value, Value]:
    assert isinstance(iterator.type, ListItems)
    owner, at = iterator.parts[0], b.temporary(iterator.parts[1], always=True)
    found = load_items(b, items_of(b, owner), at, item_of(Value(iterator.type.owner, (owner,))))
    return found, Value(iterator.type, (owner, b.temporary(exact("add", at, number(1)))))


# -- methods -------------------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[..., Value]] = {}


def _method(function: Callable[..., Value]) -> Callable[..., Value]:
    METHODS[function.__name__.strip("_")] = function
    return function


@means("method", List)
def method(b: Builder, owner: Value, name: str, args: list[Value]) -> Value:
    found = METHODS.get(name)
    if found is None or len(args) > 2:
        raise NotNative(f".{name} of a list")
    return found(b, owner, *args)


def _takes(args: tuple[Value, ...], n: int, name: str) -> None:
    if len(args) != n:
        raise NotNative(f".{name} of a list with {len(args)} arguments")


@_method
def append_(b: Builder, owner: Value, *args: Value) -> Value:
    b.effect()
    _takes(args, 1, "append")
    append(b, owner, args[0])
    return Value(NOTHING)


@_method
def pop(b: Builder, owner: Value, *args: Value) -> Value:
    kind, n = item_of(owner), length(b, owner).only
    if not args:
        b.require(call("gt", n, number(0)))
        last = b.temporary(exact("sub", n, number(1)))
        found = load_items(b, items_of(b, owner.only), last, kind)
        b.emit(Changed(owner.only))
        b.emit(SetLength(owner.only, last))
        return found
    _takes(args, 1, "pop")
    at = elements.position(b, elements.index(b, args[0]), n).only
    found = load_items(b, items_of(b, owner.only), at, kind)
    b.effect()
    pointer(b, "list_remove", owner.only, at)
    return found


@_method
def insert(b: Builder, owner: Value, *args: Value) -> Value:
    b.effect()
    _takes(args, 2, "insert")
    kind, n, index = _fitting(b, owner, args[1]), length(b, owner).only, elements.index(b, args[0]).only
    at = b.temporary(Expr("select", (call("lt", index, number(0)), call("add", index, n), index), I64))
    at = b.temporary(Expr("select", (call("lt", at, number(0)), number(0), at), I64))
    at = b.temporary(Expr("select", (call("gt", at, n), n, at), I64))
    _store(b, pointer(b, "list_insert", owner.only, at), number(0), kind, args[1])
    return Value(NOTHING)


@_method
def clear(b: Builder, owner: Value, *args: Value) -> Value:
    _takes(args, 0, "clear")
    b.emit(Changed(owner.only))
    b.emit(SetLength(owner.only, number(0)))
    return Value(NOTHING)


@_method
def reverse(b: Builder, owner: Value, *args: Value) -> Value:
    b.effect()
    _takes(args, 0, "reverse")
    pointer(b, "list_reverse", owner.only)
    return Value(NOTHING)


def _sort(b: Builder, owner: Value) -> None:
    item = _settling(b, owner)
    dtype = dtypes.int64 if isinstance(item, Int) else dtypes.float64 if isinstance(item, Float) else getattr(item, "dtype", None)
    if dtype not in (dtypes.int64, dtypes.float64):
        raise NotNative(f"a list of {describe(item)} is sorted")
    b.effect()
    pointer(b, "list_sort_int" if dtype is dtypes.int64 else "list_sort_float", owner.only)


@_method
def sort(b: Builder, owner: Value, *args: Value) -> Value:
    _takes(args, 0, "sort")
    _sort(b, owner)
    return Value(NOTHING)


@_method
def copy(b: Builder, owner: Value, *args: Value) -> Value:
    _takes(args, 0, "copy")
    made = pointer(b, "list_slice", owner.only, number(0), length(b, owner).only)
    return Value(List(_settling(b, owner), _site(b)), (made,))


@_method
def index(b: Builder, owner: Value, *args: Value) -> Value:
    _takes(args, 1, "index")
    at = _found(b, owner, args[0])
    b.require(call("ge", at, number(0)))
    return int_value(at, 0, SMALL)


@_method
def extend(b: Builder, owner: Value, *args: Value) -> Value:
    b.effect()
    _takes(args, 1, "extend")
    if args[0].type != owner.type:
        raise NotNative(f"a list is extended by {describe(args[0].type)}")
    item_of(owner)
    pointer(b, "list_extend", owner.only, args[0].only)
    return Value(NOTHING)
