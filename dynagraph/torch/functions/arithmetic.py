"""Pointwise functions of two operands: arithmetic, powers, remainders."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define, from_row
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import NUMBERS, cast, function, in_place, plain_forms, pointwise, promoted, wrapped_number
from dynagraph.torch.functions.numbers_first import scaled_operand
from dynagraph.torch.functions.pointwise_primitives import (
    _POWERS,
    ADD,
    DIV,
    FLOOR_DIVIDE,
    FMOD,
    MUL,
    POW,
    POW_FEW,
    POW_NUMBER,
    REMAINDER,
    RSUB,
    SUB,
    _in_single,
    constant,
)


def _alpha(other: Any, alpha: Any, who: str) -> Any:
    if alpha == 1 and type(alpha) is not bool:
        return other
    if isinstance(other, Tensor) and other._array.dtype.kind == "b" and isinstance(alpha, int):
        return mul(other, bool(alpha))
    return mul(other, alpha) if isinstance(other, Tensor) else other * alpha


def _two(p: Primitive, who: str, input: Any, other: Any) -> Tensor:
    if type(input) is Tensor:
        given, kind = input._array.dtype, type(other)
        if kind is Tensor:
            if given is other._array.dtype:
                return pointwise(p, who, input, other)
        elif (kind is float or kind is int) and given.kind == "f" and given.itemsize > 2:
            return pointwise(p, who, input, other)
    a, b = promoted(who, input, other)
    return _with_number(p, who, input, other, a, b)


def _with_number(p: Primitive, who: str, input: Any, other: Any, a: Any, b: Any) -> Tensor:
    """Apply a primitive to what was promoted; halves beside numbers are computed as float32, numbers not rounded before."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return pointwise(p, who, a, b)
    tensor, number = (a, other) if isinstance(a, Tensor) else (b, input)
    if not is_half(tensor._array.dtype) or isinstance(number, complex):
        return pointwise(p, who, a, b)
    single = PRIMITIVES[f"{p.name}_of_half"]
    wide = np.float32(number)
    return pointwise(single, who, a, wide) if tensor is a else pointwise(single, who, wide, b)


def _floats(who: str, input: Any, other: Any) -> tuple[Any, Any]:
    """Promoted; integers and bools as the default dtype."""
    a, b = promoted(who, input, other)
    if (a if isinstance(a, Tensor) else b)._array.dtype.kind in "fcV":
        return a, b
    default = dtypes.get_default_dtype()
    a, b = (
        cast(o, default) if isinstance(o, Tensor) else wrapped_number(given, default.numpy) for o, given in ((a, input), (b, other))
    )
    return a, b


@function(inplace=True, out=True)
def add(input: Any, other: Any, *rest: Any, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``."""
    if rest:
        other, alpha = scaled_operand("add", other, rest)
    if alpha != 1 or type(alpha) is not int:
        _check_alpha(alpha, input, other)
        other = _alpha(other, alpha, "add")
    return _two(ADD, "add", input, other)


@function(inplace=True, out=True, aliases=("subtract",))
def sub(input: Any, other: Any, *rest: Any, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    if rest:
        other, alpha = scaled_operand("sub", other, rest)
    if alpha != 1 or type(alpha) is not int:
        _check_alpha(alpha, input, other)
        other = _alpha(other, alpha, "sub")
    for operand in (input, other):
        if isinstance(operand, bool) or (isinstance(operand, Tensor) and operand._array.dtype.kind == "b"):
            both = all(isinstance(o, bool) or (isinstance(o, Tensor) and o._array.dtype.kind == "b") for o in (input, other))
            raise RuntimeError(
                f"Subtraction, the `-` operator, with {'two bool tensors' if both else 'a bool tensor'} is not supported. "
                f"{'Use the `^` or `logical_xor()` operator instead.' if both else 'If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.'}"  # noqa: E501
            )
    if not isinstance(input, Tensor):
        return _two(RSUB, "sub", other, input)
    return _two(SUB, "sub", input, other)


def _check_alpha(alpha: Any, *operands: Any) -> None:
    if isinstance(alpha, bool) and not all(o._array.dtype.kind == "b" for o in operands if isinstance(o, Tensor)):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and all(o._array.dtype.kind not in "fcV" for o in operands if isinstance(o, Tensor)):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")


@function(method=True, out=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(other, input, alpha=alpha)


@function(inplace=True, out=True, aliases=("multiply",))
def mul(input: Any, other: Any) -> Tensor:
    """``input * other``."""
    return _two(MUL, "mul", input, other)


@function(inplace=True, out=True, aliases=("divide",))
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; with `rounding_mode` "trunc" or "floor" rounded to whole numbers."""
    if rounding_mode is None:
        return _with_number(DIV, "div", input, other, *_floats("div", input, other))
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    return _with_number(PRIMITIVES[f"div_{rounding_mode}"], "div", input, other, *_check_zero(*promoted("div", input, other)))


def _check_zero(a: Any, b: Any) -> tuple[Any, Any]:
    """RuntimeError for integers that are divided by zero."""
    tensor = a if isinstance(a, Tensor) else b
    if tensor._array.dtype.kind in "iub" and not np.all(b._array if isinstance(b, Tensor) else b):
        raise RuntimeError("ZeroDivisionError")
    return a, b


def _trunc_divide(a: Any, b: Any) -> Any:
    kind = np.result_type(a, b).kind
    if kind in "iub":
        quotient = np.floor_divide(a, b)
        return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)
    return np.trunc(np.divide(a, b))


