"""Methods of followed values by name; those of sequences and mappings.

A change to one of the caller's objects is followed here and, as an effect, done by the program as well.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

from dynagraph.array_libraries import NUMPY
from dynagraph.doors import cupy as cupy_door
from dynagraph.doors.numpy import method
from dynagraph.doors.numpy.indexing import slice_indices
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import behind
from dynagraph.frontend.kinds import array_writes, host_arrays
from dynagraph.frontend.kinds.constants import NOTHING, method_of_constant, pure_call
from dynagraph.frontend.kinds.containers import held_iterator
from dynagraph.frontend.kinds.iterators import listed
from dynagraph.frontend.kinds.mappings import dict_value, drop_key, entries_of, has_key, kind_of_copy, put_key, view_object
from dynagraph.frontend.kinds.operators_by_name import OF_ARRAYS, operators_of
from dynagraph.frontend.kinds.sequences import MAX_ITEMS, held_items, index_of, item_of, sure_of_index
from dynagraph.frontend.kinds.slots import (
    METHODS,
    Table,
    binary,
    contains,
    has_method,
    items_of,
    iterate,
    key_of,
    length,
    methods_of,
    own_method,
    plain,
    same_or_equal,
    truth,
    type_of,
)
from dynagraph.frontend.kinds.values import (
    NULL,
    Array,
    Const,
    Dict,
    DictView,
    Function,
    HostArray,
    Masked,
    Method,
    Object,
    Sequence,
    Slice,
    Value,
)
from dynagraph.frontend.library.registry import instances, meaning
from dynagraph.ir.shapes import SymInt


def call_named_method(frame: Frame, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """``owner.name(*args, **kwargs)`` of a followed value."""
    if isinstance(owner, Array):
        return _of_array(frame, owner, name, args, kwargs)
    if isinstance(owner, HostArray):
        return host_arrays.call_method(frame, owner, name, args, kwargs)
    if isinstance(owner, Masked):
        door = method(name)
        if door is None or name in array_writes.WRITING_METHODS:
            refuse("DATA_DEPENDENT", f".{name}() of what a mask chooses")
        return frame.ex.call_door(door, [owner, *args], kwargs)
    if isinstance(owner, Const):
        return method_of_constant(frame, owner.value, name, args, kwargs)
    if isinstance(owner, Function) and name == "__get__":
        return owner if isinstance(args[0], Const) and args[0].value is None else Method(owner, args[0])
    found = methods_of(owner).get(name)
    if found is None:
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of a {getattr(owner, 'kind', type(owner)).__name__.lower()}")
    return _with_arguments(name, found, frame, owner, *args, **kwargs)


def _of_array(frame: Frame, owner: Array, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if has_method(owner, name):
        return _with_arguments(name, methods_of(owner)[name], frame, owner, *args, **kwargs)
    if frame.ex.library is not NUMPY and not owner.is_scalar and not frame.is_package:
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


@meaning(instances(Method))
def call_method(frame: Frame, bound: Method, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if isinstance(bound.function, str):
        return call_named_method(frame, bound.owner, bound.function, args, kwargs)
    return call(frame, bound.function, [bound.owner, *args], kwargs)


# -- lists, tuples, deques ----------------------------------------------------------------------------------------------------


BASES = (list, collections.deque, set, frozenset, tuple, collections.OrderedDict, dict)


def changes(frame: Frame, owner: Any, name: str, *args: Value) -> None:
    """Have the program do to one of the caller's objects what was just followed, by the method of the built-in type."""
    if owner.source is not None:
        base = next(b for b in BASES if issubclass(owner.kind, b))
        frame.ex.writes(owner)
        frame.ex.effect(getattr(base, name), owner, *args)


