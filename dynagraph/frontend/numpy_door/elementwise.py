"""Elementwise doors: NumPy's ufuncs, from one table.  Promotion is asked of the ufunc itself (``resolve_dtypes``).

A row says which op a ufunc is on the dtypes that NumPy chose; the operands are cast to those before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from dynagraph.frontend.numpy_door.arguments import flag, numpy_error, only, reshape
from dynagraph.frontend.numpy_door.builder import LIMITS, Builder, Unsupported, WeakFloat, default_dtype, is_weak, known_dtype
from dynagraph.frontend.numpy_door.table import (
    Door,
    numpy_function,
    numpy_method,
    register_function,
    register_ufunc_method,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt

Result = Union[Node, tuple[Node, ...]]


@dataclass(frozen=True)
class Call:
    """One application of a ufunc: the operands as given, and the dtypes of the loop that NumPy takes."""

    ufunc: np.ufunc
    operands: tuple[Any, ...]
    loop: tuple[DType, ...]  # of the operands, then of the results

    def nodes(self, b: Builder) -> list[Node]:
        return [b.as_node(x, dtype) for x, dtype in zip(self.operands, self.loop)]


Emit = Callable[[Builder, Call], Result]


# -- promotion --------------------------------------------------------------------------------------------------------


def strong(b: Builder, x: object) -> Any:
    """An operand as promotion sees it: Python scalars stay as they are, anything else becomes a node."""
    return x if is_weak(x) else b.as_node(x)


def _for_resolution(x: Any) -> Any:
    if isinstance(x, Node):
        return x.dtype.numpy
    return np.dtype(bool) if type(x) is bool else _weak_type(x)


def _for_result_type(x: Any) -> Any:
    if isinstance(x, Node):
        return x.dtype.numpy
    return False if type(x) is bool else _weak_type(x)(0)


def _weak_type(x: Any) -> type:
    return x.type if isinstance(x, WeakFloat) else type(x) if type(x) in (float, complex) else int


def result_type(operands: Any, who: str) -> DType:
    """``np.result_type`` of nodes and weak scalars."""
    return known_dtype(np.result_type(*map(_for_result_type, operands)), who)


def resolve(ufunc: np.ufunc, operands: tuple[Any, ...], dtype: object = None, casting: Any = "same_kind") -> tuple[DType, ...]:
    """The dtypes of the loop that NumPy takes for these operands."""
    name = ufunc.__name__
    options: dict[str, Any] = {"casting": casting}
    if dtype is not None:
        options["signature"] = (None,) * ufunc.nin + (known_dtype(dtype, name).numpy,) * ufunc.nout
    given = tuple(map(_for_resolution, operands)) + (None,) * ufunc.nout
    try:
        resolved = ufunc.resolve_dtypes(given, **options)
    except TypeError as error:
        raise numpy_error(f"{name}: {error}") from error
    return tuple(known_dtype(d, f"{name}: operand or result") for d in resolved)


# -- the doors --------------------------------------------------------------------------------------------------------


def apply(b: Builder, ufunc: np.ufunc, *operands: Any, dtype: object = None, casting: Any = "same_kind") -> Any:
    """The nodes of a ufunc call."""
    ready = tuple(strong(b, x) for x in operands)
    return UFUNCS[ufunc](b, Call(ufunc, ready, resolve(ufunc, ready, dtype, casting)))


def _ufunc_door(ufunc: np.ufunc) -> Callable[..., Any]:
    name = ufunc.__name__

    def call(
        b: Builder,
        *operands: Any,
        out: Any = None,
        where: Any = True,
        casting: str = "same_kind",
        order: str = "K",
        dtype: Any = None,
        subok: bool = True,
        signature: Any = None,
    ) -> Any:
        if out is not None or len(operands) > ufunc.nin:
            raise Unsupported("IN_PLACE_WRITE", f"{name}: out= writes into an array that exists; assign the result instead")
        if len(operands) < ufunc.nin:
            raise numpy_error(f"{name}: takes {ufunc.nin} operands, got {len(operands)}")
        only(where is True, name, "where", where, "use np.where on the result")
        only(signature is None, name, "signature", signature, "use dtype=")
        only(order in ("K", "C"), name, "order", order, "results are in C order")
        return apply(b, ufunc, *operands, dtype=dtype, casting=casting)

    return call


def _outer_door(ufunc: np.ufunc) -> Callable[..., Any]:
    def outer(b: Builder, left: Any, right: Any, /, *, dtype: Any = None) -> Any:
        """Of arrays: NumPy makes arrays of Python scalars first, so they are not weak here."""
        x, y = b.as_node(left), b.as_node(right)
        return apply(b, ufunc, reshape(b, x, x.shape + (1,) * y.ndim), y, dtype=dtype)

    return outer


# -- rows -------------------------------------------------------------------------------------------------------------


def op(name: str) -> Emit:
    """The op of that name on the loop's dtypes."""
    return lambda b, call: b.call(name, *call.nodes(b))


