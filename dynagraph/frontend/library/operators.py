"""Module operator in captured code: operators as functions, getters.

The getters of the caller's cannot change, so their identity is guarded.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from dynagraph.frontend.executor.calls import Arguments, Keywords, call
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.guards import Is
from dynagraph.frontend.kinds.constants import pure_call
from dynagraph.frontend.kinds.iterators import Items
from dynagraph.frontend.kinds.lookup import known
from dynagraph.frontend.kinds.sequences import known_index
from dynagraph.frontend.kinds.slots import (
    binary,
    contains,
    delete,
    in_place,
    length,
    load_attribute,
    plain,
    same,
    store,
    subscript,
    truth,
    unary,
)
from dynagraph.frontend.kinds.values import Array, Const, Getter, Object, Sequence, Value
from dynagraph.frontend.library.registry import instances, meaning
from dynagraph.ir.shapes import SymInt
from dynagraph.python_operators import ARITHMETIC, COMPARISONS


@meaning(operator.index)
def _operator_index(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return Const(known_index(frame, value, "an index"))
    if isinstance(value, Const) and type(value.value) is SymInt:
        return value
    return pure_call(frame, operator.index, [value], {})


def _operator(symbol: str, function: Any) -> None:
    meaning(function)(lambda frame, left, right: binary(frame, symbol, left, right))


@meaning(operator.setitem)
def _set_item(frame: Frame, owner: Any, key: Any, value: Any) -> Value:
    store(frame, owner, key, value)
    return Const(None)


@meaning(operator.delitem)
def _delete_item(frame: Frame, owner: Any, key: Any) -> Value:
    delete(frame, owner, key)
    return Const(None)


for _row in (ARITHMETIC | COMPARISONS).values():
    _operator(_row.symbol, _row.function)
meaning(operator.neg)(lambda frame, value: unary(frame, "neg", value))
meaning(operator.not_)(lambda frame, value: Const(not truth(frame, value)))
meaning(operator.getitem)(subscript)
meaning(operator.contains)(lambda frame, owner, item: Const(contains(frame, owner, item)))
meaning(operator.is_)(lambda frame, left, right: Const(same(frame, left, right)))
meaning(operator.is_not)(lambda frame, left, right: Const(not same(frame, left, right)))


def _in_place(symbol: str, function: Any) -> None:
    meaning(function)(lambda frame, left, right: in_place(frame, symbol, left, right))


def _joined(join: Callable[..., Value]) -> Callable[..., Value]:
    def concatenate(frame: Frame, left: Any, right: Any) -> Value:
        left, right = frame.ex.resolve(left), frame.ex.resolve(right)
        if not all(isinstance(v, Sequence) or (isinstance(v, Const) and type(v.value) in (str, bytes)) for v in (left, right)):
            refuse("UNSUPPORTED_ARGUMENT", "concatenation of things that are not lists, tuples or strings")
        return join(frame, "+", left, right)

    return concatenate


for _symbol, _row in ARITHMETIC.items():
    _in_place(_symbol, _row.in_place)
meaning(operator.pos)(lambda frame, value: unary(frame, "pos", value))
meaning(operator.invert)(lambda frame, value: unary(frame, "invert", value))
meaning(operator.concat)(_joined(binary))
meaning(operator.iconcat)(_joined(in_place))
meaning(operator.call)(lambda frame, function, *args, **kwargs: call(frame, function, list(args), kwargs))


@meaning(operator.length_hint)
def _length_hint(frame: Frame, value: Any, default: Any = Const(0)) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Items) and value.owner is None:
        return Const(len(value.items) - value.position if value.position >= 0 else 0)
    if isinstance(value, (Array, Object)) or not hasattr(value, "items"):
        if not isinstance(value, Array):
            refuse("UNSUPPORTED_ARGUMENT", "length_hint() of this kind of object")
        return call(frame, Const(len), [value], {})
    return Const(length(frame.ex, value))


# -- itemgetter, attrgetter, methodcaller -----------------------------------------------------------------------------------------


def _getter(kind: type) -> None:
    @meaning(kind)
    def make(frame: Frame, *args: Any, **kwargs: Any) -> Value:
        if not args or (kwargs and kind is not operator.methodcaller):
            refuse("WOULD_RAISE", f"{kind.__name__}() with these arguments")
        if kind is not operator.itemgetter and not all(isinstance(plain(frame, a), str) for a in args[: _names(kind, args)]):
            refuse("WOULD_RAISE", f"{kind.__name__}() of something that is not a name")
        return Getter(kind, tuple(frame.ex.resolve(a) for a in args), kwargs)

    @meaning(instances(kind))
    def call_given(frame: Frame, value: Object, args: Arguments, kwargs: Keywords) -> Value:
        return call(frame, _of_the_callers(frame, value), args, kwargs)


def _names(kind: type, args: Any) -> int:
    return 1 if kind is operator.methodcaller else len(args)


def _of_the_callers(frame: Frame, value: Object) -> Getter:
    """A getter of the caller's: what it holds is fixed, so its identity is guarded."""
    frame.ex.guards.require(Is(value.source, value.value, called=repr(value.value)))  # type: ignore[arg-type]
    made, args = value.value.__reduce__()
    named: dict[str, Any] = {}
    if isinstance(made, functools.partial):  # a methodcaller with keywords
        args, named = (*made.args, *args), made.keywords
    given = tuple(known(frame, a, f"{value.source}({a!r})") for a in args)
    return Getter(value.kind, given, {k: known(frame, v, f"{value.source}({k})") for k, v in named.items()})


@meaning(instances(Getter))
def _call_getter(frame: Frame, getter: Getter, args: Arguments, kwargs: Keywords) -> Value:
    if len(args) != 1 or kwargs:
        refuse("WOULD_RAISE", f"{getter.kind.__name__} takes one argument")
    owner = args[0]
    if getter.kind is operator.methodcaller:
        method = load_attribute(frame, owner, plain(frame, getter.args[0]))
        return call(frame, method, list(getter.args[1:]), dict(getter.kwargs))
    read = subscript if getter.kind is operator.itemgetter else _dotted
    found = [read(frame, owner, key) for key in getter.args]
    return found[0] if len(found) == 1 else Sequence(tuple, found)


def _dotted(frame: Frame, owner: Any, path: Any) -> Value:
    for name in plain(frame, path).split("."):
        owner = load_attribute(frame, owner, name)
    return owner


for _kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
    _getter(_kind)
