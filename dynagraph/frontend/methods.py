"""Methods of lists, deques, dicts, sets, strings, iterators and generators, by name.

A change to one of the caller's objects is followed here and, as an effect, done by the program as well.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend import array_writes, cupy_door
from dynagraph.frontend import operations as ops
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.calls import CALL_NAMED_METHOD, call
from dynagraph.frontend.exceptions import exception, is_exception, refuse, throw
from dynagraph.frontend.executor import Frame, Generator, Raised
from dynagraph.frontend.iterators import Flat, held_items, held_iterator, items_of, iterate, listed, says_itself
from dynagraph.frontend.numbers import of_floats
from dynagraph.frontend.numpy_door import lookup, method
from dynagraph.frontend.program import VERSION
from dynagraph.frontend.truth import length, truth
from dynagraph.frontend.values import (
    NULL,
    Array,
    Const,
    Dict,
    DictView,
    Function,
    Iterator,
    Masked,
    Method,
    Object,
    Sequence,
    Set,
    Slice,
    Value,
)
from dynagraph.frontend.wrapping import behind, guard_order
from dynagraph.ir.shapes import SymInt, numel

Table = dict[str, Callable[..., Value]]
NOTHING = Const(None)


def call_named_method(frame: Frame, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """``owner.name(*args, **kwargs)`` of a followed value."""
    if isinstance(owner, Array):
        return _of_array(frame, owner, name, args, kwargs)
    if isinstance(owner, Masked):
        door = method(name)
        if door is None or name in array_writes.WRITING_METHODS:
            refuse("DATA_DEPENDENT", f".{name}() of what a mask chooses")
        return frame.ex.call_door(door, [owner, *args], kwargs)
    if isinstance(owner, Const):
        return _of_constant(frame, owner.value, name, args, kwargs)
    if isinstance(owner, Function) and name == "__get__":
        return owner if isinstance(args[0], Const) and args[0].value is None else Method(owner, args[0])
    found = table_of(owner).get(name)
    if found is None:
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of a {getattr(owner, 'kind', type(owner)).__name__.lower()}")
    return _with_arguments(name, found, frame, owner, *args, **kwargs)


def _of_array(frame: Frame, owner: Array, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if frame.ex.library is not NUMPY and not owner.is_scalar:
        args, kwargs = cupy_door.arguments(f"cupy.ndarray.{name}", cupy_door.METHODS.get(name, ""), args, kwargs)
        if name not in cupy_door.METHODS:
            refuse("UNSUPPORTED_FUNCTION", f".{name}() of an array of CuPy's")
    writes = array_writes.WRITING_METHODS.get(name)
    if writes is not None and not owner.is_scalar:
        _with_arguments(name, writes, frame.ex, owner, *args, **kwargs)
        return NOTHING
    door = method(name)
    assert door is not None
    return frame.ex.call_door(door, [owner, *args], kwargs)


def _with_arguments(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function gives; arguments that it does not take are the user's mistake."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if "positional argument" in str(error) or "keyword argument" in str(error):
            refuse("WOULD_RAISE", f".{name}(): {error}")
        raise


CALL_NAMED_METHOD.append(call_named_method)


def has_method(owner: Any, name: str) -> bool:
    return name in table_of(owner)


def table_of(owner: Any) -> Table:
    if isinstance(owner, Generator):
        return GENERATOR
    if isinstance(owner, Flat):
        return FLAT
    if isinstance(owner, Iterator):
        return ITERATOR
    if isinstance(owner, Set):
        return SET if owner.kind is set else FROZENSET
    if isinstance(owner, DictView):
        return VIEW
    if isinstance(owner, Slice):
        return SLICE
    if isinstance(owner, Dict) and owner.kind is types.MappingProxyType:
        return READ_ONLY
    if isinstance(owner, Dict):
        return {**DICT, **ORDERED} if issubclass(owner.kind, collections.OrderedDict) else COUNTER if issubclass(
            owner.kind, collections.Counter
        ) else DICT  # fmt: skip
    if isinstance(owner, Sequence):
        if issubclass(owner.kind, tuple):
            return NAMED_TUPLE if hasattr(owner.kind, "_fields") else TUPLE
        return DEQUE if owner.kind is collections.deque else LIST
    return {}


# -- numbers, strings and other constants ---------------------------------------------------------------------------------------


def _of_constant(frame: Frame, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if isinstance(owner, np.ufunc):
        door = lookup(getattr(owner, name))
        if door is not None:
            return frame.ex.call_door(door, args, kwargs)
        if name == "at" and len(args) == 3 and not kwargs:
            array_writes.combine_at(frame.ex, owner, frame.ex.resolve(args[0]), args[1], args[2])
            return NOTHING
        return refuse("UNSUPPORTED_FUNCTION", f"np.{owner.__name__}.{name}")
    if not isinstance(owner, (str, bytes, int, float, complex, tuple, range, frozenset, SymInt, type(None), type)):
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of {owner!r}")
    if name in ("format", "format_map") and type(owner) is str:
        return ops.texts_of(frame, getattr(owner, name), args, kwargs)
    if name == "join" and args:
        args = [Sequence(list, items_of(frame, args[0]))]
    if isinstance(owner, SymInt):
        owner = int(owner)
    return pure_call(frame, getattr(owner, name), args, kwargs)


def pure_call(frame: Frame, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Value:
    """A function without side effects, on Python values."""
    number = None if kwargs else of_floats(frame.ex, function, args)
    if number is not None:
        return number
    given = [_plain_argument(frame, a) for a in args]
    named = {k: _plain_argument(frame, v) for k, v in kwargs.items()}
    try:
        result = function(*given, **named)
    except Exception as error:
        return throw(error)
    return of_plain(frame, result)


def _plain_argument(frame: Frame, value: Any) -> Any:
    value = frame.ex.resolve(value)
    if isinstance(value, Object) and value.source is None and not is_exception(value):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as an argument")
    if isinstance(value, Iterator):
        return [_plain_argument(frame, v) for v in items_of(frame, value)]
    obj = ops.plain(frame, value)
    if isinstance(obj, SymInt):
        return int(obj)
    if not isinstance(obj, (*ops.PURE, list, dict, set, slice)) and not isinstance(value, Object):
        refuse("UNSUPPORTED_VALUE", f"{obj!r} as an argument")
    return obj


def of_plain(frame: Frame, result: Any) -> Value:
    if isinstance(result, (*ops.PURE, list, set, dict)) or result is NotImplemented:
        return frame.ex.constant(result)
    return refuse("UNSUPPORTED_VALUE", f"a result of type {type(result).__name__}")


# -- lists, tuples, deques ----------------------------------------------------------------------------------------------------


BASES = (list, collections.deque, set, frozenset, tuple, collections.OrderedDict, dict)


def changes(frame: Frame, owner: Any, name: str, *args: Value) -> None:
    """Have the program do to one of the caller's objects what was just followed, by the method of the built-in type."""
    if owner.source is not None:
        base = next(b for b in BASES if issubclass(owner.kind, b))
        frame.ex.writes(owner)
        frame.ex.effect(getattr(base, name), owner, *args)