def _comparison(name: str) -> Emit:
    """Python ints that the loop's dtype cannot hold compare by their value, as NumPy has it; so do int64 and uint64."""

    def emit(b: Builder, call: Call) -> Node:
        left, right = call.operands
        if _beyond(left, call.loop[0]) or _beyond(right, call.loop[1]):
            return _compare_beyond(b, name, left, right)
        nodes = call.nodes(b)
        if nodes[0].dtype.is_complex and name not in ("equal", "not_equal") and all(map(b.is_scalar, _nodes_of(call))):
            raise Unsupported("UNSUPPORTED_DTYPE", f"{name}: NumPy compares complex scalars in another way than arrays, beside NaN")
        return b.call(name, *nodes) if nodes[0].dtype is nodes[1].dtype else _compare_signs(b, name, *nodes)

    return emit


def _nodes_of(call: Call) -> list[Node]:
    return [x for x in call.operands if isinstance(x, Node)]


def _compare_beyond(b: Builder, name: str, left: Any, right: Any) -> Node:
    """With a Python int beyond the range of the other operand: it compares with all elements as with zero."""
    x = left if isinstance(left, Node) else right
    if not isinstance(x, Node) or not x.dtype.is_integer:  # NumPy's error, or Python's objects
        raise Unsupported("NUMPY_ERROR", f"{name}: {left if right is x else right} does not fit int64")
    result = bool(getattr(np, name)(*(0 if operand is x else np.sign(operand) for operand in (left, right))))
    return b.call("full", shape=x.shape, value=result, dtype=dtypes.bool_)


def _compare_signs(b: Builder, name: str, left: Node, right: Node) -> Node:
    """int64 with uint64: below zero the sign says it, else both are compared as uint64."""
    signed_left = left.dtype.kind == "i"
    signed = left if signed_left else right
    below = b.call("less", signed, b.scalar(0, signed.dtype))
    compared = b.call(name, b.cast(left, dtypes.uint64), b.cast(right, dtypes.uint64))
    if name == "not_equal" or name.startswith("less" if signed_left else "greater"):
        return b.call("logical_or", below, compared)
    return b.call("logical_and", b.call("logical_not", below), compared)


def _beyond(x: Any, dtype: DType) -> bool:
    return type(x) is int and dtype.is_integer and not LIMITS[dtype][0] <= x <= LIMITS[dtype][1]


def _logical(name: str) -> Emit:
    def emit(b: Builder, call: Call) -> Node:
        for x in call.operands:
            if _beyond(x, dtypes.int64) and call.loop[0].is_bool:
                raise numpy_error(f"{name}: {x} does not fit int64")
        return b.call(name, *(b.cast(node, dtypes.bool_) for node in call.nodes(b)))

    return emit


def _float_test(name: str, elsewhere: bool) -> Emit:
    """A question to floating point; integers all answer the same."""

    def emit(b: Builder, call: Call) -> Node:
        (x,) = call.nodes(b)
        return b.call(name, x) if x.dtype.is_inexact else b.call("full", shape=x.shape, value=elsewhere, dtype=dtypes.bool_)

    return emit


def _times(factor: Callable[[Any], Any]) -> Emit:
    """Multiplication by a constant that NumPy computes in the loop's own precision."""

    def emit(b: Builder, call: Call) -> Node:
        (x,) = call.nodes(b)
        wide = b.cast(x, dtypes.float32) if x.dtype is dtypes.float16 else x
        return b.cast(b.call("multiply", wide, b.scalar(float(factor(wide.dtype.numpy.type)), wide.dtype)), x.dtype)

    return emit


def _copy(b: Builder, call: Call) -> Node:
    return b.call("copy", *call.nodes(b))


def _conjugate(b: Builder, call: Call) -> Node:
    (x,) = call.nodes(b)
    return b.call("conjugate" if x.dtype.is_complex else "copy", x)


def _divmod(b: Builder, call: Call) -> Result:
    operands = call.nodes(b)
    return b.call("floor_divide", *operands), b.call("remainder", *operands)


def _modf(b: Builder, call: Call) -> Result:
    """(fraction, whole): both have the sign of the operand, and an infinity has the fraction 0."""
    (x,) = call.nodes(b)
    whole = b.call("trunc", x)
    rest = b.call("where", b.call("isinf", x), b.scalar(0.0, x.dtype), b.call("subtract", x, whole))
    return b.call("copysign", rest, x), whole


