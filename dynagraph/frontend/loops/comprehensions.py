"""Comprehensions of Python 3.11, and generator expressions that builtins are given: functions that are called where they stand.

The cells that they read are variables like others.
"""

from __future__ import annotations

import types
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction, Same
from dynagraph.frontend.bytecode.liveness import start_of
from dynagraph.frontend.kinds.values import Function
from dynagraph.frontend.loops.builder import Builder, handler
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative
from dynagraph.frontend.loops.plain_cells import GENERATOR, consumed, is_plain
from dynagraph.frontend.loops.types import NULL, CellOf, Comprehension, Generator, Known, Tuple, Value, is_cell

CLOSURE = 8  # the flag of MAKE_FUNCTION


@handler("LOAD_CLOSURE")
def load_closure(b: Builder, i: Instruction) -> None:
    value = b.top.locals.get(i.value)
    if value is None or value.type == NULL or is_cell(value):
        raise NotNative(f"{i.value} is shared with an inner function")
    b.push(Value(CellOf(value.type), value.parts))


@handler("MAKE_CELL")
def make_cell(b: Builder, i: Instruction) -> None:
    frame = b.top
    if not frame.whole and (i.value not in frame.plain or frame.ip > start_of(frame.program)):
        raise NotNative("a function that shares its variables")


@handler("STORE_DEREF")
def store_deref(b: Builder, i: Instruction) -> None:
    frame = b.top
    if i.value in frame.program.code.co_freevars:
        raise NotNative(f"{i.value} of an enclosing function is set")
    if not frame.whole and i.value not in frame.plain:
        raise NotNative(f"{i.value} is shared with an inner function")
    frame.locals[i.value] = b.pop()


@handler("MAKE_FUNCTION")
def make_function(b: Builder, i: Instruction) -> None:
    code = b.pop().type
    closure = b.pop() if i.value == CLOSURE else Value(Tuple(()))
    held = getattr(code.value, "value", None) if isinstance(code, Known) else None
    if i.value not in (0, CLOSURE, None) or not isinstance(held, types.CodeType):
        raise NotNative("a function is made")
    if not is_plain(held) and held not in consumed(b.top.program.code):
        raise NotNative("a function is made")
    assert isinstance(closure.type, Tuple)
    b.push(Value(Comprehension(Same(held), closure.type, b.top.function.globals), closure.parts))


@handler("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(b: Builder, i: Instruction) -> None:
    closure, function = b.popn(2)
    kind = function.type
    if i.value != CLOSURE or not isinstance(kind, Comprehension) or not isinstance(closure.type, Tuple):
        raise NotNative("a function is made")
    b.push(Value(Comprehension(kind.code, closure.type, kind.globals), closure.parts))


@means("call", Comprehension)
def call(b: Builder, function: Value, args: list[Value]) -> None:
    kind = function.type
    assert isinstance(kind, Comprehension)
    if kind.code.code.co_name == GENERATOR:
        (iterator,) = args
        b.popn(2)
        b.push(Value(Generator(kind, iterator.type), (*function.parts, *iterator.parts)))
        return
    code, arguments = _begin(function, args)
    b.inline_whole(Function(code, b.top.function.globals, code.co_name), arguments)


def arguments_of(generator: Value) -> tuple[types.CodeType, dict[str, Value]]:
    """The code of a generator expression, and what its variables are when it begins."""
    kind = generator.type
    assert isinstance(kind, Generator)
    n = len(kind.function.parts)
    iterator = Value(kind.iterator, generator.parts[n:])
    return _begin(Value(kind.function, generator.parts[:n]), [iterator])


def _begin(function: Value, args: list[Value]) -> tuple[types.CodeType, dict[str, Value]]:
    kind = function.type
    assert isinstance(kind, Comprehension)
    code = kind.code.code
    arguments = dict(zip(code.co_varnames, args))
    for name, value in zip(code.co_freevars, Value(kind.closure, function.parts).items()):
        assert isinstance(value.type, CellOf)
        arguments[name] = Value(value.type.held, value.parts)
    return code, arguments


def made(code: types.CodeType, globals: dict[str, Any], closure: tuple[Any, ...]) -> types.FunctionType:
    """The function, for Python to call."""
    return types.FunctionType(code, globals, code.co_name, None, closure or None)


def begun(function: types.FunctionType, iterator: Any) -> Any:
    """The generator, for Python to give to what it calls."""
    return function(iterator)