def _make_room(frame: Frame, owner: Sequence, at: int) -> bool:
    """Drop what a full deque drops at its other end; False where nothing fits at all."""
    if owner.maxlen is not None and length(frame.ex, owner) == owner.maxlen:
        del owner.items[at : at + 1 or None]
    return owner.maxlen != 0


def _append(frame: Frame, owner: Sequence, item: Value) -> Value:
    if _make_room(frame, owner, 0):
        owner.items.append(frame.ex.resolve(item))
        changes(frame, owner, "append", item)
    return NOTHING


def _append_left(frame: Frame, owner: Sequence, item: Value) -> Value:
    length(frame.ex, owner)
    if _make_room(frame, owner, -1):
        owner.items.insert(0, frame.ex.resolve(item))
        changes(frame, owner, "appendleft", item)
    return NOTHING


def _extend(frame: Frame, owner: Sequence, more: Value) -> Value:
    for item in listed(frame, more):
        _append(frame, owner, item)
    return NOTHING


def _insert(frame: Frame, owner: Sequence, at: Value, item: Value) -> Value:
    if length(frame.ex, owner) == owner.maxlen:
        throw(IndexError("deque already at its maximum size"))
    owner.items.insert(_whole(frame, at), frame.ex.resolve(item))
    changes(frame, owner, "insert", at, item)
    return NOTHING


