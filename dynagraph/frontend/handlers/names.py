"""Names, constants and the stack."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.bytecode.decode import VERSION, Instruction
from dynagraph.frontend.executor.exceptions import throw
from dynagraph.frontend.executor.executor import Frame, handler, refuse
from dynagraph.frontend.executor.wrapping import load_cell, load_global
from dynagraph.frontend.guards.sources import DictEntry
from dynagraph.frontend.kinds.slots import delete_attribute, load_attribute, store_attribute
from dynagraph.frontend.kinds.values import DELETED, NULL, Cell, Const, Value
from dynagraph.frontend.library.builtins import make_super
from dynagraph.frontend.library.stdlib import import_from, import_module


@handler("LOAD_CONST")
def load_const(frame: Frame, i: Instruction) -> None:
    frame.stack.append(frame.ex.constant(i.value))


@handler("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, i: Instruction) -> None:
    value = frame.locals.get(i.value, NULL)
    if value is NULL:
        throw(UnboundLocalError(f"cannot access local variable {i.value!r} where it is not associated with a value"))
    frame.stack.append(value)  # unseen: what is only handed on needs no guard


@handler("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, i: Instruction) -> None:
    frame.push(frame.cells.pop(i.value, None) or frame.locals.pop(i.value, NULL))


@handler("STORE_FAST")
def store_fast(frame: Frame, i: Instruction) -> None:
    value = frame.stack.pop()
    if frame.cells:
        frame.cells.pop(i.value, None)  # a comprehension inside has given the name a cell of its own
    if isinstance(value, Cell):
        frame.cells[i.value] = value
    elif value is NULL:
        frame.locals.pop(i.value, None)
    else:
        frame.locals[i.value] = value


@handler("DELETE_FAST")
def delete_fast(frame: Frame, i: Instruction) -> None:
    if frame.locals.pop(i.value, NULL) is NULL:
        throw(UnboundLocalError(f"cannot access local variable {i.value!r} where it is not associated with a value"))


# -- globals --------------------------------------------------------------------------------------------------------------------


@handler("LOAD_GLOBAL", "LOAD_NAME")
def load_global_(frame: Frame, i: Instruction) -> None:
    frame.stack.append(load_global(frame.ex, frame.function.globals, i.value))


@handler("STORE_GLOBAL")
def store_global(frame: Frame, i: Instruction) -> None:
    store_in_globals(frame, i.value, frame.pop())


def store_in_globals(frame: Frame, name: str, value: Value) -> None:
    owner = frame.function.globals
    frame.ex.stored[(id(owner), name)] = value
    frame.ex.effect(dict.__setitem__, Const(owner), Const(name), value)


@handler("DELETE_GLOBAL")
def delete_global(frame: Frame, i: Instruction) -> None:
    owner, key = frame.function.globals, (id(frame.function.globals), i.value)
    stored = frame.ex.stored.get(key)
    if stored is DELETED or (stored is None and i.value not in owner):
        throw(NameError(f"name {i.value!r} is not defined"))
    if stored is None:
        frame.ex.guards.register(DictEntry(owner, i.value))
    frame.ex.stored[key] = DELETED
    frame.ex.effect(dict.__delitem__, Const(owner), Const(i.value))


# -- cells ----------------------------------------------------------------------------------------------------------------------


@handler("MAKE_CELL")
def make_cell(frame: Frame, i: Instruction) -> None:
    frame.cells[i.value] = Cell(frame.locals.pop(i.value, NULL))


@handler("LOAD_DEREF")
def load_deref(frame: Frame, i: Instruction) -> None:
    cell = frame.cells[i.value]
    if cell.source is None and cell.value in (NULL, DELETED) and i.value in frame.code.co_cellvars:
        throw(UnboundLocalError(f"cannot access local variable {i.value!r} where it is not associated with a value"))
    frame.push(load_cell(frame.ex, cell, i.value))


@handler("STORE_DEREF")
def store_deref(frame: Frame, i: Instruction) -> None:
    set_cell(frame, frame.cells[i.value], frame.pop())


def set_cell(frame: Frame, cell: Cell, value: Any) -> None:
    cell.value = value
    if cell.source is not None:
        frame.ex.writes(cell)
        frame.ex.effect(SET_CONTENTS, cell, value)


SET_CONTENTS = type((lambda x: lambda: x)(0).__closure__[0]).cell_contents.__set__  # type: ignore[index]


@handler("DELETE_DEREF")
def delete_deref(frame: Frame, i: Instruction) -> None:
    cell = frame.cells[i.value]
    if cell.source is not None:
        refuse("SIDE_EFFECT", f"the variable {i.value} of an enclosing function is deleted")
    if cell.value in (NULL, DELETED):
        throw(UnboundLocalError(f"cannot access local variable {i.value!r} where it is not associated with a value"))
    cell.value = NULL


@handler("LOAD_CLOSURE")
def load_closure(frame: Frame, i: Instruction) -> None:
    frame.push(frame.cells[i.value])


@handler("COPY_FREE_VARS", "RESUME", "NOP", "CACHE", "NOT_TAKEN")
def without_meaning(frame: Frame, i: Instruction) -> None:
    """For the interpreter's own sake."""


