"""Iterators over values: built-in ones, lazily stepped as Python steps them, and generators.

Each kind can say how it is made anew (`rebuilt`), for programs that hand a half-consumed one over at a break.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable
from collections.abc import Generator as Generated
from typing import Any

import numpy as np

from dynagraph.frontend.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor import Executor, Frame, Generator
from dynagraph.frontend.numpy_door import operator_door
from dynagraph.frontend.numpy_door.arguments import ravel
from dynagraph.frontend.objects import MISSING, call_special, in_mro, is_enum_class, members, special
from dynagraph.frontend.truth import truth
from dynagraph.frontend.values import NULL, Array, Const, Dict, DictView, Instance, Iterator, Masked, Object, Sequence, Set, Value
from dynagraph.frontend.wrapping import behind, complete, guard_length, guard_order
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt, numel

ITERABLE_CONSTANTS = (str, bytes, range, frozenset, tuple)
Rebuilt = tuple[Any, tuple[Value, ...]]  # a callable and its arguments


class Items(Iterator):
    """Over a list or tuple, which may grow meanwhile, or over values that are all known."""

    def __init__(self, items: list[Any], owner: Sequence | None = None, position: int = 0):
        self.items, self.owner, self.position = items, owner, position

    def left(self) -> int:
        return len(self.items) - self.position if self.position >= 0 else 0

    def step(self, frame: Frame) -> Any:
        if self.owner is not None and not self.owner.sized and self.position >= len(self.owner.object):
            guard_length(frame.ex, self.owner)
        if self.position < 0 or self.position >= len(self.items):
            self.position = -1
            return NULL
        self.position += 1
        return frame.ex.resolve(self.items[self.position - 1])

    def rebuilt(self) -> Rebuilt:
        if self.owner is not None:
            return iterator_at, (self.owner, Const(self.position))
        rest = self.items[self.position :] if self.position >= 0 else []
        return iter, (Sequence(list, rest),)


class Reversed(Items):
    """``reversed``: over items that are turned already."""

    def rebuilt(self) -> Rebuilt:
        rest = self.items[self.position :] if self.position >= 0 else []
        return reversed, (Sequence(list, rest[::-1]),)


class Backwards(Iterator):
    """``reversed`` of a list or tuple, which may change meanwhile."""

    def __init__(self, owner: Sequence):
        self.owner, self.position = owner, len(owner.items) - 1

    def step(self, frame: Frame) -> Any:
        if not 0 <= self.position < len(self.owner.items):
            self.position = -1
            return NULL
        self.position -= 1
        return frame.ex.resolve(self.owner.items[self.position + 1])

    def rebuilt(self) -> Rebuilt:
        return reversed_at, (self.owner, Const(self.position))


def reversed_at(owner: Any, position: int) -> Any:
    """``reversed(owner)``, with `position` to come next; -1: at the end."""
    iterator = reversed(owner)
    iterator.__setstate__(position)
    if position < 0:
        next(iterator, None)  # which lets go of the list
    return iterator


class Entries(Iterator):
    """Over a dict, a view of one, or a set: a change of its size meanwhile is an error."""

    def __init__(self, owner: Any, keys: list[Any], name: str = "keys"):
        self.owner, self.keys, self.name, self.position = owner, keys, name, 0
        self.deletions = owner.deletions

    def step(self, frame: Frame) -> Any:
        if self.position < 0:
            return NULL
        items = self.owner.items
        ordered = issubclass(self.owner.kind, collections.OrderedDict)
        if ordered and self.position == len(self.keys):
            return NULL  # it has looked one ahead
        if len(items) != len(self.keys):
            self._changed_size()
        if self.owner.deletions != self.deletions:
            refuse("ITERATOR", "a dict or set whose keys change meanwhile")
        if ordered:
            self._check_unchanged()
        if self.position == len(self.keys):
            self._check_unchanged()
            self.position = -1
            return NULL
        key = self.keys[self.position]
        if key not in items:
            refuse("ITERATOR", "a dict or set whose keys change meanwhile")
        self.position += 1
        return self._entry(frame, key)

    def _entry(self, frame: Frame, key: Any) -> Value:
        if self.name == "keys":
            return frame.ex.constant(key)
        value = frame.ex.resolve(self.owner.items[key])
        return value if self.name == "values" else Sequence(tuple, [frame.ex.constant(key), value])

    def _changed_size(self) -> None:
        kind = self.owner.kind
        self.position = -1
        if isinstance(self.owner, Set):
            throw(RuntimeError("Set changed size during iteration"))
        if issubclass(kind, collections.OrderedDict):
            throw(RuntimeError("OrderedDict mutated during iteration"))
        throw(RuntimeError("dictionary changed size during iteration"))

    def _check_unchanged(self) -> None:
        if list(self.owner.items) != self.keys or self.owner.deletions != self.deletions:
            refuse("ITERATOR", "a dict or set whose keys change meanwhile")

    def rebuilt(self) -> Rebuilt:
        if self.position >= 0:
            self._check_unchanged()
        return iterator_at, (self.owner if self.name == "keys" else DictView(self.name, self.owner), Const(self.position))


class Numbers(Iterator):
    """Over a range."""

    def __init__(self, numbers: range):
        self.numbers = numbers

    def left(self) -> int:
        numbers = self.numbers  # whose len() may be too large for one
        return max(0, -((numbers.start - numbers.stop) // numbers.step))

    def step(self, frame: Frame) -> Any:
        if not self.numbers:
            return NULL
        first, self.numbers = self.numbers[0], self.numbers[1:]
        return Const(first)

    def rebuilt(self) -> Rebuilt:
        return iter, (Const(self.numbers),)


class Rows(Iterator):
    """Over the first axis of an array."""

    def __init__(self, array: Array, length: int):
        self.array, self.length, self.position = array, length, 0

    def left(self) -> int:
        return self.length - self.position

    def step(self, frame: Frame) -> Any:
        if self.position >= self.length:
            return NULL
        self.position += 1
        return frame.ex.call_door(operator_door("getitem"), [self.array, Const(self.position - 1)])

    def rebuilt(self) -> Rebuilt:
        return iterator_at, (self.array, Const(self.position))


class Flat(Iterator):
    """``array.flat``: over all elements, in C order."""

    def __init__(self, array: Array, born: int):
        self.array, self.born, self.position = array, born, 0

    def values(self, ex: Executor) -> Node:
        """The elements that are there now."""
        return ravel(ex.builder, ex.memories.present(self.array))

    def step(self, frame: Frame) -> Any:
        ex = frame.ex
        if self.position >= numel(self.array.node.shape):
            return NULL
        self.position += 1
        return ex.from_door(operator_door("getitem")(ex.builder, self.values(ex), self.position - 1), "value")

    def item(self, ex: Executor, key: Any) -> Value:
        """``array.flat[key]``: never a view."""
        if self.position:
            refuse("ITERATOR", "an array's .flat that is indexed while it is iterated over")
        index = ex.to_door(key)
        is_mask = isinstance(index, (list, Node)) and ex.builder.as_node(index).dtype.is_bool
        if is_mask or index is None or isinstance(index, (tuple, bool, np.bool_)):
            refuse("UNSUPPORTED_INDEX", "an array's .flat, indexed by a tuple, a mask, a bool or None")
        found = operator_door("getitem")(ex.builder, self.values(ex), slice(None) if index is Ellipsis else index)
        return ex.from_door(found if found.ndim == 0 else ex.builder.call("copy", found), "value")

    def rebuilt(self) -> Rebuilt:
        return flat_at, (self.array, Const(self.position))


def flat_at(array: Any, position: int) -> Any:
    """The flat iterator of an array, some steps on."""
    iterator = array.flat
    for _ in range(position):
        next(iterator)
    return iterator


class Zip(Iterator):
    def __init__(self, parts: list[Iterator], strict: bool = False):
        self.parts, self.strict = parts, strict

    def left(self) -> int:
        return min((part.left() for part in self.parts), default=0)

    def step(self, frame: Frame) -> Any:
        row = []
        for k, part in enumerate(self.parts):
            item = part.step(frame)
            if item is NULL:
                return self._end(frame, k)
            row.append(item)
        return Sequence(tuple, row) if row else NULL

    def _end(self, frame: Frame, k: int) -> Any:
        if self.strict and k:
            before = "1" if k == 1 else f"s 1-{k}"
            throw(ValueError(f"zip() argument {k + 1} is shorter than argument{' ' if k == 1 else ''}{before}"))
        if self.strict:
            for j, part in enumerate(self.parts[1:], 1):
                if part.step(frame) is not NULL:
                    before = "1" if j == 1 else f"s 1-{j}"
                    throw(ValueError(f"zip() argument {j + 1} is longer than argument{' ' if j == 1 else ''}{before}"))
        return NULL

    def rebuilt(self) -> Rebuilt:
        return (strict_zip if self.strict else zip), tuple(self.parts)


class Enumerate(Iterator):
    def __init__(self, inner: Iterator, count: int):
        self.inner, self.count = inner, count

    def left(self) -> int:
        return self.inner.left()

    def step(self, frame: Frame) -> Any:
        item = self.inner.step(frame)
        if item is NULL:
            return NULL
        self.count += 1
        return Sequence(tuple, [Const(self.count - 1), item])

    def rebuilt(self) -> Rebuilt:
        return enumerate, (self.inner, Const(self.count))


class Map(Iterator):
    """``map``; `call` is the executor's call of values."""

    def __init__(self, call: Callable[..., Value], function: Any, parts: list[Iterator]):
        self.call, self.function, self.parts = call, function, parts

    def step(self, frame: Frame) -> Any:
        row = []
        for part in self.parts:
            item = part.step(frame)
            if item is NULL:
                return NULL
            row.append(item)
        return self.call(frame, self.function, row, {})

    def rebuilt(self) -> Rebuilt:
        return map, (self.function, *self.parts)


