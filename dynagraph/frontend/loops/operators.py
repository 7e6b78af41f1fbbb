"""Operators of native values: Python's meaning for Python's numbers, NumPy's for its scalars."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.types import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NOTHING,
    SMALL,
    Bool,
    Complex,
    Composite,
    Enumerate,
    Float,
    Generator,
    Int,
    Items,
    Known,
    ListItems,
    Range,
    Rows,
    Scalar,
    TextItems,
    Tuple,
    Type,
    Value,
    Zip,
    int_value,
    is_number,
    is_python_number,
    sample_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, call, cast, const
from dynagraph.ir.ops import OPS, Elementwise
from dynagraph.python_operators import BINARY, COMPARISONS, UNARY

if TYPE_CHECKING:
    from dynagraph.frontend.loops.builder import Builder


class NotNative(Exception):
    """Python has to do this instruction; why."""


def refuse_iterators(values: Iterable[Value]) -> None:
    """Values that get a name: all who hold an iterator see it advance, and native ones are advanced as copies."""
    for value in values:
        if isinstance(value.type, (Range, Rows, ListItems, Items, Enumerate, Zip, Composite, Generator, TextItems)):
            raise NotNative("an iterator has a name")
        if isinstance(value.type, Tuple):
            refuse_iterators(value.items())


I64, U64 = dtypes.int64, dtypes.uint64
F64 = dtypes.float64
LEAST, MOST = -(2**63), 2**63 - 1
COMPARED = frozenset(row.ufunc.__name__ for row in COMPARISONS.values())


def number(value: int) -> Expr:
    return const(value, I64)


def exact(name: str, x: Expr, y: Expr) -> Expr:
    """``add``, ``sub`` or ``mul`` of ints that is known to stay within 64 bits: gcc then knows how it grows."""
    return Expr(f"exact_{name}", (x, y), I64)


# -- conversions -------------------------------------------------------------------------------------------------------


def as_int(value: Value) -> Expr:
    """Of an int or bool."""
    return cast(value.only, I64) if isinstance(value.type, Bool) else value.only


def as_float(value: Value) -> Expr:
    """Of a Python number that is not complex."""
    return value.only if isinstance(value.type, Float) else cast(as_int(value), F64)


def dtype_of(kind: Type) -> DType:
    """Of the C variable that holds a number."""
    ((_, dtype),) = kind.parts
    assert isinstance(dtype, dtypes.DType)
    return dtype


def type_of_sample(sample: Any) -> Type:
    """The type of a number that NumPy or Python gave."""
    for python, kind in ((bool, BOOL), (int, INT), (float, FLOAT), (complex, COMPLEX)):
        if type(sample) is python:
            return kind
    dtype = from_numpy(sample.dtype) if isinstance(sample, np.generic) else None
    if dtype is None:
        raise NotNative(f"a {type(sample).__name__}")
    return Scalar(dtype)


@functools.cache
def _asked(function: Any, *kinds: Type) -> Any:
    """What NumPy gives for numbers of these types; the error's text where it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*map(sample_of, kinds))
        except TypeError as error:
            return NotNative(str(error))


def result_of(function: Any, *kinds: Type) -> Type:
    """The type of a function's result for numbers of these types, by asking it."""
    found = _asked(function, *kinds)
    if isinstance(found, NotNative):
        raise NotNative(*found.args)
    return type_of_sample(found)


@functools.cache
def common_dtype(*kinds: Type) -> DType:
    """In which NumPy computes with these numbers."""
    found = from_numpy(np.result_type(*map(sample_of, kinds)))
    if found is None:
        raise NotNative("a dtype that native code has not")
    return found


def to_dtype(b: Builder, value: Value, dtype: DType) -> Expr:
    """A number as NumPy casts it to compute in a dtype; the exit where a Python int does not fit."""
    if isinstance(value.type, Int) and dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        low, high = value.bounds
        least, most = max(int(info.min), LEAST), min(int(info.max), MOST)
        if low < least:
            b.require(call("ge", value.only, number(least)))
        if high > most:
            b.require(call("le", value.only, number(most)))
    if isinstance(value.type, Int) and dtype.is_float:  # by way of a double
        return cast(cast(value.only, F64), dtype) if dtype is not F64 else cast(value.only, F64)
    return value.only if value.only.dtype is dtype else cast(value.only, dtype)


