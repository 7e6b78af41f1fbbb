"""What calls mean to native values: builtins, `math`, NumPy's functions of scalars, and Python functions, which are inlined."""

from __future__ import annotations

import cmath
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import Any, TypeVar

import numpy as np

from dynagraph import markers
from dynagraph._core._dispatch import CompiledFunction
from dynagraph.frontend.executor.numpy_source import is_own
from dynagraph.frontend.guards import sources
from dynagraph.frontend.kinds.constants import class_function
from dynagraph.frontend.kinds.slots import load_attribute
from dynagraph.frontend.kinds.values import Function, Method
from dynagraph.frontend.library import registry
from dynagraph.frontend.loops import arrays, draws, iteration, new_arrays
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.operators import (
    F64,
    I64,
    LEAST,
    NotNative,
    apply,
    as_float,
    as_stored,
    binary,
    common_dtype,
    compare,
    describe,
    index_of,
    inner_dtypes,
    number,
    result_of,
    to_dtype,
    truth,
    truth_value,
    unary,
)
from dynagraph.frontend.loops.types import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    SMALL,
    Array,
    Bool,
    Bound,
    Complex,
    Float,
    Int,
    Known,
    RangeObject,
    Scalar,
    Tuple,
    Type,
    Value,
    int_value,
    integer,
    is_number,
    is_python_number,
    tuple_of,
)
from dynagraph.frontend.loops.unions import FLOATS, bits_of
from dynagraph.ir.dtypes import DType, from_numpy
from dynagraph.ir.expr import Expr, cast, const
from dynagraph.ir.expr import call as scalar
from dynagraph.ir.ops import OPS, Elementwise

Meaning = Callable[..., Value | None]  # of (builder, *args): the value; None: the builder has gone on by itself
MEANINGS: dict[Any, Meaning] = {}
CONSUMERS: dict[Any, Callable[[Builder, list[Value]], bool]] = {}  # of what goes through an iterable: whether they have begun to


M = TypeVar("M", bound=Meaning)


def meaning(*functions: Any) -> Callable[[M], M]:
    def register(implementation: M) -> M:
        MEANINGS.update(dict.fromkeys(functions, implementation))
        return implementation

    return register


def call(b: Builder, function: Value, args: list[Value], named: dict[str, Value], taken: int) -> None:
    """Call a function; `taken` values of the stack are what the call is made of."""
    kind = function.type
    if isinstance(kind, Bound):
        found = method(b, kind.name, Value(kind.owner, function.parts), args, named)
    elif meaning_of("call", kind) is not None and not named:
        meaning_of("call", kind)(b, function, args)  # type: ignore[misc]
        return
    elif not isinstance(kind, Known):
        raise NotNative(f"a call of {describe(kind)}")
    elif isinstance(kind.value, Function) and kind.value.object not in MEANINGS:
        if is_own(kind.value.globals) and registry.meaning_of(kind.value.object) is not None:  # its body is for plain calls
            raise NotNative(f"a call of {kind.value.name}")
        b.inline(kind.value, bind(b, kind.value, args, named), taken)
        return
    elif isinstance(kind.value, Method) and isinstance(kind.value.function, Function):
        draws.refuse_state(kind.value)
        b.inline(kind.value.function, bind(b, kind.value.function, [b.outside(kind.value.owner), *args], named), taken)
        return
    elif isinstance(bound := getattr(kind.value, "value", None), types.MethodType):  # as random.uniform is one, of a hidden object
        owner = b.ex.wrap(bound.__self__, sources.Known(bound.__self__, bound.__name__))
        found_method = load_attribute(b.top.names, owner, bound.__name__)
        if not isinstance(found_method, Method) or not isinstance(found_method.function, Function):
            raise NotNative(f"a call of {bound.__qualname__}")
        draws.refuse_state(found_method)
        b.inline(found_method.function, bind(b, found_method.function, [b.outside(owner), *args], named), taken)
        return
    elif isinstance(compiled := getattr(kind.value, "value", None), CompiledFunction):
        plain = class_function(b.ex, compiled.__wrapped__, type(compiled), compiled.__wrapped__.__name__)
        b.inline(plain, bind(b, plain, args, named), taken)
        return
    elif (number := draws.drawn(b, kind.value, args, named)) is not None:
        found = number
    else:
        made = known_function(b, kind.value, args, named, taken)
        if made is None:
            return
        found = made
    b.popn(taken, whole=False)
    b.push(found)


