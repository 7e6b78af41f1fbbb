"""Opcodes of operators, comparisons, subscripts and formatting."""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.executor.executor import Frame, handler
from dynagraph.frontend.executor.rare_branches import branch_truth
from dynagraph.frontend.kinds.slots import binary, contains, delete, in_place, plain, same, store, subscript, truth, unary
from dynagraph.frontend.kinds.texts import formatted
from dynagraph.frontend.kinds.values import Const, Slice


@handler("BINARY_OP")
def binary_op(frame: Frame, i: Instruction) -> None:
    right, left = frame.pop(), frame.pop()
    symbol = i.value
    if symbol.endswith("=") and symbol not in ("==", "<=", ">=", "!="):
        frame.push(in_place(frame, symbol[:-1], left, right))
    else:
        frame.push(binary(frame, symbol, left, right))


@handler("COMPARE_OP")
def compare_op(frame: Frame, i: Instruction) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(binary(frame, i.value, left, right))


@handler("UNARY_NEGATIVE")
def unary_negative(frame: Frame, i: Instruction) -> None:
    frame.push(unary(frame, "neg", frame.pop()))


@handler("UNARY_POSITIVE")
def unary_positive(frame: Frame, i: Instruction) -> None:
    frame.push(unary(frame, "pos", frame.pop()))


@handler("UNARY_INVERT")
def unary_invert(frame: Frame, i: Instruction) -> None:
    frame.push(unary(frame, "invert", frame.pop()))


@handler("UNARY_NOT")
def unary_not(frame: Frame, i: Instruction) -> None:
    frame.push(Const(not truth(frame, frame.pop())))


@handler("TO_BOOL")
def to_bool(frame: Frame, i: Instruction) -> None:
    value = frame.stack.pop()
    if type(value) is not Const or type(value.value) is not bool:
        value = Const(branch_truth(frame, value, frame.instructions[frame.ip], frame.ip + 1))
    frame.stack.append(value)


@handler("IS_OP")
def is_op(frame: Frame, i: Instruction) -> None:
    right, left = frame.pop(), frame.pop()
    frame.push(Const(same(frame, left, right) is not i.value))


@handler("CONTAINS_OP")
def contains_op(frame: Frame, i: Instruction) -> None:
    container, item = frame.pop(), frame.pop()
    frame.push(Const(contains(frame, container, item) is not i.value))


@handler("BINARY_SUBSCR")
def binary_subscr(frame: Frame, i: Instruction) -> None:
    key, container = frame.pop(), frame.pop()
    frame.push(subscript(frame, container, key))


@handler("BINARY_SLICE")
def binary_slice(frame: Frame, i: Instruction) -> None:
    stop, start, container = frame.pop(), frame.pop(), frame.pop()
    frame.push(subscript(frame, container, Slice((start, stop, Const(None)))))


@handler("STORE_SUBSCR")
def store_subscr(frame: Frame, i: Instruction) -> None:
    key, container, value = frame.pop(), frame.pop(), frame.pop()
    store(frame, container, key, value)


@handler("STORE_SLICE")
def store_slice(frame: Frame, i: Instruction) -> None:
    stop, start, container, value = frame.pop(), frame.pop(), frame.pop(), frame.pop()
    store(frame, container, Slice((start, stop, Const(None))), value)


@handler("DELETE_SUBSCR")
def delete_subscr(frame: Frame, i: Instruction) -> None:
    key, container = frame.pop(), frame.pop()
    delete(frame, container, key)


@handler("FORMAT_VALUE")
def format_value(frame: Frame, i: Instruction) -> None:
    flags = i.value
    specification = plain(frame, frame.pop()) if flags & 4 else ""
    frame.push(formatted(frame, frame.pop(), flags & 3, specification))


@handler("CONVERT_VALUE")
def convert_value(frame: Frame, i: Instruction) -> None:
    frame.push(formatted(frame, frame.pop(), i.value, ""))


@handler("FORMAT_SIMPLE")
def format_simple(frame: Frame, i: Instruction) -> None:
    frame.push(formatted(frame, frame.pop(), 0, ""))


@handler("FORMAT_WITH_SPEC")
def format_with_spec(frame: Frame, i: Instruction) -> None:
    specification = plain(frame, frame.pop())
    frame.push(formatted(frame, frame.pop(), 0, specification))


@handler("BUILD_STRING")
def build_string(frame: Frame, i: Instruction) -> None:
    frame.push(Const("".join(plain(frame, part) for part in frame.popn(i.value))))
