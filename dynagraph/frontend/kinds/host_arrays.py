"""Slots of arrays of NumPy's in a capture of CuPy's arrays (executor/host_arrays.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.host_arrays import UNKNOWN, evaluated, value_of
from dynagraph.frontend.executor.recipes import CannotBuild, Recipe, Recipes
from dynagraph.frontend.kinds import values
from dynagraph.frontend.kinds.slots import Slots, binary, iterate, slots
from dynagraph.frontend.kinds.values import Array, Const, HostArray, Iterator, Method, Value
from dynagraph.python_operators import BINARY, UNARY


def call_method(frame: Frame, owner: HostArray, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Value:
    """``owner.name(*args, **kwargs)``."""
    return _value(frame, getattr(owner.array, name), args, kwargs)


def _value(frame: Frame, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Value:
    result = evaluated(frame.ex, function, args, kwargs)
    return refuse("MIXED_LIBRARIES", "an operation of both") if result is UNKNOWN else value_of(frame.ex, result)


@slots(HostArray)
class HostArraySlots(Slots):
    def type_of(self, frame: Frame, value: HostArray) -> type:
        return type(value.array)

    def truth(self, frame: Frame, value: HostArray) -> bool:
        return bool(evaluated(frame.ex, bool, [value], {}))

    def length(self, ex: Executor, value: HostArray) -> int:
        return int(evaluated(ex, len, [value], {}))

    def to_python(self, frame: Frame, value: HostArray) -> Any:
        return value.array

    def rank(self, value: HostArray, symbol: str, reflected: bool) -> int:
        return 9

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        for own, other in ((left, right), (right, left)):
            if isinstance(other, Array) and isinstance(own, HostArray) and isinstance(own.array, np.generic):
                scalar = frame.ex.from_door(frame.ex.builder.as_node(own.array), "value")
                return binary(frame, symbol, *((scalar, other) if own is left else (other, scalar)))
        return _value(frame, BINARY[symbol].function, [left, right], {})

    def in_place(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        in_place = BINARY[symbol].in_place
        if in_place is None or not isinstance(left, HostArray) or isinstance(left.array, np.generic):
            return NotImplemented
        if evaluated(frame.ex, in_place, [left, right], {}) is UNKNOWN:
            refuse("MIXED_LIBRARIES", f"{symbol}= of both")
        return left

    def unary(self, frame: Frame, name: str, value: HostArray) -> Value:
        return _value(frame, UNARY[name].function, [value], {})

    def item(self, frame: Frame, value: HostArray, key: Any) -> Value:
        return _value(frame, value.array.__getitem__, [key], {})

    def set_item(self, frame: Frame, value: HostArray, key: Any, item: Any) -> None:
        _value(frame, value.array.__setitem__, [key, item], {})

    def iterate(self, frame: Frame, value: HostArray) -> Iterator:
        parts = values.Sequence(list, [value_of(frame.ex, part) for part in value.array])
        return iterate(frame, parts)

    def attribute(self, frame: Frame, value: HostArray, name: str) -> Value:
        found = getattr(value.array, name, None)
        return Method(name, value) if callable(found) else _value(frame, getattr, [value, Const(name)], {})

    def recipe(self, results: Recipes, value: HostArray) -> Recipe:
        if isinstance(value.array, np.generic):
            return ("const", value.array)
        raise CannotBuild("an array of NumPy's among arrays of CuPy's", value.born)


__all__ = ["call_method"]