def bind(b: Builder, function: Function, args: list[Value], named: dict[str, Value]) -> dict[str, Value]:
    """The parameters of a Python function's call."""
    code = function.code
    n, n_named = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: n + n_named]
    found, rest = dict(zip(names[:n], args)), args[n:]
    known = names[code.co_posonlyargcount :]
    if code.co_flags & CO_VARKEYWORDS or (rest and not code.co_flags & CO_VARARGS):
        raise NotNative(f"{function.name} takes **kwargs, or not so many arguments")
    if set(named) - set(known) or set(named) & set(found):
        raise NotNative(f"{function.name} does not take these arguments")
    found.update(named)
    defaults = {**dict(zip(names[n - len(function.defaults) : n], function.defaults)), **function.kwdefaults}
    for name in names:
        if name not in found:
            if name not in defaults:
                raise NotNative(f"{function.name} does not take these arguments")
            found[name] = b.native(defaults[name])
    if code.co_flags & CO_VARARGS:
        found[code.co_varnames[len(names)]] = tuple_of([new_arrays.settled(b, v) for v in rest])
    return found


def known_function(b: Builder, value: Any, args: list[Value], named: dict[str, Value], taken: int) -> Value | None:
    held = value.object if isinstance(value, Function) else getattr(value, "value", None)
    try:
        implementation, consume = MEANINGS.get(held), CONSUMERS.get(held)
    except TypeError:
        implementation = consume = None
    if consume is not None and not named and consume(b, args):
        return None
    if implementation is None and isinstance(held, np.ufunc) and any(arrays.is_array(a.type) for a in args):
        if named:
            raise NotNative(f"np.{held.__name__} with keywords")
        return arrays.elementwise(b, held, UFUNCS.get(held.__name__, held.__name__), args)
    if implementation is None and isinstance(held, np.ufunc):
        return ufunc(b, held, args, named)
    if implementation is None and isinstance(held, type) and issubclass(held, np.generic):
        return scalar_type(b, held, args, named)
    if implementation is None:
        name = getattr(held, "__qualname__", None) or describe(Known(value))
        raise NotNative(f"a call of {name}")
    if held in (min, max):
        if named:
            raise NotNative("min or max with key= or default=")
        return extreme(b, ">" if held is max else "<", args, taken)
    if named and not getattr(implementation, "takes_names", False):
        raise NotNative("a builtin function with keywords")
    try:
        _signature(implementation).bind(b, *args, **named)
    except TypeError:
        raise NotNative(f"{getattr(held, '__name__', held)} with these arguments") from None
    return implementation(b, *(new_arrays.settled(b, a) for a in args), **{n: new_arrays.settled(b, a) for n, a in named.items()})


_signature = functools.cache(inspect.signature)


@meaning(markers.is_compiling)
def is_compiling(b: Builder) -> Value:
    return truth_value(True)


# -- builtins ----------------------------------------------------------------------------------------------------------


@meaning(len)
def length(b: Builder, value: Value) -> Value:
    kind = value.type
    if isinstance(kind, Array) and kind.ndim:
        return int_value(value.sizes[0], 0, SMALL)
    if isinstance(kind, Tuple):
        return integer(len(kind.items))
    if isinstance(kind, RangeObject):
        return int_value(iteration.iterate(b, value).parts[1], 0, 2 * SMALL)
    found = meaning_of("length", kind)
    if found is not None:
        return found(b, value)  # type: ignore[no-any-return]
    raise NotNative(f"len of {describe(kind)}")


@meaning(range)
def range_(b: Builder, *args: Value) -> Value:
    return iteration.range_object(b, list(args))


@meaning(enumerate)
def enumerate_(b: Builder, value: Value, start: Value | None = None) -> Value:
    return iteration.enumerate_of(b, value, start or integer(0))


@meaning(zip)
def zip_(b: Builder, *values: Value) -> Value:
    return iteration.zip_of(b, list(values))


@meaning(reversed)
def reversed_(b: Builder, value: Value) -> Value:
    return iteration.reversed_of(b, value)


@meaning(abs)
def abs_(b: Builder, value: Value) -> Value:
    if isinstance(value.type, Complex):
        found = b.checked("math", F64, Expr("name", (), F64, "hypot"), scalar("real", value.only), scalar("imag", value.only))
        return Value(FLOAT, (found,))
    return unary(b, "abs", value)


