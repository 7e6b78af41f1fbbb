"""The cells of a function's own that only comprehensions, and generators of builtins, see, which cannot set them."""

from __future__ import annotations

import builtins
import functools
import types
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction, Same, UndecodableCode, decode
from dynagraph.frontend.bytecode.resume import stack_effect
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.executor.wrapping import load_global

AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>")  # functions that are called at once, and then no more
GENERATOR = "<genexpr>"
CONSUMERS = ("sum", "any", "all", "min", "max", "list")  # which have done with a generator when they return
EFFECTS = {"LOAD_CONST": (0, 1), "PUSH_NULL": (0, 1), "LOAD_CLOSURE": (0, 1)}


def plain_cells(ex: CaptureState, code: types.CodeType, globals: dict[str, Any]) -> frozenset[str]:
    """The cells of a function's own that are variables like others.  That the builtins are these is guarded."""
    found = _plain_cells(Same(code))
    for name in sorted(_consumers_of(code)) if found else ():
        if getattr(load_global(ex, globals, name), "value", None) is not getattr(builtins, name):
            return frozenset()  # a function of the user's may keep a generator
    return found


@functools.lru_cache(maxsize=512)
def _plain_cells(same: Same) -> frozenset[str]:
    code = same.code
    inside = consumed(code)
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType) and not (is_plain(c) or c in inside)]
    return frozenset(code.co_cellvars) - {name for c in inner for name in c.co_freevars}


def is_plain(code: types.CodeType) -> bool:
    return code.co_name in AT_ONCE and _holds_plain(code)


def _holds_plain(code: types.CodeType) -> bool:
    """Whether the functions that it makes are comprehensions, and generators of builtins."""
    inside = consumed(code)
    return all(is_plain(c) or c in inside for c in code.co_consts if isinstance(c, types.CodeType))


def _consumers_of(code: types.CodeType) -> set[str]:
    """The builtins that the generators of a function are given to."""
    found = set(consumed(code).values())
    for inner in consumed(code):
        found |= _consumers_of(inner)
    return found


def consumed(code: types.CodeType) -> dict[types.CodeType, str]:
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
