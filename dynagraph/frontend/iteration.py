"""Iterating over values whose items are all known."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.executor import Executor, Frame, refuse
from dynagraph.frontend.numpy_door import operator_door
from dynagraph.frontend.values import Array, Const, Dict, Iter, Sequence, Value
from dynagraph.ir.shapes import SymInt

ITERABLE_CONSTANTS = (str, bytes, range, frozenset, tuple)


def iterate(frame: Frame, value: Any) -> Iter:
    """``iter(value)``."""
    value = frame.ex.resolve(value)
    if isinstance(value, Iter):
        return value
    if isinstance(value, Sequence) and value.kind is list:
        return Iter(_growing(value))  # a list may grow while it is iterated
    return Iter(iter(items_of(frame, value)))


def _growing(value: Sequence) -> Any:
    position = 0
    while position < len(value.items):
        yield value.items[position]
        position += 1


def items_of(frame: Frame, value: Any) -> list[Value]:
    """The items of an iterable, all of them."""
    ex = frame.ex
    value = ex.resolve(value)
    if isinstance(value, Iter):
        return list(value.items)
    if isinstance(value, Sequence):
        return [ex.resolve(i) for i in value.items]
    if isinstance(value, Const):
        if isinstance(value.value, ITERABLE_CONSTANTS):
            return [ex.constant(v) for v in value.value]
        refuse("WOULD_RAISE", f"{value.value!r} is not iterable")
    if isinstance(value, Dict):
        return [ex.constant(k) for k in dict_keys(ex, value)]
    if isinstance(value, Array):
        return rows(frame, value)
    return refuse("UNSUPPORTED_VALUE", f"iteration over a {type(value).__name__.lower()}")


def rows(frame: Frame, array: Array) -> list[Value]:
    """The items of an array along its first axis."""
    if array.node.ndim == 0:
        refuse("NUMPY_ERROR", "iteration over a 0-d array")
    length = array.node.shape[0]
    if isinstance(length, SymInt):
        length = int(length)
    return [frame.ex.call_door(operator_door("getitem"), [array, Const(k)]) for k in range(length)]


def dict_keys(ex: Executor, value: Dict) -> list[Any]:
    """The keys in order, guarded."""
    if value.object is None or value.source is None:
        return list(value.items)
    keys = tuple(value.object)
    if not all(type(k) in (str, int, bool, type(None)) for k in keys):
        refuse("UNSUPPORTED_VALUE", f"{value.source} has keys that are neither strings nor numbers")
    ex.guards.add("dict_keys", value.source, keys, says=f" has the keys {list(keys)}")
    return list(keys)
