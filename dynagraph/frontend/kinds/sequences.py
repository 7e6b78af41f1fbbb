"""Slots of lists, tuples, deques and named tuples."""

from __future__ import annotations

import enum
import operator
from collections import deque
from collections.abc import Iterable
from typing import Any

from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import Fills, Recipe, Recipes, fields, new_list, with_fields
from dynagraph.frontend.executor.wrapping import guard_length, is_container
from dynagraph.frontend.kinds.constants import pure
from dynagraph.frontend.kinds.containers import ContainerSlots
from dynagraph.frontend.kinds.iterators import Items
from dynagraph.frontend.kinds.lookup import TUPLE_GETTER, call_special, in_mro, special
from dynagraph.frontend.kinds.slots import (
    binary,
    items_of,
    key_of,
    known_number,
    length,
    own_method,
    plain,
    same_or_equal,
    slots,
    type_of,
)
from dynagraph.frontend.kinds.texts import shown
from dynagraph.frontend.kinds.values import Array, Const, Iterator, Object, Sequence, Slice, Value
from dynagraph.python_operators import COMPARISONS

MAX_ITEMS = 100000  # of lists and tuples that are followed


@slots(Sequence)
class SequenceSlots(ContainerSlots):
    rank_of_builtin = 3
    written_in_place = ((list, "+*"), (deque, "+*"))

    def key(self, frame: Frame, value: Sequence) -> Any:
        if value.kind is not tuple:
            return super().key(frame, value)
        return tuple(key_of(frame, item) for item in value.items)

    def length(self, ex: Executor, value: Sequence) -> int:
        guard_length(ex, value)
        return len(value.items)

    def member(self, frame: Frame, value: Sequence, name: str) -> Value | None:
        kind = value.kind
        names = getattr(kind, "_fields", ())
        if name in names and type(in_mro(kind, name)) is TUPLE_GETTER:
            return frame.ex.resolve(value.items[names.index(name)])
        if name == "_fields" and hasattr(kind, "_fields"):
            return frame.ex.constant(names)
        return Const(value.maxlen) if name == "maxlen" and issubclass(kind, deque) else None

    def to_python(self, frame: Frame, value: Sequence) -> Any:
        items = [known_number(plain(frame, item)) for item in items_of(frame, value)]
        if value.kind is deque:
            return deque(items, value.maxlen)
        if value.kind in (list, tuple):
            return value.kind(items)
        if issubclass(value.kind, tuple) and not is_container(value.kind):
            return tuple.__new__(value.kind, items)
        return refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} where a number or string is needed")

    def shown(self, frame: Frame, value: Sequence, done: dict[int, Any]) -> Any:
        if issubclass(value.kind, tuple):
            return tuple.__new__(value.kind, [shown(frame, item, done) for item in items_of(frame, value)])
        if value.kind not in (list, deque):
            return NotImplemented
        made: Any = [] if value.kind is list else deque(maxlen=value.maxlen)
        done[id(value)] = made
        made += [shown(frame, item, done) for item in items_of(frame, value)]
        return made

    def operator(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return _operator_of_sequences(frame, symbol, left, right)

    def contains(self, frame: Frame, value: Sequence, item: Any) -> bool:
        return any(same_or_equal(frame, candidate, item) for candidate in held_items(frame, value))

    def item(self, frame: Frame, value: Sequence, key: Any) -> Value:
        return item_of(frame, value, key)

    def set_item(self, frame: Frame, value: Sequence, key: Any, item: Any) -> None:
        if issubclass(value.kind, tuple):
            throw(TypeError(f"{value.kind.__name__!r} object does not support item assignment"))
        super().set_item(frame, value, key, item)

    def held_iterator(self, frame: Frame, value: Sequence) -> Iterator:
        return Items(value.items, value)

    def items(self, frame: Frame, value: Sequence) -> list[Value]:
        return held_items(frame, value) if own_method(value, "__iter__") is None else super().items(frame, value)

    def as_builtin(self, value: Sequence) -> Sequence:
        return Sequence(base_of(value), value.items)

    def parts(self, value: Sequence) -> Iterable[Any]:
        return [*value.items, *value.fields.values()]

    def recipe(self, results: Recipes, value: Sequence) -> Recipe:
        parts = tuple(results.build(item) for item in value.items)
        if value.kind in (tuple, list):
            return (value.kind.__name__, parts)
        if value.kind is deque:
            return ("make", deque, (("list", parts), ("const", value.maxlen)))
        if issubclass(value.kind, tuple):
            made = ("make", tuple.__new__, (("const", value.kind), ("tuple", parts)))
            return ("make", with_fields, (made, fields(results, value))) if value.fields else made
        return ("make", new_list, (("const", value.kind), ("list", parts), fields(results, value)))

    def empty(self, results: Recipes, value: Sequence) -> tuple[Recipe, Fills]:
        if value.kind is not list:
            return super().empty(results, value)
        return ("list", ()), [(list.append, (item,)) for item in value.items]


def held_items(frame: Frame, value: Sequence) -> list[Value]:
    """What a list or tuple holds, whatever its class says."""
    if not value.sized:
        guard_length(frame.ex, value)
    return [frame.ex.resolve(i) for i in value.items]


def _operator_of_sequences(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        if symbol == "+" and base_of(left) is base_of(right):
            items = last_of([*held_items(frame, left), *held_items(frame, right)], left.maxlen)
            return Sequence(base_of(left), items, maxlen=left.maxlen)
        if symbol in ("==", "!="):
            return Const(_equal(frame, left, right) is (symbol == "=="))
        if symbol in COMPARISONS and base_of(left) is base_of(right):
            return _ordered(frame, symbol, left, right)
    if symbol == "*":
        sequence, count = (left, right) if isinstance(left, Sequence) else (right, left)
        if isinstance(count, Const) and isinstance(count.value, int):
            if sequence.kind is tuple and count.value == 1:
                return sequence
            if count.value * length(frame.ex, sequence) > MAX_ITEMS:
                refuse("UNROLL_LIMIT", f"a {sequence.kind.__name__} of more than {MAX_ITEMS} items")
            items = last_of(held_items(frame, sequence) * count.value, sequence.maxlen)
            return Sequence(base_of(sequence), items, maxlen=sequence.maxlen)
    if symbol in ("==", "!="):
        return Const(symbol == "!=")
    kinds = [type_of(frame, left), type_of(frame, right)]
    if symbol == "+" and isinstance(left, Sequence) and left.kind in (list, tuple):
        name = left.kind.__name__
        throw(TypeError(f'can only concatenate {name} (not "{kinds[1].__name__}") to {name}'))
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {kinds[0].__name__!r} and {kinds[1].__name__!r}"))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a sequence")


def last_of(items: list[Any], maxlen: int | None) -> list[Any]:
    """What a bounded deque keeps."""
    return items if maxlen is None else items[max(len(items) - maxlen, 0) :]


def base_of(value: Sequence) -> type:
    """The built-in type that + and * of a named tuple give."""
    return tuple if issubclass(value.kind, tuple) else list if issubclass(value.kind, list) else value.kind


def _ordered(frame: Frame, symbol: str, left: Sequence, right: Sequence) -> Value:
    """By the first items that differ; where none do, by the lengths."""
    sizes = length(frame.ex, left), length(frame.ex, right)
    for mine, other in zip(list(left.items), list(right.items)):
        if not same_or_equal(frame, mine, other):
            return binary(frame, symbol, frame.ex.resolve(mine), frame.ex.resolve(other))
    return Const(pure(symbol, *sizes))


def _equal(frame: Frame, left: Sequence, right: Sequence) -> bool:
    if base_of(left) is not base_of(right) or length(frame.ex, left) != length(frame.ex, right):
        return False
    k = 0  # comparing may change the lists
    while k < len(left.items) and k < len(right.items):
        if not same_or_equal(frame, left.items[k], right.items[k]):
            break
        k += 1
    return (k >= len(left.items) or k >= len(right.items)) and len(left.items) == len(right.items)


# -- subscripts ---------------------------------------------------------------------------------------------------------------


def index_of(frame: Frame, key: Any) -> Any:
    """A key of a sequence as an int, or a slice of ints."""
    index = frame.ex.to_door(key) if isinstance(frame.ex.resolve(key), (Const, Slice)) else key
    if isinstance(index, slice):
        return slice(*(None if p is None else operator.index(p) for p in (index.start, index.stop, index.step)))
    if isinstance(index, Array):
        index = known_index(frame, index, "an index into a list")
    if isinstance(index, Object) and isinstance(index.value, enum.Enum):
        index = frame.ex.index_number(index)
    if isinstance(index, Object) and special(frame, index, "__index__") is not None:
        index = plain(frame, call_special(frame, index, "__index__"))
    return operator.index(index)


def known_index(frame: Frame, array: Array, what: str) -> int:
    """``operator.index`` of an array or NumPy scalar that depends on no input."""
    known = frame.ex.known(array)
    if known is None or known.ndim or known.dtype.kind not in "iu":
        return refuse("DATA_DEPENDENT", f"{what} is taken from an array")
    return int(known)


def sure_of_index(container: Sequence, index: int) -> bool:
    """Whether an index means the same item however long a list of the caller's is."""
    return 0 <= index < (len(container.items) if container.sized else min(len(container.items), len(container.object)))


def item_of(frame: Frame, container: Sequence, key: Any) -> Value:
    try:
        index = index_of(frame, key)
    except (TypeError, ValueError):
        name, kind = container.kind.__name__, type_of(frame, key).__name__
        throw(TypeError(f"{name} indices must be integers or slices, not {kind}"))
    if isinstance(index, slice) and container.kind is deque:
        throw(TypeError("sequence index must be integer, not 'slice'"))
    depends = isinstance(index, slice) or not sure_of_index(container, index)
    items = held_items(frame, container) if depends else container.items
    try:
        if isinstance(index, slice):
            return Sequence(base_of(container), items[index])
        return frame.ex.resolve(items[index])
    except (IndexError, ValueError) as error:
        name = container.kind.__name__
        if isinstance(error, IndexError) and name == "deque":
            throw(IndexError("deque index out of range"))
        if isinstance(error, IndexError) and issubclass(container.kind, tuple):
            throw(IndexError("tuple index out of range"))
        return throw(error)
