"""Operators, comparisons, subscripts and formatting, on values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dynagraph.frontend.executor import Frame, refuse
from dynagraph.frontend.iteration import dict_keys, items_of
from dynagraph.frontend.numpy_door import operator_door
from dynagraph.frontend.source import Key
from dynagraph.frontend.truth import truth
from dynagraph.frontend.values import Array, Const, Dict, Sequence, Value
from dynagraph.ir.shapes import SymInt

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "@": operator.matmul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}
PURE = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, SymInt, range)
MAX_DIGITS = 10000  # of results of ** and <<: a capture must not hang


def binary(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol right``."""
    ex = frame.ex
    left, right = ex.resolve(left), ex.resolve(right)
    if isinstance(left, Array) or isinstance(right, Array):
        other = right if isinstance(left, Array) else left
        if isinstance(other, Const) and other.value is None and symbol in ("==", "!="):
            refuse("UNSUPPORTED_ARGUMENT", "an array compared with None")
        return ex.call_door(operator_door(symbol), [left, right])
    if isinstance(left, Const) and isinstance(right, Const):
        return ex.constant(pure(symbol, left.value, right.value))
    if isinstance(left, Sequence) or isinstance(right, Sequence):
        return _of_sequences(frame, symbol, left, right)
    if isinstance(left, Dict) and isinstance(right, Dict) and symbol == "|":
        return Dict({**entries_of(frame, left), **entries_of(frame, right)})
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a {type(left).__name__.lower()} and a {type(right).__name__.lower()}")


def pure(symbol: str, left: Any, right: Any) -> Any:
    """The operator on Python values that have no side effects."""
    comparable = symbol in ("==", "!=") and (callable(left) or callable(right) or _is_dtype(left) or _is_dtype(right))
    if not comparable and not (isinstance(left, PURE) and isinstance(right, PURE)):
        refuse("UNSUPPORTED_VALUE", f"{left!r} {symbol} {right!r}")
    if symbol in ("**", "<<", "*") and type(left) is int and type(right) is int and right > 0:
        digits = left.bit_length() * right if symbol == "**" else left.bit_length() + right
        if symbol != "*" and digits > 4 * MAX_DIGITS:
            refuse("UNSUPPORTED_VALUE", "a number of more than 10000 digits")
    try:
        return BINARY[symbol](left, right)
    except Exception as error:
        return refuse("WOULD_RAISE", f"{type(error).__name__}: {error}")


def _is_dtype(value: Any) -> bool:
    return type(value).__module__.startswith("numpy")


