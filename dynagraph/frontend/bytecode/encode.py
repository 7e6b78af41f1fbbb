"""Encode normalised instructions as opcodes of the running Python version: the inverse of decode.py."""

from __future__ import annotations

import dis
import opcode as _opcode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from typing import Any

from dynagraph.frontend.bytecode.decode import (
    BINARY_OPERATORS,
    CACHES,
    HAS_ARGUMENT,
    INTRINSICS,
    JUMPS,
    VERSION,
    Instruction,
    Region,
    slots_of,
)


@dataclass(slots=True, eq=False)
class Item:
    """An instruction of a stream that may change: jumps and handlers point at items, so that some can be put in anywhere."""

    op: str
    value: Any
    positions: tuple[int | None, ...]
    target: Item | None = None
    handler: Handler | None = None
    is_target: bool = False
    first: Opcode | None = None  # what was made of it, or of what comes next

    def aim(self, target: Item) -> Item:
        self.target = target
        target.is_target = True
        return self


@dataclass(slots=True, eq=False)
class Handler:
    target: Item
    depth: int
    push_lasti: bool


@dataclass(slots=True, eq=False)
class Opcode:
    """An opcode of this version; the argument of a jump is known when all have their place."""

    name: str
    arg: int | None
    item: Item
    jump: Item | None = None
    offset: int = 0
    n_extended: int = 0

    @property
    def number(self) -> int:
        return _opcode.opmap[self.name]

    @property
    def end(self) -> int:
        return self.offset + 1 + self.n_extended + CACHES[self.number]


def stream_of(instructions: Sequence[Instruction], regions: Iterable[Region]) -> list[Item]:
    items = [Item(i.op, i.value, i.positions or (i.line, i.line, None, None)) for i in instructions]
    for item in items:
        if item.op in JUMPS:
            item.aim(items[item.value])
    for region in regions:
        handler = Handler(items[region.target], region.depth, region.push_lasti)
        handler.target.is_target = True
        for item in items[region.start : region.end]:
            if item.handler is not None:
                raise ValueError(f"two regions hold the same instruction: {region}")
            item.handler = handler
    return items


def prepend_cells(stream: list[Item], parameters: Iterable[str]) -> None:
    """For parameters that are cells already: instructions that say so to CPython, and are never run.

    What shows the variables of a frame (`locals()`, debuggers) looks for a MAKE_CELL before the instruction that runs, to
    tell a cell from a variable whose value is a cell.
    """
    made = set()
    for item in stream:
        if item.op == "RESUME":
            break
        if item.op == "MAKE_CELL":
            made.add(item.value)
    places = stream[0].positions
    unmade = [Item("MAKE_CELL", name, places) for name in parameters if name not in made]
    if unmade:
        stream[:0] = [Item("JUMP", None, places).aim(stream[0]), *unmade]


INVERSE = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}


def straighten(stream: list[Item]) -> None:
    """Put in what jumps need that this version has in one direction only."""
    place = {id(item): k for k, item in enumerate(stream)}
    appended: list[Item] = []
    inserted: list[tuple[int, Item]] = []
    for k, item in enumerate(stream):
        target = item.target
        if target is None or item.op == "JUMP":
            continue
        backward = place[id(target)] <= k
        if item.op in ("FOR_ITER", "SEND"):
            before = stream[place[id(target)] - 1]
            if item.op == "FOR_ITER" and VERSION >= (3, 12) and before.op == "END_FOR" and not backward:
                item.aim(before)
            elif backward or (item.op == "FOR_ITER" and VERSION >= (3, 12)):
                appended += _landing(item, target)
        elif backward and VERSION >= (3, 12):
            if k + 1 == len(stream):
                raise ValueError(f"the code ends with {item.op}")
            item.op = INVERSE[item.op]
            item.aim(stream[k + 1])
            inserted.append((k + 1, Item("JUMP", None, item.positions, handler=item.handler).aim(target)))
    for k, jump in reversed(inserted):
        stream.insert(k, jump)
    stream += appended