class Filter(Iterator):
    """``filter`` and ``itertools.filterfalse``."""

    def __init__(self, call: Callable[..., Value], function: Any, inner: Iterator, keep: bool = True):
        self.call, self.function, self.inner, self.keep = call, function, inner, keep

    def step(self, frame: Frame) -> Any:
        plain = isinstance(self.function, Const) and self.function.value in (None, bool)
        while (item := self.inner.step(frame)) is not NULL:
            if truth(frame, item if plain else self.call(frame, self.function, [item], {})) is self.keep:
                return item
        return NULL

    def rebuilt(self) -> Rebuilt:
        return (filter if self.keep else itertools.filterfalse), (self.function, self.inner)


class Until(Iterator):
    """``iter(function, sentinel)``."""

    def __init__(self, call: Callable[..., Value], function: Any, sentinel: Any):
        self.call, self.function, self.sentinel, self.ended = call, function, sentinel, False

    def step(self, frame: Frame) -> Any:
        if self.ended:
            return NULL
        try:
            item = self.call(frame, self.function, [], {})
        except Raised as raised:
            self.ended = issubclass(raised.value.kind, StopIteration)
            if self.ended:
                return NULL
            raise
        item, sentinel = frame.ex.resolve(item), frame.ex.resolve(self.sentinel)
        self.ended = item is sentinel or truth(frame, EQUAL[0](frame, "==", sentinel, item))
        return NULL if self.ended else item

    def rebuilt(self) -> Rebuilt:
        return (iter, (Sequence(tuple, []),)) if self.ended else (iter, (self.function, self.sentinel))