def _whole(frame: Frame, value: Value) -> Any:
    number = ops.plain(frame, value)
    return int(number) if isinstance(number, SymInt) else number


def _list_pop(frame: Frame, owner: Sequence, position: Any = None) -> Value:
    length(frame.ex, owner)
    at = -1 if position is None else _whole(frame, position)
    try:
        item = frame.ex.resolve(owner.items.pop(at))
    except (IndexError, TypeError) as error:
        throw(IndexError("pop from an empty deque") if owner.kind is collections.deque else error)
    changes(frame, owner, "pop", *([] if position is None else [Const(at)]))
    return item


def _remove(frame: Frame, owner: Sequence, item: Value) -> Value:
    for position, candidate in enumerate(held_items(frame, owner)):
        if ops.same_or_equal(frame, candidate, item):
            del owner.items[position]
            changes(frame, owner, "__delitem__", Const(position))
            return NOTHING
    if owner.kind is collections.deque:
        return pure_call(frame, collections.deque().remove, [item], {})  # whose error names the item
    return throw(ValueError("list.remove(x): x not in list"))


def _clear(frame: Frame, owner: Sequence) -> Value:
    length(frame.ex, owner)
    owner.items.clear()
    changes(frame, owner, "clear")
    return NOTHING


def _reverse(frame: Frame, owner: Sequence) -> Value:
    length(frame.ex, owner)
    owner.items.reverse()
    changes(frame, owner, "reverse")
    return NOTHING


class Compared:
    """A value whose class says itself what is less: it is asked as often, and in the order, that Python's sort asks."""

    def __init__(self, frame: Frame, value: Any):
        self.frame, self.value = frame, value

    def __lt__(self, other: Any) -> bool:
        right = other.value if isinstance(other, Compared) else self.frame.ex.constant(other)
        return truth(self.frame, ops.binary(self.frame, "<", self.value, right))

    def __gt__(self, other: Any) -> bool:  # of a plain object with this one
        return truth(self.frame, ops.binary(self.frame, "<", self.frame.ex.constant(other), self.value))


def sorted_items(frame: Frame, items: list[Any], key: Any, reverse: Any) -> list[Any]:
    plain_key = key is None or (isinstance(key, Const) and key.value is None)
    values = [frame.ex.resolve(item if plain_key else call(frame, key, [item], {})) for item in items]
    keys: list[Any] = [Compared(frame, v) if isinstance(v, (Object, Array)) else ops.plain(frame, v) for v in values]
    try:
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse is not None and truth(frame, reverse))
    except TypeError as error:
        return throw(error)
    return [items[k] for k in order]


def _sort(frame: Frame, owner: Sequence, *, key: Any = None, reverse: Any = None) -> Value:
    replace_items(frame, owner, sorted_items(frame, held_items(frame, owner), key, reverse))
    return NOTHING


def replace_items(frame: Frame, owner: Sequence, items: list[Any]) -> None:
    """``owner[:] = items``."""
    length(frame.ex, owner)
    owner.items[:] = items
    if owner.kind is collections.deque:
        changes(frame, owner, "clear")
        changes(frame, owner, "extend", Sequence(list, list(items)))
    else:
        changes(frame, owner, "__setitem__", Const(slice(None)), Sequence(list, list(items)))


def _index(frame: Frame, owner: Sequence, item: Any, start: Any = None, stop: Any = None) -> Value:
    items = held_items(frame, owner)
    first = 0 if start is None else slice(_whole(frame, start), None).indices(len(items))[0]
    last = len(items) if stop is None else slice(None, _whole(frame, stop)).indices(len(items))[1]
    for position in range(first, last):
        if ops.same_or_equal(frame, items[position], item):
            return Const(position)
    if issubclass(owner.kind, tuple):
        return throw(ValueError("tuple.index(x): x not in tuple"))
    return throw(ValueError(f"{ops.plain(frame, item)!r} is not in {'list' if owner.kind is list else 'deque'}"))


