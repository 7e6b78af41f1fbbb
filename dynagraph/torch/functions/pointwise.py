"""Pointwise functions: arithmetic, elementary functions, comparisons, logic and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, is_on_gpu, library_of_array, put_beside
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define, from_row
from dynagraph.torch.core.tensor import Tensor, apply, made, view, wrap
from dynagraph.torch.core.terms import FORWARD
from dynagraph.torch.functions.common import (
    NAMESPACES,
    NUMBERS,
    cast,
    check_broadcast,
    check_tensor,
    floating,
    function,
    in_place,
    pointwise,
    promoted,
    result_type_of,
    tensor_of,
    wrapped_number,
)

# -- primitives: what PyTorch saves, and where its gradients are not the rows' ----------------------------------------


def _in_single(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Halves are computed as float32 and rounded once."""

    def forward(*arrays: Any, **attrs: Any) -> Any:
        first = next((a.dtype for a in arrays if is_half(a.dtype)), None)
        if first is not None:
            wide = (a.astype(np.float32) if isinstance(a, (np.ndarray, np.generic)) and is_half(a.dtype) else a for a in arrays)
            return compute(*wide, **attrs).astype(first)
        return compute(*arrays, **attrs)

    return forward


def constant(d: Any, g: Any) -> Any:
    """The gradient of what is constant between its jumps: zeros."""
    return g.full(0, g.shape)


def nothing(d: Any, g: Any) -> None:
    """The gradient by what chooses: there is none."""
    return


