"""Displays: lists that are written out as arguments of NumPy's functions, as in ``np.array([[a, b], [c, d]])``, or of ``f(a, *b)``.

Their items lie on the stack until the function takes them, so that they may be of several types, or arrays.  Whatever else takes a
display has a list made of it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynagraph.doors.numpy import lookup
from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.kinds.values import Function, Method
from dynagraph.frontend.loops import arrays, calls, lists, new_arrays
from dynagraph.frontend.loops.builder import Builder, handler, variable
from dynagraph.frontend.loops.known import opened
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, as_stored, describe, exact, number
from dynagraph.frontend.loops.types import (
    NULL,
    Array,
    Known,
    List,
    Tuple,
    Type,
    Value,
    is_number,
    sample_of,
    tuple_of,
)
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, call
from dynagraph.ir.regions import POINTER, Address, Place, Store, VariableType
from dynagraph.lazy_dataclasses import dataclass


@dataclass(frozen=True)
class Display(Type):
    """``[...]`` on its way into a function."""

    items: tuple[Type, ...]

    @property
    def parts(self) -> tuple[tuple[str, VariableType], ...]:
        return Tuple(self.items).parts


@means("whole", Display)
def listed(b: Builder, value: Value) -> Value:
    """As a list."""
    return lists.made_of(b, [b.whole(v) for v in value.items()])


# -- instructions --------------------------------------------------------------------------------------------------------


@handler("BUILD_LIST")
def build_list(b: Builder, i: Instruction) -> None:
    items = [v if isinstance(v.type, Display) else new_arrays.settled(b, b.whole(v)) for v in b.popn(i.value, whole=False)]
    kept = all(map(_may_wait, (v.type for v in items))) and _is_numpys(b.top.stack)
    kept = kept or _is_of_arguments(b.top.program.instructions, b.top.ip - 1)
    b.push(tuple_of(items, Display) if kept else lists.made_of(b, [b.whole(v) for v in items]))


@handler("LIST_EXTEND")
def list_extend(b: Builder, i: Instruction) -> None:
    owner = b.top.stack[-i.value - 1]
    if not isinstance(owner.type, Display):
        lists.list_extend(b, i)
        return
    values = b.pop()
    if not isinstance(values.type, Tuple):
        values = opened(b, values)
    if not isinstance(values.type, Tuple):
        raise NotNative(f"a list is extended by {describe(values.type)}")
    b.top.stack[-i.value] = tuple_of([*owner.items(), *values.items()], Display)


@handler("LIST_APPEND")
def list_append(b: Builder, i: Instruction) -> None:
    owner = b.top.stack[-i.value - 1]
    if not isinstance(owner.type, Display):
        lists.list_append(b, i)
        return
    value = new_arrays.settled(b, b.pop())
    b.top.stack[-i.value] = tuple_of([*owner.items(), value], Display)


def _is_of_arguments(instructions: Sequence[Instruction], at: int) -> bool:
    """Whether the list that an instruction makes becomes the arguments of a call with ``*args``."""
    depth = 0  # values above the list
    for i in instructions[at + 1 :]:
        if i.op == "LIST_TO_TUPLE" and depth == 0:
            return True
        effect = (0, 1) if i.op in ("LOAD_CONST", "PUSH_NULL") else stack_effect(i)
        if effect is None or effect[0] > depth:
            return False
        depth += effect[1] - effect[0]
    return False


def _may_wait(kind: Type) -> bool:
    if isinstance(kind, (Display, Tuple)):
        return all(map(_may_wait, kind.items))
    return is_number(kind) or (isinstance(kind, Array) and kind.ndim > 0)


def _is_numpys(stack: list[Value]) -> bool:
    """Whether what is on the top of the stack becomes a part of an argument of a function of NumPy's."""
    for value in reversed(stack):
        kind = value.type
        if isinstance(kind, Known) and not isinstance(kind.value, Method):
            held = kind.value.object if isinstance(kind.value, Function) else getattr(kind.value, "value", None)
            if callable(held) and not isinstance(held, type):
                return lookup(held) is not None and (held in calls.MEANINGS or not isinstance(kind.value, Function))
        elif kind != NULL and not _may_wait(kind) and not isinstance(kind, arrays.Pending):
            return False
    return False


