"""Operators as methods that are called by their names: ``[1].__eq__(x)``, ``a.__radd__(2)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.doors.numpy import operator_door
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.sequences import base_of
from dynagraph.frontend.kinds.slots import binary, contains, in_place, iterate, slots_of, subscript
from dynagraph.frontend.kinds.values import Array, Const, Number, Sequence, Value
from dynagraph.python_operators import ARITHMETIC, COMPARISONS, Operator

Method = Callable[..., Value]


def _of_container(row: Operator, reflected: bool) -> Method:
    """The built-in type's own operator, which answers NotImplemented to other types; those of sequences raise."""

    def method(frame: Frame, owner: Any, other: Any) -> Value:
        other = frame.ex.resolve(other)
        raises = isinstance(owner, Sequence) and row.symbol in ARITHMETIC
        if not raises and not _alike(owner, other):
            return Const(NotImplemented)
        left, right = (other, owner) if reflected else (owner, other)
        result = slots_of(owner).operator(frame, row.symbol, left, right)  # type: ignore[attr-defined]
        return Const(NotImplemented) if result is NotImplemented else result

    return method


def _alike(owner: Any, other: Any) -> bool:
    return type(owner) is type(other) and (not isinstance(owner, Sequence) or base_of(owner) is base_of(other))


def operators_of(kind: type) -> dict[str, Method]:
    """Those that a built-in container has."""
    rows = (ARITHMETIC | COMPARISONS).values()
    made = {row.reflected: _of_container(row, row.symbol in ARITHMETIC) for row in rows if hasattr(kind, row.reflected)}
    return made | {row.method: _of_container(row, False) for row in rows if hasattr(kind, row.method)}


def _reflected(row: Operator) -> Method:
    def method(frame: Frame, owner: Array, other: Any) -> Value:
        other = frame.ex.resolve(other)
        if not isinstance(other, (Const, Number, Array)):  # whose own operator would be asked
            refuse("UNSUPPORTED_FUNCTION", f".{row.reflected}() of an array and a {type(other).__name__.lower()}")
        return binary(frame, row.symbol, other, owner)

    return method


def _in_place(row: Operator) -> Method:
    return lambda frame, owner, other: in_place(frame, row.symbol, owner, other)


OF_ARRAYS: dict[str, Method] = {
    **{row.reflected: _reflected(row) for row in ARITHMETIC.values()},
    **{row.in_place_method: _in_place(row) for row in ARITHMETIC.values()},
    "__len__": lambda frame, owner: frame.ex.call_door(operator_door("len"), [owner]),
    "__getitem__": subscript,
    "__contains__": lambda frame, owner, item: Const(contains(frame, owner, item)),
    "__iter__": iterate,
}

__all__ = ["OF_ARRAYS", "operators_of"]