def _no_derivative(name: str) -> Callable[[Any, Any], Any]:
    def vjp(d: Any, g: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return vjp


def _maximum_by(which: int) -> Callable[[Any, Any], Any]:
    """Half of it at ties; where NaN is compared all of it, to both."""

    def vjp(d: Any, g: Any) -> Any:
        share = (g * 0.5).where(d.x.equals(d.y), g)
        worse = d.x.call("less" if which == 0 else "greater", d.y)
        return share.full(0, ()).where(worse, share)

    return vjp


def _minimum_by(which: int) -> Callable[[Any, Any], Any]:
    def vjp(d: Any, g: Any) -> Any:
        share = (g * 0.5).where(d.x.equals(d.y), g)
        worse = d.x.call("greater" if which == 0 else "less", d.y)
        return share.full(0, ()).where(worse, share)

    return vjp


def _fmax_chosen(d: Any, comparison: str) -> Any:
    """Where the first is taken: at ties, too, and beside NaN."""
    return d.x.call(comparison, d.y).call("logical_or", d.y.call("isnan"))


def _fextreme(comparison: str) -> tuple[Callable[[Any, Any], Any], ...]:
    return (
        lambda d, g: g.where(_fmax_chosen(d, comparison), 0),
        lambda d, g: g.full(0, ()).where(_fmax_chosen(d, comparison), g),
    )


def _arctan2_share(d: Any, g: Any) -> Any:
    return g / (d.x * d.x + d.y * d.y)


def _pow_by_exponent(d: Any, g: Any) -> Any:
    """Zero where the base is zero and the exponent not negative."""
    zero = d.x.equals(0)
    if not d.y.dtype.is_complex:
        zero = zero.call("logical_and", d.y.call("greater_equal", d.y.number(0)))
    found = g * (d.out * d.x.call("log")).conj
    return found.full(0, ()).where(zero, found)


def _pow_by_base(d: Any, g: Any) -> Any:
    """Zero where the exponent is."""
    slope = d.y * d.x.call("power", d.y - 1)
    return (g * slope.conj).where(d.y.equals(0).call("logical_not"), 0)


def _logaddexp(base: str) -> tuple[Callable[[Any, Any], Any], ...]:
    """How much of the sum each is; of two equal infinities a half."""

    def by(which: int) -> Callable[[Any, Any], Any]:
        def vjp(d: Any, g: Any) -> Any:
            mine, other = (d.x, d.y) if which == 0 else (d.y, d.x)
            difference = other - mine
            return g / (difference.call(base) + 1).conj

        return vjp

    return by(0), by(1)


def _logaddexp_of(x: Any, y: Any) -> Any:
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    swap = x.real < y.real
    top, low = np.where(swap, y, x), np.where(swap, x, y)
    return top + np.log(1 + np.exp(low - top))


# name of the row, what the gradient reads, gradient (the row's where none is given), PyTorch's name of the node
_UNARY_ROWS: dict[str, tuple[str, Any, str]] = {
    "exp": ("o", None, "ExpBackward0"),
    "exp2": ("o", None, "Exp2Backward0"),
    "expm1": ("o", None, "Expm1Backward0"),
    "log": ("x", None, "LogBackward0"),
    "log2": ("x", None, "Log2Backward0"),
    "log10": ("x", None, "Log10Backward0"),
    "log1p": ("x", None, "Log1PBackward0"),
    "sin": ("x", None, "SinBackward0"),
    "cos": ("x", None, "CosBackward0"),
    "tan": ("o", None, "TanBackward0"),
    "arcsin": ("x", None, "AsinBackward0"),
    "arccos": ("x", None, "AcosBackward0"),
    "arctan": ("x", None, "AtanBackward0"),
    "sinh": ("x", None, "SinhBackward0"),
    "cosh": ("x", None, "CoshBackward0"),
    "tanh": ("o", None, "TanhBackward0"),
    "arcsinh": ("x", None, "AsinhBackward0"),
    "arccosh": ("x", None, "AcoshBackward0"),
    "arctanh": ("x", None, "AtanhBackward0"),
    "sqrt": ("o", lambda d, g: g / (d.out.conj * 2), "SqrtBackward0"),
    "negative": ("", None, "NegBackward0"),
    "absolute": ("x", None, "AbsBackward0"),
    "reciprocal": ("o", None, "ReciprocalBackward0"),
    "floor": ("", constant, "FloorBackward0"),
    "ceil": ("", constant, "CeilBackward0"),
    "trunc": ("", constant, "TruncBackward0"),
    "rint": ("", constant, "RoundBackward0"),
    "conjugate": ("", None, "ConjBackward0"),
    "cast": ("", None, "ToCopyBackward0"),
    "square": ("x", None, "PowBackward0"),
}
for _name, (_reads, _vjp, _node) in _UNARY_ROWS.items():
    from_row(_name, (_reads,) if _vjp else _reads, _node, vjps=(_vjp,) if _vjp else None)
CONJ_PHYSICAL = define("conj_physical", np.conjugate, (lambda d, g: g.conj,), ("",), backward="ConjPhysicalBackward0")
from_row("real", ("",), "RealBackward0", vjps=(lambda d, g: g.cast(g.dtype.complex),), is_view=True)
from_row("imag", ("",), "ImagBackward0", vjps=(lambda d, g: g.full(0, ()).call("complex", g),), is_view=True)
_complex_on_host = FORWARD["complex"]


def _complex(real: Any, imag: Any) -> Any:
    if not is_on_gpu(real):
        return _complex_on_host(real, imag)
    result = library_of_array(real).empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
    result.real[...], result.imag[...] = real, imag
    return result


FORWARD["complex"] = _complex
from_row("complex", ("", ""), "ComplexBackward0", vjps=(lambda d, g: g.real, lambda d, g: g.imag))

_MUL = (lambda d, g: g * d.y.conj, lambda d, g: g * d.x.conj)
ADD = from_row("add", ("", ""), "AddBackward0")
SUB = from_row("subtract", ("", ""), "SubBackward0")
RSUB = define("rsub", lambda x, y: np.subtract(y, x), (lambda d, g: -g, lambda d, g: g), ("", ""), backward="RsubBackward1")
MUL = from_row("multiply", ("y", "x"), "MulBackward0")
DIV = from_row("divide", ("y", "xy"), "DivBackward0", vjps=(
    lambda d, g: g / d.y.conj,
    lambda d, g: -g * (d.x / d.y / d.y).conj,
))  # fmt: skip
POW = from_row("power", ("xy", "xyo"), "PowBackward1", vjps=(_pow_by_base, _pow_by_exponent))
MAXIMUM = from_row("maximum", ("xy", "xy"), "MaximumBackward0", vjps=(_maximum_by(0), _maximum_by(1)))
MINIMUM = from_row("minimum", ("xy", "xy"), "MinimumBackward0", vjps=(_minimum_by(0), _minimum_by(1)))
FMAX = from_row("fmax", ("xy", "xy"), "FmaxBackward0", vjps=_fextreme("greater_equal"))
FMIN = from_row("fmin", ("xy", "xy"), "FminBackward0", vjps=_fextreme("less_equal"))
REMAINDER = from_row("remainder", ("", "xy"), "RemainderBackward0", vjps=(
    lambda d, g: g,
    lambda d, g: -g * (d.x / d.y).call("floor"),
))  # fmt: skip
FMOD = from_row("fmod", ("", "xy"), "FmodBackward0", vjps=(lambda d, g: g, lambda d, g: -g * (d.x / d.y).call("trunc")))
FLOOR_DIVIDE = from_row("floor_divide", ("", ""), "FloorDivideBackward0", vjps=(
    _no_derivative("floor_divide"), _no_derivative("floor_divide"),
))  # fmt: skip
ARCTAN2 = from_row("arctan2", ("xy", "xy"), "Atan2Backward0", vjps=(
    lambda d, g: _arctan2_share(d, g) * d.y,
    lambda d, g: -_arctan2_share(d, g) * d.x,
))  # fmt: skip
HYPOT = from_row("hypot", ("xo", "yo"), "HypotBackward0", vjps=(lambda d, g: g * (d.x / d.out), lambda d, g: g * (d.y / d.out)))
from_row("copysign", ("xo", ""), "CopysignBackward0", vjps=(
    lambda d, g: g * (d.out / d.x).where(d.x.equals(0).call("logical_not"), 0),
    lambda d, g: g.full(0, g.shape),
))  # fmt: skip
from_row("nextafter", ("", ""), "NextafterBackward0", vjps=(lambda d, g: g, constant))
define("logaddexp", lambda x, y: _logaddexp_of(x, y), _logaddexp("exp"), ("xy", "xy"), backward="LogaddexpBackward0")
from_row("logaddexp2", ("xy", "xy"), "Logaddexp2Backward0", vjps=_logaddexp("exp2"))
define(
    "heaviside",
    lambda x, y: np.where(x == 0, y, (x > 0).astype(x.dtype)).astype(x.dtype, copy=False),
    (_no_derivative("heaviside"),) * 2,
    ("", ""),
    backward="NotImplemented",
)
from_row("ldexp", ("y", ""), "LdexpBackward0", vjps=(lambda d, g: g.call("ldexp", d.y), constant))
WHERE = from_row("where", ("", "x", "x"), "WhereBackward0", vjps=(
    nothing,
    lambda d, g: g.where(d.x, 0),
    lambda d, g: g.full(0, ()).where(d.x, g),
))  # fmt: skip
POW_NUMBER = define(
    "power_of_number",
    lambda x, exponent: _power_of_number(x, exponent),
    (
        lambda d, g: constant(d, g)
        if d.attrs["exponent"] == 0
        else g * (d.x.call("power_of_number", exponent=d.attrs["exponent"] - 1) * d.attrs["exponent"]).conj,
    ),
    ("x",),
    backward="PowBackward0",
)


def _power_of_number(x: Any, exponent: Any) -> Any:
    return np.power(x.astype(np.float32), exponent).astype(x.dtype) if is_half(x.dtype) else np.power(x, exponent)


# what takes a few products; captures have rules of their own for these exponents
_POWERS: dict[float, Callable[[Any], Any]] = {2: np.square, 3: lambda x: x * x * x, -1: np.reciprocal}
POW_FEW = define(
    "power_by_products",
    _in_single(lambda x, exponent: _POWERS[exponent](x)),
    (lambda d, g: g * (_power_term(d.x, d.attrs["exponent"] - 1) * d.attrs["exponent"]).conj,),
    ("x",),
    backward="PowBackward0",
)


def _power_term(x: Any, exponent: float) -> Any:
    if exponent == 1:
        return x
    return x.call("power_by_products" if exponent in _POWERS else "power_of_number", exponent=exponent)


SIGMOID = define(
    "sigmoid",
    _in_single(lambda x: np.reciprocal(np.exp(-x) + 1)),
    (lambda d, g: g * ((1 - d.out) * d.out).conj,),
    ("o",),
    backward="SigmoidBackward0",
)
RSQRT = define(
    "rsqrt",
    _in_single(lambda x: np.reciprocal(np.sqrt(x))),
    (lambda d, g: g * (d.out * d.out * d.out * -0.5).conj,),
    ("o",),
    backward="RsqrtBackward0",
)


def _sgn(x: Any) -> Any:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.abs(x)).astype(x.dtype)
    return np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype) if x.dtype.kind in "fV" else np.sign(x)