def _power(b: Builder, call: Call) -> Node:
    exponent, dtype = call.operands[1], call.loop[0]
    if dtype.is_integer:
        _check_integer_exponent(exponent)
        return b.call("power_int", *call.nodes(b))
    if dtype.is_complex or dtype is dtypes.float16:
        return b.call("power", *call.nodes(b))
    name = _POWERS.get(float(exponent)) if type(exponent) in (int, float, bool) else None
    if name is None:
        return _power_of_nodes(b, *call.nodes(b))
    return b.call(name, b.as_node(call.operands[0], dtype))


def _power_of_nodes(b: Builder, base: Node, exponent: Node) -> Node:
    """NumPy takes the square root where one exponent of 0.5 serves all elements: sqrt(-0.0) is -0.0, pow's is 0.0."""
    result = b.call("power", base, exponent)
    if exponent.ndim > 0 or base.ndim == 0:
        return result
    half = b.call("equal", exponent, b.scalar(0.5, exponent.dtype))
    return b.call("where", half, b.call("sqrt", base), result)


def power_operator(b: Builder, base: Any, exponent: Any) -> Any:
    """``base ** exponent``: of arrays and some Python numbers another function than np.power, on some dtypes."""
    short = _SHORT.get((type(exponent), exponent)) if type(exponent) in (int, float) else None
    if short is not None and isinstance(base, Node) and not b.is_scalar(base) and (short is np.square or base.dtype in _LONG_WAY):
        return apply(b, short, base)
    return apply(b, np.power, base, exponent)


_LONG_WAY = (dtypes.float16, dtypes.complex64, dtypes.complex128)  # that np.power goes whatever the exponent
_SHORT = {(int, 2): np.square, (int, -1): np.reciprocal, (float, 0.5): np.sqrt}


# NumPy's power takes these ways for exponents that are constant: other bits than pow's
_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}


def _float_power(b: Builder, call: Call) -> Node:
    """NumPy's float_power takes pow always, and has no short ways: pow(-0.0, 0.5) is 0.0."""
    if type(call.operands[1]) is float and call.operands[1] == 0.5:
        raise Unsupported("UNSUPPORTED_ARGUMENT", "float_power: the exponent 0.5 is not captured; use np.sqrt or np.power")
    return b.call("power", *call.nodes(b))


def _check_integer_exponent(exponent: Any) -> None:
    if isinstance(exponent, Node):
        if exponent.dtype.kind not in "bu":
            raise Unsupported(
                "DATA_DEPENDENT",
                "power: NumPy raises where an integer exponent is negative, which depends on data; "
                "use a float or unsigned exponent, or a Python int",
            )
    elif exponent < 0:
        raise numpy_error(f"power: integers to the negative integer power {exponent}; use a float base")


UFUNCS: dict[np.ufunc, Emit] = {
    np.add: op("add"),
    np.subtract: op("subtract"),
    np.multiply: op("multiply"),
    np.divide: op("divide"),  # np.true_divide is the same object
    np.floor_divide: op("floor_divide"),
    np.remainder: op("remainder"),  # np.mod too
    np.fmod: op("fmod"),
    np.divmod: _divmod,
    np.modf: _modf,
    np.power: _power,
    np.float_power: _float_power,
    np.negative: op("negative"),
    np.positive: _copy,
    np.conjugate: _conjugate,
    np.absolute: op("absolute"),
    np.fabs: op("absolute"),
    np.sign: op("sign"),
    np.reciprocal: op("reciprocal"),
    np.square: op("square"),
    np.heaviside: op("heaviside"),
    np.deg2rad: _times(lambda real: real(np.pi) / real(180)),
    np.radians: _times(lambda real: real(np.pi) / real(180)),
    np.rad2deg: _times(lambda real: real(180) / real(np.pi)),
    np.degrees: _times(lambda real: real(180) / real(np.pi)),
    np.isnan: _float_test("isnan", elsewhere=False),
    np.isinf: _float_test("isinf", elsewhere=False),
    np.isfinite: _float_test("isfinite", elsewhere=True),
    np.invert: op("invert"),
}
for _name in [
    "sqrt",
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "arctan2",
    "hypot",
    "copysign",
    "nextafter",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]:
    UFUNCS[getattr(np, _name)] = op(_name)
for _name in ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]:
    UFUNCS[getattr(np, _name)] = _comparison(_name)