# -- attributes -----------------------------------------------------------------------------------------------------------------


@handler("LOAD_ATTR")
def load_attr(frame: Frame, i: Instruction) -> None:
    frame.push(load_attribute(frame, frame.pop(), i.value))


@handler("LOAD_METHOD")
def load_method(frame: Frame, i: Instruction) -> None:
    push_callable(frame, load_attribute(frame, frame.pop(), i.value))


def push_callable(frame: Frame, function: Value) -> None:
    """A callable and the NULL that goes with it, in the order of the running version."""
    if VERSION < (3, 13):
        frame.push(NULL)
        frame.push(function)
    else:
        frame.push(function)
        frame.push(NULL)


@handler("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, i: Instruction) -> None:
    name, is_method, _ = i.value
    owner, cls, made = frame.pop(), frame.pop(), frame.pop()
    if not (isinstance(made, Const) and made.value is super):
        refuse("UNSUPPORTED_FUNCTION", "a super that is not Python's")
    found = load_attribute(frame, make_super(frame, cls, owner), name)
    if is_method:
        push_callable(frame, found)
    else:
        frame.push(found)


@handler("STORE_ATTR")
def store_attr(frame: Frame, i: Instruction) -> None:
    owner, value = frame.pop(), frame.pop()
    store_attribute(frame, owner, i.value, value)


@handler("DELETE_ATTR")
def delete_attr(frame: Frame, i: Instruction) -> None:
    delete_attribute(frame, frame.pop(), i.value)


# -- the stack ------------------------------------------------------------------------------------------------------------------


@handler("PUSH_NULL")
def push_null(frame: Frame, i: Instruction) -> None:
    frame.stack.append(NULL)


@handler("POP_TOP")
def pop_top(frame: Frame, i: Instruction) -> None:
    frame.pop_unseen()


@handler("SWAP")
def swap(frame: Frame, i: Instruction) -> None:
    stack = frame.stack
    stack[-1], stack[-i.value] = stack[-i.value], stack[-1]


@handler("COPY")
def copy(frame: Frame, i: Instruction) -> None:
    frame.push(frame.stack[-i.value])


# -- imports --------------------------------------------------------------------------------------------------------------------


@handler("IMPORT_NAME")
def import_name(frame: Frame, i: Instruction) -> None:
    names, level = frame.pop(), frame.pop()
    frame.push(import_module(frame, i.value, names, level))


@handler("IMPORT_FROM")
def load_imported(frame: Frame, i: Instruction) -> None:
    frame.push(import_from(frame, frame.stack[-1], i.value))


@handler("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, i: Instruction) -> None:
    frame.push(Const(AssertionError))
