"""Primitives of pointwise functions: what PyTorch saves, and where its gradients are not the rows'."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import is_on_gpu, library_of_array
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define, from_row
from dynagraph.torch.core.terms import FORWARD
from dynagraph.where import where


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
    top, low = where(swap, y, x), where(swap, x, y)
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
    lambda x, y: where(x == 0, y, (x > 0).astype(x.dtype)).astype(x.dtype, copy=False),
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
        return where(x == 0, 0, x / np.abs(x)).astype(x.dtype)
    return where(np.isnan(x), 0, np.sign(x)).astype(x.dtype) if x.dtype.kind in "fV" else np.sign(x)


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
        found = where(np.isnan(x), kind(nan), x)
        found = where(x == kind(np.inf), kind(top if posinf is None else posinf), found)
        return where(x == kind(-np.inf), kind(-top if neginf is None else neginf), found)
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


define(
    "angle",
    lambda x: np.angle(x) if x.dtype.kind == "c" else where(np.isnan(x), x, where(x < 0, math.pi, 0)).astype(x.dtype),
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