def _landing(item: Item, target: Item) -> list[Item]:
    """A way from a FOR_ITER or SEND to where it cannot go by itself."""
    jump = Item("JUMP", None, item.positions, handler=target.handler).aim(target)
    landing = [Item("END_FOR", None, item.positions, handler=target.handler), jump] if item.op == "FOR_ITER" else [jump]
    item.aim(landing[0])
    return landing


class Tables:
    """What arguments of opcodes index."""

    def __init__(self, consts: Sequence[Any], varnames: Iterable[str], cellvars: Sequence[str], freevars: Sequence[str]) -> None:
        self.consts = list(consts)
        self.names: list[str] = []
        self.varnames = list(varnames)
        self.cellvars = tuple(cellvars)
        self.freevars = tuple(freevars)
        self._const_at = {id(value): k for k, value in enumerate(self.consts)}
        self._name_at: dict[str, int] = {}

    def add_locals(self, stream: Iterable[Item]) -> None:
        """Slots for the variables of the stream, and checks that cells are there where they are used."""
        known = {*self.varnames}
        for item in stream:
            if item.op in LOCAL_OPS and item.value not in known:
                known.add(item.value)
                self.varnames.append(item.value)
        slots = slots_of(tuple(self.varnames), self.cellvars, self.freevars)
        self._local_at = {name: k for k, name in enumerate(self.varnames)}
        self._cell_at = {name: k for k, name in enumerate(slots) if k >= len(slots) - len(self.freevars) or name in self.cellvars}

    def const(self, value: Any) -> int:
        # by identity: equal is not the same (0.0 and -0.0, two empty lists), and not all values are hashable
        index = self._const_at.setdefault(id(value), len(self.consts))
        if index == len(self.consts):
            self.consts.append(value)
        return index

    def name(self, value: str) -> int:
        index = self._name_at.setdefault(value, len(self.names))
        if index == len(self.names):
            self.names.append(value)
        return index

    def local(self, name: str) -> int:
        return self._local_at[name]

    def cell(self, name: str) -> int:
        if name not in self._cell_at:
            raise ValueError(f"{name!r} is neither a cell variable nor a free variable")
        return self._cell_at[name]


def emit(stream: Sequence[Item], tables: Tables) -> list[Opcode]:
    emitted: list[Opcode] = []
    k = 0
    while k < len(stream):
        item = stream[k]
        following = stream[k + 1] if k + 1 < len(stream) and _are_one(item, stream[k + 1]) else None
        made = _EMITTED_PAIRS.get((item.op, following.op), _no_pair)(item, following, tables) if following else None
        k += 1 if made is None else 2
        if made is None:
            made = _EMITTERS.get(item.op, _emit_plain)(item, tables)
        if made:
            item.first = made[0]
        emitted += made
    # what nothing was made of leads to what comes next
    following_opcode = None
    for item in reversed(stream):
        following_opcode = item.first = item.first or following_opcode
    return emitted


def _are_one(item: Item, following: Item) -> bool:
    """Whether two instructions can be one opcode: nothing comes between them, whichever way it comes."""
    return not following.is_target and item.handler is following.handler


# --- rows: the name of an instruction -> its opcodes ---

_Emitter = Callable[[Item, Tables], list[Opcode]]
_PairEmitter = Callable[[Item, Item, Tables], list[Opcode] | None]
_COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(VERSION, 5)
# what the low bits must say of an operator since 3.12: compare_masks in CPython's compile.c
_COMPARE_MASKS = {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12} if VERSION >= (3, 12) else {}
_COMPARE_TO_BOOL = 16
_DUAL = 16  # slots that two-variable opcodes can name
LOCAL_OPS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST"})
CELL_OPS = frozenset(_opcode.opname[op] for op in _opcode.hasfree) | {"LOAD_CLOSURE"}