def _as_python_does(name: str, numbers: int = 0, blind: bool = False) -> Callable[..., Value]:
    """A method that changes a list or deque as Python's own does with the items.

    So many arguments at the front are `numbers`.  `blind`: what it does to a list does not depend on how long that is.
    """

    def change(frame: Frame, owner: Sequence, *args: Any) -> Value:
        if owner.maxlen is not None or not blind:
            length(frame.ex, owner)
        given = [Const(_whole(frame, a)) if k < numbers else frame.ex.resolve(a) for k, a in enumerate(args)]
        items = collections.deque(owner.items, owner.maxlen) if owner.kind is collections.deque else owner.items
        going_through = iter(items)
        try:
            result = getattr(items, name)(*(g.value if k < numbers else g for k, g in enumerate(given)))
        except (IndexError, TypeError) as error:
            throw(error)
        if items is not owner.items:
            owner.items[:] = items
            owner.mutations += _is_ended(going_through)
        changes(frame, owner, name, *given)
        return NOTHING if result is None else frame.ex.resolve(result)

    return change


def _is_ended(iterator: Iterator[Any]) -> bool:
    """Whether an iterator over a deque has noticed a change."""
    try:
        next(iterator, None)
    except RuntimeError:
        return True
    return False


_append = _as_python_does("append", blind=True)
_append_left = _as_python_does("appendleft")


def _extend(frame: Frame, owner: Sequence, more: Value) -> Value:
    for item in listed(frame, more):
        _append(frame, owner, item)
    return NOTHING


def _whole(frame: Frame, value: Value) -> Any:
    number = plain(frame, value)
    return int(number) if isinstance(number, SymInt) else number


def _remove(frame: Frame, owner: Sequence, item: Value) -> Value:
    position = _position(frame, item, held_items(frame, owner))
    if position is None:  # the error of a deque names the item
        held: Any
        held, absent = (collections.deque(), item) if owner.kind is collections.deque else ([], NOTHING)
        return pure_call(frame, held.remove, [absent], {})
    return _del_item(frame, owner, Const(position))


def _position(frame: Frame, item: Value, items: list[Value], start: int = 0) -> int | None:
    """Where the first item stands that is the same or equal."""
    return next((k for k, other in enumerate(items, start) if same_or_equal(frame, other, item)), None)


class Compared:
    """A value whose class says itself what is less: it is asked as often, and in the order, that Python's sort asks."""

    def __init__(self, frame: Frame, value: Any):
        self.frame, self.value = frame, value

    def __lt__(self, other: Any) -> bool:
        right = other.value if isinstance(other, Compared) else self.frame.ex.constant(other)
        return truth(self.frame, binary(self.frame, "<", self.value, right))

    def __gt__(self, other: Any) -> bool:  # of a plain object with this one
        return truth(self.frame, binary(self.frame, "<", self.frame.ex.constant(other), self.value))


def sorted_items(frame: Frame, items: list[Any], key: Any, reverse: Any) -> list[Any]:
    plain_key = key is None or (isinstance(key, Const) and key.value is None)
    values = [frame.ex.resolve(item if plain_key else call(frame, key, [item], {})) for item in items]
    keys: list[Any] = [Compared(frame, v) if isinstance(v, (Object, Array)) else plain(frame, v) for v in values]
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
    position = _position(frame, item, items[first:last], first)
    if position is not None:
        return Const(position)
    if issubclass(owner.kind, tuple):
        return throw(ValueError("tuple.index(x): x not in tuple"))
    return throw(ValueError(f"{plain(frame, item)!r} is not in {'list' if owner.kind is list else 'deque'}"))


def _count(frame: Frame, owner: Sequence, item: Any) -> Value:
    return Const(sum(same_or_equal(frame, candidate, item) for candidate in held_items(frame, owner)))


def _index_to_write(frame: Frame, owner: Sequence, key: Value) -> Any:
    try:
        return index_of(frame, frame.ex.resolve(key))
    except TypeError:
        given = type_of(frame, key).__name__
        of_list = f"list indices must be integers or slices, not {given}"
        return throw(TypeError(of_list if issubclass(owner.kind, list) else f"sequence index must be integer, not {given!r}"))


