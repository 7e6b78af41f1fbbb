"""Calls with ``*args``: the list that the code makes of the arguments is a display, and never a list."""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.loops import new_arrays
from dynagraph.frontend.loops.builder import Builder, handler
from dynagraph.frontend.loops.displays import Display
from dynagraph.frontend.loops.instructions import call_with
from dynagraph.frontend.loops.known import opened
from dynagraph.frontend.loops.operators import NotNative, describe
from dynagraph.frontend.loops.types import Tuple, tuple_of


@handler("LIST_TO_TUPLE")
def list_to_tuple(b: Builder, i: Instruction) -> None:
    (value,) = b.popn(1, whole=False)
    if not isinstance(value.type, Display):
        raise NotNative(f"a tuple of {describe(value.type)}")
    b.push(tuple_of([new_arrays.settled(b, b.whole(v)) for v in value.items()]))


@handler("CALL_FUNCTION_EX")
def call_function_ex(b: Builder, i: Instruction) -> None:
    if i.value & 1:
        raise NotNative("a call with ** of a dict")
    given = b.top.stack[-1]
    arguments = given if isinstance(given.type, Tuple) else opened(b, given)
    if not isinstance(arguments.type, Tuple):
        raise NotNative(f"a call with * of {describe(given.type)}")
    taken, _ = stack_effect(i) or (3, 1)
    first, second = b.top.stack[-3:-1]
    call_with(b, first, second, list(arguments.items()), (), taken)
