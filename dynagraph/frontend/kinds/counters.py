"""Counters of objects: ints that classes declare in ``__dynagraph_counters__``, which captured code adds to and compares.

What they hold is not guarded: a program serves any count.  Two readings of one counter compare by what was added in between.
Anything else that asks for the number has it guarded.
"""

from __future__ import annotations

import operator
from typing import Any

from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.recipes import Recipe, Recipes
from dynagraph.frontend.guards.guards import Equal
from dynagraph.frontend.kinds.slots import Slots, binary, slots
from dynagraph.frontend.kinds.values import Const, Count

COMPARED = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _number(frame: Frame, value: Count) -> Any:
    """What the counter is at now, as a number that changes from call to call."""
    held = frame.ex.wrap(value.held, value.counter)
    return binary(frame, "+", held, Const(value.added)) if value.added else held


@slots(Count)
class CountSlots(Slots):
    def type_of(self, frame: Frame, value: Count) -> type:
        return int

    def to_python(self, frame: Frame, value: Count) -> Any:
        frame.ex.guards.require(Equal(value.counter, value.held))
        return value.held + value.added

    def rank(self, value: Count, symbol: str, reflected: bool) -> int:
        return 10

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        if isinstance(left, Count) and isinstance(right, Const) and type(right.value) is int and symbol in ("+", "-"):
            return Count(left.counter, left.held, left.added + right.value if symbol == "+" else left.added - right.value)
        if isinstance(left, Count) and isinstance(right, Count) and left.counter == right.counter and symbol in COMPARED:
            return Const(COMPARED[symbol](left.added, right.added))
        return binary(frame, symbol, *(_number(frame, v) if isinstance(v, Count) else v for v in (left, right)))

    def recipe(self, results: Recipes, value: Count) -> Recipe:
        return ("make", operator.add, (("arg", results.ex.guards.register(value.counter)), ("const", value.added)))