# -- arrays of them ------------------------------------------------------------------------------------------------------


def array(b: Builder, given: Value, dtype: Value | None) -> Value:
    """``np.array(given, dtype)`` of what is no array."""
    if isinstance(given.type, List):
        return _of_list(b, given, dtype)
    if not isinstance(given.type, (Display, Tuple)) or not _may_wait(given.type):
        raise NotNative(f"an array of {describe(given.type)}")
    leaves = _leaves(given)
    asked = _asked(given.type)
    first = leaves[0].sizes if leaves and isinstance(leaves[0].type, Array) else ()
    outer = asked.shape[: asked.ndim - len(first)]
    for leaf in leaves:
        if len(first) != (leaf.type.ndim if isinstance(leaf.type, Array) else 0):
            raise NotNative("an array of arrays and numbers")
        for mine, its in zip(first, leaf.sizes if first else ()):
            b.require(call("eq", mine, its))
    kind = new_arrays.dtype_from(dtype, _dtype(asked))
    if first and kind.is_complex:
        raise NotNative("an array of arrays of complex numbers")
    if first:
        return _of_arrays(b, leaves, kind, [*map(number, outer), *first])
    stored = [b.temporary(as_stored(b, leaf, kind)) for leaf in leaves]
    made = new_arrays.new(b, kind, [*map(number, outer)])
    for k, item in enumerate(stored):
        b.emit(Store(Place(made.data, ((number(k), None),), kind), item))
    return made


def _leaves(value: Value) -> list[Value]:
    if not isinstance(value.type, (Display, Tuple)):
        return [value]
    return [leaf for item in value.items() for leaf in _leaves(item)]


def _asked(kind: Type) -> Any:
    """What NumPy makes of values of these types; arrays stand for themselves with one element on each axis."""
    try:
        return np.array(_sample(kind))
    except (ValueError, TypeError, OverflowError) as error:
        raise NotNative(f"an array: {error}") from None


def _sample(kind: Type) -> Any:
    if isinstance(kind, (Display, Tuple)):
        return [_sample(item) for item in kind.items]
    return np.ones((1,) * kind.ndim, kind.dtype.numpy) if isinstance(kind, Array) else sample_of(kind)


def _dtype(asked: Any) -> DType:
    found = from_numpy(asked.dtype)
    if found is None:
        raise NotNative(f"an array of {asked.dtype}")
    return found


def _of_arrays(b: Builder, leaves: list[Value], dtype: DType, sizes: list[Expr]) -> Value:
    """Arrays of the same sizes, one after the other."""
    made = new_arrays.new(b, dtype, sizes)
    kind = leaves[0].type
    assert isinstance(made.type, Array) and isinstance(kind, Array)
    part = replace(made.type, ndim=kind.ndim, is_view=True)
    step = b.temporary(exact("mul", made.strides[-kind.ndim], leaves[0].sizes[0]))
    for k, leaf in enumerate(leaves):
        at = b.fresh(POINTER)
        b.emit(Address(at, Place(made.data, ((number(k), step),), dtype)))
        target = (made.owner, variable(at, POINTER), *leaf.sizes, *made.strides[-kind.ndim :], number(1))
        arrays.copy_elements(b, Value(part, target), leaf)
    return made


def _of_list(b: Builder, given: Value, dtype: Value | None) -> Value:
    """A list of numbers, as a vector."""
    item = given.type.item  # type: ignore[attr-defined]
    if item is None or not is_number(item):
        raise NotNative(f"an array of {describe(given.type)}")
    kind = new_arrays.dtype_from(dtype, _dtype(np.array([sample_of(item)])))
    n = lists.length(b, given).only
    if dtype is None:
        b.require(call("gt", n, number(0)))  # else it is of floats
    made = new_arrays.new(b, kind, [n])
    items = lists.items_of(b, given.only)
    (turn,) = turns = arrays.nest(b, made.sizes)
    found = lists.load_items(b, items, turn.index, item)
    stored = as_stored(b, found, kind)
    b.emit(Store(Place(made.data, ((turn.index, None),), kind), stored))
    arrays.end_nest(b, turns, True)
    return made


__all__ = ["Display", "array", "listed"]