def as_stored(b: Builder, value: Value, dtype: DType) -> Expr:
    """A number as NumPy casts it where it is stored; the exit where Python raises."""
    kind = value.type
    if not is_number(kind):
        raise NotNative(f"{describe(kind)} is stored")
    if isinstance(kind, Complex) and not dtype.is_complex:
        raise NotNative("a complex number is stored in an array of real ones")
    if isinstance(kind, Scalar) and kind.dtype.is_complex and not dtype.is_complex:
        raise NotNative("a complex number is stored in an array of real ones")
    # a NumPy scalar goes into signed integers by way of int(value), which must fit; into others it is cast
    by_int = isinstance(kind, Scalar) and dtype.numpy.kind == "i" and not np.can_cast(kind.dtype.numpy, dtype.numpy, "safe")
    if by_int:
        value = index_of(b, value) if value.only.dtype.is_integer else Value(FLOAT, (cast(value.only, F64),))
    if isinstance(value.type, Float) and dtype.is_integer:
        value = Value(INT, (b.checked("int_of_float", I64, value.only),))
    kind = value.type
    if isinstance(kind, Int):
        if dtype.is_integer and dtype is not dtypes.uint64:
            return to_dtype(b, value, dtype)
        if dtype is dtypes.uint64:
            b.require(call("ge", value.only, number(0)))
        if dtype.is_bool:
            return call("ne", value.only, number(0))
        return cast(cast(value.only, dtypes.float64), dtype) if dtype.is_inexact else cast(value.only, dtype)
    if isinstance(kind, Bool):
        return cast(value.only, dtype)
    return value.only if value.only.dtype is dtype else cast(value.only, dtype)


def apply(ufunc_name: str, *operands: Expr) -> Expr:
    """The scalar function of a ufunc's row; comparisons take int64 and uint64 as well (`inner_dtypes`)."""
    if len(operands) == 2 and {x.dtype for x in operands} == {I64, U64}:
        return _compare_signs(ufunc_name, *operands)
    row = OPS[ufunc_name]
    assert isinstance(row.lowering, Elementwise)
    return row.lowering.expr(*operands)


def index_of(b: Builder, value: Value) -> Value:
    """An int, bool or NumPy integer as an int, as ``operator.index`` has it."""
    kind = value.type
    if isinstance(kind, Int):
        return value
    if isinstance(kind, Bool):
        return int_value(as_int(value), 0, 1)
    if not isinstance(kind, Scalar) or not kind.dtype.is_integer or kind.dtype is dtypes.uint64:
        raise NotNative(f"{describe(kind)} as an int")
    if kind.dtype is I64:
        return Value(INT, (value.only,))
    info = np.iinfo(kind.dtype.numpy)
    return int_value(cast(value.only, I64), int(info.min), int(info.max))


# -- binary ------------------------------------------------------------------------------------------------------------


