"""Builtins that go through an iterable at once: ``sum``, ``any``, ``all``, ``min``, ``max``, ``list``.

The generator expression that they are given runs in a frame of its own, as comprehensions do.  What a builtin holds meanwhile lies
on the caller's stack, above the call.  Where native code cannot go on Python does the call as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

from dynagraph.frontend.bytecode.decode import VERSION, Instruction
from dynagraph.frontend.kinds.values import Function
from dynagraph.frontend.loops import calls, iteration, known, lists  # noqa: F401  (known registers what it does)
from dynagraph.frontend.loops.builder import Builder, handler
from dynagraph.frontend.loops.comprehensions import arguments_of
from dynagraph.frontend.loops.operators import NotNative, as_float, binary, compare, describe, truth, truth_value
from dynagraph.frontend.loops.types import (
    FLOAT,
    NOTHING,
    Array,
    Bool,
    Composite,
    Deque,
    Float,
    Generator,
    Int,
    List,
    RangeObject,
    Tuple,
    Value,
    integer,
    is_number,
)
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const

F64 = dtypes.float64
COMPENSATED = VERSION >= (3, 12)  # sums of floats
Held = list[Value]


class Consumer:
    """`start` and `step` give what is held, `end` the result."""

    def start(self, b: Builder, args: list[Value]) -> Held:
        if args:
            raise NotNative("a builtin with further arguments")
        return []

    def step(self, b: Builder, held: Held, value: Value) -> None:
        raise NotImplementedError

    def end(self, b: Builder, held: Held) -> Value:
        raise NotImplementedError


CONSUMERS: dict[Any, Consumer] = {}


def _consumes(*functions: Any) -> Callable[[type[Consumer]], type[Consumer]]:
    def register(kind: type[Consumer]) -> type[Consumer]:
        for function in functions:
            CONSUMERS[function] = kind() if len(functions) == 1 else kind(function)  # type: ignore[call-arg]
        return kind

    return register


@_consumes(sum)
class Sum(Consumer):
    """Holds the sum and, from the first float on, what the additions have lost, where Python adds that at the end."""

    def start(self, b: Builder, args: list[Value]) -> Held:
        if len(args) > 1:
            raise NotNative("a sum with further arguments")
        return _with_rest(args[0] if args else integer(0))

    def step(self, b: Builder, held: Held, value: Value) -> None:
        if not all(is_number(v.type) for v in (*held, value)):
            raise NotNative(f"a sum of {describe(value.type)}")
        if len(held) == 1:
            made = binary(b, "+", held[0], value)
            consumed(b, _with_rest(made) if isinstance(held[0].type, Int) else [made])
            return
        total, lost = (v.only for v in held)
        if isinstance(value.type, (Int, Bool)):
            consumed(b, [Value(FLOAT, (b.temporary(call("add", total, as_float(value))),)), held[1]])
        elif isinstance(value.type, Float):
            x, after = value.only, b.temporary(call("add", total, value.only))
            larger = call("ge", call("abs", total), call("abs", x))
            first, second = call("add", call("sub", total, after), x), call("add", call("sub", x, after), total)
            lost = b.temporary(call("add", lost, Expr("select", (larger, first, second), F64)))
            consumed(b, [Value(FLOAT, (after,)), Value(FLOAT, (lost,))])
        else:
            consumed(b, [binary(b, "+", self.end(b, held), value)])

    def end(self, b: Builder, held: Held) -> Value:
        if len(held) == 1:
            return held[0]
        total, lost = (v.only for v in held)
        counts = call("and", call("ne", lost, const(0.0, F64)), call("lt", call("abs", lost), const(float("inf"), F64)))
        return Value(FLOAT, (b.temporary(Expr("select", (counts, call("add", total, lost), total), F64)),))


def _with_rest(total: Value) -> Held:
    return [total, Value(FLOAT, (const(0.0, F64),))] if COMPENSATED and isinstance(total.type, Float) else [total]


@_consumes(any, all)
class AnyAll(Consumer):
    def __init__(self, function: Any):
        self.decides = function is any

    def step(self, b: Builder, held: Held, value: Value) -> None:
        test = truth(b, value)

        def found() -> None:
            b.return_from_call(truth_value(self.decides))

        def on() -> None:
            consumed(b, held)

        ways = (found, on) if self.decides else (on, found)
        b.branch(test, *(lambda way=way: b.edge_after(way) for way in ways))  # type: ignore[misc]

    def end(self, b: Builder, held: Held) -> Value:
        return truth_value(not self.decides)


@_consumes(min, max)
class Extreme(Consumer):
    def __init__(self, function: Any):
        self.symbol = ">" if function is max else "<"

    def step(self, b: Builder, held: Held, value: Value) -> None:
        if not is_number(value.type):
            raise NotNative(f"min or max of {describe(value.type)}")
        if not held:
            consumed(b, [value])
            return
        test = truth(b, compare(b, self.symbol, value, held[0]))
        if value.type == held[0].type:
            part = b.temporary(Expr("select", (test, value.only, held[0].only), value.only.dtype))
            consumed(b, [Value(value.type, (part,))])
            return
        b.branch(test, *(lambda v=v: b.edge_after(lambda: consumed(b, [v])) for v in (value, held[0])))  # type: ignore[misc]

    def end(self, b: Builder, held: Held) -> Value:
        if not held:
            raise NotNative("min or max of nothing")
        return held[0]


@_consumes(list)
class ToList(Consumer):
    def start(self, b: Builder, args: list[Value]) -> Held:
        return [lists.made_of(b, [])]

    def step(self, b: Builder, held: Held, value: Value) -> None:
        lists.append(b, held[0], value)
        consumed(b, held)

    def end(self, b: Builder, held: Held) -> Value:
        return held[0]


# -- frames ----------------------------------------------------------------------------------------------------------------


def consumed(b: Builder, held: Held) -> None:
    """The builtin has taken a value, and asks for the next one."""
    caller = b.frames[-2]
    caller.stack[b.top.base :] = held
    b.push(Value(NOTHING))


def consume(b: Builder, function: Any, args: list[Value]) -> bool:
    """Go on in the generator that a builtin is given, or in one that goes through its argument; whether it is one of these."""
    if not args or not isinstance(args[0].type, (Generator, *ITERABLE)) or isinstance(args[0].type, Deque):
        return False
    consumer = CONSUMERS[function]
    if isinstance(args[0].type, Generator):
        code, arguments = arguments_of(args[0])
    else:
        if isinstance(args[0].type, Tuple) and function not in (sum, any, all):
            return False
        code, arguments = EACH, {EACH.co_varnames[0]: iteration.iterate(b, args[0])}
    base = len(b.top.stack)
    held = consumer.start(b, args[1:])
    b.inline_whole(Function(code, b.top.function.globals, code.co_name), arguments)
    b.top.base, b.top.consumer = base, consumer
    b.frames[-2].stack += held
    return True


for _function in CONSUMERS:
    calls.CONSUMERS[_function] = functools.partial(lambda function, b, args: consume(b, function, args), _function)

ITERABLE = (List, Tuple, RangeObject, Composite, Array)


NONE: tuple[int, ...] = ()
EACH: CodeType = (value for value in NONE).gi_code  # type: ignore[attr-defined]


@handler("RETURN_GENERATOR")
def return_generator(b: Builder, i: Instruction) -> None:
    if b.top.consumer is None:
        raise NotNative("a generator")
    b.push(Value(NOTHING))


@handler("YIELD_VALUE")
def yield_value(b: Builder, i: Instruction) -> None:
    if b.top.consumer is None:
        raise NotNative("a generator")
    value = b.pop()
    b.top.consumer.step(b, b.frames[-2].stack[b.top.base :], value)