for _name in ["logical_and", "logical_or", "logical_xor", "logical_not"]:
    UFUNCS[getattr(np, _name)] = _logical(_name)

for _ufunc in UFUNCS:
    register_function(_ufunc, Door(_ufunc.__name__, _ufunc_door(_ufunc)))
    if _ufunc.nin == 2 and _ufunc.nout == 1:
        register_ufunc_method(_ufunc, "outer", Door(f"{_ufunc.__name__}.outer", _outer_door(_ufunc)))


# -- functions that are no ufuncs -------------------------------------------------------------------------------------


def where(b: Builder, condition: Any, x: Any, y: Any) -> Node:
    """``np.where`` with all three arguments."""
    if x is None or y is None:
        raise numpy_error("where: takes both x and y, or neither")
    choices = strong(b, x), strong(b, y)
    dtype = result_type(choices, "where")
    return b.call("where", b.as_node(condition, dtypes.bool_), *(b.as_node(held(c, dtype), dtype) for c in choices))


def held(x: Any, dtype: DType) -> Any:
    """Python ints beyond the dtype's range wrap around in NumPy 2.4 and are an error in 2.5."""
    if type(x) is int and dtype.is_integer:
        low, high = LIMITS[dtype]
        only(low <= x <= high, "where", "choice", x, f"{dtype} holds {low} to {high}")
    return x


_MISSING = object()


@numpy_function(np.clip, at_default=("out",))
def clip(
    b: Builder,
    a: Any,
    a_min: Any = _MISSING,
    a_max: Any = _MISSING,
    out: Any = None,
    *,
    min: Any = _MISSING,
    max: Any = _MISSING,
    **ufunc_arguments: Any,
) -> Node:
    if a_min is _MISSING and a_max is _MISSING:
        a_min, a_max = (None if m is _MISSING else m for m in (min, max))
    elif min is not _MISSING or max is not _MISSING:
        raise numpy_error("clip: a_min and a_max cannot be given together with min and max")
    if a_min is _MISSING or a_max is _MISSING:
        raise numpy_error("clip: a_min and a_max must be given together")
    return _clip(b, a, a_min, a_max, ufunc_arguments)


@numpy_method("clip", at_default=("out",))
def _clip_method(b: Builder, a: Any, min: Any = None, max: Any = None, out: Any = None, **ufunc_arguments: Any) -> Node:
    return _clip(b, a, min, max, ufunc_arguments)


def _clip(b: Builder, a: Any, low: Any, high: Any, ufunc_arguments: dict[str, Any]) -> Node:
    """Bounds that are Python ints beyond the dtype's range bound nothing, or too much: NumPy drops the former."""
    only(not ufunc_arguments, "clip", next(iter(ufunc_arguments), ""), "...", "leave it out")
    x = b.as_node(a)
    if x.dtype.is_integer:
        least, greatest = LIMITS[x.dtype]
        low = None if type(low) is int and low <= least else low
        high = None if type(high) is int and high >= greatest else high
    if low is None and high is None:
        return apply(b, np.positive, x)
    if low is None or high is None:
        return apply(b, np.minimum, x, high) if low is None else apply(b, np.maximum, x, low)
    operands = x, strong(b, low), strong(b, high)
    dtype = result_type(operands, "clip")
    if dtype.is_bool:
        dtype = known_dtype(np.clip(np.zeros((), bool), False, True).dtype, "clip")  # versions differ: bool, or int8
    value, least_node, greatest_node = (b.as_node(o, dtype) for o in operands)
    return b.call("minimum", b.call("maximum", value, least_node), greatest_node)


@numpy_function(np.round, np.around, method="round", at_default=("out",))
def round_(b: Builder, a: Any, decimals: Any = 0, out: Any = None) -> Node:
    x = b.as_node(a)
    digits = int(decimals)
    if x.dtype.is_bool or (x.dtype.is_integer and digits < 0):
        raise Unsupported("UNSUPPORTED_DTYPE", f"round: {x.dtype} to {digits} decimals is not captured; cast to float64 first")
    if x.dtype.is_integer:
        return b.call("copy", x)
    if x.dtype.is_complex:
        return b.call("complex", *(round_(b, part, digits) for part in _parts(b, x)))
    if digits == 0:
        return b.call("rint", x)
    scale = b.scalar(10.0 ** abs(digits), x.dtype)
    there, back = ("multiply", "divide") if digits > 0 else ("divide", "multiply")
    return b.call(back, b.call("rint", b.call(there, x, scale)), scale)


@numpy_function(np.fix, at_default=("out",))
def fix(b: Builder, x: Any, out: Any = None) -> Node:
    return apply(b, np.trunc, x)


