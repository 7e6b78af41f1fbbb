"""Steps of iterators, and the methods of iterators and generators."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.bytecode.decode import VERSION
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import Raised, exception, is_exception, refuse, throw
from dynagraph.frontend.executor.executor import Frame, Generator
from dynagraph.frontend.kinds.constants import NOTHING
from dynagraph.frontend.kinds.iterators import Flat
from dynagraph.frontend.kinds.lookup import call_special, special
from dynagraph.frontend.kinds.slots import METHODS, Table
from dynagraph.frontend.kinds.values import NULL, Const, Iterator, Object, Value
from dynagraph.ir.shapes import numel


def next_of(frame: Frame, iterator: Any, default: Any = NULL) -> Value:
    """``next(iterator, default)``."""
    iterator = frame.ex.resolve(iterator)
    if isinstance(iterator, Object):
        return _next_of_object(frame, iterator, default)
    if not isinstance(iterator, Iterator):
        return refuse("ITERATOR", f"next() of a {type(iterator).__name__.lower()}")
    item = iterator.step(frame)
    if item is not NULL:
        return frame.ex.resolve(item)
    return frame.ex.resolve(default) if default is not NULL else stop_iteration(iterator)


def _next_of_object(frame: Frame, iterator: Object, default: Any) -> Value:
    if special(frame, iterator, "__next__") is None or iterator.kind.__module__ in ("builtins", "itertools"):
        return refuse("ITERATOR", f"next() of a {iterator.kind.__name__}")
    try:
        return call_special(frame, iterator, "__next__")
    except Raised as raised:
        if default is not NULL and issubclass(raised.value.kind, StopIteration):
            return frame.ex.resolve(default)
        raise


def stop_iteration(iterator: Iterator) -> Value:
    returned = iterator.returned if isinstance(iterator, Generator) else NOTHING
    none = isinstance(returned, Const) and returned.value is None
    if isinstance(iterator, Generator):
        iterator.returned = NOTHING
    error = exception(StopIteration, *([] if none else [returned]))
    error.fields["value"] = returned
    raise Raised(error)


def _send(frame: Frame, owner: Generator, value: Value) -> Value:
    if not owner.started and owner.frame is not None and not (isinstance(value, Const) and value.value is None):
        throw(TypeError("can't send non-None value to a just-started generator"))
    item = owner.send(value)
    return stop_iteration(owner) if item is NULL else item


def _throw(frame: Frame, owner: Generator, error: Value, *more: Value) -> Value:
    error = frame.ex.resolve(error)
    given = frame.ex.resolve(more[0]) if more else None
    if is_exception(given):
        error = given
    elif isinstance(error, Const) and isinstance(error.value, type) and issubclass(error.value, BaseException):
        error = call(frame, error, list(more[:1]), {})
    if not is_exception(error) or error.source is not None:
        raise Break("GENERATOR", None, "throw() of an exception of the caller's")
    item = owner.throw(error)
    return stop_iteration(owner) if item is NULL else item


def _close(frame: Frame, owner: Generator) -> Value:
    if owner.frame is None or not owner.started:
        owner.frame = None
        return NOTHING
    try:
        item = owner.throw(exception(GeneratorExit))
    except Raised as raised:
        if issubclass(raised.value.kind, (GeneratorExit, StopIteration)):
            return NOTHING
        raise
    if item is not NULL:
        throw(RuntimeError("generator ignored GeneratorExit"))
    return owner.returned if VERSION >= (3, 13) else NOTHING


FLAT: Table = {
    "__next__": next_of,
    "__iter__": lambda frame, owner: owner,
    "copy": lambda frame, owner: owner.item(frame.ex, Const(slice(None))),
    "__len__": lambda frame, owner: frame.ex.from_door(numel(owner.array.node.shape), "value"),
}
ITERATOR: Table = {"__next__": next_of, "__iter__": lambda frame, owner: owner}
GENERATOR: Table = {**ITERATOR, "send": _send, "throw": _throw, "close": _close}

METHODS.update({Generator: lambda owner: GENERATOR, Flat: lambda owner: FLAT, Iterator: lambda owner: ITERATOR})