EQUAL: list[Callable[..., Value]] = []  # operations.binary, which stands above this module


class Stepped(Iterator):
    """Any other: a Python generator of the executor's own, over values."""

    def __init__(self, what: str, steps: Any, again: Rebuilt | None = None, stateless: bool = False):
        self.what, self.steps, self.again, self.stateless = what, steps, again, stateless

    def step(self, frame: Frame) -> Any:
        if not self.stateless:
            self.again = None
        return next(self.steps, NULL)

    def rebuilt(self) -> Rebuilt:
        if self.again is not None:
            return self.again
        return refuse("UNSUPPORTED_RESULT", f"a half-consumed {self.what}")


class Count(Iterator):
    """``itertools.count``; `add` adds values."""

    def __init__(self, add: Callable[..., Value], value: Any, increment: Any):
        self.add, self.value, self.increment = add, value, increment

    def step(self, frame: Frame) -> Any:
        item, self.value = self.value, self.add(frame, "+", self.value, self.increment)
        return item

    def rebuilt(self) -> Rebuilt:
        return itertools.count, (self.value, self.increment)


class Repeat(Iterator):
    """``itertools.repeat``."""

    def __init__(self, item: Any, times: int | None):
        self.item, self.times = item, times

    def step(self, frame: Frame) -> Any:
        if self.times is not None:
            if self.times <= 0:
                return NULL
            self.times -= 1
        return frame.ex.resolve(self.item)

    def rebuilt(self) -> Rebuilt:
        return itertools.repeat, (self.item,) if self.times is None else (self.item, Const(self.times))