def binary(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    """``left symbol right``."""
    if symbol in COMPARISONS:
        return compare(b, symbol, left, right)
    found = meaning_of("binary", left.type) or meaning_of("binary", right.type)
    if found is not None:
        return found(b, symbol, left, right)  # type: ignore[no-any-return]
    if not (is_number(left.type) and is_number(right.type)):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    if isinstance(left.type, Scalar) or isinstance(right.type, Scalar):
        return _scalars(b, symbol, left, right)
    kinds = (type(left.type), type(right.type))
    if Complex in kinds:
        return _complexes(b, symbol, left, right)
    if Float in kinds:
        return _floats(b, symbol, left, right)
    if kinds == (Bool, Bool) and symbol in ("&", "|", "^"):
        return Value(BOOL, (call({"&": "and", "|": "or", "^": "xor"}[symbol], left.only, right.only),))
    return ints(b, symbol, left, right)


def _int(value: Value) -> Value:
    return value if isinstance(value.type, Int) else int_value(as_int(value), 0, 1)


def _fits(low: int, high: int) -> bool:
    return low >= LEAST and high <= MOST


def operands_fit(symbol: str, left: Value, right: Value) -> bool:
    """Whether the result is known to fit in 64 bits."""
    if symbol not in ("+", "-", "*"):
        return symbol != "<<"
    ends = [BINARY[symbol].function(p, q) for p in _int(left).bounds for q in _int(right).bounds]
    return _fits(min(ends), max(ends))


def ints(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    """``left symbol right`` of ints and bools."""
    return _ints(b, symbol, _int(left), _int(right))


def _ints(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    x, y = left.only, right.only
    (a, z), (c, d) = left.bounds, right.bounds
    if left.number is not None and right.number is not None and symbol in ("+", "-", "*"):
        found = BINARY[symbol].function(left.number, right.number)
        if _fits(found, found):
            return int_value(number(found), found, found)
    if symbol in ("+", "-", "*"):
        ends = [BINARY[symbol].function(p, q) for p in (a, z) for q in (c, d)]
        name, low, high = {"+": "add", "-": "sub", "*": "mul"}[symbol], min(ends), max(ends)
        if _fits(low, high):
            return int_value(b.temporary(exact(name, x, y)), low, high)
        return Value(INT, (b.checked(f"int_{name}", I64, x, y),))
    if symbol in ("&", "|", "^"):
        made = b.temporary(call({"&": "and", "|": "or", "^": "xor"}[symbol], x, y))
        if symbol == "&" and (a >= 0 or c >= 0):
            return int_value(made, 0, min(m for n, m in ((a, z), (c, d)) if n >= 0))
        if a >= 0 and c >= 0:
            return int_value(made, 0, min(MOST, (1 << max(z.bit_length(), d.bit_length())) - 1))
        return Value(INT, (made,))
    if symbol in ("//", "%"):
        if c > 0:  # no test for zero, nor of the least number by -1
            made = b.temporary(_divided(symbol, x, y, a >= 0))
        else:
            made = b.checked("int_floordiv" if symbol == "//" else "int_mod", I64, x, y)
        if symbol == "%" and (c > 0 or d < 0):
            return int_value(made, min(c + 1, 0), max(d - 1, 0))
        most = max(abs(a), abs(z))
        return int_value(made, -most, most) if most <= MOST else Value(INT, (made,))
    if symbol == "/":
        if min(abs(a), abs(z)) and a >= -(2**53) and z <= 2**53 and c >= -(2**53) and d <= 2**53 and not c <= 0 <= d:
            return Value(FLOAT, (b.temporary(call("div", cast(x, F64), cast(y, F64))),))
        return Value(FLOAT, (b.checked("int_truediv", F64, x, y),))
    if symbol == "**":
        if right.number == 2:
            return _ints(b, "*", left, left)
        if c >= 0:
            return Value(INT, (b.checked("int_pow", I64, x, y),))
        b.require(call("ge", y, number(0)))
        return Value(INT, (b.checked("int_pow", I64, x, y),))
    if symbol in ("<<", ">>"):
        made = b.checked("int_lshift" if symbol == "<<" else "int_rshift", I64, x, y)
        return int_value(made, min(a, 0), max(z, 0)) if symbol == ">>" else Value(INT, (made,))
    raise NotNative(f"{symbol} of ints")


def _divided(symbol: str, x: Expr, y: Expr, positive: bool) -> Expr:
    """By a number above zero."""
    if positive:
        return Expr("c_div" if symbol == "//" else "c_mod", (x, y), I64)
    return call("floordiv", x, y) if symbol == "//" else apply("remainder", x, y)


def _floats(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    x, y = as_float(left), as_float(right)
    if symbol in ("+", "-", "*"):
        return Value(FLOAT, (b.temporary(call({"+": "add", "-": "sub", "*": "mul"}[symbol], x, y)),))
    if symbol == "/" and y.op == "const" and y.value:
        return Value(FLOAT, (b.temporary(call("div", x, y)),))
    name = {"/": "float_div", "//": "float_floordiv", "%": "float_mod", "**": "float_pow"}.get(symbol)
    if name is None:
        raise NotNative(f"{symbol} of a float")
    return Value(FLOAT, (b.checked(name, F64, x, y),))


def _complexes(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    x, y = (_complex(v) for v in (left, right))
    if symbol in ("+", "-"):
        return Value(COMPLEX, (b.temporary(call("add" if symbol == "+" else "sub", x, y)),))
    if symbol == "*":
        return Value(COMPLEX, (b.temporary(Expr("python_complex_mul", (x, y), dtypes.complex128)),))
    if symbol == "/":
        return Value(COMPLEX, (b.checked("complex_div", dtypes.complex128, x, y),))
    raise NotNative(f"{symbol} of a complex number")


def _complex(value: Value) -> Expr:
    if isinstance(value.type, Complex):
        return value.only
    return apply("complex", as_float(value), const(0.0, F64))


def _scalars(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    row = BINARY[symbol]
    kind = result_of(row.function, left.type, right.type)
    if not isinstance(kind, Scalar):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    shifts = symbol in ("<<", ">>")
    if shifts and not kind.dtype.is_integer:
        raise NotNative(f"{symbol} of {kind.dtype}")
    x, y = to_dtype(b, left, kind.dtype), to_dtype(b, right, kind.dtype)
    name = row.ufunc.__name__
    if symbol == "**":
        if kind.dtype in (dtypes.float64, dtypes.float32):
            return Value(kind, (b.temporary(Expr("numpy_pow", (x, y), kind.dtype)),))
        if kind.dtype.is_integer:
            if kind.dtype.kind == "i":
                b.require(call("ge", y, const(0, kind.dtype)))
            return Value(kind, (b.temporary(apply("power_int", x, y)),))
        raise NotNative(f"** of {kind.dtype}")
    if kind.dtype is dtypes.complex128 and symbol == "*":
        return Value(kind, (b.temporary(Expr("python_complex_mul", (x, y), kind.dtype)),))
    if kind.dtype.is_complex and symbol not in ("+", "-"):
        raise NotNative(f"{symbol} of complex NumPy scalars")
    return Value(kind, (b.temporary(apply(name, x, y)),))


# -- comparisons -------------------------------------------------------------------------------------------------------


def compare(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    registered = meaning_of("compare", left.type) or meaning_of("compare", right.type)
    if registered is not None:
        return registered(b, symbol, left, right)  # type: ignore[no-any-return]
    if isinstance(left.type, Known) and isinstance(right.type, Known) and symbol in ("==", "!="):
        return _known(symbol, left.type.value, right.type.value)
    of_none = NOTHING in (left.type, right.type) and any(is_python_number(v.type) for v in (left, right))
    if of_none and symbol in ("==", "!="):
        return truth_value(symbol == "!=")
    if isinstance(left.type, Tuple) and isinstance(right.type, Tuple) and symbol in ("==", "!="):
        return _tuples(b, symbol, left, right)
    if not (is_number(left.type) and is_number(right.type)):
        raise NotNative(f"{symbol} of {describe(left.type)} and {describe(right.type)}")
    name = COMPARISONS[symbol].ufunc.__name__
    if isinstance(left.type, Scalar) or isinstance(right.type, Scalar):
        kind = result_of(COMPARISONS[symbol].function, left.type, right.type)
        dtype = common_dtype(left.type, right.type)
        of_left, of_right = inner_dtypes(name, dtype, left.only.dtype, right.only.dtype)
        x, y = to_dtype(b, left, of_left), to_dtype(b, right, of_right)
        if dtype.is_complex and symbol not in ("==", "!=") and _orders_beside_nan(symbol, left.type, right.type):
            return Value(kind, (_by_real_parts_first(name, x, y),))
        return Value(kind, (apply(name, x, y),))
    kinds = {type(left.type), type(right.type)}
    if Complex in kinds:
        if symbol not in ("==", "!="):
            raise NotNative("complex numbers have no order")
        return Value(BOOL, (apply(name, _complex(left), _complex(right)),))
    if Float in kinds:
        for value in (left, right):
            if isinstance(value.type, Int) and not (value.bounds[0] >= -SMALL and value.bounds[1] <= SMALL):
                b.require(call("le", call("abs", value.only), number(2 * SMALL)))  # beyond, Python compares digit by digit
        return Value(BOOL, (apply(name, as_float(left), as_float(right)),))
    return Value(BOOL, (apply(name, as_int(left), as_int(right)),))


@functools.cache
def _orders_beside_nan(symbol: str, *kinds: Type) -> bool:
    """Whether real parts alone decide between complex scalars where an imaginary part is NaN.

    NumPy's scalars of one dtype are compared so, its arrays are not; scalars that need a wider dtype are compared as arrays.
    """
    left, right = (sample_of(kind) for kind in kinds)
    less, more = complex(-np.inf, np.nan), complex(np.inf, np.nan)
    if symbol in (">", ">="):
        less, more = more, less
    if isinstance(left, (complex, np.complexfloating)):
        left = type(left)(less)
    else:
        right = type(right)(more)
    with np.errstate(all="ignore"):
        return bool(COMPARISONS[symbol].function(left, right))


def _by_real_parts_first(name: str, x: Expr, y: Expr) -> Expr:
    strict = {"greater_equal": "greater", "less_equal": "less"}.get(name, name)
    (a, c), (d, e) = ((call("real", z), call("imag", z)) for z in (x, y))
    return call("or", apply(strict, a, d), call("and", call("eq", a, d), apply(name, c, e)))


def _known(symbol: str, left: Any, right: Any) -> Value:
    x, y = (getattr(v, "value", None) for v in (left, right))
    if type(x) is not str or type(y) is not str:
        raise NotNative(f"{symbol} of objects")
    return truth_value((x == y) is (symbol == "=="))


def _tuples(b: Builder, symbol: str, left: Value, right: Value) -> Value:
    pairs = list(zip(left.items(), right.items()))
    if len(left.items()) != len(right.items()):
        return truth_value(symbol == "!=")
    found = const(True, dtypes.bool_)
    for x, y in pairs:
        found = call("and", found, truth(b, compare(b, "==", x, y)))
    return Value(BOOL, (found if symbol == "==" else call("not", found),))


def inner_dtypes(name: str, common: DType, *of: DType) -> list[DType]:
    """What NumPy casts operands of these dtypes to: they have a common one, but for truths, and to compare int64 and uint64."""
    if name in OPS and OPS[name].kinds == "b":
        return [dtypes.bool_] * len(of)
    if common is F64 and name in COMPARED and all(dtype.is_integer for dtype in of):
        return [U64 if dtype is U64 else I64 for dtype in of]
    return [common] * len(of)


def _compare_signs(name: str, x: Expr, y: Expr) -> Expr:
    """int64 with uint64: below zero the sign says it, else both are compared as uint64."""
    signed = x if x.dtype is I64 else y
    below, made = call("lt", signed, number(0)), apply(name, cast(x, U64), cast(y, U64))
    if name == "not_equal" or name.startswith("less" if signed is x else "greater"):
        return call("or", below, made)
    return call("and", call("not", below), made)


def truth_value(value: bool) -> Value:
    return Value(BOOL, (const(value, dtypes.bool_),))


def truth(b: Builder, value: Value) -> Expr:
    """``bool(value)``."""
    kind = value.type
    if kind == NOTHING:
        return const(False, dtypes.bool_)
    if isinstance(kind, Bool):
        return value.only
    if is_number(kind):
        part = value.only
        return part if part.dtype.is_bool else call("ne", part, const(0, part.dtype))
    if isinstance(kind, Tuple):
        return const(bool(kind.items), dtypes.bool_)
    found = meaning_of("truth", kind)
    if found is not None:
        return found(b, value)  # type: ignore[no-any-return]
    raise NotNative(f"the truth of {describe(kind)}")


# -- unary -------------------------------------------------------------------------------------------------------------


def unary(b: Builder, name: str, value: Value) -> Value:
    """``neg``, ``pos``, ``abs`` or ``invert``."""
    kind = value.type
    if isinstance(kind, Scalar):
        made = result_of(UNARY[name].function, kind)
        if name == "pos":
            return value
        return Value(made, (b.temporary(apply(UNARY[name].ufunc.__name__, value.only)),))
    if isinstance(kind, Float) and name != "invert":
        return value if name == "pos" else Value(FLOAT, (b.temporary(call(name, value.only)),))
    if isinstance(kind, Complex) and name in ("neg", "pos"):
        return value if name == "pos" else Value(COMPLEX, (b.temporary(call("neg", value.only)),))
    if not isinstance(kind, (Int, Bool)):
        raise NotNative(f"{name} of {describe(kind)}")
    value = _int(value)
    low, high = value.bounds
    if name == "pos":
        return value
    if name == "invert":
        return int_value(b.temporary(exact("sub", number(-1), value.only)), -1 - high, -1 - low)
    if value.number is not None and value.number > LEAST:
        found = UNARY[name].function(value.number)
        return int_value(number(found), found, found)
    if low == LEAST:
        b.require(call("gt", value.only, number(LEAST)))
        low = LEAST + 1
    made_of = b.temporary(call(name, value.only))
    if name == "neg":
        return int_value(made_of, -high, -low)
    return int_value(made_of, 0, max(abs(low), abs(high)))


def describe(kind: Type) -> str:
    """A type, for people."""
    if isinstance(kind, Scalar):
        return f"np.{kind.dtype.name}"
    if isinstance(kind, Known):
        held = getattr(kind.value, "value", None)
        return f"a {type(held if held is not None else kind.value).__name__.lower()}"
    names = {"Int": "an int", "Float": "a float", "Nothing": "None", "Bool": "a bool", "Complex": "a complex number"}
    names["PythonList"] = "a list"
    name = type(kind).__name__
    return names.get(name, f"{'an' if name[0] in 'AEIOU' else 'a'} {name.lower()}")
