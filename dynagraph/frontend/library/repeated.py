"""Computations that are captured once and made again: what primitives of dynagraph.torch do with operands that are alike.

A primitive's functions are functions of arrays: what they record follows from what can be asked of the operands, which is their
dtype, shape and place in memory, and from the modes.  That is the key here.  A computation is made again only if its capture left
nothing but nodes that depend on the operands: no guard, no check, no effect, no memory that was written.  Constants are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.driver import deadline
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.kinds.aliasing import way_to
from dynagraph.frontend.kinds.grad_modes import OF_CAPTURES
from dynagraph.frontend.kinds.values import Array, Const, Dict, Sequence, Value
from dynagraph.ir.graph import Meta, Node

ATOMS = (type(None), bool, int, str, np.dtype)
KINDS = "fb"  # of dtypes: what is known of integers (their range) depends on how they were computed
NONE = Const(None)


def repeated(frame: Frame, about: Any, operands: list[Any], compute: Callable[[], list[Any]]) -> list[Any]:
    """What `compute` gives of operands: a list of arrays and Nones.

    `about`: all else that it depends on; None if that is not known.
    """
    ex = frame.ex
    key = None if about is None else _key(ex, about, operands)
    if key is None:
        return compute()
    known = ex.computed_before.get(key)
    if known is not None:
        deadline.check()
        return known.again(ex, operands)
    before, latest = _state(ex), ex.graph.latest
    results = compute()
    if _state(ex) == before:  # else the next one, which may find its guards there already, is asked again
        made = _Computation.of(ex, operands, ex.graph.since(latest), results)
        if made is not None:
            ex.computed_before[key] = made
    return results


# -- keys ---------------------------------------------------------------------------------------------------------------------


def known_part(value: Any) -> Any:
    """A value of the captured code as part of a key, without a look at what nothing has looked at yet; None: it cannot be one."""
    if type(value) is Const:
        kind = type(value.value)
        if kind is float:
            return kind, value.value, math.copysign(1.0, value.value)
        return (kind, value.value) if issubclass(kind, ATOMS) or value.value is Ellipsis else None
    if type(value) is Sequence and value.kind is tuple:
        parts = tuple([known_part(item) for item in value.items])
        return None if None in parts else parts
    if type(value) is Dict and value.complete and value.kind is dict:
        return known_parts(value.items)
    return None


def known_parts(values: dict[str, Any]) -> Any:
    """As `known_part`, of values by name."""
    parts = [(name, known_part(value)) for name, value in values.items()]
    return None if any(part is None for _, part in parts) else tuple(parts)


def _key(ex: Executor, about: Any, operands: list[Any]) -> Any:
    if ex.library is not NUMPY or ex.hosting or ex.elsewhere or ex.open_levels or ex.stored or ex.class_attributes:
        return None
    modes = [(name, mode) for name, mode in ex.grad_modes.items() if name not in OF_CAPTURES]
    parts: list[Any] = [about, tuple(modes), tuple(ex.error_state.items())]
    first: dict[Node, int] = {}  # operands that are the same
    for k, operand in enumerate(operands):
        if type(operand) is Array:
            node = ex.memories.present(operand)
            same = first.setdefault(node, k)
            parts.append(same)
            part = None if operands[same].node is not operand.node else _part_of_array(ex, operand, node)
        else:
            part = known_part(operand)
        if part is None:
            return None
        parts.append(part)
    return tuple(parts)


def _part_of_array(ex: Executor, array: Array, node: Node) -> Any:
    """All that is asked of an array, whose values are those of a node now."""
    meta = node.meta
    if meta.dtype.numpy.kind not in KINDS or not _are_numbers(meta.shape) or not _are_numbers(meta.strides or ()):
        return None
    if ex.builder.known(node) is not None:
        return None
    way, base = way_to(array.node)
    place = ex.builder.layout(node)
    if not _are_numbers(place.strides) or type(place.offset) is not int:
        return None
    views = tuple([view.op.name for view in way])
    return (
        meta.dtype, meta.shape, meta.strides, array.is_scalar, place.strides, place.offset, views, base.kind,
        base in ex.memories.of, node is array.node, node in ex.warning,
    )  # fmt: skip


def _are_numbers(sizes: tuple[Any, ...]) -> bool:
    return all(type(n) is int for n in sizes)


def _state(ex: Executor) -> Any:
    """What stays as it is while nodes alone are made."""
    b = ex.builder
    kept = (
        ex.effects, ex.prologue, ex.written, ex.preparations, ex.memories.of, ex.keys, ex.fresh, ex.stored, ex.class_attributes,
        ex.sizes, ex.held, ex.warning, ex.computed, ex.caches, ex.shown, ex.env.values, ex.env.relations, b.checks, b.ranges,
        b.warning,
    )  # fmt: skip
    modes = [(name, mode) for name, mode in ex.grad_modes.items() if name not in OF_CAPTURES]
    return (
        ex.guards.count, ex.n_inputs, b.committed, b.may_bail_out, modes, list(ex.error_state.items()), ex.of_process,
        [len(each) for each in kept],
    )  # fmt: skip


# -- what was computed --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Computation:
    """The nodes that depend on the operands, in order: what each is applied to (others, by their places, or nodes that depend on
    none), whether it stands for a value, and for a scalar; and the results: places, or None.  Operands come first.
    """

    operands: list[int]  # which are arrays
    nodes: list[tuple[Node, Meta, list[Any], bool, bool]]
    results: list[int | None]

    @classmethod
    def of(cls, ex: Executor, operands: list[Any], made: list[Node], results: list[Any]) -> _Computation | None:
        """None where something else is among them."""
        arrays = [k for k, operand in enumerate(operands) if type(operand) is Array]
        places: dict[Node, int] = {}
        values: list[Any] = [operands[k] for k in arrays]
        for place, array in enumerate(values):
            places.setdefault(ex.memories.present(array), place)
        new, nodes = set(made), []
        for node in made:
            args = [places.get(arg, arg) for arg in node.args]
            depends = any(type(arg) is int for arg in args)
            stands_alone = not depends and (not node.args or new.issuperset(node.args))
            if node.kind != "call_function" or node.may_raise or node.has_effect or not (depends or stands_alone):
                return None
            if not depends:
                continue
            value = ex.arrays.get(node)
            is_plain = node.dtype.numpy.kind in KINDS and _are_numbers(node.shape) and not ex.builder.is_told(node)
            if not is_plain or any(type(arg) is not int and arg not in new for arg in args):
                return None
            if value is not None and (value.node is not node or value.source is not None):
                return None
            places[node] = len(values)
            values.append(value)
            nodes.append((node, node.meta, args, value is not None, node in ex.scalars))
        found: list[int | None] = []
        for result in results:
            is_none = type(result) is Const and result.value is None
            at = next((k for k, value in enumerate(values) if value is result), None)
            if at is None and not is_none:
                return None
            found.append(at)
        return cls(arrays, nodes, found)

    def again(self, ex: Executor, operands: list[Any]) -> list[Value]:
        """The results for other operands."""
        values: list[Any] = [operands[k] for k in self.operands]
        nodes = [ex.memories.present(array) for array in values]
        for node, meta, args, is_value, is_scalar in self.nodes:
            again = ex.graph.repeat(node, meta, tuple([nodes[arg] if type(arg) is int else arg for arg in args]))
            nodes.append(again)
            if is_scalar:
                ex.scalars.add(again)
            values.append(ex.own(Array(again, is_scalar)) if is_value else None)
        return [NONE if place is None else values[place] for place in self.results]


__all__ = ["known_part", "known_parts", "repeated"]