def _count(frame: Frame, owner: Sequence, item: Any) -> Value:
    return Const(sum(ops.same_or_equal(frame, candidate, item) for candidate in held_items(frame, owner)))


def _index_to_write(frame: Frame, owner: Sequence, key: Value) -> Any:
    try:
        return ops.index_of(frame, frame.ex.resolve(key))
    except TypeError:
        given = ops.type_of(frame, key).__name__
        of_list = f"list indices must be integers or slices, not {given}"
        return throw(TypeError(of_list if issubclass(owner.kind, list) else f"sequence index must be integer, not {given!r}"))


def _set_item(frame: Frame, owner: Sequence, key: Value, value: Value) -> Value:
    index = _index_to_write(frame, owner, key)
    value = frame.ex.resolve(value)
    if isinstance(index, slice) or not ops.sure_of_index(owner, index):
        length(frame.ex, owner)
    try:
        if isinstance(index, slice):
            items = items_of(frame, value)
            owner.items[index] = items
            changes(frame, owner, "__setitem__", Const(index), Sequence(list, list(items)))
        else:
            owner.items[index] = value
            changes(frame, owner, "__setitem__", Const(index), value)
    except (IndexError, ValueError) as error:
        throw(error)
    return NOTHING


def _del_item(frame: Frame, owner: Sequence, key: Value) -> Value:
    index = _index_to_write(frame, owner, key)
    length(frame.ex, owner)
    try:
        del owner.items[index]
    except IndexError as error:
        throw(error)
    changes(frame, owner, "__delitem__", Const(index))
    return NOTHING


def _repeat_in_place(frame: Frame, owner: Sequence, count: Value) -> Value:
    times = max(_whole(frame, count), 0)
    if times * length(frame.ex, owner) > ops.MAX_ITEMS:
        refuse("UNROLL_LIMIT", f"a list of more than {ops.MAX_ITEMS} items")
    replace_items(frame, owner, held_items(frame, owner) * times)
    return owner


def _list_init(frame: Frame, owner: Sequence, items: Any = None) -> Value:
    replace_items(frame, owner, [] if items is None else items_of(frame, items))
    return NOTHING


def _rotate(frame: Frame, owner: Sequence, steps: Any = None) -> Value:
    length(frame.ex, owner)
    turned, by = collections.deque(owner.items), 1 if steps is None else _whole(frame, steps)
    turned.rotate(by)
    owner.items[:] = turned
    changes(frame, owner, "rotate", Const(by))
    return NOTHING


def _pop_left(frame: Frame, owner: Sequence) -> Value:
    if not length(frame.ex, owner):
        throw(IndexError("pop from an empty deque"))
    item = frame.ex.resolve(owner.items.pop(0))
    changes(frame, owner, "popleft")
    return item


def _extend_left(frame: Frame, owner: Sequence, more: Value) -> Value:
    for item in items_of(frame, more):
        _append_left(frame, owner, item)
    return NOTHING


TUPLE: Table = {
    "index": _index,
    "count": _count,
    "__len__": lambda frame, owner: Const(length(frame.ex, owner)),
    "__getitem__": lambda frame, owner, key: ops.item_of(frame, owner, key),
    "__iter__": lambda frame, owner: held_iterator(frame, owner),
    "__contains__": lambda frame, owner, item: Const(any(ops.same_or_equal(frame, i, item) for i in held_items(frame, owner))),
}
LIST: Table = {
    **TUPLE,
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _list_pop,
    "remove": _remove,
    "clear": _clear,
    "reverse": _reverse,
    "sort": _sort,
    "copy": lambda frame, owner: Sequence(list, held_items(frame, owner)),
    "__setitem__": _set_item,
    "__delitem__": _del_item,
    "__iadd__": lambda frame, owner, more: (_extend(frame, owner, more), owner)[1],
    "__imul__": _repeat_in_place,
    "__init__": _list_init,
}
DEQUE: Table = {
    **{name: method for name, method in LIST.items() if name not in ("sort", "__init__")},
    "appendleft": _append_left,
    "popleft": _pop_left,
    "extendleft": _extend_left,
    "rotate": _rotate,
    "copy": lambda frame, owner: Sequence(owner.kind, held_items(frame, owner), maxlen=owner.maxlen),
}


