"""Names, constants and the stack."""

from __future__ import annotations

from dynagraph.frontend.attributes import load_attribute
from dynagraph.frontend.decode import Instruction
from dynagraph.frontend.executor import Frame, handler, refuse
from dynagraph.frontend.values import NULL, Const


@handler("LOAD_CONST")
def load_const(frame: Frame, i: Instruction) -> None:
    frame.push(frame.ex.constant(i.value))


@handler("LOAD_FAST")
def load_fast(frame: Frame, i: Instruction) -> None:
    if i.value in frame.cells:  # CPython 3.13 loads the cells of a closure so
        frame.push(frame.cells[i.value])
        return
    value = frame.locals.get(i.value, NULL)
    if value is NULL:
        refuse("WOULD_RAISE", f"local {i.value!r} is not set")
    frame.push(frame.ex.resolve(value))


@handler("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, i: Instruction) -> None:
    if i.value in frame.cells:
        refuse("UNKNOWN_OPCODE", "a comprehension whose variable is shared with a function inside it")
    frame.push(frame.locals.pop(i.value, NULL))


@handler("STORE_FAST")
def store_fast(frame: Frame, i: Instruction) -> None:
    value = frame.pop()
    if value is NULL:
        frame.locals.pop(i.value, None)
    else:
        frame.locals[i.value] = value


@handler("DELETE_FAST")
def delete_fast(frame: Frame, i: Instruction) -> None:
    if frame.locals.pop(i.value, NULL) is NULL:
        refuse("WOULD_RAISE", f"local {i.value!r} is not set")


@handler("LOAD_GLOBAL", "LOAD_NAME")
def load_global(frame: Frame, i: Instruction) -> None:
    frame.push(frame.ex.load_global(frame.function.globals, i.value))


@handler("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")
def store_outside(frame: Frame, i: Instruction) -> None:
    refuse("SIDE_EFFECT", f"{i.value} is set or deleted")


@handler("LOAD_DEREF", "LOAD_CLASSDEREF")
def load_deref(frame: Frame, i: Instruction) -> None:
    frame.push(frame.ex.load_cell(frame.cells[i.value]))


@handler("STORE_DEREF")
def store_deref(frame: Frame, i: Instruction) -> None:
    cell = frame.cells[i.value]
    if cell.source is not None:
        refuse("SIDE_EFFECT", f"the variable {i.value} of an enclosing function is set")
    cell.value = frame.pop()


@handler("LOAD_CLOSURE")
def load_closure(frame: Frame, i: Instruction) -> None:
    frame.push(frame.cells[i.value])


@handler("LOAD_ATTR")
def load_attr(frame: Frame, i: Instruction) -> None:
    frame.push(load_attribute(frame, frame.pop(), i.value))


@handler("PUSH_NULL")
def push_null(frame: Frame, i: Instruction) -> None:
    frame.push(NULL)


@handler("POP_TOP")
def pop_top(frame: Frame, i: Instruction) -> None:
    frame.pop()


@handler("SWAP")
def swap(frame: Frame, i: Instruction) -> None:
    stack = frame.stack
    stack[-1], stack[-i.value] = stack[-i.value], stack[-1]


@handler("COPY")
def copy(frame: Frame, i: Instruction) -> None:
    frame.push(frame.stack[-i.value])


@handler("IMPORT_NAME")
def import_name(frame: Frame, i: Instruction) -> None:
    refuse("SIDE_EFFECT", f"import {i.value} inside the function")


@handler("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, i: Instruction) -> None:
    frame.push(Const(AssertionError))


@handler("RAISE_VARARGS", "RERAISE")
def raise_varargs(frame: Frame, i: Instruction) -> None:
    refuse("WOULD_RAISE", "raise")


@handler("BEFORE_WITH", "BEFORE_ASYNC_WITH")
def before_with(frame: Frame, i: Instruction) -> None:
    refuse("CONTEXT_MANAGER", "with")
