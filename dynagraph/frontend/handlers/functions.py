"""Making and calling functions."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.bytecode.decode import VERSION, Instruction
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import throw
from dynagraph.frontend.executor.executor import NULL, Frame, handler, refuse
from dynagraph.frontend.kinds.mappings import entries_of
from dynagraph.frontend.kinds.slots import items_of, plain
from dynagraph.frontend.kinds.values import Dict, Function
from dynagraph.frontend.library import (  # noqa: F401  (importing them registers meanings)
    attention,
    backward,
    collectives,
    copy,
    definitions,
    errstate,
    functools,
    heapq,
    itertools,
    lru_cache,
    numpy_functions,
    operators,
    optimizers,
    random,
    tensor_functions,
    tensors,
)


@handler("MAKE_FUNCTION")
def make_function(frame: Frame, i: Instruction) -> None:
    code = plain(frame, frame.pop())
    made = Function(code, frame.function.globals, code.co_qualname)
    for flag in (8, 4, 2, 1):  # 3.13 sets the parts by SET_FUNCTION_ATTRIBUTE, and passes no flags
        if VERSION < (3, 13) and i.value & flag:
            _set_part(frame, made, flag, frame.pop())
    frame.push(made)


@handler("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, i: Instruction) -> None:
    made, part = frame.pop(), frame.pop()
    _set_part(frame, made, i.value, part)
    frame.push(made)


def _set_part(frame: Frame, made: Function, flag: int, part: Any) -> None:
    if flag == 1:
        made.defaults = tuple(items_of(frame, part))
    elif flag == 2:
        made.kwdefaults = dict(entries_of(frame, part))
    elif flag == 4:
        parts = items_of(frame, part)  # names and annotations by turns
        made.fields["__annotations__"] = Dict({plain(frame, k): v for k, v in zip(parts[::2], parts[1::2])})
    elif flag == 8:
        made.closure = tuple(part.items)  # cells


@handler("CALL")
def call_(frame: Frame, i: Instruction) -> None:
    _call(frame, i.value, ())


@handler("CALL_KW")
def call_kw(frame: Frame, i: Instruction) -> None:
    _call(frame, *i.value)


def _call(frame: Frame, count: int, names: tuple[str, ...]) -> None:
    arguments = frame.popn(count)
    second, first = frame.pop(), frame.pop()
    # [NULL, f] on 3.11 and 3.12, [f, NULL] on 3.13, [method, self] on all
    own: list[Any] = []
    if first is NULL:
        function = second
    elif second is NULL:
        function = first
    else:
        function, own = first, [second]
    positional = [*own, *arguments[: count - len(names)]]
    frame.push(call(frame, function, positional, dict(zip(names, arguments[count - len(names) :]))))


@handler("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, i: Instruction) -> None:
    keywords = frame.pop() if i.value & 1 else Dict({})
    positional = items_of(frame, frame.pop())
    second = frame.pop()
    first = frame.pop() if frame.stack and (frame.stack[-1] is NULL or second is NULL) else NULL
    if not isinstance(keywords, Dict):
        refuse("UNSUPPORTED_VALUE", "** of something that is not a dict")
    named = entries_of(frame, keywords)
    if not all(isinstance(name, str) for name in named):
        throw(TypeError("keywords must be strings"))
    frame.push(call(frame, second if second is not NULL else first, positional, named))