def _set_item(frame: Frame, owner: Sequence, key: Value, value: Any) -> Value:
    index = _index_to_write(frame, owner, key)
    value = frame.ex.resolve(value)
    if isinstance(index, slice) or not sure_of_index(owner, index):
        length(frame.ex, owner)
    if isinstance(index, slice):
        value = Sequence(list, items_of(frame, value))
    try:
        owner.items[index] = list(value.items) if isinstance(index, slice) else value
    except (IndexError, ValueError) as error:
        throw(error)
    changes(frame, owner, "__setitem__", Const(index), value)
    return NOTHING


def _del_item(frame: Frame, owner: Sequence, key: Value) -> Value:
    index = _index_to_write(frame, owner, key)
    length(frame.ex, owner)
    try:
        del owner.items[index]
        owner.mutations += 1
    except IndexError as error:
        throw(error)
    changes(frame, owner, "__delitem__", Const(index))
    return NOTHING


def _repeat_in_place(frame: Frame, owner: Sequence, count: Value) -> Value:
    times = max(_whole(frame, count), 0)
    if times * length(frame.ex, owner) > MAX_ITEMS:
        refuse("UNROLL_LIMIT", f"a list of more than {MAX_ITEMS} items")
    replace_items(frame, owner, held_items(frame, owner) * times)
    return owner


def _list_init(frame: Frame, owner: Sequence, items: Any = None) -> Value:
    replace_items(frame, owner, [] if items is None else items_of(frame, items))
    return NOTHING


def _extend_left(frame: Frame, owner: Sequence, more: Value) -> Value:
    for item in items_of(frame, more):
        _append_left(frame, owner, item)
    return NOTHING


TUPLE: Table = {
    "index": _index,
    "count": _count,
    "__len__": lambda frame, owner: Const(length(frame.ex, owner)),
    "__getitem__": lambda frame, owner, key: item_of(frame, owner, key),
    "__iter__": lambda frame, owner: held_iterator(frame, owner),
    "__contains__": lambda frame, owner, item: Const(_position(frame, item, held_items(frame, owner)) is not None),
}
LIST: Table = {
    **TUPLE,
    "append": _append,
    "extend": _extend,
    "insert": _as_python_does("insert", numbers=1),
    "pop": _as_python_does("pop", numbers=1),
    "remove": _remove,
    "clear": _as_python_does("clear"),
    "reverse": _as_python_does("reverse"),
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
    "popleft": _as_python_does("popleft"),
    "extendleft": _extend_left,
    "rotate": _as_python_does("rotate", numbers=1),
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
    name = key_of(frame, key)
    return frame.ex.resolve(owner.items[name]) if has_key(frame, owner, name) else frame.ex.resolve(default)


def _dict_pop(frame: Frame, owner: Dict, key: Any, default: Any = NULL) -> Value:
    name = key_of(frame, key)
    if has_key(frame, owner, name):
        return drop_key(frame, owner, key)
    return throw(KeyError(name)) if default is NULL else frame.ex.resolve(default)


def _popitem(frame: Frame, owner: Dict, last: Any = Const(True)) -> Value:
    items = entries_of(frame, owner)
    if not items:
        throw(KeyError("popitem(): dictionary is empty" if owner.kind is dict else "dictionary is empty"))
    key = list(items)[-1 if truth(frame, last) else 0]
    return Sequence(tuple, [frame.ex.constant(key), drop_key(frame, owner, frame.ex.constant(key))])


def _setdefault(frame: Frame, owner: Dict, key: Any, default: Any = NOTHING) -> Value:
    name = key_of(frame, key)
    if not has_key(frame, owner, name):
        put_key(frame, owner, key, frame.ex.resolve(default))
    return frame.ex.resolve(owner.items[name])


def pairs_of(frame: Frame, value: Any) -> list[tuple[Value, Value]]:
    """The entries that ``dict(value)`` takes."""
    value = behind(frame.ex, frame.ex.resolve(value))
    if isinstance(value, Dict) and own_method(value, "__iter__"):
        refuse("UNSUPPORTED_VALUE", f"the entries of a {value.kind.__name__}, which says itself what they are")
    if isinstance(value, Dict):
        return [(frame.ex.constant(k), v) for k, v in entries_of(frame, value).items()]
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
            put_key(frame, owner, key, value)
    for name, value in named.items():
        put_key(frame, owner, Const(name), value)
    return NOTHING


def _dict_clear(frame: Frame, owner: Dict) -> Value:
    entries_of(frame, owner).clear()
    owner.deletions += 1
    changes(frame, owner, "clear")
    return NOTHING


def _move_to_end(frame: Frame, owner: Dict, key: Any, last: Any = Const(True)) -> Value:
    name, items = key_of(frame, key), entries_of(frame, owner)
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
    put_key(frame, owner, key, value)
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
    "copy": lambda frame, owner: Dict(dict(entries_of(frame, owner)), kind=kind_of_copy(owner), factory=owner.factory),
    "__len__": lambda frame, owner: Const(length(frame.ex, owner)),
    "__contains__": lambda frame, owner, key: Const(has_key(frame, owner, key_of(frame, key))),
    "__getitem__": lambda frame, owner, key: dict_value(frame, owner, key),
    "__setitem__": _set_key,
    "__delitem__": lambda frame, owner, key: (_dict_pop(frame, owner, key), NOTHING)[1],
    "__iter__": lambda frame, owner: held_iterator(frame, owner),
    "__ior__": lambda frame, owner, more: (_update(frame, owner, more), owner)[1],
    "__init__": _update,
}
OF_MAPPINGS = ("get", "keys", "values", "items", "__len__", "__contains__", "__getitem__", "__iter__")
READ_ONLY: Table = {name: DICT[name] for name in OF_MAPPINGS}
ORDERED: Table = {"move_to_end": _move_to_end}