def _of_sequences(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        if symbol == "+" and left.kind is right.kind:
            return Sequence(left.kind, [*left.items, *right.items])
        if symbol in ("==", "!="):
            return Const(_equal(frame, left, right) is (symbol == "=="))
        if symbol in ("<", "<=", ">", ">="):
            return Const(pure(symbol, plain(frame, left), plain(frame, right)))
    if symbol == "*":
        sequence, count = (left, right) if isinstance(left, Sequence) else (right, left)
        if isinstance(count, Const) and isinstance(count.value, int):
            return Sequence(sequence.kind, list(sequence.items) * count.value)
    if symbol == "%" and isinstance(left, Const) and type(left.value) is str:
        return Const(pure("%", left.value, plain(frame, right)))
    if symbol in ("==", "!=") and isinstance(left, (Sequence, Const)) and isinstance(right, (Sequence, Const)):
        return Const(symbol == "!=")
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a sequence")


def _equal(frame: Frame, left: Sequence, right: Sequence) -> bool:
    if left.kind is not right.kind or len(left.items) != len(right.items):
        return False
    for a, b in zip(left.items, right.items):
        a, b = frame.ex.resolve(a), frame.ex.resolve(b)
        if a is not b and not truth(frame, binary(frame, "==", a, b)):
            return False
    return True


def plain(frame: Frame, value: Any) -> Any:
    """The Python object that a value of constants stands for."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Sequence):
        return value.kind(plain(frame, item) for item in value.items)
    return refuse("UNSUPPORTED_VALUE", f"a {type(value).__name__.lower()} where a number or string is needed")


def entries_of(frame: Frame, value: Dict) -> dict[Any, Any]:
    if value.object is None:
        return value.items
    return {k: dict_value(frame, value, k) for k in dict_keys(frame.ex, value)}


def in_place(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol= right``: on arrays a write, which is followed where nobody else sees the array's memory."""
    ex = frame.ex
    left, right = ex.resolve(left), ex.resolve(right)
    if isinstance(left, Array) and not left.is_scalar:
        result = binary(frame, symbol, left, right)
        if not isinstance(result, Array) or not ex.write_in_place(left, result):
            refuse("IN_PLACE_WRITE", f"{symbol}= writes into an array that others may see")
        return left
    if isinstance(left, Sequence) and left.kind is list and symbol == "+":
        if left.source is not None:
            refuse("SIDE_EFFECT", f"{left.source} is extended")
        left.items += items_of(frame, right)
        return left
    if isinstance(left, Dict) and symbol == "|":
        if left.source is not None:
            refuse("SIDE_EFFECT", f"{left.source} is updated")
        left.items.update(entries_of(frame, right))
        return left
    return binary(frame, symbol, left, right)


def unary(frame: Frame, name: str, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door(name), [value])
    if isinstance(value, Const) and isinstance(value.value, PURE):
        try:
            return Const(UNARY[name](value.value))
        except TypeError as error:
            refuse("WOULD_RAISE", str(error))
    return refuse("UNSUPPORTED_VALUE", f"{name} of a {type(value).__name__.lower()}")


def contains(frame: Frame, container: Any, item: Any) -> bool:
    if isinstance(container, Array):
        frame.ex.call_door(operator_door("contains"), [container, item])
    if isinstance(container, Dict):
        key = plain(frame, item)
        if container.object is not None:
            return key in dict_keys(frame.ex, container)
        return key in container.items
    if isinstance(container, Const):
        try:
            return plain(frame, item) in container.value
        except TypeError as error:
            refuse("WOULD_RAISE", str(error))
    if isinstance(container, Sequence):
        for candidate in container.items:
            candidate = frame.ex.resolve(candidate)
            if candidate is item or truth(frame, binary(frame, "==", candidate, item)):
                return True
        return False
    return refuse("UNSUPPORTED_VALUE", f"`in` of a {type(container).__name__.lower()}")


# -- subscripts ---------------------------------------------------------------------------------------------------------


def subscript(frame: Frame, container: Any, key: Any) -> Value:
    """``container[key]``."""
    ex = frame.ex
    container, key = ex.resolve(container), ex.resolve(key)
    if isinstance(container, Array):
        return ex.call_door(operator_door("getitem"), [container, key])
    if isinstance(container, Sequence):
        return _item(frame, container, key)
    if isinstance(container, Dict):
        return dict_value(frame, container, plain(frame, key))
    if isinstance(container, Const) and isinstance(container.value, (str, bytes, range, tuple)):
        index = ex.to_door(key)
        try:
            return ex.constant(container.value[index])
        except (IndexError, TypeError) as error:
            refuse("WOULD_RAISE", str(error))
    return refuse("UNSUPPORTED_VALUE", f"a subscript of a {type(container).__name__.lower()}")


def _item(frame: Frame, container: Sequence, key: Any) -> Value:
    index = frame.ex.to_door(key)
    try:
        if isinstance(index, slice):
            parts = [None if p is None else operator.index(p) for p in (index.start, index.stop, index.step)]
            return Sequence(container.kind, container.items[slice(*parts)])
        return frame.ex.resolve(container.items[operator.index(index)])
    except (IndexError, TypeError, ValueError) as error:
        return refuse("WOULD_RAISE", str(error))


def dict_value(frame: Frame, container: Dict, key: Any) -> Value:
    """``container[key]`` of a dict made here, or of one of the caller's, guarded by entry."""
    try:
        if container.object is None or container.source is None:
            return frame.ex.resolve(container.items[key])
        if type(key) not in (str, int, bool, type(None)):
            refuse("UNSUPPORTED_VALUE", f"the key {key!r}")
        return frame.ex.wrap(container.object[key], Key(container.source, key))
    except (KeyError, TypeError) as error:
        return refuse("WOULD_RAISE", f"{type(error).__name__}: {error}")


def store(frame: Frame, container: Any, key: Any, value: Any) -> None:
    if isinstance(container, Array):
        refuse("IN_PLACE_WRITE", "x[...] = value writes into an array")
    if not isinstance(container, (Sequence, Dict)) or container.source is not None:
        refuse("SIDE_EFFECT", "an item of a container of the caller's is set")
    if isinstance(container, Dict):
        container.items[plain(frame, key)] = value
        return
    index = frame.ex.to_door(key)
    try:
        if isinstance(index, slice):
            container.items[index] = items_of(frame, value)
        else:
            container.items[operator.index(index)] = value
    except (IndexError, TypeError, ValueError) as error:
        refuse("WOULD_RAISE", str(error))


# -- strings --------------------------------------------------------------------------------------------------------------


def formatted(frame: Frame, value: Any, conversion: int, specification: str) -> Const:
    obj = plain(frame, value)
    if not isinstance(obj, PURE) or isinstance(obj, SymInt):
        refuse("UNSUPPORTED_VALUE", "an f-string of an object")
    obj = {0: lambda x: x, 1: str, 2: repr, 3: ascii}[conversion](obj)
    try:
        return Const(format(obj, specification))
    except (ValueError, TypeError) as error:
        return refuse("WOULD_RAISE", str(error))
