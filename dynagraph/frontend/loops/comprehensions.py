"""Comprehensions of Python 3.11, and generator expressions that builtins are given: functions that are called where they stand.

The cells that they read are variables like others.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction, Same, UndecodableCode, decode
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.kinds.values import Function
from dynagraph.frontend.loops.builder import Builder, handler
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative
from dynagraph.frontend.loops.types import NULL, CellOf, Comprehension, Generator, Known, Tuple, Value, is_cell

AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>")  # functions that are called at once, and then no more
GENERATOR = "<genexpr>"
CONSUMERS = ("sum", "any", "all", "min", "max", "list")  # which have done with a generator when they return
CLOSURE = 8  # the flag of MAKE_FUNCTION
EFFECTS = {"LOAD_CONST": (0, 1), "PUSH_NULL": (0, 1), "LOAD_CLOSURE": (0, 1)}


def plain_cells(code: types.CodeType) -> frozenset[str]:
    """The cells of a function's own that only comprehensions, and generators of builtins, see, which cannot set them: they are
    variables like others."""
    return _plain_cells(Same(code))


@functools.lru_cache(maxsize=512)
def _plain_cells(same: Same) -> frozenset[str]:
    code = same.code
    consumed = _consumed(code)
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType) and not (_is_plain(c) or c in consumed)]
    return frozenset(code.co_cellvars) - {name for c in inner for name in c.co_freevars}


def _is_plain(code: types.CodeType) -> bool:
    return code.co_name in AT_ONCE and _holds_plain(code)


def _holds_plain(code: types.CodeType) -> bool:
    """Whether the functions that it makes are comprehensions, and generators of builtins."""
    consumed = _consumed(code)
    return all(_is_plain(c) or c in consumed for c in code.co_consts if isinstance(c, types.CodeType))


def consumers_of(code: types.CodeType) -> set[str]:
    """The builtins that the generators of a function are given to."""
    found = set(_consumed(code).values())
    for inner in _consumed(code):
        found |= consumers_of(inner)
    return found


def _consumed(code: types.CodeType) -> dict[types.CodeType, str]:
    """The generator expressions that a builtin is given wherever they are made, and its name."""
    try:
        instructions = decode(code).instructions
    except UndecodableCode:
        return {}
    found: dict[types.CodeType, str | None] = {}
    for k, i in enumerate(instructions):
        if i.op == "LOAD_CONST" and isinstance(i.value, types.CodeType) and i.value.co_name == GENERATOR:
            name = _consumer(instructions, k)
            found[i.value] = name if found.get(i.value, name) == name else None
    return {c: name for c, name in found.items() if name is not None}


def _consumer(instructions: tuple[Instruction, ...], at: int) -> str | None:
    """The builtin that a generator expression, whose code is loaded, is the only argument of."""
    if not _holds_plain(instructions[at].value):
        return None
    k = at - 1
    while instructions[k].op in ("LOAD_CLOSURE", "BUILD_TUPLE", "PUSH_NULL"):
        k -= 1
    callee = instructions[k]
    if callee.op != "LOAD_GLOBAL" or callee.value not in CONSUMERS:
        return None
    depth, k = -1, at + 1  # values above the function
    while k < len(instructions) - 1:
        i = instructions[k]
        if i.op == "MAKE_FUNCTION" and depth < 0:
            depth = 0
        elif i.op == "SET_FUNCTION_ATTRIBUTE" and depth == 0:
            pass
        elif i.op == "CALL" and i.value == 0 and depth == 1:
            return callee.value if instructions[k + 1].op == "CALL" and instructions[k + 1].value == 1 else None  # type: ignore[no-any-return]
        elif (effect := EFFECTS.get(i.op) or stack_effect(i)) is not None and depth >= effect[0]:
            depth += effect[1] - effect[0]
        else:
            return None
        k += 1
    return None


@handler("LOAD_CLOSURE")
def load_closure(b: Builder, i: Instruction) -> None:
    value = b.top.locals.get(i.value)
    if value is None or value.type == NULL or is_cell(value):
        raise NotNative(f"{i.value} is shared with an inner function")
    b.push(Value(CellOf(value.type), value.parts))


@handler("MAKE_CELL")
def make_cell(b: Builder, i: Instruction) -> None:
    if not b.top.whole:
        raise NotNative("a function that shares its variables")


@handler("STORE_DEREF")
def store_deref(b: Builder, i: Instruction) -> None:
    frame = b.top
    if not frame.whole and (i.value not in b.plain or len(b.frames) > 1):
        raise NotNative(f"{i.value} is shared with an inner function")
    frame.locals[i.value] = b.pop()


@handler("MAKE_FUNCTION")
def make_function(b: Builder, i: Instruction) -> None:
    code = b.pop().type
    closure = b.pop() if i.value == CLOSURE else Value(Tuple(()))
    held = getattr(code.value, "value", None) if isinstance(code, Known) else None
    if i.value not in (0, CLOSURE, None) or not isinstance(held, types.CodeType):
        raise NotNative("a function is made")
    if not _is_plain(held) and held not in _consumed(b.top.program.code):
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