define("sgn", _sgn, (lambda d, g: _sgn_vjp(d, g),), ("xo",), backward="SgnBackward0")


def _sgn_vjp(d: Any, g: Any) -> Any:
    """Of a real number zero; of a complex one what turns it."""
    if not d.x.dtype.is_complex:
        return constant(d, g)
    size = d.x.call("absolute").cast(d.x.dtype)
    across = (g - d.out * (d.out.conj * g).real.cast(d.x.dtype)) / size
    return across.where(size.equals(0).call("logical_not"), 0)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _within(d: Any) -> Any:
    """Where a clamped number was not changed: at the bounds, too, but not NaN."""
    low, high = d.attrs["low"], d.attrs["high"]
    if low is None:
        return d.x.call("less_equal", high)
    above = d.x.call("greater_equal", low)
    return above if high is None else above.call("logical_and", d.x.call("less_equal", high))


CLAMP = define("clamp", _clamp, (lambda d, g: g.where(_within(d), 0),), ("x",), backward="ClampBackward1")


def _float_of_dtype(d: Any, value: float) -> Any:
    return d.x.number(value)


define(
    "nan_to_num",
    lambda x, nan, posinf, neginf: _nan_to_num(x, nan, posinf, neginf),
    (lambda d, g: g.where(d.x.call("isfinite"), 0),),
    ("x",),
    backward="NanToNumBackward0",
)


def _nan_to_num(x: Any, nan: float, posinf: float | None, neginf: float | None) -> Any:
    if x.dtype.kind == "V":  # NumPy does not know it as one with NaNs
        top = dtypes.finfo(dtypes.bfloat16).max
        kind = x.dtype.type
        found = np.where(np.isnan(x), kind(nan), x)
        found = np.where(x == kind(np.inf), kind(top if posinf is None else posinf), found)
        return np.where(x == kind(-np.inf), kind(-top if neginf is None else neginf), found)
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


