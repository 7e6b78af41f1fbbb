"""Methods of sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.frontend.executor.exceptions import throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import guard_order
from dynagraph.frontend.kinds.constants import NOTHING
from dynagraph.frontend.kinds.mappings import entries_of
from dynagraph.frontend.kinds.methods import changes
from dynagraph.frontend.kinds.operators_by_name import operators_of
from dynagraph.frontend.kinds.slots import METHODS, Table, items_of, iterate, key_of
from dynagraph.frontend.kinds.values import Const, Dict, Set, Value


def _elements(frame: Frame, value: Any) -> Any:
    """What an operation on sets takes, as the Python object whose order and kind CPython would see."""
    value = frame.ex.resolve(value)
    if isinstance(value, Set):
        return value.items
    if isinstance(value, Dict) and value.kind is dict:
        return dict.fromkeys(entries_of(frame, value))
    return [key_of(frame, item) for item in items_of(frame, value)]


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
    owner.items.add(key_of(frame, item))
    changes(frame, owner, "add", item)
    return NOTHING


def _discard(must: bool) -> Callable[..., Value]:
    def remove(frame: Frame, owner: Set, item: Value) -> Value:
        name = key_of(frame, item)
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
    "__contains__": lambda frame, owner, item: Const(key_of(frame, item) in owner.items),
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

SET.update({name: method for name, method in operators_of(set).items() if name not in SET})
FROZENSET.update({name: method for name, method in operators_of(frozenset).items() if name not in FROZENSET})
METHODS[Set] = lambda owner: SET if owner.kind is set else FROZENSET
