"""Slots of sets and frozensets."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import CannotBuild, Recipe, Recipes, check_keys
from dynagraph.frontend.executor.wrapping import guard_order
from dynagraph.frontend.kinds.containers import ContainerSlots
from dynagraph.frontend.kinds.iterators import Entries
from dynagraph.frontend.kinds.slots import Slots, is_none_of, key_of, slots
from dynagraph.frontend.kinds.values import Const, Iterator, ObjectKey, Set, Value
from dynagraph.python_operators import BINARY


@slots(Set)
class SetSlots(ContainerSlots):
    rank_of_builtin = 2
    written_in_place = ((set, "|&-^"),)

    def length(self, ex: Executor, value: Set) -> int:
        return len(value.items)

    def to_python(self, frame: Frame, value: Set) -> Any:
        guard_order(frame.ex, value)
        return value.kind(value.items)

    def key(self, frame: Frame, value: Set) -> Any:
        return frozenset(value.items) if value.kind is frozenset else super().key(frame, value)

    def operator(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return _operator_of_sets(frame, symbol, left, right)

    def in_place(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return super().in_place(frame, symbol, left, right) if isinstance(right, Set) else NotImplemented

    def contains(self, frame: Frame, value: Set, item: Any) -> bool:
        return not is_none_of(frame, item, value.items) and key_of(frame, item) in value.items

    set_item = Slots.set_item
    delete_item = Slots.delete_item

    def held_iterator(self, frame: Frame, value: Set) -> Iterator:
        guard_order(frame.ex, value)
        return Entries(value, list(value.items))

    def recipe(self, results: Recipes, value: Set) -> Recipe:
        check_keys(value.items)
        for key in value.items:
            if isinstance(key, ObjectKey):
                raise CannotBuild("a set of instances of subclasses of numbers or texts", key.born)
        return ("make", value.kind, (("const", tuple(value.items)),))


def _operator_of_sets(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if isinstance(left, Set) and isinstance(right, Set):
        return of_sets(frame, BINARY[symbol].function(left.items, right.items), left, right)
    if symbol in ("==", "!="):
        return Const(symbol == "!=")
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a set and a {type(right).__name__.lower()}")


def of_sets(frame: Frame, result: Any, *operands: Any) -> Value:
    """The result of an operation on sets, whose order depends on theirs."""
    value = frame.ex.constant(result)
    if isinstance(value, Set):
        sets = [o for o in operands if isinstance(o, Set)]
        value.bases = tuple(dict.fromkeys(b for s in sets for b in (s, *s.bases) if b.source is not None))
    return value
