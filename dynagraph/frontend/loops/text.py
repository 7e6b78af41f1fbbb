"""Strings and bytes in native loops: read at computed places, gone through, compared.  Strings are known by their code points."""

from __future__ import annotations

from dynagraph.frontend.loops import calls, elements
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import means
from dynagraph.frontend.loops.operators import NotNative, as_int, describe, exact, number, truth_value
from dynagraph.frontend.loops.types import (
    BOOL,
    SMALL,
    Bool,
    Bytes,
    Char,
    Int,
    Known,
    Text,
    TextItems,
    Value,
    int_value,
    is_number,
)
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, cast, const, var
from dynagraph.ir.regions import Load, Place

I64 = dtypes.int64
LONGEST = 32  # a string of the code that a character is looked for in, one by one
LAST_OF_ASCII, LAST = 127, 0x10FFFF
ORDERS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def held_text(value: Value) -> str | None:
    """The string that is known while the loop is compiled."""
    held = getattr(value.type.value, "value", None) if isinstance(value.type, Known) else None
    return held if type(held) is str else None


def as_text(b: Builder, value: Value) -> Value:
    if isinstance(value.type, Text):
        return value
    if held_text(value) is None or b.on_text is None:
        raise NotNative(f"{describe(value.type)} where a string is wanted")
    assert isinstance(value.type, Known)
    return b.on_text(value.type.value)


def as_char(value: Value) -> Expr | None:
    """The code point of a string of one character."""
    if isinstance(value.type, Char):
        return value.only
    held = held_text(value)
    return number(ord(held)) if held is not None and len(held) == 1 else None


def char(code: Expr) -> Value:
    return Value(Char(), (code,))


# -- items -----------------------------------------------------------------------------------------------------------------


def _load(b: Builder, owner: Value, at: Expr) -> Value:
    dtype = dtypes.uint8 if isinstance(owner.type, Bytes) else dtypes.uint32
    name = b.fresh(dtype)
    b.emit(Load(name, Place(owner.parts[1], ((at, None),), dtype)))
    code = b.temporary(cast(var(name, dtype), I64))
    return int_value(code, 0, 255) if isinstance(owner.type, Bytes) else char(code)


@means("length", Text, Bytes)
def length(b: Builder, owner: Value) -> Value:
    return int_value(owner.parts[2], 0, SMALL)


@means("truth", Text, Bytes)
def is_not_empty(b: Builder, owner: Value) -> Expr:
    return call("gt", owner.parts[2], number(0))


@means("truth", Char)
def truth_of_char(b: Builder, value: Value) -> Expr:
    return const(True, dtypes.bool_)


@means("length", Char)
def length_of_char(b: Builder, value: Value) -> Value:
    return int_value(number(1), 1, 1)


@means("item", Text, Bytes)
def item(b: Builder, owner: Value, key: Value) -> Value:
    if not is_number(key.type):
        raise NotNative(f"a subscript of a string by {describe(key.type)}")
    return _load(b, owner, elements.position(b, elements.index(b, key), owner.parts[2]).only)


@means("iterate", Text, Bytes)
def iterate(b: Builder, owner: Value) -> Value:
    return Value(TextItems(owner.type), (*owner.parts, number(0)))


@means("has_next", TextItems)
def has_next(b: Builder, iterator: Value) -> Expr:
    return call("lt", iterator.parts[3], iterator.parts[2])


@means("next", TextItems)
def next_item(b: Builder, iterator: Value) -> tuple[Value, Value]:
    assert isinstance(iterator.type, TextItems)
    at = b.temporary(iterator.parts[3], always=True)
    found = _load(b, Value(iterator.type.owner, iterator.parts[:3]), at)
    return found, Value(iterator.type, (*iterator.parts[:3], b.temporary(exact("add", at, number(1)))))


# -- comparisons -----------------------------------------------------------------------------------------------------------