def _operand(name: str, value: Any, tables: Tables) -> int | None:
    """What an opcode that the stream has by its own name takes for an argument."""
    op = _opcode.opmap.get(name)
    if op is None:
        raise ValueError(f"Python {VERSION[0]}.{VERSION[1]} has no {name}")
    if not HAS_ARGUMENT[op]:
        return None
    for kind, index in _INDEXES:
        if op in kind:
            return index(tables, value)
    return int(value)


_INDEXES: tuple[tuple[frozenset[int], Callable[[Tables, Any], int]], ...] = (
    (frozenset(_opcode.hasconst), Tables.const),
    (frozenset(_opcode.hasname), Tables.name),
    (frozenset(_opcode.haslocal), Tables.local),
    (frozenset(_opcode.hasfree), Tables.cell),
)


def _emit_plain(item: Item, tables: Tables) -> list[Opcode]:
    if item.target is not None:
        return [Opcode(item.op, 0, item, item.target)]
    return [Opcode(item.op, _operand(item.op, item.value, tables), item)]


def _argument(of: Callable[[Any, Tables], int], op: str | None = None) -> _Emitter:
    """One opcode whose argument `of` makes of the value."""
    return lambda item, tables: [Opcode(op or item.op, of(item.value, tables), item)]


def _emit_call(item: Item, tables: Tables) -> list[Opcode]:
    before = [Opcode("PRECALL", item.value, item)] if VERSION < (3, 12) else []
    return [*before, Opcode("CALL", item.value, item)]


def _emit_call_kw(item: Item, tables: Tables) -> list[Opcode]:
    n, keywords = item.value
    if VERSION >= (3, 13):
        return [Opcode("LOAD_CONST", tables.const(keywords), item), Opcode("CALL_KW", n, item)]
    before = [Opcode("PRECALL", n, item)] if VERSION < (3, 12) else []
    return [Opcode("KW_NAMES", tables.const(keywords), item), *before, Opcode("CALL", n, item)]


def _emit_to_bool(item: Item, tables: Tables) -> list[Opcode]:
    if VERSION >= (3, 13):
        return [Opcode("TO_BOOL", None, item)]
    return [Opcode("UNARY_NOT", None, item), Opcode("UNARY_NOT", None, item)]


def _emit_end_for(item: Item, tables: Tables) -> list[Opcode]:
    if VERSION < (3, 12):
        return []
    behind = [Opcode("POP_TOP", None, item)] if VERSION >= (3, 13) else []
    return [Opcode("END_FOR", None, item), *behind]


def _compare_argument(value: str, tables: Tables) -> int:
    return dis.cmp_op.index(value) << _COMPARE_SHIFT | _COMPARE_MASKS.get(value, 0)


def _fixed(number: int) -> Callable[[Any, Tables], int]:
    return lambda value, tables: number


def _super_argument(value: tuple[str, bool, bool], tables: Tables) -> int:
    name, is_method, two_args = value
    return tables.name(name) << 2 | two_args << 1 | is_method


_EMITTERS: dict[str, _Emitter] = {
    "CALL": _emit_call,
    "CALL_KW": _emit_call_kw,
    "TO_BOOL": _emit_to_bool,
    "END_FOR": _emit_end_for,
    "COMPARE_OP": _argument(_compare_argument),
    "BINARY_OP": _argument(lambda value, tables: BINARY_OPERATORS.index(value)),
    "LOAD_GLOBAL": _argument(lambda value, tables: tables.name(value) << 1),
}
if VERSION < (3, 12):
    _EMITTERS["LOAD_FAST_CHECK"] = _argument(lambda value, tables: tables.local(value), "LOAD_FAST")
if VERSION >= (3, 12):
    _EMITTERS["LOAD_ATTR"] = _argument(lambda value, tables: tables.name(value) << 1)
    _EMITTERS["LOAD_METHOD"] = _argument(lambda value, tables: tables.name(value) << 1 | 1, "LOAD_ATTR")
    _EMITTERS["LOAD_SUPER_ATTR"] = _argument(_super_argument)
    for _number, _intrinsic in INTRINSICS.items():
        _EMITTERS[_intrinsic] = _argument(_fixed(_number), "CALL_INTRINSIC_1")