@meaning(int)
def int_(b: Builder, value: Value) -> Value:
    kind = value.type
    found = meaning_of("int", kind)
    if found is not None:
        return found(b, value)  # type: ignore[no-any-return]
    if isinstance(kind, Float) or (isinstance(kind, Scalar) and kind.dtype.is_float):
        return Value(INT, (b.checked("int_of_float", I64, value.only if isinstance(kind, Float) else cast(value.only, F64)),))
    if isinstance(kind, Scalar) and kind.dtype.is_bool:
        return int_value(cast(value.only, I64), 0, 1)
    return index_of(b, value)


@meaning(float)
def float_(b: Builder, value: Value) -> Value:
    kind = value.type
    if isinstance(kind, Scalar) and not kind.dtype.is_complex:
        return Value(FLOAT, (b.temporary(value.only if kind.dtype is F64 else cast(value.only, F64)),))
    if isinstance(kind, (Int, Float, Bool)):
        return Value(FLOAT, (b.temporary(as_float(value)),))
    if kind == FLOATS:
        return Value(FLOAT, (bits_of(value),))
    raise NotNative(f"float of {describe(kind)}")


@meaning(operator.index)
def index_(b: Builder, value: Value) -> Value:
    return index_of(b, value)


@meaning(bool)
def bool_(b: Builder, value: Value) -> Value:
    return Value(BOOL, (b.temporary(truth(b, value)),))


@meaning(complex)
def complex_(b: Builder, real: Value, imag: Value | None = None) -> Value:
    parts = [float_(b, v).only if not isinstance(v.type, Complex) else None for v in (real, *([imag] if imag else []))]
    if None in parts:
        raise NotNative("complex of a complex number")
    return Value(COMPLEX, (b.temporary(apply("complex", parts[0], parts[1] if imag else const(0.0, F64))),))  # type: ignore[arg-type]


@meaning(round)
def round_(b: Builder, value: Value, digits: Value | None = None) -> Value:
    if digits is not None:
        raise NotNative("round to digits")
    kind = value.type
    if isinstance(kind, (Int, Bool)):
        return index_of(b, value)
    if isinstance(kind, Float) or (isinstance(kind, Scalar) and kind.dtype.is_float and not kind.dtype.is_half):
        return Value(INT, (b.checked("float_round", I64, float_(b, value).only),))
    raise NotNative(f"round of {describe(kind)}")


@meaning(divmod)
def divmod_(b: Builder, left: Value, right: Value) -> Value:
    return tuple_of([binary(b, "//", left, right), binary(b, "%", left, right)])


@meaning(pow)
def pow_(b: Builder, left: Value, right: Value, modulus: Value | None = None) -> Value:
    if modulus is not None:
        raise NotNative("pow with a modulus")
    return binary(b, "**", left, right)


def _no_numbers(b: Builder, *args: Value) -> Value:
    raise NotNative("min or max of no numbers")


meaning(min, max)(_no_numbers)  # see `extreme`


def extreme(b: Builder, symbol: str, args: list[Value], taken: int) -> Value | None:
    """``min`` or ``max``: the first of the operands that is less, or greater, than all before it."""
    values = args
    if len(args) == 1:
        if not isinstance(args[0].type, Tuple):
            raise NotNative(f"min or max of {describe(args[0].type)}")
        values = args[0].items()
    if not values or not all(is_number(v.type) for v in values):
        raise NotNative("min or max of what are no numbers")
    dtype = _compared_as(values) if len(values) > 2 and len(_kinds(values)) > 1 else None
    if dtype is not None:
        _extreme_of_several(b, symbol, values, dtype, taken)
        return None
    best = values[0]
    for k, value in enumerate(values[1:], 1):
        test = truth(b, compare(b, symbol, value, best))
        if value.type == best.type or (isinstance(value.type, Int) and isinstance(best.type, Int)):
            test = b.temporary(test)
            part = b.temporary(Expr("select", (test, value.only, best.only), value.only.dtype))
            if isinstance(best.type, Int):
                (a, c), (d, e) = best.bounds, value.bounds
                best = int_value(part, *((min(a, d), min(c, e)) if symbol == "<" else (max(a, d), max(c, e))))
            else:
                best = Value(best.type, (part,))
        elif k == len(values) - 1:
            b.popn(taken)
            b.choose(test, value, best)
            return None
        else:
            raise NotNative("min or max of several types")
    return best