def _replace(frame: Frame, owner: Sequence, **named: Value) -> Value:
    fields = owner.kind._fields  # type: ignore[attr-defined]
    unknown = [n for n in named if n not in fields]
    if unknown:
        refuse("WOULD_RAISE", f"_replace() got unexpected field names: {unknown}")
    return Sequence(owner.kind, [named.get(n, item) for n, item in zip(fields, owner.items)])


NAMED_TUPLE: Table = {
    **TUPLE,
    "_replace": _replace,
    "_asdict": lambda frame, owner: Dict(dict(zip(owner.kind._fields, owner.items))),
}


# -- dicts ------------------------------------------------------------------------------------------------------------------


def _get(frame: Frame, owner: Dict, key: Any, default: Any = NOTHING) -> Value:
    name = ops.key_of(frame, key)
    return frame.ex.resolve(owner.items[name]) if ops.has_key(frame, owner, name) else frame.ex.resolve(default)


def _dict_pop(frame: Frame, owner: Dict, key: Any, default: Any = NULL) -> Value:
    name = ops.key_of(frame, key)
    if ops.has_key(frame, owner, name):
        return ops.drop_key(frame, owner, key)
    return throw(KeyError(name)) if default is NULL else frame.ex.resolve(default)


def _popitem(frame: Frame, owner: Dict, last: Any = Const(True)) -> Value:
    items = ops.entries_of(frame, owner)
    if not items:
        throw(KeyError("popitem(): dictionary is empty" if owner.kind is dict else "dictionary is empty"))
    key = list(items)[-1 if truth(frame, last) else 0]
    return Sequence(tuple, [frame.ex.constant(key), ops.drop_key(frame, owner, frame.ex.constant(key))])


def _setdefault(frame: Frame, owner: Dict, key: Any, default: Any = NOTHING) -> Value:
    name = ops.key_of(frame, key)
    if not ops.has_key(frame, owner, name):
        ops.put_key(frame, owner, key, frame.ex.resolve(default))
    return frame.ex.resolve(owner.items[name])


def pairs_of(frame: Frame, value: Any) -> list[tuple[Value, Value]]:
    """The entries that ``dict(value)`` takes."""
    value = behind(frame.ex, frame.ex.resolve(value))
    if isinstance(value, Dict) and says_itself(value, "__iter__"):
        refuse("UNSUPPORTED_VALUE", f"the entries of a {value.kind.__name__}, which says itself what they are")
    if isinstance(value, Dict):
        return [(frame.ex.constant(k), v) for k, v in ops.entries_of(frame, value).items()]
    pairs = []
    for position, item in enumerate(items_of(frame, value)):
        parts = items_of(frame, item)
        if len(parts) != 2:
            throw(ValueError(f"dictionary update sequence element #{position} has length {len(parts)}; 2 is required"))
        pairs.append((parts[0], parts[1]))
    return pairs


def _update(frame: Frame, owner: Dict, *more: Any, **named: Any) -> Value:
    for other in more:
        for key, value in pairs_of(frame, other):
            ops.put_key(frame, owner, key, value)
    for name, value in named.items():
        ops.put_key(frame, owner, Const(name), value)
    return NOTHING


def _dict_clear(frame: Frame, owner: Dict) -> Value:
    ops.entries_of(frame, owner).clear()
    owner.deletions += 1
    changes(frame, owner, "clear")
    return NOTHING


def _del_key(frame: Frame, owner: Dict, key: Any) -> Value:
    name = ops.key_of(frame, key)
    if not ops.has_key(frame, owner, name):
        throw(KeyError(name))
    ops.drop_key(frame, owner, key)
    return NOTHING