class Calls(Iterator):
    """An object's own iterator: ``__next__`` is called until StopIteration."""

    def __init__(self, owner: Object):
        self.owner = owner

    def step(self, frame: Frame) -> Any:
        try:
            return call_special(frame, self.owner, "__next__")
        except Raised as raised:
            if issubclass(raised.value.kind, StopIteration):
                return NULL
            raise

    def rebuilt(self) -> Rebuilt:
        return iter, (self.owner,)


def iterator_at(iterable: Any, position: int) -> Any:
    """``iter(iterable)``, `position` items later; -1: at the end."""
    iterator = iter(iterable)
    if hasattr(iterator, "__setstate__") and position >= 0:
        iterator.__setstate__(position)
    else:
        for _ in iterable if position < 0 else range(position):
            next(iterator)
    return iterator


def called(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*args, **named)


def strict_zip(*iterators: Any) -> Any:
    return zip(*iterators, strict=True)


# -- making them --------------------------------------------------------------------------------------------------------------


def iterate(frame: Frame, value: Any) -> Iterator:
    """``iter(value)``."""
    made = _iterate(frame, value)
    made.born = made.born or frame.ex.steps
    return made


def _iterate(frame: Frame, value: Any) -> Iterator:
    ex = frame.ex
    value = behind(ex, ex.resolve(value))
    if isinstance(value, Masked):
        refuse("DATA_DEPENDENT", "iteration over what a mask chooses")
    if isinstance(value, Iterator):
        return value
    if isinstance(value, (Sequence, Dict)) and says_itself(value, "__iter__"):
        return _of_object(frame, value)
    if isinstance(value, Sequence):
        return Items(value.items, value)
    if isinstance(value, Const) and type(value.value) is range:
        return Numbers(value.value)
    if isinstance(value, Dict):
        return Entries(value, list(complete(ex, value)))
    if isinstance(value, DictView):
        return Entries(value.owner, list(complete(ex, value.owner)), value.name)
    if isinstance(value, Set):
        guard_order(ex, value)
        return Entries(value, list(value.items))
    if isinstance(value, Array):
        return Rows(value, length_of(frame, value))
    if isinstance(value, Object):
        return _of_object(frame, value)
    if is_enum_class(value):
        return Items(list(members(frame, value.value).values()))
    return Items(items_of(frame, value))