if VERSION >= (3, 13):
    _EMITTERS["LOAD_CLOSURE"] = _argument(lambda value, tables: tables.cell(value), "LOAD_FAST")


def _null_and_global(item: Item, following: Item, tables: Tables) -> list[Opcode]:
    load = item if item.op == "LOAD_GLOBAL" else following
    return [Opcode("LOAD_GLOBAL", tables.name(load.value) << 1 | 1, load)]


def _second_alone(item: Item, following: Item, tables: Tables) -> list[Opcode]:
    return _EMITTERS.get(following.op, _emit_plain)(following, tables)


def _compare_to_bool(item: Item, following: Item, tables: Tables) -> list[Opcode]:
    return [Opcode("COMPARE_OP", _compare_argument(item.value, tables) | _COMPARE_TO_BOOL, item)]


def _return_const(item: Item, following: Item, tables: Tables) -> list[Opcode] | None:
    if item.positions != following.positions:
        return None
    return [Opcode("RETURN_CONST", tables.const(item.value), item)]


def _two_variables(item: Item, following: Item, tables: Tables) -> list[Opcode] | None:
    first, second = tables.local(item.value), tables.local(following.value)
    if first >= _DUAL or second >= _DUAL or item.positions != following.positions:
        return None
    return [Opcode(f"{item.op}_{following.op}", first << 4 | second, item)]


def _no_pair(item: Item, following: Item, tables: Tables) -> list[Opcode] | None:
    return None


# two instructions that are one opcode, where they can be
_EMITTED_PAIRS: dict[tuple[str, str], _PairEmitter] = {}
if VERSION < (3, 13):
    _EMITTED_PAIRS[("PUSH_NULL", "LOAD_GLOBAL")] = _null_and_global
    for _second in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"):
        _EMITTED_PAIRS[("TO_BOOL", _second)] = _second_alone  # they test any object
else:
    _EMITTED_PAIRS[("LOAD_GLOBAL", "PUSH_NULL")] = _null_and_global
    _EMITTED_PAIRS[("COMPARE_OP", "TO_BOOL")] = _compare_to_bool
    for _pair in (("LOAD_FAST", "LOAD_FAST"), ("STORE_FAST", "LOAD_FAST"), ("STORE_FAST", "STORE_FAST")):
        _EMITTED_PAIRS[_pair] = _two_variables
if VERSION >= (3, 12):
    _EMITTED_PAIRS[("LOAD_CONST", "RETURN_VALUE")] = _return_const


# --- places ---


def lay_out(emitted: Sequence[Opcode]) -> None:
    """Give every opcode its offset, and jumps their arguments, with as many EXTENDED_ARG as they need."""
    for opcode in emitted:
        opcode.n_extended = _n_extended(opcode.arg or 0)
    changed = True
    while changed:  # ends, as sizes only grow
        changed = False
        offset = 0
        for opcode in emitted:
            opcode.offset = offset
            offset = opcode.end
        for opcode in emitted:
            if opcode.jump is not None:
                opcode.arg = abs(opcode.jump.first.offset - opcode.end)  # type: ignore[union-attr]
                needed = _n_extended(opcode.arg)
                if needed > opcode.n_extended:
                    opcode.n_extended = needed
                    changed = True


def _n_extended(arg: int) -> int:
    return (max(arg.bit_length(), 1) - 1) // 8


def aim_jumps(emitted: Sequence[Opcode]) -> None:
    """Names of jumps by their direction."""
    index = {id(opcode): k for k, opcode in enumerate(emitted)}
    for k, opcode in enumerate(emitted):
        if opcode.jump is not None:
            if opcode.jump.first is None:
                raise ValueError(f"{opcode.name} jumps beyond the end of the code")
            opcode.name = _jump_name(opcode.name, index[id(opcode.jump.first)] <= k, opcode.jump)


