"""Collectives of dynagraph.torch in captures: a program calls them in its middle, on its own memory, in the order of the code."""

from __future__ import annotations

import sys
from typing import Any

from dynagraph.doors.numpy import Builder
from dynagraph.doors.numpy.arguments import as_shape
from dynagraph.doors.numpy.builder import Unsupported, known_dtype
from dynagraph.doors.numpy.table import Door, register_function
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.values import Const, Object, Value
from dynagraph.frontend.library.registry import meaning, package
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node


@package("dynagraph.torch.distributed.effects")
def _register() -> None:
    functions: Any = sys.modules["dynagraph.torch.distributed.effects"]

    def exchanged(b: Builder, x: Node, shape: Any, *about: Any) -> Node:
        sizes = as_shape(shape, "exchanged")
        call = FunctionCall(functions.exchanged, (Slot(0), sizes, *about), takes_out=True)
        return b.call("effect_call", x, call=call, dtype=x.dtype, shape=sizes)

    def started(b: Builder, x: Node, shape: Any, *about: Any) -> Node:
        call = FunctionCall(functions.started, (Slot(0), as_shape(shape, "started"), *about))
        return b.call("effect_call", x, call=call, dtype=dtypes.int64, shape=(), awaited=True)

    def started_where_it_lies(b: Builder, operation: str, group: str, place: str, details: Any, *parts: Node) -> Node:
        slots = tuple(map(Slot, range(len(parts))))
        call = FunctionCall(functions.started_where_it_lies, (operation, group, place, details, *slots))
        return b.call("effect_call", *parts, call=call, dtype=dtypes.int64, shape=(), awaited=True, keeps=True)

    def finished_part(b: Builder, handle: Node, part: Node, number: int) -> Node:
        call = FunctionCall(functions.finished_part, (Slot(0), Slot(1), number), takes_out=True)
        return b.call("effect_call", handle, part, call=call, dtype=part.dtype, shape=part.shape, over=1)

    def advanced(b: Builder, x: Node) -> Node:
        return b.call("effect_call", x, call=FunctionCall(functions.advanced, (Slot(0),)), dtype=dtypes.int64, shape=())

    def finished(b: Builder, handle: Node, shape: Any, dtype: Any) -> Node:
        sizes, kind = as_shape(shape, "finished"), known_dtype(dtype, "finished")
        call = FunctionCall(functions.finished, (Slot(0), sizes, kind.numpy), takes_out=True)
        return b.call("effect_call", handle, call=call, dtype=kind, shape=sizes)

    def runs_plainly(b: Builder, why: str) -> None:
        raise Unsupported("SIDE_EFFECT", why)

    register_function(functions.runs_plainly, Door("runs_plainly", runs_plainly))
    for door in (exchanged, started, started_where_it_lies, advanced, finished, finished_part):
        register_function(getattr(functions, door.__name__), Door(door.__name__, door, "array", calls_out=True, has_effect=True))


@package("dynagraph.torch.distributed.fsdp.modules")
def _register_sharded_modules() -> None:
    find_root = sys.modules["dynagraph.torch.distributed.fsdp.modules"].find_root

    @meaning(find_root)
    def found_root(frame: Frame, module: Any, state: Any) -> Value:
        owner, known = frame.ex.resolve(module), frame.ex.resolve(state)
        if not all(isinstance(value, Object) and value.source is not None for value in (owner, known)):
            refuse("UNSUPPORTED_VALUE", "a call of a module that the function itself has divided")
        find_root(owner.value, known.value)  # a plain call does the same
        return Const(None)


__all__: list[str] = []