def _move_to_end(frame: Frame, owner: Dict, key: Any, last: Any = Const(True)) -> Value:
    name, items = ops.key_of(frame, key), ops.entries_of(frame, owner)
    if name not in items:
        throw(KeyError(name))
    moved = items.pop(name)
    owner.deletions += 1
    at_end = truth(frame, last)
    if at_end:
        items[name] = moved
    else:
        rest = dict(items)
        items.clear()
        items.update({name: moved, **rest})
    changes(frame, owner, "move_to_end", key, Const(at_end))
    return NOTHING


def _set_key(frame: Frame, owner: Dict, key: Any, value: Any) -> Value:
    ops.put_key(frame, owner, key, value)
    return NOTHING


DICT: Table = {
    "get": _get,
    "keys": lambda frame, owner: DictView("keys", owner),
    "values": lambda frame, owner: DictView("values", owner),
    "items": lambda frame, owner: DictView("items", owner),
    "pop": _dict_pop,
    "popitem": _popitem,
    "setdefault": _setdefault,
    "update": _update,
    "clear": _dict_clear,
    "copy": lambda frame, owner: Dict(dict(ops.entries_of(frame, owner)), kind=ops.kind_of_copy(owner), factory=owner.factory),
    "__len__": lambda frame, owner: Const(length(frame.ex, owner)),
    "__contains__": lambda frame, owner, key: Const(ops.has_key(frame, owner, ops.key_of(frame, key))),
    "__getitem__": lambda frame, owner, key: ops.dict_value(frame, owner, key),
    "__setitem__": _set_key,
    "__delitem__": _del_key,
    "__iter__": lambda frame, owner: held_iterator(frame, owner),
    "__ior__": lambda frame, owner, more: (_update(frame, owner, more), owner)[1],
    "__init__": _update,
}
OF_MAPPINGS = ("get", "keys", "values", "items", "__len__", "__contains__", "__getitem__", "__iter__")
READ_ONLY: Table = {name: DICT[name] for name in OF_MAPPINGS}
ORDERED: Table = {"move_to_end": _move_to_end}


def most_common(frame: Frame, owner: Dict, n: Any = NOTHING) -> Value:
    counts = collections.Counter({k: ops.plain(frame, v) for k, v in ops.entries_of(frame, owner).items()})
    return frame.ex.constant(counts.most_common(ops.plain(frame, n)))


def _count_in(sign: str) -> Callable[..., Value]:
    def change(frame: Frame, owner: Dict, more: Any = None, **named: Any) -> Value:
        given = [] if more is None else [more]
        for other in (*given, Dict(named)):
            other = frame.ex.resolve(other)
            pairs = pairs_of(frame, other) if isinstance(other, Dict) else [(i, Const(1)) for i in items_of(frame, other)]
            for key, count in pairs:
                before = _get(frame, owner, key, Const(0))
                ops.put_key(frame, owner, key, ops.binary(frame, sign, before, count))
        return NOTHING

    return change


COUNTER: Table = {
    **DICT,
    "most_common": most_common,
    "update": _count_in("+"),
    "subtract": _count_in("-"),
    "__init__": _count_in("+"),
    "elements": lambda frame, owner: iterate(
        frame,
        Sequence(list, [frame.ex.constant(k) for k, v in ops.entries_of(frame, owner).items() for _ in range(_whole(frame, v))]),
    ),
    "total": lambda frame, owner: Const(sum(ops.plain(frame, v) for v in ops.entries_of(frame, owner).values())),
}


# -- sets -------------------------------------------------------------------------------------------------------------------


def _elements(frame: Frame, value: Any) -> Any:
    """What an operation on sets takes, as the Python object whose order and kind CPython would see."""
    value = frame.ex.resolve(value)
    if isinstance(value, Set):
        return value.items
    if isinstance(value, Dict) and value.kind is dict:
        return dict.fromkeys(ops.entries_of(frame, value))
    return [ops.key_of(frame, item) for item in items_of(frame, value)]