def _indices(frame: Frame, owner: Slice, n: Any) -> Value:
    """``slice.indices(n)``; of sizes that change it is computed of them."""
    given = [plain(frame, part) for part in (*owner.parts, n)]
    are_sizes = all(type(v) in (int, SymInt, type(None)) for v in given) and any(type(v) is SymInt for v in given)
    if not are_sizes or type(given[2]) is SymInt or given[2] == 0 or given[3] is None or given[3] < 0:
        return pure_call(frame, slice.indices, [owner, n], {})
    return Sequence(tuple, [frame.ex.constant(v) for v in slice_indices(slice(*given[:3]), given[3])])


SLICE: Table = {"indices": _indices}
VIEW: Table = {
    "__len__": lambda frame, owner: Const(length(frame.ex, owner.owner)),
    "__contains__": lambda frame, owner, item: Const(contains(frame, owner, item)),
    "__iter__": lambda frame, owner: iterate(frame, owner),
    "isdisjoint": lambda frame, owner, other: pure_call(frame, view_object(frame, owner).isdisjoint, [other], {}),
}


# -- which values have which --------------------------------------------------------------------------------------------------


def _of_dict(owner: Dict) -> Table:
    if owner.kind is types.MappingProxyType:
        return READ_ONLY
    if issubclass(owner.kind, collections.OrderedDict):
        return {**DICT, **ORDERED}
    return DICT


def _of_sequence(owner: Sequence) -> Table:
    if issubclass(owner.kind, tuple):
        return NAMED_TUPLE if hasattr(owner.kind, "_fields") else TUPLE
    return DEQUE if owner.kind is collections.deque else LIST


_OF_CONTAINERS = (
    (list, LIST), (tuple, TUPLE), (tuple, NAMED_TUPLE), (collections.deque, DEQUE), (dict, DICT),
)  # fmt: skip
for _kind, _table in _OF_CONTAINERS:
    for _name, _method in operators_of(_kind).items():
        _table.setdefault(_name, _method)

METHODS.update(
    {
        Array: lambda owner: {} if owner.is_scalar else OF_ARRAYS,
        DictView: lambda owner: VIEW,
        Slice: lambda owner: SLICE,
        Dict: _of_dict,
        Sequence: _of_sequence,
        Object: lambda owner: READ_ONLY if owner.kind is types.MappingProxyType else {},
    }
)

__all__ = ["call_named_method", "pairs_of", "sorted_items"]