def _kinds(values: list[Value]) -> list[Type]:
    return list(dict.fromkeys(INT if isinstance(v.type, Int) else v.type for v in values))


def _compared_as(values: list[Value]) -> DType | None:
    """The dtype in which numbers of several types are compared as Python compares them, and keep all their bits."""
    if all(v.only.dtype is I64 for v in values):
        return I64
    exact = all(v.only.dtype is F64 or (isinstance(v.type, Int) and max(map(abs, v.bounds)) <= SMALL) for v in values)
    return F64 if exact else None


def _extreme_of_several(b: Builder, symbol: str, values: list[Value], dtype: DType, taken: int) -> None:
    """Which one it is is carried with it, so that all but its type is known without a branch."""
    kinds = _kinds(values)
    best, which = cast(values[0].only, dtype), number(0)
    for value in values[1:]:
        part, at = cast(value.only, dtype), number(kinds.index(INT if isinstance(value.type, Int) else value.type))
        test = b.temporary(scalar("lt" if symbol == "<" else "gt", part, best))
        best = b.temporary(Expr("select", (test, part, best), dtype))
        which = b.temporary(Expr("select", (test, at, which), I64))
    b.popn(taken)
    found = [int_value(cast(best, I64), -SMALL, SMALL) if k == INT and dtype is F64 else Value(k, (best,)) for k in kinds]
    b.choose_among([scalar("eq", which, number(k)) for k in range(len(kinds) - 1)], found)


# -- math --------------------------------------------------------------------------------------------------------------

FINITE = (
    "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "cbrt", "erf", "erfc", "exp2", "fabs",
)  # fmt: skip
TWO = ("atan2", "copysign", "fmod", "pow")


def _math(name: str, arity: int) -> None:
    if not hasattr(math, name):
        return

    def implementation(b: Builder, *args: Value) -> Value:
        if len(args) != arity:
            raise NotNative(f"math.{name} of {len(args)} numbers")
        given = [float_(b, a).only for a in args]
        return Value(FLOAT, (b.checked("math", F64, Expr("name", (), F64, name), *given),))

    meaning(getattr(math, name))(implementation)


for _name in FINITE:
    _math(_name, 1)
for _name in TWO:
    _math(_name, 2)


@meaning(math.log)
def log(b: Builder, value: Value, *base: Value) -> Value:
    if base or (isinstance(value.type, Int) and (value.bounds[1] > 2 * SMALL)):
        raise NotNative("math.log with a base, or of an int that may be large")
    return Value(FLOAT, (b.checked("math", F64, Expr("name", (), F64, "log"), float_(b, value).only),))


@meaning(cmath.exp)
def complex_exp(b: Builder, value: Value) -> Value:
    given = value.only if isinstance(value.type, Complex) else apply("complex", float_(b, value).only, const(0.0, F64))
    return Value(COMPLEX, (b.checked("complex_exp", given.dtype, given),))


@meaning(math.sqrt)
def sqrt(b: Builder, value: Value) -> Value:
    given = float_(b, value).only
    b.require(scalar("not", scalar("lt", given, const(0.0, F64))))
    return Value(FLOAT, (b.temporary(apply("sqrt", given)),))


def _rounding(function: Any, name: str) -> None:
    @meaning(function)
    def implementation(b: Builder, value: Value) -> Value:
        kind = value.type
        if isinstance(kind, (Int, Bool)):
            return index_of(b, value)
        if function is math.trunc and isinstance(kind, Scalar) and not hasattr(kind.dtype.numpy.type, "__trunc__"):
            raise NotNative(f"math.trunc of {describe(kind)}, which raises")  # floor and ceil make a float of it
        return Value(INT, (b.checked(name, I64, float_(b, value).only),))


_rounding(math.floor, "float_floor")
_rounding(math.ceil, "float_ceil")
_rounding(math.trunc, "int_of_float")


def _test(name: str) -> None:
    @meaning(getattr(math, name))
    def implementation(b: Builder, value: Value) -> Value:
        return Value(BOOL, (b.temporary(apply(name, float_(b, value).only)),))