def _of_object(frame: Frame, value: Instance) -> Iterator:
    if value.source is not None and isinstance(getattr(value.kind, "__next__", None), types.WrapperDescriptorType):
        return refuse("ITERATOR", f"a {value.kind.__name__}")  # written in C: its state cannot be seen
    if special(frame, value, "__iter__") is not None:
        made = call_special(frame, value, "__iter__")
        if isinstance(made, Iterator):
            return made
        if isinstance(made, Object) and special(frame, made, "__next__") is not None:
            return made if isinstance(made, Iterator) else Calls(made)
        return refuse("UNSUPPORTED_VALUE", f"the iterator of a {value.kind.__name__}")
    if special(frame, value, "__getitem__") is not None:
        return Stepped("iterator", _by_index(frame, value))
    if value.source is not None and not hasattr(value.kind, "__iter__"):
        throw(TypeError(f"{value.kind.__name__!r} object is not iterable"))
    return refuse("ITERATOR", f"a {value.kind.__name__}")


def _by_index(frame: Frame, value: Instance) -> Any:
    for k in itertools.count():
        try:
            item = call_special(frame, value, "__getitem__", Const(k))
        except Raised as raised:
            if issubclass(raised.value.kind, (IndexError, StopIteration)):
                return
            raise
        yield item


def length_of(frame: Frame, array: Array) -> int:
    if array.node.ndim == 0:
        throw(TypeError("iteration over a 0-d array"))
    length = array.node.shape[0]
    return int(length) if isinstance(length, SymInt) else length


def items_of(frame: Frame, value: Any) -> list[Value]:
    """The items of an iterable, all of them."""
    ex = frame.ex
    value = behind(ex, ex.resolve(value))
    if isinstance(value, Sequence) and not says_itself(value, "__iter__"):
        return held_items(frame, value)
    if is_enum_class(value):
        return list(members(frame, value.value).values())
    if isinstance(value, Const):
        if isinstance(value.value, ITERABLE_CONSTANTS):
            return [ex.constant(v) for v in value.value]
        if hasattr(type(value.value), "__iter__"):
            refuse("UNSUPPORTED_VALUE", f"iteration over {value.value!r}")
        throw(TypeError(f"{type(value.value).__name__!r} object is not iterable"))
    if isinstance(value, (Sequence, Dict, DictView, Set, Iterator, Array, Object)):
        iterator, items = iterate(frame, value), []
        while (item := iterator.step(frame)) is not NULL:
            items.append(item)
        return items
    return refuse("UNSUPPORTED_VALUE", f"iteration over a {type(value).__name__.lower()}")


def listed(frame: Frame, value: Any) -> Generated[Value, None, None]:
    """The items that ``list(value)`` takes, one by one: an object is asked first how many they may be."""
    value = frame.ex.resolve(value)
    if not isinstance(value, (Iterator, Object)):
        yield from items_of(frame, value)
        return
    iterator = iterate(frame, value)
    if isinstance(value, Object):
        _ask_length(frame, value)
    while (item := iterator.step(frame)) is not NULL:
        yield item


def _ask_length(frame: Frame, value: Object) -> None:
    for name in ("__len__", "__length_hint__"):
        found = in_mro(value.kind, name)
        if found is MISSING or isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            continue
        if name == "__len__" and found is not None:
            call_special(frame, value, name)
            return
        refuse("UNSUPPORTED_VALUE", f"the length hint of a {value.kind.__name__}")


def held_items(frame: Frame, value: Sequence) -> list[Value]:
    """What a list or tuple holds, whatever its class says."""
    if not value.sized:
        guard_length(frame.ex, value)
    return [frame.ex.resolve(i) for i in value.items]


def held_iterator(frame: Frame, value: Any) -> Iterator:
    """What the ``__iter__`` of the built-in type gives."""
    made = Items(value.items, value) if isinstance(value, Sequence) else Entries(value, list(complete(frame.ex, value)))
    made.born = frame.ex.steps
    return made


def says_itself(value: Any, name: str) -> bool:
    """Whether the class of a container redefines a method, in Python."""
    return value.kind.__module__ != "builtins" and isinstance(in_mro(value.kind, name), types.FunctionType)


__all__ = [
    "Calls", "Count", "Enumerate", "Filter", "Generator", "Items", "Map", "Numbers", "Repeat", "Rows", "Stepped", "Until", "Zip",
    "called", "held_items", "held_iterator", "items_of", "iterate", "says_itself",
]  # fmt: skip
