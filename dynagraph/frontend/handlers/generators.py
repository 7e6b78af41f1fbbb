"""Generators: frames that wait at a yield."""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import VERSION, Instruction
from dynagraph.frontend.executor.exceptions import Raised
from dynagraph.frontend.executor.executor import Frame, Generator, handler, refuse
from dynagraph.frontend.kinds.slots import iterate
from dynagraph.frontend.kinds.values import NULL, Const, Iterator

RECEIVER_STAYS = VERSION >= (3, 12)  # END_SEND takes it off the stack
STOPITERATION_ERROR = 3  # the number of the intrinsic


@handler("RETURN_GENERATOR")
def return_generator(frame: Frame, i: Instruction) -> None:
    frame.push(NULL)  # the generator was made when the function was called


@handler("YIELD_VALUE")
def yield_value(frame: Frame, i: Instruction) -> None:
    frame.result = frame.pop()
    frame.suspended = True


@handler("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: Frame, i: Instruction) -> None:
    frame.push(iterate(frame, frame.pop()))


@handler("SEND")
def send(frame: Frame, i: Instruction) -> None:
    value = frame.pop()
    receiver = frame.stack[-1] = frame.ex.resolve(frame.stack[-1])
    none = isinstance(value, Const) and value.value is None
    if isinstance(receiver, Generator):
        item = receiver.send(value)
    elif isinstance(receiver, Iterator) and none:
        item = receiver.step(frame)
    else:
        refuse("GENERATOR", "send() through `yield from` to something that is not a generator")
    if item is not NULL:
        frame.push(item)
        return
    returned = receiver.returned if isinstance(receiver, Generator) else Const(None)
    if RECEIVER_STAYS:
        frame.push(returned)
    else:
        frame.stack[-1] = returned
    frame.jump(i.value)


@handler("END_SEND")
def end_send(frame: Frame, i: Instruction) -> None:
    value = frame.pop()
    frame.stack[-1] = value


@handler("CLEANUP_THROW")
def cleanup_throw(frame: Frame, i: Instruction) -> None:
    """[receiver, sent value, exception]: a StopIteration ends the `yield from`, anything else goes on."""
    error = frame.pop()
    if not issubclass(error.kind, StopIteration):
        raise Raised(error, chained=True)
    frame.popn(2)
    value = error.fields.get("value", Const(None))
    if RECEIVER_STAYS:
        frame.push(Const(None))
    frame.push(value)


@handler("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, i: Instruction) -> None:
    number = getattr(i.value, "value", i.value)
    if number == STOPITERATION_ERROR:
        _stop_iteration_error(frame)
    else:
        refuse("UNKNOWN_OPCODE", f"CALL_INTRINSIC_1 {i.value}")


def _stop_iteration_error(frame: Frame) -> None:
    error = frame.stack[-1]
    if issubclass(error.kind, StopIteration):
        refuse("GENERATOR", "StopIteration raised inside a generator")