define("div_trunc", _trunc_divide, (constant, constant), ("", ""), backward="DivBackward1")
define("div_floor", lambda a, b: np.floor_divide(a, b), (constant, constant), ("", ""), backward="DivBackward1")


@function(inplace=True, out=True)
def true_divide(input: Any, other: Any) -> Tensor:
    """``input / other``."""
    return div(input, other)


@function(inplace=True, out=True)
def floor_divide(input: Any, other: Any) -> Tensor:
    """``input // other``: rounded down."""
    return _with_number(FLOOR_DIVIDE, "floor_divide", input, other, *_check_zero(*promoted("floor_divide", input, other)))


@function(inplace=True, out=True)
def remainder(input: Any, other: Any) -> Tensor:
    """``input % other``, with the sign of `other`."""
    return _with_number(REMAINDER, "remainder", input, other, *_check_zero(*promoted("remainder", input, other)))


@function(inplace=True, out=True)
def fmod(input: Any, other: Any) -> Tensor:
    """What division leaves, with the sign of `input`."""
    return _with_number(FMOD, "fmod", input, other, *_check_zero(*promoted("fmod", input, other)))


@function(inplace=True, out=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``."""
    if isinstance(input, Tensor) and isinstance(exponent, NUMBERS):
        x = cast(input, dtypes.result_dtype((input, exponent)))
        if x._array.dtype.kind in "iub":
            if exponent < 0:
                raise RuntimeError("Integers to negative integer powers are not allowed.")
            return apply(POW_NUMBER, x, exponent=wrapped_number(exponent, x._array.dtype))
        number = exponent if isinstance(exponent, (int, float, complex)) else exponent.item()
        p = POW_FEW if not is_compiling() and number in _POWERS and x._array.dtype.kind in "fV" else POW_NUMBER
        return apply(p, x, exponent=float(number) if isinstance(number, (bool, int)) else number)
    a, b = promoted("pow", input, exponent)
    if (a if isinstance(a, Tensor) else b)._array.dtype.kind in "iu":
        return pointwise(POW_OF_INTEGERS, "pow", a, b)
    return _with_number(POW, "pow", input, exponent, a, b)


def _integer_power(x: Any, exponent: Any) -> Any:
    """Negative exponents give what the reciprocal is rounded to: zero, but for 1 and -1."""
    found = np.power(x, np.maximum(exponent, 0))
    inverse = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (exponent % 2), 0))
    return np.where(exponent < 0, inverse, found).astype(found.dtype)


POW_OF_INTEGERS = define("power_of_integers", _integer_power)


@function(out=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent`` in double precision."""
    wide = _power_dtype(input, exponent)
    a, b = (cast(o, wide) if isinstance(o, Tensor) else o for o in (input, exponent))
    return pow(a, b)


def _float_power_(self: Tensor, exponent: Any) -> Tensor:
    """`float_power`, in place; the tensor must be of double precision."""
    wide = _power_dtype(self, exponent)
    if self.dtype is not wide:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {dtypes.scalar_name(self.dtype)} but the operation's result requires dtype "
            f"{dtypes.scalar_name(wide)}"
        )
    return in_place(float_power, "float_power")(self, exponent)