for _name in ("isnan", "isinf", "isfinite"):
    _test(_name)


@meaning(math.gcd)
def gcd(b: Builder, left: Value, right: Value) -> Value:
    x, y = index_of(b, left), index_of(b, right)
    for v in (x, y):
        if v.bounds[0] == LEAST:
            b.require(scalar("gt", v.only, number(LEAST)))
    return Value(INT, (b.temporary(apply("gcd", x.only, y.only)),))


# -- NumPy's functions of scalars --------------------------------------------------------------------------------------

UFUNCS = {"abs": "absolute", "bitwise_not": "invert", "true_divide": "divide", "mod": "remainder"}
OF_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "power": "**",
}  # fmt: skip
NOT_BY_ROW = ("power", "divmod", "float_power", "ldexp", "frexp", "modf", "matmul", "vecdot")


def ufunc(b: Builder, function: np.ufunc, args: list[Value], named: dict[str, Value]) -> Value:
    """A ufunc of numbers: what it gives is a NumPy scalar."""
    name = UFUNCS.get(function.__name__, function.__name__)
    row = OPS.get(name)
    if named or not all(is_number(a.type) for a in args) or len(args) != function.nin:
        raise NotNative(f"np.{function.__name__} of {', '.join(describe(a.type) for a in args)}")
    if row is None or not isinstance(row.lowering, Elementwise) or name in NOT_BY_ROW or function.nout != 1:
        raise NotNative(f"np.{function.__name__}")
    kind = result_of(function, *(a.type for a in args))
    if not isinstance(kind, Scalar):
        raise NotNative(f"np.{function.__name__}")
    if kind.dtype.is_bool:
        dtype = common_dtype(*(a.type for a in args))
        if len(args) == 1 and isinstance(args[0].type, Int):
            dtype = I64
    else:
        dtype = kind.dtype
        if name == "absolute" and isinstance(args[0].type, (Complex, Scalar)) and args[0].only.dtype.is_complex:
            raise NotNative("np.abs of a complex number")
    if any(a.only.dtype.is_complex for a in args) or dtype.is_half:
        raise NotNative(f"np.{function.__name__} of {dtype}")
    if any(is_python_number(a.type) for a in args) and dtype.is_integer and dtype is not I64:
        raise NotNative(f"np.{function.__name__} of {dtype} and a Python int")
    inners = inner_dtypes(name, dtype, *(a.only.dtype for a in args))
    try:
        made = apply(name, *(to_dtype(b, a, inner) for a, inner in zip(args, inners)))
    except (TypeError, KeyError) as error:
        raise NotNative(f"np.{function.__name__}: {error}") from None
    return Value(kind, (b.temporary(made if made.dtype is kind.dtype else cast(made, kind.dtype)),))


def scalar_type(b: Builder, function: type, args: list[Value], named: dict[str, Value]) -> Value:
    """``np.float32(x)`` and its like."""
    dtype = from_numpy(function)
    if named or len(args) != 1 or not is_number(args[0].type) or dtype is None:
        raise NotNative(f"np.{function.__name__}")
    return Value(Scalar(dtype), (b.temporary(as_stored(b, args[0], dtype)),))


# -- methods -----------------------------------------------------------------------------------------------------------


def method(b: Builder, name: str, owner: Value, args: list[Value], named: dict[str, Value]) -> Value:
    kind = owner.type
    found = meaning_of("method", kind)
    if found is not None and named and isinstance(kind, Array):
        return found(b, owner, name, args, named)  # type: ignore[no-any-return]
    if named:
        raise NotNative(f".{name} with keywords")
    if found is not None:
        return found(b, owner, name, args)  # type: ignore[no-any-return]
    if isinstance(kind, Scalar) and name == "round" and len(args) <= 1:
        return MEANINGS[np.round](b, owner, *args)  # type: ignore[return-value]
    if isinstance(kind, Scalar) and name == "item" and not args:
        if kind.dtype.is_float:
            return float_(b, owner)
        return bool_(b, owner) if kind.dtype.is_bool else int_(b, owner)
    if isinstance(kind, Int) and name == "bit_length" and not args:
        return int_value(b.temporary(Expr("bit_length", (owner.only,), I64)), 0, 64)
    if isinstance(kind, Float) and name == "conjugate" and not args:
        return owner
    raise NotNative(f".{name} of {describe(kind)}")

