"""Decode bytecode of CPython 3.11, 3.12 and 3.13 into one stream of normalised instructions; assemble.py is the way back.

Every difference between the versions that the executor would see ends here. Nothing is lost on the way: instructions that mean
nothing to a symbolic run (RESUME, NOP, MAKE_CELL...) stay in the stream, and an opcode that no row of the tables below names
stays as it is, with the operand that `dis` would show.
"""

from __future__ import annotations

import dis
import functools
import opcode as _opcode
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

VERSION = sys.version_info[:2]


class UndecodableCode(ValueError):
    """Code that has no unambiguous normalised form: run it as it is."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`value` is the operand, resolved: a name, a constant, a count; for jumps the index of the target instruction.

    `positions` is what `co_positions` says: (line, end_line, column, end_column), each perhaps None.
    Without it an instruction stands on `line`.
    """

    op: str
    value: Any
    line: int
    positions: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Instructions [start, end): an exception there cuts the stack to `depth` and jumps to the index `target`.

    Pushed are the offset of the instruction that raised, if `push_lasti`, and the exception.
    """

    start: int
    end: int
    target: int
    depth: int
    push_lasti: bool


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of `code`, and for each of them the region that holds it, if any."""

    code: CodeType
    instructions: tuple[Instruction, ...]
    regions: tuple[Region, ...]
    handlers: tuple[Region | None, ...]


CONDITIONAL = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")  # on the truth of a value
JUMPS = frozenset(
    {
        "JUMP",
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "FOR_ITER",
        "SEND",
    }
)
BINARY_OPERATORS = tuple(symbol for _, symbol in _opcode._nb_ops)  # type: ignore[attr-defined]


def decode(code: CodeType) -> Program:
    """The normalised program of a code object; UndecodableCode if it has none."""
    return _decode(Same(code))


class Same:
    """A code object as itself: equal ones may have other files, and their constants need not be hashable."""

    __slots__ = ("code",)

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __hash__(self) -> int:
        return id(self.code)

    def __eq__(self, other: object) -> bool:
        return self.code is other.code  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=512)
def _decode(same: Same) -> Program:
    code = same.code
    if not set(code.co_cellvars).isdisjoint(code.co_freevars):
        # an inlined comprehension's cell is named like a free variable; CPython itself confuses the two
        raise UndecodableCode(f"{code.co_qualname}: a cell variable and a free variable of the same name")
    return _Reader(code).program()


class _Reader:
    """Reads one code object. Offsets count code units (2 bytes), as jumps and exception tables do."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.slots = slots_of(code.co_varnames, code.co_cellvars, code.co_freevars)
        self.ops: list[str] = []
        self.values: list[Any] = []
        self.offsets: list[int] = []  # of the first unit of what an instruction is made of: where jumps to it go
        self.places: list[int] = []  # of the unit of the opcode: its position, and where exceptions come from

    def program(self) -> Program:
        self._read()
        if VERSION >= (3, 13):
            self._merge_end_for()
            self._name_closures()
        for index, op in enumerate(self.ops):
            if op in JUMPS:
                self.values[index] = bisect_left(self.offsets, self.values[index])
        if VERSION >= (3, 12):
            self._aim_behind_end_for()
        regions = self._regions()
        return Program(self.code, self._instructions(), regions, handlers_of(regions, len(self.ops)))

    def _read(self) -> None:
        ops, values, offsets, places = self.ops, self.values, self.offsets, self.places
        readers = _READERS
        start = None  # of an instruction that began with its keyword names
        keywords: tuple[str, ...] | None = None
        for offset, place, name, arg in _units(self.code.co_code):
            if name == "PRECALL":
                continue
            if start is None:
                start = offset
            if name == "KW_NAMES":
                assert arg is not None
                keywords = self.code.co_consts[arg]
                continue
            if name == "CALL_KW":
                keywords, start = self._take_keywords()
            parts = [("CALL_KW", (arg, keywords))] if keywords is not None else readers[name](self, name, arg, place)
            for op, value in parts:
                ops.append(op)
                values.append(value)
                offsets.append(start)
                places.append(place)
            start = keywords = None

    def _take_keywords(self) -> tuple[tuple[str, ...], int]:
        """3.13 has the names of keyword arguments on the stack, put there right before the call."""
        if not self.ops or self.ops[-1] != "LOAD_CONST":
            raise UndecodableCode(f"{self.code.co_qualname}: the names of keyword arguments are computed")
        self.ops.pop()
        self.places.pop()
        return self.values.pop(), self.offsets.pop()

    def _instructions(self) -> tuple[Instruction, ...]:
        positions = list(self.code.co_positions())
        line = self.code.co_firstlineno
        found = []
        for op, value, place in zip(self.ops, self.values, self.places):
            position = positions[place]
            line = position[0] or line
            found.append(Instruction(op, value, line, position))
        return tuple(found)

    def _merge_end_for(self) -> None:
        """3.13 ends a loop with END_FOR and POP_TOP, which FOR_ITER both skips."""
        behind = [index + 1 for index, op in enumerate(self.ops) if op == "END_FOR"]
        for index in reversed(behind):
            if self.ops[index] != "POP_TOP":
                raise UndecodableCode(f"{self.code.co_qualname}: END_FOR without POP_TOP")
            for column in (self.ops, self.values, self.offsets, self.places):
                del column[index]

    def _aim_behind_end_for(self) -> None:
        for index, op in enumerate(self.ops):
            if op == "FOR_ITER":
                if self.ops[self.values[index]] != "END_FOR":
                    raise UndecodableCode(f"{self.code.co_qualname}: FOR_ITER without END_FOR")
                self.values[index] += 1

    def _name_closures(self) -> None:
        """3.13 loads cells with LOAD_FAST too.

        Where an inlined comprehension borrows the slot of a cell for a plain variable, only what becomes of the value tells
        the one from the other.
        """
        shared = {*self.code.co_varnames}.intersection(self.code.co_cellvars)
        borrowed = {value for op, value in zip(self.ops, self.values) if op in _WRITES_OF_SLOTS}
        always = shared - borrowed
        for index, (op, value) in enumerate(zip(self.ops, self.values)):
            if op == "LOAD_FAST" and value in always:
                self.ops[index] = "LOAD_CLOSURE"
            elif op == "SET_FUNCTION_ATTRIBUTE" and value == _CLOSURE and self.ops[index - 3] == "BUILD_TUPLE":
                for k in range(index - 3 - self.values[index - 3], index - 3):
                    self.ops[k] = "LOAD_CLOSURE"

    def _regions(self) -> tuple[Region, ...]:
        found = []
        for start, end, target, depth, push_lasti in _exception_table(self.code.co_exceptiontable):
            first, last = bisect_left(self.places, start), bisect_left(self.places, end)
            if first < last:
                found.append(Region(first, last, bisect_left(self.offsets, target), depth, push_lasti))
        return tuple(found)


def slots_of(varnames: tuple[str, ...], cellvars: tuple[str, ...], freevars: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a frame's slots in their order: a variable that is both local and cell has one."""
    return varnames + tuple(name for name in cellvars if name not in varnames) + freevars