Tensor.float_power_ = _float_power_


def _power_dtype(*operands: Any) -> dtypes.dtype:
    is_complex = any(isinstance(o, complex) or (isinstance(o, Tensor) and o._array.dtype.kind == "c") for o in operands)
    return dtypes.complex128 if is_complex else dtypes.float64


def _binary(name: str, row: str, kinds: str = "any", inplace: bool = False, **forms: Any) -> None:
    """A function of two operands of one dtype.  `kinds`: "float" has integers as the default dtype first."""
    p = PRIMITIVES[row]

    def compute(input: Any, other: Any) -> Tensor:
        a, b = (_floats if kinds == "float" else promoted)(name, input, other)
        given = (a if isinstance(a, Tensor) else b).dtype
        kind = given.category
        if kind == 3 and kinds != "any":
            raise NotImplementedError(f"\"{row}_cpu\" not implemented for '{dtypes.scalar_name(given)}'")
        if (kind < 2 and kinds == "floats only") or (kind != 1 and kinds == "integers only"):
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{dtypes.scalar_name(given)}'")
        return _with_number(p, name, input, other, a, b)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, element by element."
    function(name, inplace=inplace, out=True, **forms)(compute)


_binary("maximum", "maximum", "real")
_binary("minimum", "minimum", "real")
_binary("fmax", "fmax", "real")
_binary("fmin", "fmin", "real")
_binary("atan2", "arctan2", "float", inplace=True, aliases=("arctan2",))
_binary("hypot", "hypot", "floats only", inplace=True)
_binary("copysign", "copysign", "float", inplace=True)
_binary("nextafter", "nextafter", "floats only", inplace=True)
_binary("logaddexp", "logaddexp")
_binary("logaddexp2", "logaddexp2", "floats only")
for _name in ("gcd", "lcm"):
    from_row(_name, (), f"{_name.title()}Backward0")
    _binary(_name, _name, "integers only", inplace=True)


@function(inplace=True, out=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative numbers, 1 for positive ones, `values` for zero."""
    if input.dtype.is_complex or values.dtype.is_complex:
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return pointwise(PRIMITIVES["heaviside"], "heaviside", input, values)


@function(inplace=True, out=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2 ** other``."""
    return mul(input, pow(2.0, other))


@function(inplace=True, out=True)
def xlogy(input: Any, other: Any) -> Tensor:
    """``input * log(other)``; zero where `input` is zero, but for NaN."""
    return _with_number(PRIMITIVES["xlogy"], "xlogy", input, other, *_floats("xlogy", input, other))


def _xlogy(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y), np.nan, np.where(x == 0, 0, x * np.log(y))).astype(np.result_type(x, y))


def _not_zero(d: Any) -> Any:
    """Where neither is the product zero nor is `y` to blame."""
    return d.x.equals(0).call("logical_and", d.y.call("less_equal", d.y.number(0))).call("logical_not")


define(
    "xlogy",
    _xlogy,
    (lambda d, g: (g * d.y.call("log")).where(_not_zero(d), 0), lambda d, g: g * d.x / d.y),
    ("xy", "xy"),
    backward="XlogyBackward0",
)


maximum, minimum = plain_forms("maximum", "minimum")
for _name in (
    *(_p.name for _p in (ADD, SUB, RSUB, MUL, DIV, FLOOR_DIVIDE, REMAINDER, FMOD, POW)),
    "div_trunc", "div_floor", "xlogy", "maximum", "minimum", "fmax", "fmin", "arctan2", "hypot", "copysign", "nextafter",
    "logaddexp", "logaddexp2",
):  # fmt: skip
    _p = PRIMITIVES[_name]
    define(f"{_name}_of_half", _in_single(_p.forward), _p.vjps, _p.saves, backward=_p.backward)