def _jump_name(name: str, backward: bool, target: Item) -> str:
    if name == "JUMP":
        if not backward:
            return "JUMP_FORWARD"
        # an interrupt while something is awaited is for the innermost coroutine
        awaits = target.op == "SEND" or (target.op == "END_SEND" and VERSION >= (3, 13))
        return "JUMP_BACKWARD_NO_INTERRUPT" if awaits else "JUMP_BACKWARD"
    if VERSION < (3, 12) and name in INVERSE:
        return name.replace("POP_JUMP", "POP_JUMP_BACKWARD" if backward else "POP_JUMP_FORWARD")
    return name


# --- what the interpreter takes on trust ---


def check_loads(stream: Sequence[Item], parameters: Iterable[str]) -> None:
    """LOAD_FAST becomes LOAD_FAST_CHECK where the variable may have no value: since 3.12, LOAD_FAST does not look."""
    if VERSION < (3, 12):
        return
    bit: dict[str, int] = {}
    for item in stream:
        if item.op in LOCAL_OPS:
            bit.setdefault(item.value, 1 << len(bit))
    place = {id(item): k for k, item in enumerate(stream)}
    assigned: list[int | None] = [None] * len(stream)  # the variables that have a value, on every way to an instruction
    pending = [(0, sum(bit.get(name, 0) for name in parameters))]
    while pending:
        k, state = pending.pop()
        while k < len(stream):
            before = assigned[k]
            if before is not None and before & state == before:
                break
            state = assigned[k] = state if before is None else before & state
            item = stream[k]
            if item.handler is not None:
                pending.append((place[id(item.handler.target)], state))
            if item.op in ("STORE_FAST", "LOAD_FAST", "LOAD_FAST_CHECK"):
                state |= bit[item.value]
            elif item.op in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
                state &= ~bit[item.value]
            if item.target is not None:
                pending.append((place[id(item.target)], state))
            if item.op in ENDS or item.op == "JUMP":
                break
            k += 1
    for item, known in zip(stream, assigned):
        if item.op == "LOAD_FAST" and not (known or 0) & bit[item.value]:
            item.op = "LOAD_FAST_CHECK"


ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})


def stack_depth(emitted: Sequence[Opcode], flags: int) -> int:
    """The greatest depth of the stack; ValueError if two ways to an opcode come with different depths."""
    index = {id(opcode): k for k, opcode in enumerate(emitted)}
    depths: list[int | None] = [None] * len(emitted)
    # until 3.12 what is sent to a generator is there without an opcode that pushed it
    is_generator = flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
    pending = [(0, 1 if is_generator and VERSION < (3, 13) else 0)]
    greatest = 0
    while pending:
        k, depth = pending.pop()
        while True:
            if depths[k] is not None:
                if depths[k] != depth:
                    raise ValueError(f"{_place(emitted[k])}: the stack is {depths[k]} or {depth} deep")
                break
            depths[k] = depth
            opcode = emitted[k]
            handler = opcode.item.handler
            if handler is not None:
                if depth < handler.depth:
                    raise ValueError(f"{_place(opcode)}: the stack is {depth} deep, its handler needs {handler.depth}")
                pending.append((index[id(handler.target.first)], handler.depth + handler.push_lasti + 1))
            number, argument = opcode.number, opcode.arg
            if opcode.jump is not None:
                there = depth + dis.stack_effect(number, argument, jump=True)
                greatest = max(greatest, there)
                pending.append((index[id(opcode.jump.first)], there))
            if opcode.name in ENDS or opcode.name.startswith("JUMP_"):
                break
            depth += dis.stack_effect(number, argument, jump=False)
            if depth < 0:
                raise ValueError(f"{_place(opcode)}: takes from an empty stack")
            greatest = max(greatest, depth)
            k += 1
            if k == len(emitted):
                raise ValueError("the code has no end")
    return greatest


def _place(opcode: Opcode) -> str:
    return f"{opcode.item.op} {opcode.item.value!r} in line {opcode.item.positions[0]}"
