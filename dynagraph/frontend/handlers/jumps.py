"""Jumps, loops and returns."""

from __future__ import annotations

from dynagraph.driver.deadline import Pace
from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.executor.executor import NULL, Frame, handler, refuse
from dynagraph.frontend.executor.rare_branches import branch_truth
from dynagraph.frontend.guards.sources import Local
from dynagraph.frontend.kinds.slots import is_none, iterate
from dynagraph.frontend.kinds.values import Const, Iterator


@handler("JUMP")
def jump(frame: Frame, i: Instruction) -> None:
    frame.jump(i.value)


@handler("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, i: Instruction) -> None:
    value = frame.stack.pop()
    known = value.value if type(value) is Const else None
    if known is True or (known is not False and branch_truth(frame, value, i, frame.ip)):
        frame.jump(i.value)


@handler("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, i: Instruction) -> None:
    value = frame.stack.pop()
    known = value.value if type(value) is Const else None
    if known is False or (known is not True and not branch_truth(frame, value, i, frame.ip)):
        frame.jump(i.value)


@handler("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, i: Instruction) -> None:
    if is_none(frame, frame.pop()):
        frame.jump(i.value)


@handler("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, i: Instruction) -> None:
    if not is_none(frame, frame.pop()):
        frame.jump(i.value)


@handler("GET_ITER")
def get_iter(frame: Frame, i: Instruction) -> None:
    value = frame.pop()
    made = iterate(frame, value)
    if made is value and made.born < frame.ex.steps - 1:  # not made by the instruction before
        made.is_held = True
    frame.push(made)


@handler("FOR_ITER")
def for_iter(frame: Frame, i: Instruction) -> None:
    iterator = frame.stack[-1] = frame.ex.resolve(frame.stack[-1])
    if not isinstance(iterator, Iterator):
        source = getattr(iterator, "source", None)
        handed_over = frame.depth == 0 and isinstance(source, Local) and source.is_of_stack
        refuse("LOOP_AROUND_BREAK" if handed_over else "ITERATOR", f"a {getattr(iterator, 'kind', type(iterator)).__name__}")
    item = iterator.step(frame)
    if iterator.pace is None:
        iterator.pace = Pace()
    else:
        iterator.pace.turn(iterator.left())
    if item is NULL:
        frame.pop()
        frame.jump(i.value)
    else:
        frame.push(frame.ex.resolve(item))


@handler("RETURN_VALUE")
def return_value(frame: Frame, i: Instruction) -> None:
    frame.result = frame.pop_unseen() if frame.depth == 0 else frame.pop()