def handlers_of(regions: tuple[Region, ...], n_instructions: int) -> tuple[Region | None, ...]:
    handlers: list[Region | None] = [None] * n_instructions
    for region in regions:
        handlers[region.start : region.end] = [region] * (region.end - region.start)
    return tuple(handlers)


def _units(code: bytes) -> Iterator[tuple[int, int, str, int | None]]:
    """(offset of the first unit, of the opcode's unit, name, argument), without caches and EXTENDED_ARG."""
    start = 0
    extended = 0
    index = 0
    while index < len(code):
        op, arg = code[index], code[index + 1] | extended
        if op == _EXTENDED_ARG:
            extended = arg << 8
            index += 2
            continue
        place = index >> 1
        yield start, place, _opcode.opname[op], arg if HAS_ARGUMENT[op] else None
        start = place + 1 + CACHES[op]
        index = start * 2
        extended = 0


def _exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, push_lasti); CPython: Objects/exception_handling_notes.txt."""
    numbers = []
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            numbers.append(number)
            number = 0
    for start, size, target, depth_and_lasti in zip(*[iter(numbers)] * 4):
        yield start, start + size, target, depth_and_lasti >> 1, bool(depth_and_lasti & 1)


# Rows: an opcode's name -> what it becomes; (reader, name, argument, offset of its unit) -> [(name, operand), ...]
_Read = Callable[[_Reader, str, Any, int], list[tuple[str, Any]]]
_CLOSURE = 8  # a flag of SET_FUNCTION_ATTRIBUTE
_WRITES_OF_SLOTS = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
_EXTENDED_ARG = _opcode.opmap["EXTENDED_ARG"]
HAS_ARGUMENT = [
    op >= _opcode.HAVE_ARGUMENT if VERSION < (3, 12) else op in _opcode.hasarg  # type: ignore[attr-defined]
    for op in range(256)
]
CACHES = [
    dis._inline_cache_entries[op] if VERSION < (3, 13) else dis._inline_cache_entries.get(_opcode.opname[op], 0)  # type: ignore[attr-defined]
    for op in range(256)
]
_COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
_COMPARE_TO_BOOL = 16 if VERSION >= (3, 13) else 0
_TO_BOOL: list[tuple[str, Any]] = [] if VERSION >= (3, 13) else [("TO_BOOL", None)]


def _plain(reader: _Reader, name: str, arg: Any, place: int) -> list[tuple[str, Any]]:
    return [(name, arg)]


def _const(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [(name, reader.code.co_consts[arg])]


def _name(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [(name, reader.code.co_names[arg])]


def _slot(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [(name, reader.slots[arg])]


def _load_fast(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [("LOAD_CLOSURE" if arg >= reader.code.co_nlocals else "LOAD_FAST", reader.slots[arg])]


def _two_slots(first: str, second: str) -> _Read:
    reads = tuple(_load_fast if op == "LOAD_FAST" else _slot for op in (first, second))
    return lambda reader, name, arg, place: [
        *reads[0](reader, first, arg >> 4, place),
        *reads[1](reader, second, arg & 15, place),
    ]


def _jump(to: str, backward: bool, *, before: list[tuple[str, Any]] = [], behind: list[tuple[str, Any]] = []) -> _Read:  # noqa: B006
    def read(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
        base = place + 1 + CACHES[_opcode.opmap[name]]
        return [*before, (to, base - arg if backward else base + arg), *behind]

    return read


def _load_global(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    load = ("LOAD_GLOBAL", reader.code.co_names[arg >> 1])
    if not arg & 1:
        return [load]
    return [("PUSH_NULL", None), load] if VERSION < (3, 13) else [load, ("PUSH_NULL", None)]


def _load_attr(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [("LOAD_METHOD" if arg & 1 else "LOAD_ATTR", reader.code.co_names[arg >> 1])]


def _load_super_attr(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    return [(name, (reader.code.co_names[arg >> 2], bool(arg & 1), bool(arg & 2)))]


def _compare(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    compare = (name, dis.cmp_op[arg >> _COMPARE_SHIFT])
    return [compare, ("TO_BOOL", None)] if arg & _COMPARE_TO_BOOL else [compare]


def _intrinsic(reader: _Reader, name: str, arg: int, place: int) -> list[tuple[str, Any]]:
    own_name = INTRINSICS.get(arg)
    return [(own_name, None)] if own_name else [(name, arg)]


INTRINSICS = {5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"}
_SPECIAL: dict[str, _Read] = {
    "LOAD_GLOBAL": _load_global,
    "COMPARE_OP": _compare,
    "CALL_INTRINSIC_1": _intrinsic,
    "BINARY_OP": lambda reader, name, arg, place: [(name, BINARY_OPERATORS[arg])],
    "IS_OP": lambda reader, name, arg, place: [(name, bool(arg))],
    "CONTAINS_OP": lambda reader, name, arg, place: [(name, bool(arg))],
    "UNARY_NOT": lambda reader, name, arg, place: [*_TO_BOOL, (name, None)],
    "RETURN_CONST": lambda reader, name, arg, place: [("LOAD_CONST", reader.code.co_consts[arg]), ("RETURN_VALUE", None)],
    "JUMP_FORWARD": _jump("JUMP", False),
    "JUMP_BACKWARD": _jump("JUMP", True),
    "JUMP_BACKWARD_NO_INTERRUPT": _jump("JUMP", True),
    "LOAD_FAST_LOAD_FAST": _two_slots("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": _two_slots("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": _two_slots("STORE_FAST", "STORE_FAST"),
}
if VERSION >= (3, 12):
    _SPECIAL |= {"LOAD_ATTR": _load_attr, "LOAD_SUPER_ATTR": _load_super_attr}
if VERSION >= (3, 13):
    _SPECIAL |= {"LOAD_FAST": _load_fast}
for _condition in ("TRUE", "FALSE"):
    _test = f"POP_JUMP_IF_{_condition}"
    # 3.11 only; what JUMP_IF_x_OR_POP keeps is the value, what it tests is its truth
    _SPECIAL[f"JUMP_IF_{_condition}_OR_POP"] = _jump(
        _test, False, before=[("COPY", 1), ("TO_BOOL", None)], behind=[("POP_TOP", None)]
    )
for _condition in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    _test = f"POP_JUMP_IF_{_condition}"
    _bool = _TO_BOOL if _condition in ("TRUE", "FALSE") else []
    _SPECIAL[_test] = _SPECIAL[f"POP_JUMP_FORWARD_IF_{_condition}"] = _jump(_test, False, before=_bool)
    _SPECIAL[f"POP_JUMP_BACKWARD_IF_{_condition}"] = _jump(_test, True, before=_bool)


def _reader_of(op: int, name: str) -> _Read:
    if name in _SPECIAL:
        return _SPECIAL[name]
    for kind, read in ((_opcode.hasconst, _const), (_opcode.hasname, _name), (_opcode.haslocal, _slot), (_opcode.hasfree, _slot)):
        if op in kind:
            return read
    if op in _opcode.hasjrel:
        return _jump(name, "BACKWARD" in name)
    return _plain


_READERS = {name: _reader_of(op, name) for name, op in _opcode.opmap.items() if op < 256}
