"""Bytecode of CPython 3.11, 3.12 and 3.13 as one stream of normalised instructions.

Every difference between the versions that the executor would see ends here.  What is no row of the tables below stays as it is
and breaks the capture when it is reached.
"""

from __future__ import annotations

import dis
import functools
import sys
from dataclasses import dataclass
from types import CodeType
from typing import Any


@dataclass(frozen=True, slots=True)
class Instruction:
    """`value` is the operand, resolved: a name, a constant, a count; for jumps the index of the target instruction."""

    op: str
    value: Any
    line: int


VERSION = sys.version_info[:2]
# written for specialisation, tracing and closures: without meaning for a symbolic run
IGNORED = frozenset({"CACHE", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"})
RENAMED = {
    "LOAD_METHOD": "LOAD_ATTR",
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_CLOSURE": "LOAD_CLOSURE",
    "DICT_MERGE": "DICT_UPDATE",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "STORE_NAME": "STORE_NAME",
    "POP_JUMP_FORWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_FORWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_FORWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
}
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
JUMPS = frozenset(
    {
        "JUMP",
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "JUMP_IF_TRUE_OR_POP",
        "JUMP_IF_FALSE_OR_POP",
        "FOR_ITER",
    }
)


@functools.lru_cache(maxsize=512)
def decode(code: CodeType) -> tuple[Instruction, ...]:
    """The normalised instructions of a code object."""
    found: list[tuple[int, Instruction]] = []
    line = code.co_firstlineno
    for raw in dis.get_instructions(code):
        line = _line(raw) or line
        found += [(raw.offset, i) for i in _normalise(raw, line)]
    index_at: dict[int, int] = {}
    for index, (offset, _) in enumerate(found):
        index_at.setdefault(offset, index)
    return tuple(_with_target(i, index_at, [x for _, x in found]) for _, i in found)


def _line(raw: dis.Instruction) -> int | None:
    if VERSION >= (3, 13):
        return raw.line_number
    return raw.starts_line if isinstance(raw.starts_line, int) else None


def _with_target(i: Instruction, index_at: dict[int, int], stream: list[Instruction]) -> Instruction:
    if i.op not in JUMPS:
        return i
    offsets = [o for o in index_at if o >= i.value]  # an ignored instruction at the target: the next one that is kept
    target = index_at[min(offsets)] if offsets else len(stream)
    if i.op == "FOR_ITER":  # an exhausted iterator is popped here: END_FOR (and POP_TOP with it) is for the others
        while target < len(stream) and stream[target].op == "END_FOR":
            target += 1
        if VERSION >= (3, 13) and target < len(stream) and stream[target].op == "POP_TOP":
            target += 1
    return Instruction(i.op, target, i.line)


def _normalise(raw: dis.Instruction, line: int) -> list[Instruction]:
    name, value = raw.opname, raw.argval
    if name in IGNORED:
        return []
    if name in _SPLIT:
        first, second = _SPLIT[name]
        return [Instruction(first, value[0], line), Instruction(second, value[1], line)]
    op = RENAMED.get(name, name)
    if name == "LOAD_GLOBAL":
        null = [Instruction("PUSH_NULL", None, line)] if raw.arg & 1 else []  # type: ignore[operator]
        return [*null, Instruction(op, value, line)] if VERSION < (3, 13) else [Instruction(op, value, line), *null]
    if name == "LOAD_METHOD" or (name == "LOAD_ATTR" and VERSION >= (3, 12) and raw.arg & 1):  # type: ignore[operator]
        return [Instruction("LOAD_ATTR", value, line), Instruction("PUSH_NULL", None, line)]
    if name == "BINARY_OP":
        return [Instruction(op, raw.argrepr, line)]
    if name == "COMPARE_OP":
        return [Instruction(op, dis.cmp_op[raw.arg >> COMPARE_SHIFT], line)]  # type: ignore[operator]
    if name in ("IS_OP", "CONTAINS_OP"):
        return [Instruction(op, bool(raw.arg), line)]
    if name == "RETURN_CONST":
        return [Instruction("LOAD_CONST", value, line), Instruction("RETURN_VALUE", None, line)]
    if name in ("KW_NAMES",):
        return [Instruction(op, _keyword_names(raw, value), line)]
    if name in (
        "MAKE_FUNCTION",
        "SET_FUNCTION_ATTRIBUTE",
        "FORMAT_VALUE",
        "UNPACK_EX",
        "CALL_FUNCTION_EX",
        "CALL_INTRINSIC_1",
        "CONVERT_VALUE",
    ):
        return [Instruction(op, raw.arg or 0, line)]
    return [Instruction(op, value, line)]


def _keyword_names(raw: dis.Instruction, value: Any) -> Any:
    return value if isinstance(value, tuple) else raw.arg  # 3.11 gives the index of the constant


_SPLIT = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
