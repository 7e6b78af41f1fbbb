"""Doors of recurrent layers (`dynagraph/_core/dispatch/recurrent.c`), which dynagraph.torch calls: a program calls them, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagraph._core._dispatch import (
    recurrent_backward,
    recurrent_before,
    recurrent_cell,
    recurrent_cell_backward,
    recurrent_forward,
)
from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.table import Door, register_function
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Shape


def _called(
    b: Builder, function: Callable[..., Any], args: tuple[Any, ...], shapes: Sequence[Shape], takes_out: bool = True
) -> Any:
    """Nodes for the results: all have the dtype of the arrays of floats."""
    operands = [value for value in args if isinstance(value, Node)]
    slots = iter(range(len(operands)))
    static = tuple(Slot(next(slots)) if isinstance(value, Node) else value for value in args)
    call = FunctionCall(function, static, takes_out=takes_out, optional=True)
    dtype = next(node.dtype for node in operands if node.dtype.is_inexact)
    return tuple(
        b.call("external_call", *operands, call=call, result=k, dtype=dtype, shape=shape) for k, shape in enumerate(shapes)
    )


def _forward(
    b: Builder, kind: Any, reverse: Any, x: Node, h0: Any, c0: Any, weights: Node, bias: Any, bias_of_state: Any, projection: Any,
    counts: Any, room: Any = None,
) -> Any:  # fmt: skip
    lead, columns, outputs = x.shape[:-1], weights.shape[0], weights.shape[1]
    shapes: list[Shape] = [(*lead, outputs)]
    if kind == "lstm":
        shapes += [(*lead, columns // 4), (*lead, columns)]
    elif kind == "gru":
        shapes.append((*lead, columns // 3 * 4))
    args = (kind, reverse, x, h0, c0, weights, bias, bias_of_state, projection, counts)
    return _called(b, recurrent_forward, args, shapes)


def _backward(
    b: Builder, kind: Any, reverse: Any, grad_outputs: Any, grad_cells: Any, outputs: Node, cells: Any, gates: Any, h0: Node,
    c0: Any, weights: Node, projection: Any, counts: Any, room: Any = None,
) -> Any:  # fmt: skip
    by_x: Shape = (*outputs.shape[:-1], weights.shape[0])
    shapes: list[Shape] = [by_x, h0.shape]
    if kind == "lstm":
        shapes.append(c0.shape)
        if projection is not None:
            shapes += [outputs.shape, cells.shape]
    elif kind == "gru":
        shapes.append(by_x)
    args = (kind, reverse, grad_outputs, grad_cells, outputs, cells, gates, h0, c0, weights, projection, counts)
    return _called(b, recurrent_backward, args, shapes)


def _before(b: Builder, reverse: Any, outputs: Node, h0: Node, counts: Any) -> Any:
    return _called(b, recurrent_before, (reverse, outputs, h0, counts), [outputs.shape], takes_out=False)


def _cell(b: Builder, kind: Any, x: Node, of_state: Node, before: Node, room: Any = None) -> Any:
    batch, hidden = before.shape
    shapes: Sequence[Shape] = [(batch, hidden)] * (2 if kind == "lstm" else 1) + [(batch, hidden * 4)]
    return _called(b, recurrent_cell, (kind, x, of_state, before), shapes)


def _cell_backward(
    b: Builder, kind: Any, grad_h: Any, grad_c: Any, cells: Any, gates: Node, before: Node, room: Any = None
) -> Any:
    batch, hidden = before.shape
    by_gates = (batch, hidden * (4 if kind == "lstm" else 3))
    shapes: Sequence[Shape] = [by_gates, (batch, hidden)] + [by_gates] * (kind == "gru")
    return _called(b, recurrent_cell_backward, (kind, grad_h, grad_c, cells, gates, before), shapes)


_DOORS: dict[Callable[..., Any], Callable[..., Any]] = {
    recurrent_forward: _forward, recurrent_backward: _backward, recurrent_before: _before, recurrent_cell: _cell,
    recurrent_cell_backward: _cell_backward,
}  # fmt: skip
for _function, _door in _DOORS.items():
    register_function(_function, Door(_function.__name__, _door, "array", calls_out=True))

__all__: list[str] = []