def bases_of(frame: Frame, *values: Any) -> tuple[Set, ...]:
    """The sets of the caller's that the order of a set made of these depends on."""
    sets = [v for v in map(frame.ex.resolve, values) if isinstance(v, Set)]
    return tuple(dict.fromkeys(b for s in sets for b in (s, *s.bases) if b.source is not None))


def set_of(frame: Frame, kind: type, iterable: Any = None) -> Set:
    """``set(iterable)``."""
    if iterable is None:
        return Set(kind, kind())
    return Set(kind, kind(_elements(frame, iterable)), bases=bases_of(frame, iterable))


def _add(frame: Frame, owner: Set, item: Value) -> Value:
    owner.items.add(ops.key_of(frame, item))
    changes(frame, owner, "add", item)
    return NOTHING


def _discard(must: bool) -> Callable[..., Value]:
    def remove(frame: Frame, owner: Set, item: Value) -> Value:
        name = ops.key_of(frame, item)
        if name in owner.items:
            owner.items.remove(name)
            owner.deletions += 1
            changes(frame, owner, "discard", item)
        elif must:
            throw(KeyError(name))
        return NOTHING

    return remove


def _set_pop(frame: Frame, owner: Set) -> Value:
    if not owner.items:
        throw(KeyError("pop from an empty set"))
    guard_order(frame.ex, owner)
    item = frame.ex.constant(owner.items.pop())
    owner.deletions += 1
    changes(frame, owner, "discard", item)
    return item


def _algebra(name: str) -> Callable[..., Value]:
    def combine(frame: Frame, owner: Set, *others: Value) -> Value:
        result = frame.ex.constant(getattr(owner.items, name)(*(_elements(frame, o) for o in others)))
        if isinstance(result, Set):
            result.bases = bases_of(frame, owner, *others)
        return result

    return combine


def _algebra_in_place(name: str) -> Callable[..., Value]:
    def combine(frame: Frame, owner: Set, *others: Value) -> Value:
        given = [_elements(frame, o) for o in others]
        copies = [frame.ex.constant(type(g)(g)) for g in given]
        getattr(owner.items, name)(*given)
        owner.deletions += name != "update"
        owner.bases = bases_of(frame, owner, *others)
        changes(frame, owner, name, *copies)
        return NOTHING

    return combine


def _operator_in_place(name: str) -> Callable[..., Value]:
    combine = _algebra_in_place(name)

    def change(frame: Frame, owner: Set, other: Value) -> Value:
        if not isinstance(frame.ex.resolve(other), Set):
            return Const(NotImplemented)
        combine(frame, owner, other)
        return owner

    return change


def _set_init(frame: Frame, owner: Set, more: Any = None) -> Value:
    given = None if more is None else set_of(frame, set, more)
    SET["clear"](frame, owner)
    return NOTHING if given is None else SET["update"](frame, owner, given)


FROZENSET: Table = {
    **{
        name: _algebra(name)
        for name in ("union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint")
    },
    "copy": lambda frame, owner: owner,
    "__len__": lambda frame, owner: Const(len(owner.items)),
    "__contains__": lambda frame, owner, item: Const(ops.key_of(frame, item) in owner.items),
    "__iter__": lambda frame, owner: iterate(frame, owner),
}
SET: Table = {
    **FROZENSET,
    "copy": _algebra("copy"),
    "pop": _set_pop,
    "__init__": _set_init,
    "add": _add,
    "discard": _discard(False),
    "remove": _discard(True),
    "clear": _algebra_in_place("clear"),
    "update": _algebra_in_place("update"),
    "intersection_update": _algebra_in_place("intersection_update"),
    "difference_update": _algebra_in_place("difference_update"),
    "symmetric_difference_update": _algebra_in_place("symmetric_difference_update"),
    "__ior__": _operator_in_place("update"),
    "__iand__": _operator_in_place("intersection_update"),
    "__isub__": _operator_in_place("difference_update"),
    "__ixor__": _operator_in_place("symmetric_difference_update"),
}