@numpy_function(np.isposinf, at_default=("out",))
def isposinf(b: Builder, x: Any, out: Any = None) -> Node:
    return _is_infinite(b, b.as_node(x), math.inf)


@numpy_function(np.isneginf, at_default=("out",))
def isneginf(b: Builder, x: Any, out: Any = None) -> Node:
    return _is_infinite(b, b.as_node(x), -math.inf)


def _is_infinite(b: Builder, x: Node, which: float) -> Node:
    if x.dtype.is_complex:
        raise numpy_error("isposinf, isneginf: take no complex numbers")
    if not x.dtype.is_float:
        return b.call("full", shape=x.shape, value=False, dtype=dtypes.bool_)
    return b.call("equal", x, b.scalar(which, x.dtype))


@numpy_function(np.nan_to_num)
def nan_to_num(b: Builder, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    node = b.as_node(x)
    only(copy is True, "nan_to_num", "copy", copy, "it would write into the operand")
    if node.dtype.is_complex:
        return b.call("complex", *(nan_to_num(b, part, True, nan, posinf, neginf) for part in _parts(b, node)))
    if not node.dtype.is_float:
        return b.call("copy", node)
    greatest = float(np.finfo(node.dtype.numpy).max)
    result = node
    for found, value in (
        (b.call("isnan", node), nan),
        (_is_infinite(b, node, math.inf), greatest if posinf is None else posinf),
        (_is_infinite(b, node, -math.inf), -greatest if neginf is None else neginf),
    ):
        result = b.call("where", found, b.as_node(value, node.dtype), result)
    return result


@numpy_function(np.isclose)
def isclose(builder: Builder, /, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Node:
    x = strong(builder, a)
    return _isclose(builder, x, float(b) if type(b) in (int, bool) else strong(builder, b), rtol, atol, equal_nan)


def _isclose(b: Builder, x: Any, y: Any, rtol: Any, atol: Any, equal_nan: Any) -> Node:
    """NumPy's formula, in its order: |x - y| <= atol + rtol*|y| where y is finite, or x == y."""
    if isinstance(y, Node):
        y = b.cast(y, result_type((y, 1.0), "isclose"))
    limit = apply(b, np.add, atol, apply(b, np.multiply, rtol, apply(b, np.absolute, y)))
    near = apply(b, np.less_equal, apply(b, np.absolute, apply(b, np.subtract, x, y)), limit)
    result = b.call("logical_or", b.call("logical_and", near, apply(b, np.isfinite, y)), apply(b, np.equal, x, y))
    if flag(equal_nan, "isclose"):
        result = b.call("logical_or", result, b.call("logical_and", apply(b, np.isnan, x), apply(b, np.isnan, y)))
    return result


@numpy_function(np.allclose, np.array_equal, np.array_equiv)
def _python_bool(b: Builder, *args: Any, **kwargs: Any) -> Node:
    raise Unsupported("DATA_DEPENDENT", "the result is a Python bool that depends on data; use np.isclose, == and np.all")


@numpy_function(np.sinc)
def sinc(b: Builder, x: Any) -> Node:
    node = b.as_node(x)
    node = node if node.dtype.is_inexact else b.cast(node, dtypes.float64)
    tiny = b.scalar(float(np.finfo(node.dtype.numpy).eps), node.dtype)
    y = b.call(
        "multiply",
        b.scalar(math.pi, node.dtype),
        b.call("where", b.call("equal", node, b.scalar(0.0, node.dtype)), tiny, node),
    )
    return b.call("divide", b.call("sin", y), y)


@numpy_method("conj", "conjugate", returns="same")
def _conjugate_method(b: Builder, a: Node, /) -> Node:
    """Of real numbers the array itself; of complex ones in an array without dimensions NumPy gives a scalar."""
    if not a.dtype.is_complex:
        return a
    only(a.ndim > 0 or b.is_scalar(a), "conj", "array", "without dimensions", "np.conj")
    return b.call("conjugate", a)


def _parts(b: Builder, x: Node) -> tuple[Node, Node]:
    return b.call("real", x), b.call("imag", x)


@numpy_function(np.angle)
def angle(b: Builder, z: Any, deg: Any = False) -> Node:
    x = b.as_node(z)
    imag, real = _parts(b, x)[::-1] if x.dtype.is_complex else (0, x)
    radians = apply(b, np.arctan2, imag, real)
    return apply(b, np.multiply, radians, 180 / math.pi) if flag(deg, "angle") else radians


__all__ = ["UFUNCS", "Call", "SymInt", "apply", "default_dtype", "held", "power_operator", "resolve", "result_type", "strong"]
