"""Attention of dynagraph.torch in captures: a program calls it as it calls NumPy's functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dynagraph.doors.numpy import Builder, WeakFloat
from dynagraph.doors.numpy.table import Door, register_function
from dynagraph.frontend.library.registry import package
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Shape


@package("dynagraph.torch.core.attention")
def _register() -> None:
    functions: Any = sys.modules["dynagraph.torch.core.attention"]

    def attention(b: Builder, *args: Any) -> tuple[Node, ...]:
        q, _, v, *_, order, _ = args
        shapes = (_laid((*q.shape[:-1], v.shape[-1]), order), (*q.shape[:-1], 2))
        return _called(b, functions.attention, args, shapes)

    def attention_gradient(b: Builder, *args: Any) -> tuple[Node, ...]:
        q, k, v, mask, *_, order, other, learned = args
        shapes = [*(_laid(a.shape, order) for a in (q, k, v)), *((mask, other)[m].shape for m in learned)]
        return _called(b, functions.attention_gradient, args, shapes)

    for door in (attention, attention_gradient):
        register_function(getattr(functions, door.__name__), Door(door.__name__, door, calls_out=True))


def _laid(shape: Shape, order: tuple[int, ...]) -> Shape:
    return tuple(shape[k] for k in order)


def _called(b: Builder, function: Any, args: Sequence[Any], shapes: Sequence[Shape]) -> tuple[Node, ...]:
    """The results of a call, of the dtype of its first argument; numbers that the program is given are operands, too."""
    operands: list[Node] = []
    given = []
    for value in args:
        node = value.node if isinstance(value, WeakFloat) else value
        if isinstance(node, Node):
            given.append(Slot(len(operands)))
            operands.append(node)
        else:
            given.append(value)
    call = FunctionCall(function, tuple(given), takes_out=True, optional=True)
    return tuple(
        b.call("external_call", *operands, call=call, result=k, dtype=args[0].dtype, shape=shape) for k, shape in enumerate(shapes)
    )
