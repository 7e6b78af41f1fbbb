"""Exceptions in captured code: raising and handling them unwinds symbolic frames, never real ones."""

from __future__ import annotations

from typing import Any, NoReturn, TypeGuard

from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.numpy_source import is_own
from dynagraph.frontend.kinds.values import Const, Function, Method, Object, Opaque, Sequence, Value

_LITERALS = (bool, int, float, complex, str, bytes, type(None), type)


class Raised(Exception):
    """The captured code raised `value`, an Object whose kind is an exception class."""

    def __init__(self, value: Object, chained: bool = False):
        self.value = value
        self.chained = chained  # whether the exception has its context, or is raised again with the one that it has
        super().__init__(value.kind.__name__)


def exception(kind: type, *args: Value) -> Object:
    """An exception made by the captured code."""
    return Object(kind, fields={"args": Sequence(tuple, list(args))})


def throw(error: BaseException, **fields: Value) -> NoReturn:
    """Raise, in the captured code, the error that Python gave for the same step; `fields`: further attributes of it."""
    args = [Const(a) if isinstance(a, _LITERALS) else Opaque(f"an argument of {type(error).__name__}") for a in error.args]
    value = exception(type(error), *args)
    value.fields.update(fields)
    raise Raised(value)


def may_catch(frame: Any) -> bool:
    """Whether a frame's code may see an error that is raised now: not in blocks of context managers of this package alone."""
    program, index = frame.program, frame.ip - 1
    while (region := program.handlers[index]) is not None:
        index = region.target
        ops = [i.op for i in program.instructions[index : index + 3]]
        if ops[:2] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
            leave = frame.stack[region.depth - 1]
            if not (isinstance(leave, Method) and isinstance(leave.function, Function) and is_own(leave.function.globals)):
                return True
        elif ops != ["COPY", "POP_EXCEPT", "RERAISE"]:
            return True
    return False


def is_exception(value: Any) -> TypeGuard[Object]:
    return isinstance(value, Object) and issubclass(value.kind, BaseException)


def said(value: Object) -> str:
    """An exception as a reason tells it."""
    args = value.fields.get("args")
    texts = [repr(a.value) if isinstance(a, Const) else "..." for a in args.items] if isinstance(args, Sequence) else []
    return f"{value.kind.__name__}({', '.join(texts)})"


def refuse(reason: str, detail: str = "") -> NoReturn:
    """Stop the capture at the current line."""
    raise Break(reason, None, detail)
