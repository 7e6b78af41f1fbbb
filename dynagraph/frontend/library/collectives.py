"""Collectives of dynagraph.torch in captures: a program calls them in its middle, on its own memory, in the order of the code."""

from __future__ import annotations

import sys
from typing import Any

from dynagraph.doors.numpy import Builder
from dynagraph.doors.numpy.table import Door, register_function
from dynagraph.frontend.library.registry import package
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node


@package("dynagraph.torch.distributed.effects")
def _register() -> None:
    functions: Any = sys.modules["dynagraph.torch.distributed.effects"]

    def exchanged(b: Builder, x: Node, like: Node, count: int, *about: Any) -> Node:
        call = FunctionCall(functions.exchanged, (Slot(0), Slot(1), count, *about), takes_out=True)
        return b.call("effect_call", x, like, call=call, dtype=like.dtype, shape=(count, *like.shape) if count else like.shape)

    def started(b: Builder, x: Node, like: Node, count: int, *about: Any) -> Node:
        call = FunctionCall(functions.started, (Slot(0), Slot(1), count, *about))
        return b.call("effect_call", x, like, call=call, dtype=dtypes.int64, shape=(), awaited=True)

    def finished(b: Builder, handle: Node, like: Node, count: int) -> Node:
        call = FunctionCall(functions.finished, (Slot(0), Slot(1), count), takes_out=True)
        return b.call("effect_call", handle, like, call=call, dtype=like.dtype, shape=(count, *like.shape) if count else like.shape)

    for door in (exchanged, started, finished):
        register_function(getattr(functions, door.__name__), Door(door.__name__, door, "array", calls_out=True, has_effect=True))


__all__: list[str] = []