define(
    "angle",
    lambda x: np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, math.pi, 0)).astype(x.dtype),
    (lambda d, g: _angle_vjp(d, g),),
    ("x",),
    backward="AngleBackward0",
)


def _angle_vjp(d: Any, g: Any) -> Any:
    if not d.x.dtype.is_complex:
        return g.full(0, g.shape)
    square = d.x.real * d.x.real + d.x.imag * d.x.imag
    share = g / square.number(1).where(square.equals(0), square)
    return (-share * d.x.imag).call("complex", share * d.x.real)


define(
    "round_decimals",
    lambda x, decimals: np.rint(x * x.dtype.type(10**decimals)) / x.dtype.type(10**decimals)
    if decimals > 0
    else np.rint(x / x.dtype.type(10**-decimals)) * x.dtype.type(10**-decimals),
    (constant,),
    ("",),
    backward="RoundBackward1",
)

# -- how they are called ----------------------------------------------------------------------------------------------


def _unary(name: str, p: str, kinds: str = "float", **forms: Any) -> None:
    """A function of one tensor.  `kinds`: "float" has integers as the default dtype first; "keep" leaves these as they are."""
    row = PRIMITIVES[p]

    def compute(input: Tensor) -> Tensor:
        x = check_tensor(input, name, "input")
        kind = x._array.dtype.kind
        if kind not in "fcV":
            if kinds == "float":
                x = cast(x, dtypes.get_default_dtype())
            elif kinds == "keep":
                return apply(COPY, x)
        elif kind == "c" and kinds == "keep":
            raise NotImplementedError(f"{'trunc' if name == 'fix' else name} is not supported for complex inputs")
        return apply(row, x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, element by element."
    function(name, inplace=True, out=True, **forms)(compute)




def empty_in_order(shape: tuple[int, ...], dtype: np.dtype, *strides: tuple[int, ...]) -> Any:
    """Memory for a result of operands with these strides, in the order in which PyTorch goes through them.

    Of two dimensions the one with the smaller stride in the first operand that has both moves faster; dimensions that no operand
    tells apart stand in order.
    """
    order = list(range(len(shape) - 1, -1, -1))  # the fastest first
    for k in range(1, len(order)):
        at = k
        for j in range(k - 1, -1, -1):
            comparison = _compared(shape, strides, order[j], order[at])
            if comparison < 0:
                break
            if comparison > 0:
                order[j], order[at] = order[at], order[j]
                at = j
    slowest_first = order[::-1]
    memory = np.empty([shape[k] for k in slowest_first], dtype)
    return memory.transpose([slowest_first.index(k) for k in range(len(shape))])


def _compared(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], a: int, b: int) -> int:
    """More than zero where dimension `a` should move slower than `b`."""
    for own in strides:
        if own[a] and own[b]:
            if own[a] != own[b]:
                return own[a] - own[b]
            if shape[a] > shape[b]:
                return 1
    return 0


def dense_like(x: Any) -> Any:
    """Memory in the order of the original's, without its gaps; what is repeated in memory is put in order."""
    if 0 in x.strides and x.size and isinstance(x, np.ndarray):
        return empty_in_order(x.shape, x.dtype, x.strides)
    return np.empty_like(x)


def dense_copy(x: Any) -> Any:
    """A copy in the order of the original's memory, without its gaps."""
    if 0 in x.strides:
        made = dense_like(x)
        made[...] = x
        return made
    return x.copy(order="K")


COPY = define("copy", dense_copy, (lambda d, g: g,), ("",), backward="CloneBackward0")

for _name, _row_name, _aliases in (
    ("exp", "exp", ()), ("exp2", "exp2", ()), ("expm1", "expm1", ()), ("log", "log", ()), ("log2", "log2", ()),
    ("log10", "log10", ()),
    ("log1p", "log1p", ()), ("sin", "sin", ()), ("cos", "cos", ()), ("tan", "tan", ()), ("asin", "arcsin", ("arcsin",)),
    ("acos", "arccos", ("arccos",)), ("atan", "arctan", ("arctan",)), ("sinh", "sinh", ()), ("cosh", "cosh", ()),
    ("tanh", "tanh", ()), ("asinh", "arcsinh", ("arcsinh",)), ("acosh", "arccosh", ("arccosh",)),
    ("atanh", "arctanh", ("arctanh",)),
    ("sqrt", "sqrt", ()), ("rsqrt", "rsqrt", ()), ("sigmoid", "sigmoid", ()), ("reciprocal", "reciprocal", ()),
):  # fmt: skip
    _unary(_name, _row_name, aliases=_aliases)
for _name, _row_name, _aliases in (("floor", "floor", ()), ("ceil", "ceil", ()), ("trunc", "trunc", ("fix",))):
    _unary(_name, _row_name, "keep", aliases=_aliases)


