"""Slots of dicts of all kinds, and of their keys, values and items views."""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from typing import Any

from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import Fills, Recipe, Recipes, check_keys, dict_of, fields, new_dict
from dynagraph.frontend.executor.wrapping import KEYS, complete
from dynagraph.frontend.guards.guards import Length, NoKey
from dynagraph.frontend.guards.sources import Key
from dynagraph.frontend.kinds.containers import ContainerSlots, has_method
from dynagraph.frontend.kinds.iterators import Entries, found_in
from dynagraph.frontend.kinds.lookup import MISSING, call_special, in_mro
from dynagraph.frontend.kinds.sets import of_sets
from dynagraph.frontend.kinds.slots import (
    FEW_KEYS,
    Slots,
    is_none_of,
    items_of,
    key_of,
    known_number,
    length,
    own_method,
    plain,
    same,
    same_or_equal,
    slots,
    type_of,
)
from dynagraph.frontend.kinds.texts import shown, shown_if_asked
from dynagraph.frontend.kinds.values import DELETED, Const, Dict, DictView, Iterator, Method, ObjectKey, Sequence, Set, Value
from dynagraph.python_operators import BINARY, COMPARISONS


@slots(Dict)
class DictSlots(ContainerSlots):
    rank_of_builtin = 1
    written_in_place = ((dict, "|"),)

    def length(self, ex: Executor, value: Dict) -> int:
        if not value.complete and not value.items and value.source is not None and value.object is not None:
            ex.guards.require(Length(value.source, len(value.object)))
            return len(value.object)
        return len(complete(ex, value))

    def member(self, frame: Frame, value: Dict, name: str) -> Value | None:
        if name == "default_factory" and issubclass(value.kind, defaultdict):
            return frame.ex.resolve(value.factory) or Const(None)
        return None

    def to_python(self, frame: Frame, value: Dict) -> Any:
        if value.kind is not dict:
            return super().to_python(frame, value)
        return {k: known_number(plain(frame, v)) for k, v in entries_of(frame, value).items()}

    def shown(self, frame: Frame, value: Dict, done: dict[int, Any]) -> Any:
        if value.kind in (dict, OrderedDict):
            made = done[id(value)] = value.kind()
            made.update({k: shown_if_asked(frame, v, done) for k, v in entries_of(frame, value).items()})
            return made
        if value.kind is Counter:
            return Counter({k: known_number(plain(frame, v)) for k, v in entries_of(frame, value).items()})
        if value.kind is not defaultdict:
            return NotImplemented
        factory = plain(frame, value.factory or Const(None))
        if type(factory) not in (type, type(None)):
            refuse("UNSUPPORTED_VALUE", "the text of a defaultdict with a factory that is not a class")
        return defaultdict(factory, {k: shown(frame, v, done) for k, v in entries_of(frame, value).items()})

    def operator(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        both = isinstance(left, Dict) and isinstance(right, Dict)
        return _operator_of_dicts(frame, symbol, left, right) if both else NotImplemented

    def contains(self, frame: Frame, value: Dict, item: Any) -> bool:
        return not is_none_of_keys(frame, value, item) and has_key(frame, value, key_of(frame, item))

    def item(self, frame: Frame, value: Dict, key: Any) -> Value:
        return dict_value(frame, value, key)

    def held_iterator(self, frame: Frame, value: Dict) -> Iterator:
        return Entries(value, list(complete(frame.ex, value)))

    def as_builtin(self, value: Dict) -> Dict:
        return Dict(value.items)

    def parts(self, value: Dict) -> Iterable[Any]:
        if value.is_namespace:
            return [value.owner]
        return [*value.items.values(), *value.fields.values(), value.factory]

    def recipe(self, results: Recipes, value: Dict) -> Recipe:
        check_keys(value.items)
        entries = tuple((k, results.build(v)) for k, v in value.items.items())
        plain: Recipe = ("dict", entries)
        if any(isinstance(k, ObjectKey) for k in value.items):
            keys = ("tuple", tuple(results.build(results.ex.constant(k)) for k in value.items))
            plain = ("make", dict_of, (keys, ("tuple", tuple(built for _, built in entries))))
        if value.kind is dict:
            return plain
        if value.kind is defaultdict:
            return ("make", defaultdict, (results.build(value.factory or Const(None)), plain))
        if value.kind in (OrderedDict, Counter):
            return ("make", value.kind, (plain,))
        return ("make", new_dict, (("const", value.kind), plain, fields(results, value)))

    def is_filled_later(self, value: Dict) -> bool:
        return value.is_namespace

    def empty(self, results: Recipes, value: Dict) -> tuple[Recipe, Fills]:
        if value.is_namespace:
            return ("make", getattr, (results.build(value.owner), ("const", "__dict__"))), []
        if value.kind is not dict:
            return super().empty(results, value)
        check_keys(value.items)
        return ("dict", ()), [(dict.__setitem__, (results.ex.constant(k), v)) for k, v in value.items.items()]


def _operator_of_dicts(frame: Frame, symbol: str, left: Dict, right: Dict) -> Value:
    if symbol == "|" and not own_method(right, "__iter__"):
        return Dict({**entries_of(frame, left), **entries_of(frame, right)}, kind=kind_of_copy(left), factory=left.factory)
    ours, theirs = entries_of(frame, left), entries_of(frame, right)
    if symbol in ("==", "!="):
        ordered = issubclass(left.kind, OrderedDict) and issubclass(right.kind, OrderedDict)
        alike = list(ours) == list(theirs) if ordered else ours.keys() == theirs.keys()
        equal = alike and all(same_or_equal(frame, v, theirs[k]) for k, v in ours.items())
        return Const(equal is (symbol == "=="))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of dicts")


def kind_of_copy(value: Dict) -> type:
    """The type that ``|`` and ``copy`` of a dict give."""
    if own_method(value, "__iter__"):
        refuse("UNSUPPORTED_VALUE", f"a copy of a {value.kind.__name__}, which says itself what its keys are")
    return dict if in_mro(value.kind, "copy") is vars(dict)["copy"] else value.kind


def entries_of(frame: Frame, value: Dict) -> dict[Any, Any]:
    return complete(frame.ex, value)


# -- entries ------------------------------------------------------------------------------------------------------------------


def runs_code(key: Any) -> bool:
    """Whether comparing a key with others runs code of the user's."""
    if isinstance(key, (tuple, frozenset)) and type(key) in (tuple, frozenset):
        return any(map(runs_code, key))
    return any(not isinstance(in_mro(type(key), name), types.WrapperDescriptorType) for name in ("__eq__", "__hash__"))


def is_none_of_keys(frame: Frame, container: Dict, item: Any) -> bool:
    """Whether an integer that changes is none of a dict's few keys, guarded."""
    held = container.items if container.complete else container.object
    return held is not None and len(held) <= FEW_KEYS and is_none_of(frame, item, complete(frame.ex, container))


def has_key(frame: Frame, container: Dict, key: Any) -> bool:
    """Whether a dict has the key, guarded."""
    if key in container.items:
        return container.items[key] is not DELETED
    if container.complete or key in container.absent:
        return False
    assert container.object is not None and container.source is not None
    if type(key) not in KEYS:
        return key in complete(frame.ex, container)
    if any(type(k) not in KEYS and runs_code(k) for k in container.object):
        refuse("UNSUPPORTED_VALUE", f"{container.source} has keys that say themselves what they are equal to")
    if key in container.object:
        container.items[key] = frame.ex.wrap(container.object[key], Key(container.source, key))
        return True
    frame.ex.guards.require(NoKey(container.source, key))
    container.absent.add(key)
    return False


def dict_value(frame: Frame, container: Dict, key: Any) -> Value:
    """``container[key]`` of a dict, by way of ``__missing__``."""
    key = frame.ex.resolve(key)
    name = key_of(frame, key)
    if has_key(frame, container, name):
        return frame.ex.resolve(container.items[name])
    factory = frame.ex.resolve(container.factory)
    if factory is not None and not (isinstance(factory, Const) and factory.value is None):
        made = call(frame, factory, [], {})
        put_key(frame, container, key, made)
        return made
    missing = in_mro(container.kind, "__missing__")
    if missing is not MISSING and isinstance(missing, type(dict_value)):
        return call_special(frame, container, "__missing__", key)
    if issubclass(container.kind, Counter):
        return Const(0)
    return throw(KeyError(name))


def _dict_of(container: Dict) -> Any:
    """The built-in type whose methods change this dict."""
    return OrderedDict if issubclass(container.kind, OrderedDict) else dict


def put_key(frame: Frame, container: Dict, key: Value, value: Value) -> None:
    """``dict.__setitem__``."""
    name = key_of(frame, key)
    if container.source is not None:
        has_key(frame, container, name)  # a guard: whether it is new decides the order
        if container.items.get(name) is DELETED:
            del container.items[name]
            container.added_again.add(name)
        frame.ex.writes(container)
        frame.ex.effect(_dict_of(container).__setitem__, container, key, value)
    container.items[name] = value
    container.absent.discard(name)


def drop_key(frame: Frame, container: Dict, key: Value) -> Value:
    """``dict.pop(key)`` of a key that is there."""
    name = key_of(frame, key)
    value = frame.ex.resolve(container.items[name])
    container.deletions += 1
    if container.complete:
        del container.items[name]
    else:
        container.items[name] = DELETED
    if container.source is not None:
        frame.ex.writes(container)
        frame.ex.effect(_dict_of(container).__delitem__, container, key)
    return value


# -- views --------------------------------------------------------------------------------------------------------------------


@slots(DictView)
class ViewSlots(Slots):
    def type_of(self, frame: Frame, value: DictView) -> type:
        base = OrderedDict if issubclass(value.owner.kind, OrderedDict) else dict
        return type(getattr(base(), value.name)())

    def truth(self, frame: Frame, value: DictView) -> bool:
        return length(frame.ex, value.owner) > 0

    def to_python(self, frame: Frame, value: DictView) -> Any:
        return view_object(frame, value)

    def rank(self, value: DictView, symbol: str, reflected: bool) -> int:
        return 4

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return _operator_of_views(frame, symbol, left, right)

    def contains(self, frame: Frame, value: DictView, item: Any) -> bool:
        if value.name == "keys":
            return not is_none_of_keys(frame, value.owner, item) and has_key(frame, value.owner, key_of(frame, item))
        return _has_entry(frame, value.owner, item) if value.name == "items" else found_in(frame, value, item)

    def iterate(self, frame: Frame, value: DictView) -> Iterator:
        return Entries(value.owner, list(complete(frame.ex, value.owner)), value.name)

    def attribute(self, frame: Frame, value: DictView, name: str) -> Value:
        return Method(name, value) if has_method(value, name) else super().attribute(frame, value, name)

    def parts(self, value: DictView) -> Iterable[Any]:
        return [value.owner]

    def recipe(self, results: Recipes, value: DictView) -> Recipe:
        kind = value.owner.kind if value.owner.kind is types.MappingProxyType else _dict_of(value.owner)
        return ("make", getattr(kind, value.name), (results.build(value.owner),))


def view_object(frame: Frame, view: DictView) -> Any:
    """A view as Python has it: of a dict of the same keys."""
    entries = entries_of(frame, view.owner)
    values = dict.fromkeys(entries) if view.name == "keys" else {k: known_number(plain(frame, v)) for k, v in entries.items()}
    return getattr(_dict_of(view.owner)(values), view.name)()


def _operator_of_views(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if all(getattr(side, "name", "") == "values" for side in (left, right) if isinstance(side, DictView)):
        if symbol in ("==", "!="):
            return Const(same(frame, left, right) is (symbol == "=="))
        return _no_operator(frame, symbol, left, right)
    given = []
    for side in (left, right):
        if isinstance(side, Set):
            given.append(side.items)
        else:
            given.append(plain(frame, Sequence(list, items_of(frame, side))) if isinstance(side, Iterator) else plain(frame, side))
    try:
        return of_sets(frame, BINARY[symbol].function(*given), left, right)
    except TypeError as error:
        return throw(error)


def _no_operator(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    names = [type_of(frame, v).__name__ for v in (left, right)]
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {names[0]!r} and {names[1]!r}"))
    return throw(TypeError(f"unsupported operand type(s) for {symbol}: {names[0]!r} and {names[1]!r}"))


def _has_entry(frame: Frame, owner: Dict, item: Any) -> bool:
    """``item in owner.items()``."""
    if not isinstance(item, Sequence) or not issubclass(item.kind, tuple) or len(item.items) != 2:
        return False
    key = key_of(frame, item.items[0])
    return has_key(frame, owner, key) and same_or_equal(frame, owner.items[key], item.items[1])