@means("compare", Char, Text)
def compare(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    x, y = as_char(left), as_char(right)
    if x is not None and y is not None:
        return Value(BOOL, (call(ORDERS[symbol], x, y),))
    if symbol not in ("==", "!=") or not all(map(is_string, (left, right))):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    if isinstance(left.type, Text) or isinstance(right.type, Text):
        equal = _equal_texts(b, left, right)
        return Value(BOOL, (equal if symbol == "==" else call("not", equal),))
    return truth_value(symbol == "!=")  # a character and a string that is not of one


def is_string(value: Value) -> bool:
    return isinstance(value.type, (Text, Char)) or held_text(value) is not None


def _equal_texts(b: Builder, left: Value, right: Value) -> Expr:
    if isinstance(left.type, Char) or isinstance(right.type, Char):
        raise NotNative("a character is compared with a string")
    left, right = as_text(b, left), as_text(b, right)
    return call("gt", b.checked("text_equal", I64, *left.parts[1:], *right.parts[1:]), number(0))


@means("contains", Text)
def contains(b: Builder, owner: Value, value: Value) -> Expr:
    code, held = as_char(value), held_text(owner)
    if code is None:
        raise NotNative(f"{describe(value.type)} in {describe(owner.type)}")
    if held is not None and len(held) <= LONGEST:
        return _is_one_of(code, [ord(c) for c in held])
    text = as_text(b, owner)
    return call("ge", b.checked("text_find", I64, *text.parts[1:], code), number(0))


def _is_one_of(code: Expr, options: list[int]) -> Expr:
    found = const(False, dtypes.bool_)
    for option in options:
        found = call("or", found, call("eq", code, number(option)))
    return found


@means("contains", Bytes)
def contains_byte(b: Builder, owner: Value, value: Value) -> Expr:
    if not isinstance(value.type, (Int, Bool)):
        raise NotNative(f"{describe(value.type)} in bytes")
    code = as_int(value)
    b.require(call("and", call("ge", code, number(0)), call("le", code, number(255))))
    return call("ge", b.checked("bytes_find", I64, *owner.parts[1:], code), number(0))


# -- functions and methods --------------------------------------------------------------------------------------------------


@calls.meaning(ord)
def ord_(b: Builder, value: Value) -> Value:
    code = as_char(value)
    if code is None:
        raise NotNative(f"ord of {describe(value.type)}")
    return int_value(code, 0, LAST)


@calls.meaning(chr)
def chr_(b: Builder, value: Value) -> Value:
    if not isinstance(value.type, (Int, Bool)):
        raise NotNative(f"chr of {describe(value.type)}")
    code = as_int(value)
    b.require(call("and", call("ge", code, number(0)), call("le", code, number(LAST))))
    return char(code)


@means("int", Char)
def int_of_char(b: Builder, value: Value) -> Value:
    b.require(_between(value.only, "0", "9"))
    return int_value(b.temporary(call("sub", value.only, number(ord("0")))), 0, 9)


def _between(code: Expr, first: str, last: str) -> Expr:
    return call("and", call("ge", code, number(ord(first))), call("le", code, number(ord(last))))


def _of_ascii(b: Builder, value: Value) -> tuple[Expr, Expr, Expr, Expr]:
    """The character, and whether it is a digit, an upper case, a lower case letter; beyond ASCII Python knows."""
    b.require(call("le", value.only, number(LAST_OF_ASCII)))
    return value.only, *(_between(value.only, first, last) for first, last in ("09", "AZ", "az"))  # type: ignore[return-value]


@means("method", Char)
def method(b: Builder, owner: Value, name: str, args: list[Value]) -> Value:
    if args or name not in METHODS:
        raise NotNative(f".{name} of a string")
    code, digit, upper, lower = _of_ascii(b, owner)
    if name in ("lower", "upper"):
        by, test = (32, upper) if name == "lower" else (-32, lower)
        return char(b.temporary(Expr("select", (test, call("add", code, number(by)), code), I64)))
    letter = call("or", upper, lower)
    spaces = call("or", call("and", call("ge", code, number(9)), call("le", code, number(13))),
                  call("and", call("ge", code, number(28)), call("le", code, number(32))))  # fmt: skip
    tests = {"isdigit": digit, "isalpha": letter, "isalnum": call("or", digit, letter), "isupper": upper, "islower": lower,
             "isspace": spaces}  # fmt: skip
    return Value(BOOL, (b.temporary(tests[name]),))


METHODS = ("lower", "upper", "isdigit", "isalpha", "isalnum", "isupper", "islower", "isspace")