@function(inplace=True, out=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest whole number, halves to the even one; with `decimals` to so many places."""
    x = check_tensor(input, "round", "input")
    if x._array.dtype.kind == "c" or (x._array.dtype.kind == "b" and decimals):
        raise NotImplementedError(f"\"round_vml_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    if x._array.dtype.kind not in "fV":
        return apply(COPY, x)
    return apply(PRIMITIVES["round_decimals"], x, decimals=decimals) if decimals else apply(PRIMITIVES["rint"], x)


@function(inplace=True, out=True, aliases=("negative",))
def neg(input: Tensor) -> Tensor:
    """With the other sign."""
    x = check_tensor(input, "neg", "input")
    if x._array.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead."
        )
    return apply(PRIMITIVES["negative"], x)


@function()
def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@function(out=True, aliases=("absolute",))
def abs(input: Tensor) -> Tensor:
    """The absolute value; of complex numbers a real one."""
    return apply(PRIMITIVES["absolute"], check_tensor(input, "abs", "input"))


def _abs_(self: Tensor) -> Tensor:
    """The absolute value, in place."""
    if self._array.dtype.kind == "c":
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return in_place(abs, "abs")(self)


Tensor.abs_ = Tensor.absolute_ = NAMESPACES["torch"]["abs_"] = NAMESPACES["torch"]["absolute_"] = _abs_


@function(inplace=True, out=True)
def sgn(input: Tensor) -> Tensor:
    """The sign; of a complex number its direction."""
    x = check_tensor(input, "sgn", "input")
    return apply(COPY, x) if x._array.dtype.kind == "b" else apply(PRIMITIVES["sgn"], x)


@function(inplace=True, out=True)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    x = check_tensor(input, "sign", "input")
    if x._array.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        )
    return apply(COPY, x) if x._array.dtype.kind == "b" else apply(PRIMITIVES["sgn"], x)


@function(inplace=True, out=True)
def frac(input: Tensor) -> Tensor:
    """What comes behind the point, with the number's sign."""
    return sub(input, trunc(input))


@function(inplace=True, out=True)
def square(input: Tensor) -> Tensor:
    """``input ** 2``."""
    return pow(input, 2)


@function(inplace=True, out=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return mul(floating(_real(input, "deg2rad")), math.pi / 180)


@function(inplace=True, out=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return mul(floating(_real(input, "rad2deg")), 180 / math.pi)


def _real(x: Tensor, who: str) -> Tensor:
    if x._array.dtype.kind == "c":
        raise RuntimeError(f"{who} is not supported for complex tensors.")
    return x


@function(inplace=True, out=True)
def nan_to_num(input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """With NaN and infinities replaced: by zero and the dtype's limits, unless others are given."""
    if input._array.dtype.kind not in "fcV":
        return apply(COPY, input)
    if input._array.dtype.kind == "c" and mode.grad and input.requires_grad:
        raise RuntimeError("nan_to_num does not support automatic differentiation for outputs with complex dtype.")
    return apply(PRIMITIVES["nan_to_num"], input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@function()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return apply(PRIMITIVES["conjugate"], input) if input._array.dtype.kind == "c" else input


@function(out=True, inplace=True)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate in memory of its own; a real tensor itself."""
    return apply(CONJ_PHYSICAL, input) if input._array.dtype.kind == "c" else input


NAMESPACES["torch"]["resolve_conj"] = NAMESPACES["torch"]["resolve_neg"] = lambda input: input
Tensor.resolve_conj = Tensor.resolve_neg = lambda self: self  # type: ignore[attr-defined]
Tensor.is_conj = Tensor.is_neg = lambda self: False  # type: ignore[attr-defined]


@function(out=True)
def angle(input: Tensor) -> Tensor:
    """The angle of a complex number; of a real one 0 or pi."""
    return apply(PRIMITIVES["angle"], floating(input))


@function()
def real(input: Tensor) -> Tensor:
    """The real parts, a view; a real tensor itself."""
    return view(PRIMITIVES["real"], input) if input._array.dtype.kind == "c" else input


@function()
def imag(input: Tensor) -> Tensor:
    """The imaginary parts, a view."""
    if input._array.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view(PRIMITIVES["imag"], input)


Tensor.real = property(real)  # type: ignore[attr-defined]
Tensor.imag = property(imag)  # type: ignore[attr-defined]


@function("complex", method=False, out=True)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of real and imaginary parts."""
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {dtypes.scalar_name(real.dtype)} but got scalar type {dtypes.scalar_name(imag.dtype)} "
            "for second argument"
        )
    return pointwise(PRIMITIVES["complex"], "complex", real, imag)


@function(method=False, out=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of sizes and angles."""
    return complex_(mul(abs, cos(angle)), mul(abs, sin(angle)))


# -- two operands -----------------------------------------------------------------------------------------------------


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
    single = _IN_SINGLE.get(p.name)
    if single is None:
        single = define(f"{p.name}_of_half", _in_single(p.forward), p.vjps, p.saves, backward=p.backward)
        _IN_SINGLE[p.name] = single
    wide = np.float32(number)
    return pointwise(single, who, a, wide) if tensor is a else pointwise(single, who, wide, b)


_IN_SINGLE: dict[str, Primitive] = {}


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
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``."""
    if alpha != 1 or type(alpha) is not int:
        _check_alpha(alpha, input, other)
        other = _alpha(other, alpha, "add")
    return _two(ADD, "add", input, other)


@function(inplace=True, out=True, aliases=("subtract",))
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
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


# -- comparisons, logic and bits --------------------------------------------------------------------------------------

_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _comparison(name: str, ufunc: str) -> None:
    p = from_row(ufunc, (), f"{name.title()}Backward0")

    def compute(input: Any, other: Any) -> Tensor:
        a, b = promoted(name, input, other)
        if (a if isinstance(a, Tensor) else b)._array.dtype.kind == "c" and name not in ("eq", "ne"):
            raise RuntimeError(f"{name} is not supported for complex tensors")
        return pointwise(p, name, a, b)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"Where ``input {name} other`` holds: bools."
    function(name, inplace=True, out=True, aliases=(ufunc,) if name != "eq" else ())(compute)


for _name, _ufunc in _COMPARISONS.items():
    _comparison(_name, _ufunc)


def _predicate(name: str, real: Callable[[Any], Any], of_integers: bool | None, **forms: Any) -> None:
    p = define(name, real)

    def compute(input: Tensor) -> Tensor:
        x = check_tensor(input, name, "input")
        if of_integers is not None and x._array.dtype.kind in "iub":
            return made(library_of_array(x._array).full(x._array.shape, of_integers))
        return apply(p, x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: bools, element by element."
    function(name, **forms)(compute)


def _not_complex(x: Any, who: str) -> Any:
    if x.dtype.kind == "c":
        raise RuntimeError(f"{who} does not support complex inputs.")
    return x


_predicate("isnan", np.isnan, False)
_predicate("isinf", np.isinf, False)
_predicate("isfinite", np.isfinite, True)
_predicate("isposinf", lambda x: _not_complex(x, "isposinf") == np.inf, False, out=True)
_predicate("isneginf", lambda x: _not_complex(x, "isneginf") == -np.inf, False, out=True)
_predicate("isreal", lambda x: x.imag == 0 if x.dtype.kind == "c" else library_of_array(x).ones(x.shape, bool), None)
_predicate("signbit", lambda x: np.signbit(x) if x.dtype.kind in "fV" else x < 0, None, out=True)
define("logical_not", np.logical_not)


@function(inplace=True, out=True)
def logical_not(input: Tensor) -> Tensor:
    """Where elements are zero: bools."""
    return apply(PRIMITIVES["logical_not"], check_tensor(input, "logical_not", "input"))


def _logic(name: str) -> None:
    p = define(name, getattr(np, name))

    def compute(input: Tensor, other: Tensor) -> Tensor:
        return pointwise(p, name, check_tensor(input, name, "input"), check_tensor(other, name, "other", 2))

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}`` of what is not zero: bools."
    function(name, inplace=True, out=True)(compute)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _logic(_name)


_KERNELS = {"bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift"}


def _bits(name: str, ufunc: str, **forms: Any) -> None:
    p = define(ufunc if ufunc not in PRIMITIVES else name, getattr(np, ufunc))

    def compute(input: Any, other: Any) -> Tensor:
        a, b = promoted(name, input, other)
        if (a if isinstance(a, Tensor) else b)._array.dtype.kind in "fcV":
            kind = dtypes.scalar_name((a if isinstance(a, Tensor) else b).dtype)
            raise NotImplementedError(f"\"{_KERNELS.get(name, name)}_cpu\" not implemented for '{kind}'")
        return pointwise(p, name, a, b)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, element by element."
    function(name, inplace=True, out=True, **forms)(compute)


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _bits(_name, _name)
_bits("bitwise_left_shift", "left_shift")
_bits("bitwise_right_shift", "right_shift")
define("invert", np.invert)


@function(inplace=True, out=True)
def bitwise_not(input: Tensor) -> Tensor:
    """The other bits; of bools, the other value."""
    x = check_tensor(input, "bitwise_not", "input")
    if x._array.dtype.kind in "fcV":
        raise NotImplementedError(f"\"bitwise_not_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    return apply(PRIMITIVES["invert"], x)


@function()
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Where ``|input - other| <= atol + rtol * |other|``."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{dtypes.scalar_name(input.dtype)} did not match {dtypes.scalar_name(other.dtype)}")
    return made(np.isclose(input._array, other._array, rtol=rtol, atol=atol, equal_nan=equal_nan))


@function()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


@function()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and equal elements."""
    check_tensor(input, "equal", "input")
    check_tensor(other, "equal", "other", 2)
    return input._array.shape == other._array.shape and bool((input._array == other._array).all())


@function()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return input._array.shape == other._array.shape


_FREXP = result_type_of("frexp", "mantissa", "exponent")
define(
    "frexp",
    lambda x: np.frexp(x),
    (lambda d, g: None if g[0] is None else g[0].call("ldexp", -d.outs[1]),),
    ("p",),
    backward="FrexpBackward0",
    outputs=2,
    differentiable=(0,),
)


@function(out=True)
def frexp(input: Tensor) -> Any:
    """Mantissas from a half to one, and the exponents of two that belong to them."""
    x = check_tensor(input, "frexp", "input")
    if x._array.dtype.kind not in "fV":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return _FREXP(*apply(PRIMITIVES["frexp"], x))


# -- three operands ---------------------------------------------------------------------------------------------------


@function(inplace=True, out=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return _rounded_once(_addcmul, input, tensor1, tensor2, value)


def _rounded_once(compute: Callable[..., Tensor], *operands: Any) -> Tensor:
    """A formula of several steps; halves are computed as float32 and rounded at the end."""
    for operand in operands:
        if isinstance(operand, Tensor) and is_half(operand._array.dtype):
            common = dtypes.result_dtype([o for o in operands if isinstance(o, Tensor)])
            if common.itemsize == 2:
                wide = (cast(o, dtypes.float32) if isinstance(o, Tensor) else o for o in operands)
                return cast(compute(*wide), common)
            break
    return compute(*operands)


def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    product = mul(tensor1, tensor2)
    return add(input, product if value == 1 else mul(product, value))


@function(inplace=True, out=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    if all(t._array.dtype.kind in "iub" for t in (tensor1, tensor2)):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division "
            "of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / "
            "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future "
            "addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes."
        )
    return _rounded_once(_addcdiv, input, tensor1, tensor2, value)


def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    quotient = div(tensor1, tensor2)
    return add(input, quotient if value == 1 else mul(quotient, value))


@function(inplace=True, out=True)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``, from the nearer end."""
    if input.dtype is not end.dtype:
        raise RuntimeError(
            f"expected dtype {_old_name(input.dtype)} for `end` but got dtype {_old_name(end.dtype)}"
        )
    return _rounded_once(_lerp, input, end, weight)


def _lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = sub(end, input)
    if isinstance(weight, Tensor):
        near = add(input, mul(difference, weight))
        far = sub(end, mul(difference, sub(1, weight)))
        return where(lt(abs(weight), 0.5), near, far)
    return add(input, mul(difference, weight)) if -0.5 < weight < 0.5 else sub(end, mul(difference, 1 - weight))


def _old_name(d: dtypes.dtype) -> str:
    return "c10::" + dtypes.scalar_name(d) if d.itemsize == 2 else d.other_name or d.name


@function(inplace=True, out=True, aliases=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Not below `min`, not above `max`: numbers or tensors."""
    x = check_tensor(input, "clamp", "input")
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    bounds = [b for b in (min, max) if b is not None]
    x = cast(x, dtypes.result_dtype((x, *bounds)))
    if x._array.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if not any(isinstance(b, Tensor) for b in bounds):
        low, high = (None if b is None else wrapped_number(b, x._array.dtype) for b in (min, max))
        return apply(CLAMP, x, low=low, high=high)
    if min is not None and max is not None:
        low_t, high_t = (b if isinstance(b, Tensor) else wrap(put_beside(np.asarray(b), x._array)) for b in (min, max))
        return pointwise(CLAMP_BOTH, "clamp", x, cast(low_t, x.dtype), cast(high_t, x.dtype))
    if min is not None:
        return pointwise(CLAMP_MIN, "clamp", x, cast(min, x.dtype))
    return pointwise(CLAMP_MAX, "clamp", x, cast(max, x.dtype))


def _low(d: Any, comparison: str) -> Any:
    return d.x.call(comparison, d.y)


CLAMP_MIN = define(
    "clamp_min", lambda x, low: np.maximum(x, low),
    (lambda d, g: g.where(_low(d, "greater_equal"), 0), lambda d, g: g.where(_low(d, "less"), 0)), ("xy", "xy"),
    backward="ClampMinBackward1",
)  # fmt: skip
CLAMP_MAX = define(
    "clamp_max", lambda x, high: np.minimum(x, high),
    (lambda d, g: g.where(_low(d, "less_equal"), 0), lambda d, g: g.where(_low(d, "greater"), 0)), ("xy", "xy"),
    backward="ClampMaxBackward1",
)  # fmt: skip


def _clamp_both(which: int) -> Callable[[Any, Any], Any]:
    def vjp(d: Any, g: Any) -> Any:
        x, low, high = d.operands
        if which == 0:
            chosen = x.call("greater_equal", low).call("logical_and", x.call("less_equal", high))
        elif which == 1:
            chosen = x.call("less", low).call("logical_and", low.call("less", high))
        else:
            chosen = x.call("greater", high).call("logical_or", high.call("less", low))
        return g.where(chosen, 0)

    return vjp


CLAMP_BOTH = define(
    "clamp_both", lambda x, low, high: np.minimum(np.maximum(x, low), high), tuple(map(_clamp_both, range(3))), ("xyz",) * 3,
    backward="ClampBackward0",
)  # fmt: skip


@function(inplace=True, out=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Not below `min`."""
    return clamp(input, min=min)


@function(inplace=True, out=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Not above `max`."""
    return clamp(input, max=max)


@function(method=False, out=True)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the condition holds, `other` elsewhere; of the condition alone, where it holds: indices."""
    check_tensor(condition, "where", "condition")
    if input is None and other is None:
        return tuple(made(in_c_order(a)) for a in np.nonzero(condition._array))
    if condition._array.dtype.kind != "b" and condition.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {dtypes.scalar_name(condition.dtype)}"
        )
    chosen = cast(condition, dtypes.bool)
    a, b = (tensor_of(o, condition) for o in (input, other))
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        target = dtypes.result_dtype((input, other))
    else:
        target = dtypes.result_dtype((a, b))
    return pointwise(WHERE, "where", chosen, cast(a, target), cast(b, target))


Tensor.where = lambda self, condition, other: where(condition, self, other)  # type: ignore[attr-defined]

# -- operators --------------------------------------------------------------------------------------------------------



def _written_once(*names: str) -> list[Any]:
    """Functions of this module without their ``out=`` form."""
    return [getattr(NAMESPACES["torch"][name], "__wrapped__", NAMESPACES["torch"][name]) for name in names]


exp, log, sqrt, rsqrt, reciprocal = _written_once("exp", "log", "sqrt", "rsqrt", "reciprocal")
cos, sin, tanh, sigmoid, trunc, floor = _written_once("cos", "sin", "tanh", "sigmoid", "trunc", "floor")
lt, le, gt, ge, eq, ne = _written_once("lt", "le", "gt", "ge", "eq", "ne")
maximum, minimum, isnan, isfinite = _written_once("maximum", "minimum", "isnan", "isfinite")


def _operator(compute: Callable[..., Any], p: Primitive | None, kinds: str) -> Callable[..., Any]:
    """An operator: at once, where both are tensors of one dtype of `kinds`, or the other is a float beside floats."""

    def binary(self: Tensor, other: Any) -> Any:
        if type(other) is Tensor:
            given = self._array.dtype
            if given is other._array.dtype and given.kind in kinds:
                try:
                    return apply(p, self, other)  # type: ignore[arg-type]
                except ValueError:
                    check_broadcast(self, other)
                    raise
                except TypeError:  # of other devices
                    return compute(self, other)
        elif type(other) is float and self._array.dtype.kind == "f" and self._array.dtype.itemsize > 2:
            return apply(p, self, other)  # type: ignore[arg-type]
        elif not isinstance(other, (Tensor, *NUMBERS)):
            return NotImplemented
        return compute(self, other)

    return binary


def _plain(compute: Callable[..., Any]) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return compute(self, other) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


def _number_over(x: Tensor, number: Any) -> Tensor:
    """``number / x``, as PyTorch computes it."""
    return mul(reciprocal(x), number)


def _reversed(compute: Callable[..., Any]) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return compute(other, self) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


def _changing(name: str) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return getattr(self, name)(other) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


_torch = NAMESPACES["torch"]
for _name, _compute, _fast, _kinds in (
    ("add", add, ADD, "fciu"), ("sub", sub, SUB, "fciu"), ("mul", mul, MUL, "fciu"), ("truediv", div, DIV, "fc"),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _operator(_compute, _fast, _kinds))
for _name, _compute in (("floordiv", floor_divide), ("mod", remainder), ("pow", pow)):
    setattr(Tensor, f"__{_name}__", _plain(_compute))
for _name, _compute in (
    ("add", add), ("sub", sub), ("mul", mul), ("truediv", div), ("floordiv", floor_divide), ("mod", remainder), ("pow", pow),
):  # fmt: skip
    setattr(Tensor, f"__r{_name}__", _reversed(_compute))
Tensor.__rtruediv__ = _plain(_number_over)  # type: ignore[attr-defined]
for _name, _changing_name in (
    ("add", "add_"), ("sub", "sub_"), ("mul", "mul_"), ("truediv", "div_"), ("floordiv", "floor_divide_"), ("mod", "remainder_"),
    ("pow", "pow_"), ("and", "bitwise_and_"), ("or", "bitwise_or_"), ("xor", "bitwise_xor_"), ("lshift", "bitwise_left_shift_"),
    ("rshift", "bitwise_right_shift_"),
):  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _changing(_changing_name))
for _name, _method in (
    ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"),
    ("rshift", "bitwise_right_shift"),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _plain(_torch[_method].__wrapped__))
    setattr(Tensor, f"__r{_name}__", _reversed(_torch[_method].__wrapped__))
for _name in _COMPARISONS:
    setattr(Tensor, f"__{_name}__", _plain(_torch[_name].__wrapped__))
Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
Tensor.__neg__ = neg  # type: ignore[attr-defined]
Tensor.__pos__ = positive  # type: ignore[attr-defined]
Tensor.__abs__ = abs  # type: ignore[attr-defined]
Tensor.__invert__ = bitwise_not  # type: ignore[attr-defined]

__all__ = ["ADD", "COPY", "DIV", "MUL", "SUB", "WHERE", "constant"]