SLICE: Table = {"indices": lambda frame, owner, n: pure_call(frame, slice.indices, [owner, n], {})}
VIEW: Table = {
    "__len__": lambda frame, owner: Const(length(frame.ex, owner.owner)),
    "__contains__": lambda frame, owner, item: Const(ops.contains(frame, owner, item)),
    "__iter__": lambda frame, owner: iterate(frame, owner),
    "isdisjoint": lambda frame, owner, other: pure_call(frame, ops.view_object(frame, owner).isdisjoint, [other], {}),
}


# -- iterators and generators -------------------------------------------------------------------------------------------------


def next_of(frame: Frame, iterator: Any, default: Any = NULL) -> Value:
    """``next(iterator, default)``."""
    iterator = frame.ex.resolve(iterator)
    if isinstance(iterator, Object):
        return _next_of_object(frame, iterator, default)
    if not isinstance(iterator, Iterator):
        return refuse("ITERATOR", f"next() of a {type(iterator).__name__.lower()}")
    item = iterator.step(frame)
    if item is not NULL:
        return frame.ex.resolve(item)
    return frame.ex.resolve(default) if default is not NULL else stop_iteration(iterator)


def _next_of_object(frame: Frame, iterator: Object, default: Any) -> Value:
    if ops.special(frame, iterator, "__next__") is None or iterator.kind.__module__ in ("builtins", "itertools"):
        return refuse("ITERATOR", f"next() of a {iterator.kind.__name__}")
    try:
        return ops.call_special(frame, iterator, "__next__")
    except Raised as raised:
        if default is not NULL and issubclass(raised.value.kind, StopIteration):
            return frame.ex.resolve(default)
        raise


def stop_iteration(iterator: Iterator) -> Value:
    returned = iterator.returned if isinstance(iterator, Generator) else NOTHING
    none = isinstance(returned, Const) and returned.value is None
    if isinstance(iterator, Generator):
        iterator.returned = NOTHING
    error = exception(StopIteration, *([] if none else [returned]))
    error.fields["value"] = returned
    raise Raised(error)


def _send(frame: Frame, owner: Generator, value: Value) -> Value:
    if not owner.started and owner.frame is not None and not (isinstance(value, Const) and value.value is None):
        throw(TypeError("can't send non-None value to a just-started generator"))
    item = owner.send(value)
    return stop_iteration(owner) if item is NULL else item


def _throw(frame: Frame, owner: Generator, error: Value, *more: Value) -> Value:
    error = frame.ex.resolve(error)
    given = frame.ex.resolve(more[0]) if more else None
    if is_exception(given):
        error = given
    elif isinstance(error, Const) and isinstance(error.value, type) and issubclass(error.value, BaseException):
        error = call(frame, error, list(more[:1]), {})
    if not is_exception(error) or error.source is not None:
        raise Break("GENERATOR", None, "throw() of an exception of the caller's")
    item = owner.throw(error)
    return stop_iteration(owner) if item is NULL else item


def _close(frame: Frame, owner: Generator) -> Value:
    if owner.frame is None or not owner.started:
        owner.frame = None
        return NOTHING
    try:
        item = owner.throw(exception(GeneratorExit))
    except Raised as raised:
        if issubclass(raised.value.kind, (GeneratorExit, StopIteration)):
            return NOTHING
        raise
    if item is not NULL:
        throw(RuntimeError("generator ignored GeneratorExit"))
    return owner.returned if VERSION >= (3, 13) else NOTHING


FLAT: Table = {
    "__next__": next_of,
    "__iter__": lambda frame, owner: owner,
    "copy": lambda frame, owner: owner.item(frame.ex, Const(slice(None))),
    "__len__": lambda frame, owner: frame.ex.from_door(numel(owner.array.node.shape), "value"),
}
ITERATOR: Table = {"__next__": next_of, "__iter__": lambda frame, owner: owner}
GENERATOR: Table = {**ITERATOR, "send": _send, "throw": _throw, "close": _close}

__all__ = ["Slice", "call_named_method", "has_method", "next_of", "of_plain", "pairs_of", "pure_call", "sorted_items"]
