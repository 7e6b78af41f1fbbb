"""Jumps, loops and returns."""

from __future__ import annotations

from dynagraph.frontend.decode import Instruction
from dynagraph.frontend.executor import NULL, Frame, handler
from dynagraph.frontend.iteration import iterate
from dynagraph.frontend.truth import is_none, truth


@handler("JUMP")
def jump(frame: Frame, i: Instruction) -> None:
    frame.jump(i.value)


@handler("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, i: Instruction) -> None:
    if truth(frame, frame.pop()):
        frame.jump(i.value)


@handler("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, i: Instruction) -> None:
    if not truth(frame, frame.pop()):
        frame.jump(i.value)


@handler("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, i: Instruction) -> None:
    if is_none(frame.ex.resolve(frame.pop())):
        frame.jump(i.value)


@handler("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, i: Instruction) -> None:
    if not is_none(frame.ex.resolve(frame.pop())):
        frame.jump(i.value)


@handler("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(frame: Frame, i: Instruction) -> None:
    if truth(frame, frame.stack[-1]):
        frame.jump(i.value)
    else:
        frame.pop()


@handler("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(frame: Frame, i: Instruction) -> None:
    if not truth(frame, frame.stack[-1]):
        frame.jump(i.value)
    else:
        frame.pop()


@handler("GET_ITER")
def get_iter(frame: Frame, i: Instruction) -> None:
    frame.push(iterate(frame, frame.pop()))


@handler("FOR_ITER")
def for_iter(frame: Frame, i: Instruction) -> None:
    item = next(frame.stack[-1].items, NULL)
    if item is NULL:
        frame.pop()
        frame.jump(i.value)
    else:
        frame.push(frame.ex.resolve(item))


@handler("END_FOR")
def end_for(frame: Frame, i: Instruction) -> None:
    frame.pop()


@handler("RETURN_VALUE")
def return_value(frame: Frame, i: Instruction) -> None:
    frame.result = frame.ex.resolve(frame.pop())
