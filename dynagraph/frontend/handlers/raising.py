"""Raising and handling exceptions, and with blocks."""

from __future__ import annotations

import types
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import Raised, is_exception, throw
from dynagraph.frontend.executor.executor import Frame, handler, refuse
from dynagraph.frontend.kinds.classes import instantiate
from dynagraph.frontend.kinds.lookup import bound, guard_type, in_mro, special, traceback_of
from dynagraph.frontend.kinds.slots import items_of, type_of
from dynagraph.frontend.kinds.values import Const, Object, Outer, Sequence


@handler("RAISE_VARARGS")
def raise_varargs(frame: Frame, i: Instruction) -> None:
    cause = frame.pop() if i.value == 2 else None
    if i.value == 0:
        if not frame.ex.handling:
            throw(RuntimeError("No active exception to reraise"))
        raise Raised(frame.ex.handling[-1], chained=True)
    error = to_exception(frame, frame.pop())
    if cause is not None:
        none = isinstance(cause, Const) and cause.value is None
        error.fields["__cause__"] = cause if none else to_exception(frame, cause, "exception causes")
        error.fields["__suppress_context__"] = Const(True)
    raise Raised(error)


def to_exception(frame: Frame, value: Any, what: str = "exceptions") -> Object:
    """What is raised: an instance, or a class that is called without arguments."""
    if isinstance(value, Const) and isinstance(value.value, type) and issubclass(value.value, BaseException):
        value = instantiate(frame, value, [], {})
    if not is_exception(value):
        throw(TypeError(f"{what} must derive from BaseException"))
    if value.source is not None:
        refuse("WOULD_RAISE", "an exception that was made outside")
    return value


@handler("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, i: Instruction) -> None:
    error = frame.pop()
    if error.source is not None:  # handed over at a break
        guard_type(frame, error)
    frame.push(Outer("the exception that was handled before"))
    frame.push(error)
    frame.ex.handling.append(error)


@handler("POP_EXCEPT")
def pop_except(frame: Frame, i: Instruction) -> None:
    frame.pop()
    frame.ex.handling.pop()


def _top(frame: Frame) -> Any:
    """The exception on top of the stack, which may have been handed over at a break."""
    error = frame.stack[-1] = frame.ex.resolve(frame.stack[-1])
    if error.source is not None:
        guard_type(frame, error)
    return error


@handler("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, i: Instruction) -> None:
    wanted, error = frame.pop(), _top(frame)
    classes = [frame.ex.resolve(c) for c in items_of(frame, wanted)] if isinstance(wanted, Sequence) else [wanted]
    for c in classes:
        if not (isinstance(c, Const) and isinstance(c.value, type) and issubclass(c.value, BaseException)):
            throw(TypeError("catching classes that do not inherit from BaseException is not allowed"))
    frame.push(Const(issubclass(error.kind, tuple(c.value for c in classes))))


@handler("RERAISE")
def reraise(frame: Frame, i: Instruction) -> None:
    raise Raised(frame.pop(), chained=True)


# -- with -------------------------------------------------------------------------------------------------------------------------


@handler("BEFORE_WITH")
def before_with(frame: Frame, i: Instruction) -> None:
    manager = frame.pop()
    if not isinstance(manager, Object):
        refuse("CONTEXT_MANAGER", f"with a {type_of(frame, manager).__name__}")
    for name in ("__enter__", "__exit__"):
        if special(frame, manager, name) is None:
            text = f"{manager.kind.__qualname__!r} object does not support the context manager protocol"
            throw(TypeError(text if name == "__enter__" else text + " (missed __exit__ method)"))
    frame.push(bound(frame, manager, in_mro(manager.kind, "__exit__"), "__exit__"))
    frame.push(_enter(frame, manager))


def _enter(frame: Frame, manager: Object) -> Any:
    enter = in_mro(manager.kind, "__enter__")
    try:
        return call(frame, bound(frame, manager, enter, "__enter__"), [], {})
    except Break as stop:
        if isinstance(enter, types.FunctionType) or stop.reason.name != "UNSUPPORTED_FUNCTION":
            raise
        raise Break("CONTEXT_MANAGER", None, f"with a {manager.kind.__name__}") from None


@handler("WITH_EXCEPT_START")
def with_except_start(frame: Frame, i: Instruction) -> None:
    leave, error = frame.stack[-4], _top(frame)
    frame.push(call(frame, leave, [Const(error.kind), error, traceback_of(error)], {}))

