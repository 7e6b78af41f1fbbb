"""Iterators over values: built-in ones, lazily stepped as Python steps them, and generators.

Each kind can say how it is made anew (`rebuilt`), for programs that hand a half-consumed one over at a break.
"""

from __future__ import annotations

import collections
import itertools
import operator
import types
from collections.abc import Callable, Iterable
from collections.abc import Generator as Generated
from typing import Any

import numpy as np

from dynagraph.doors.numpy import operator_door
from dynagraph.doors.numpy.arguments import ravel
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame, Generator
from dynagraph.frontend.executor.recipes import CannotBuild, Recipe, Recipes, call_with
from dynagraph.frontend.executor.wrapping import guard_length
from dynagraph.frontend.kinds import array_writes
from dynagraph.frontend.kinds.lookup import MISSING, call_special, in_mro, special
from dynagraph.frontend.kinds.slots import Slots, binary, items_of, iterate, same_or_equal, slots, truth
from dynagraph.frontend.kinds.values import NULL, Array, Const, DictView, Instance, Iterator, Method, Object, Sequence, Set, Value
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt, numel

Rebuilt = tuple[Any, tuple[Value, ...]]  # a callable and its arguments


@slots(Iterator)
class IteratorSlots(Slots):
    def truth(self, frame: Frame, value: Any) -> bool:
        return True

    def contains(self, frame: Frame, value: Any, item: Any) -> bool:
        return found_in(frame, value, item)

    def iterate(self, frame: Frame, value: Any) -> Iterator:
        return value

    def attribute(self, frame: Frame, value: Any, name: str) -> Value:
        if name in ("__next__", "__iter__", "send", "throw", "close"):
            return Method(name, value)
        return refuse("ATTRIBUTE", f".{name} of a {type(value).__name__.lower()}")

    def parts(self, value: Any) -> Iterable[Any]:
        """What it goes through: ``zip(it, it)`` is made of one iterator."""
        if not hasattr(value, "rebuilt"):
            return ()
        try:
            return value.rebuilt()[1]  # type: ignore[no-any-return]
        except Break:
            return ()  # its recipe says so

    def recipe(self, results: Recipes, value: Any) -> Recipe:
        return results.remade(value)


@slots(Generator)
class GeneratorSlots(IteratorSlots):
    def type_of(self, frame: Frame, value: Generator) -> type:
        return types.GeneratorType

    def recipe(self, results: Recipes, value: Generator) -> Recipe:
        """One that has not started: a call of its function makes it."""
        if value.started or value.frame is None:
            raise CannotBuild("a half-consumed generator", value.born)
        function, code, given = value.frame.function, value.frame.code, value.arguments
        n, n_all = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames
        args = [given[name] for name in names[:n]]
        named = {name: given[name] for name in names[n:n_all]}
        position = n_all
        if code.co_flags & 4:
            args += given[names[position]].items
            position += 1
        if code.co_flags & 8:
            named.update(given[names[position]].items)
        parts = ("tuple", tuple(results.build(a) for a in args)), ("dict", tuple((k, results.build(v)) for k, v in named.items()))
        return ("make", call_with, (results.build(function), *parts))


def found_in(frame: Frame, iterable: Any, item: Any) -> bool:
    """``item in iterable``, by going through it."""
    iterator = iterate(frame, iterable)
    while (candidate := iterator.step(frame)) is not NULL:
        if same_or_equal(frame, candidate, item):
            return True
    return False


class Items(Iterator):
    """Over a list or tuple, which may grow meanwhile, or over values that are all known."""

    def __init__(self, items: list[Any], owner: Sequence | None = None, position: int = 0):
        self.items, self.owner, self.position = items, owner, position
        self.mutations = owner.mutations if owner is not None else 0

    def left(self) -> int:
        return len(self.items) - self.position if self.position >= 0 else 0

    def step(self, frame: Frame) -> Any:
        if self.owner is not None and not self.owner.sized and self.position >= len(self.owner.object):
            guard_length(frame.ex, self.owner)
        if self._is_ended():
            throw(RuntimeError("deque mutated during iteration"))
        if self.position < 0 or self.position >= len(self.items):
            self.position = -1
            return NULL
        self.position += 1
        return frame.ex.resolve(self.items[self.position - 1])

    def _is_ended(self) -> bool:
        return self.owner is not None and self.owner.kind is collections.deque and self.owner.mutations != self.mutations

    def rebuilt(self) -> Rebuilt:
        if self._is_ended():
            refuse("ITERATOR", "a deque that changes meanwhile")
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


class SymbolicNumbers(Iterator):
    """Over a range whose bounds are symbolic: they are as long as nobody steps through it."""

    def __init__(self, start: Any, stop: Any, step: Any):
        self.bounds = (start, stop, step)
        self.known: Numbers | None = None

    @property
    def is_symbolic(self) -> bool:
        return self.known is None

    def left(self) -> int:
        return 0 if self.known is None else self.known.left()

    def step(self, frame: Frame) -> Any:
        if self.known is None:
            self.known = Numbers(range(*map(operator.index, self.bounds)))
        return self.known.step(frame)

    def rebuilt(self) -> Rebuilt:
        if self.known is not None:
            return self.known.rebuilt()
        return iterator_of_range, tuple(map(Const, self.bounds))


def iterator_of_range(start: int, stop: int, step: int) -> Any:
    return iter(range(start, stop, step))


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


class RowsBackwards(Rows):
    """``reversed`` of an array, which may change meanwhile: over the rows of a view that is turned around."""

    def __init__(self, frame: Frame, owner: Array, length: int):
        view = frame.ex.call_door(operator_door("getitem"), [owner, Const(slice(None, None, -1))])
        super().__init__(view, length)  # type: ignore[arg-type]
        self.owner = owner

    def rebuilt(self) -> Rebuilt:
        return turned_rows_at, (self.owner, Const(self.position))


def turned_rows_at(owner: Any, position: int) -> Any:
    """``reversed(owner)``, after so many rows."""
    return reversed_at(owner, len(owner) - 1 - position)


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


@slots(Flat)
class FlatSlots(IteratorSlots):
    def item(self, frame: Frame, value: Flat, key: Any) -> Value:
        return value.item(frame.ex, key)

    def set_item(self, frame: Frame, value: Flat, key: Any, item: Any) -> None:
        if value.position:
            super().set_item(frame, value, key, item)
        array_writes.store_flat(frame.ex, value.array, key, item)

    def attribute(self, frame: Frame, value: Flat, name: str) -> Value:
        if name not in ("base", "copy"):
            return super().attribute(frame, value, name)
        return value.array if name == "base" else Method(name, value)


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
        self.ended = item is sentinel or truth(frame, binary(frame, "==", sentinel, item))
        return NULL if self.ended else item

    def rebuilt(self) -> Rebuilt:
        return (iter, (Sequence(tuple, []),)) if self.ended else (iter, (self.function, self.sentinel))


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


def iterate_object(frame: Frame, value: Instance) -> Iterator:
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
