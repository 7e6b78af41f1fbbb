"""Activation functions: relu and its kin, gated units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import as_array
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.arithmetic import div, sub
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dim_of, function, in_place
from dynagraph.torch.functions.shapes import reshape
from dynagraph.where import where

NAMESPACES.setdefault("functional", {})


def in_single(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Halves are computed as float32 and rounded once."""

    def forward(*arrays: Any, **attrs: Any) -> Any:
        given = arrays[0].dtype
        if is_half(given):
            wide = (a.astype(np.float32) if hasattr(a, "dtype") and is_half(a.dtype) else a for a in arrays)
            return as_array(compute(*wide, **attrs)).astype(given)
        return compute(*arrays, **attrs)

    return forward


def only_floats(x: Tensor, kernel: str, also: str = "") -> Tensor:
    """The tensor; NotImplementedError where it is not of floats."""
    if x._array.dtype.kind not in "fV" + also:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    return x


def no_complex_gradient(who: str, x: Tensor) -> None:
    """RuntimeError where a gradient by complex numbers would be recorded that PyTorch has not."""
    if x._array.dtype.kind == "c" and mode.grad and x.requires_grad:
        raise RuntimeError(f"{who} does not support automatic differentiation for outputs with complex dtype.")


def dense(x: Any) -> Any:
    """The array, or a copy whose elements lie in order."""
    return x if x.flags.c_contiguous else x.copy()


def erased(g: Any, condition: Any) -> Any:
    """A gradient with zeros where a condition holds."""
    return g.full(0, ()).where(condition, g)


def _changeable(compute: Callable[..., Tensor], name: str, *places: str) -> Callable[..., Tensor]:
    """The form with the suffix ``_``, found in the namespaces of these names."""
    changing = in_place(compute, name)
    for place in places:
        NAMESPACES[place][f"{name}_"] = changing
    return changing


# -- the error function -----------------------------------------------------------------------------------------------

# Rational approximations of erf below 1 and of erfc above it: S. Moshier's Cephes library, ndtr.c
_ERF = (
    (9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3,
     5.55923013010394962768e4),
    (1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3, 2.26290000613890934246e4,
     4.92673942608635921086e4),
)  # fmt: skip
_ERFC = (
    (2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1,
     1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
     5.57535335369399327526e2),
    (1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
     1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2),
)  # fmt: skip


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """By pairs of coefficients, then pairs of pairs (G. Estrin): steps that do not wait for one another."""
    terms, power = list(coefficients), x
    while True:
        odd = len(terms) % 2
        terms = terms[:odd] + [high * power + low for high, low in zip(terms[odd::2], terms[odd + 1 :: 2])]
        if len(terms) == 1:
            return terms[0]
        power = power * power


# For float32: the lower tail is ``exp(-x ** 2 / 2) * t * polynomial(t)`` of ``t = 1 / (1 + 0.35 * |x|)``, to 3.2e-8 of itself.
# Fitted by least squares that are weighted until the largest relative error is least.  The exponential is the density's, so that
# the function and its derivative take one.
_TAIL_STEP = 0.35
_TAIL_SINGLE = (
    -0.0291461373, 0.143972697, -0.255716297, 0.159176465, -0.0231113992, 0.105508655, 0.119832706, 0.139861892, 0.139621403,
)  # fmt: skip


def _normal_cdf(x: Any) -> Any:
    """The normal distribution: ``(1 + erf(x / sqrt(2))) / 2``, by way of erfc, so that the lower tail keeps its digits."""
    if x.dtype.itemsize == 4:
        t = 1 / (1 + np.abs(x) * _TAIL_STEP)
        lower = np.exp(x * x * -0.5) * (t * _polynomial(t, _TAIL_SINGLE))
        return where(x < 0, lower, 1 - lower)
    z = x * math.sqrt(0.5)
    size = np.abs(z)
    small = np.minimum(size, 1)
    square = small * small
    large = np.minimum(np.maximum(size, 1), 26.6)
    above = where(size < 1, small * _polynomial(square, _ERF[0]), _polynomial(large, _ERFC[0]))
    ratio = above / where(size < 1, _polynomial(square, _ERF[1]), _polynomial(large, _ERFC[1]))
    tail = where(size < 1, 1 - ratio, np.exp(-size * size) * ratio) * 0.5  # of the side that z is on
    return where(z < 0, tail, 1 - tail)


NORMAL_CDF = define(
    "normal_cdf",
    in_single(_normal_cdf),
    (lambda d, g: g * (d.x * d.x * -0.5).call("exp") * (1 / math.sqrt(2 * math.pi)),),
    ("x",),
)

# -- primitives of one tensor -----------------------------------------------------------------------------------------


def _at_most(term: Any, bound: float) -> Any:
    return term.call("less_equal", bound)


def _at_least(term: Any, bound: float) -> Any:
    return term.call("greater_equal", bound)


RELU = define("relu", in_single(lambda x: np.maximum(x, 0)), (lambda d, g: erased(g, _at_most(d.out, 0)),), ("o",), in_one=True)


def _hardtanh_vjp(d: Any, g: Any) -> Any:
    """Zero at the bounds, too."""
    return erased(g, _at_most(d.x, d.attrs["low"]).call("logical_or", _at_least(d.x, d.attrs["high"])))


HARDTANH = define(
    "hardtanh", in_single(lambda x, low, high: np.minimum(np.maximum(x, low), high)), (_hardtanh_vjp,), ("x",),
    in_one=True,
)
LEAKY_RELU = define(
    "leaky_relu",
    in_single(lambda x, slope: where(x > 0, x, x * slope)),
    (lambda d, g: g.where(d.x.call("greater", 0), g * d.attrs["slope"]),),
    ("x",),
    in_one=True,
)


def _elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    return where(x > 0, x * scale, np.expm1(np.minimum(x, 0) * input_scale) * (alpha * scale))


def _elu_vjp(d: Any, g: Any) -> Any:
    """The exponential is not taken of positive numbers, of which it might overflow."""
    alpha, scale, input_scale = (d.attrs[k] for k in ("alpha", "scale", "input_scale"))
    below = _at_most(d.x, 0)
    slope = (d.x.where(d.x.call("less", 0), 0) * input_scale).call("exp") * (alpha * scale * input_scale)
    return g * slope.where(below, scale)


ELU, CELU = (define(name, in_single(_elu), (_elu_vjp,), ("x",), in_one=True) for name in ("elu", "celu"))


def _gelu_vjp(d: Any, g: Any) -> Any:
    density = (d.x * d.x * -0.5).call("exp") * (1 / math.sqrt(2 * math.pi))
    return g * (d.x.call("normal_cdf") + d.x * density)


GELU = define("gelu", in_single(lambda x: x * _normal_cdf(x)), (_gelu_vjp,), ("x",), in_one=True)
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_vjp(d: Any, g: Any) -> Any:
    square = d.x * d.x
    tanh = ((square * _CUBIC + 1) * d.x * _ROOT).call("tanh")
    slope = (square * (3 * _CUBIC) + 1) * (_ROOT * 0.5)
    return g * ((tanh + 1) * 0.5 + d.x * (1 - tanh * tanh) * slope)


GELU_TANH = define(
    "gelu_tanh",
    in_single(lambda x: x * 0.5 * (1 + np.tanh(_ROOT * (x + _CUBIC * (x * x * x))))),
    (_gelu_tanh_vjp,),
    ("x",),
    backward="GeluBackward0",
    in_one=True,
)


def _silu_vjp(d: Any, g: Any) -> Any:
    share = d.x.call("sigmoid")
    return g * (share * (d.x * (1 - share) + 1)).conj


SILU = define("silu", in_single(lambda x: x / (1 + np.exp(-x))), (_silu_vjp,), ("x",), in_one=True)


def _mish_vjp(d: Any, g: Any) -> Any:
    tanh = d.x.call("softplus", beta=1.0, threshold=20.0).call("tanh")
    return g * (tanh + d.x * d.x.call("sigmoid") * (1 - tanh * tanh))


def _softplus(x: Any, beta: float, threshold: float) -> Any:
    scaled = x * beta
    return where(scaled > threshold, x, np.logaddexp(scaled, 0) / beta)


def _softplus_vjp(d: Any, g: Any) -> Any:
    scaled = d.x * d.attrs["beta"]
    return g.where(scaled.call("greater", d.attrs["threshold"]), g * scaled.call("sigmoid"))


MISH = define("mish", in_single(lambda x: x * np.tanh(np.logaddexp(x, 0))), (_mish_vjp,), ("x",), in_one=True)
SOFTPLUS = define("softplus", in_single(_softplus), (_softplus_vjp,), ("x",), in_one=True)
LOG_SIGMOID = define(
    "log_sigmoid", in_single(lambda x: -np.logaddexp(-x, 0)), (lambda d, g: g * (-d.x).call("sigmoid"),), ("x",),
    in_one=True,
)


def _hardswish_vjp(d: Any, g: Any) -> Any:
    inner = (g * (d.x * (1 / 3) + 0.5)).where(d.x.call("less", 3), g)
    return erased(inner, _at_most(d.x, -3))


HARDSWISH = define(
    "hardswish", in_single(lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6), (_hardswish_vjp,), ("x",),
    in_one=True,
)
HARDSIGMOID = define(
    "hardsigmoid",
    in_single(lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6),
    (lambda d, g: (g / 6).where(d.x.call("greater", -3).call("logical_and", d.x.call("less", 3)), 0),),
    ("x",),
    in_one=True,
)


def _shrink_vjp(d: Any, g: Any) -> Any:
    width = d.attrs["width"]
    return erased(g, _at_least(d.x, -width).call("logical_and", _at_most(d.x, width)))


HARDSHRINK = define(
    "hardshrink",
    in_single(lambda x, width: where((x >= -width) & (x <= width), x.dtype.type(0), x)),
    (_shrink_vjp,),
    ("x",),
    in_one=True,
)
SOFTSHRINK = define(
    "softshrink",
    in_single(lambda x, width: where(x > width, x - width, where(x < -width, x + width, x * 0))),
    (_shrink_vjp,),
    ("x",),
    in_one=True,
)
THRESHOLD = define(
    "threshold",
    in_single(lambda x, threshold, value: where(x <= threshold, np.asarray(value).astype(x.dtype)[()], x)),
    (lambda d, g: erased(g, _at_most(d.x, d.attrs["threshold"])),),
    ("x",),
    in_one=True,
)
PRELU = define(
    "prelu_kernel",
    in_single(lambda x, weight: where(x > 0, x, x * weight)),
    (
        lambda d, g: g.where(d.x.call("greater", 0), g * d.y),
        lambda d, g: erased(g * d.x, d.x.call("greater", 0)),
    ),
    ("xy", "x"),
    backward="PreluKernelBackward0",
)


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    half = x.shape[dim] // 2
    first = (slice(None),) * dim
    return x[(*first, slice(0, half))], x[(*first, slice(half, 2 * half))]


def _glu(x: Any, dim: int) -> Any:
    first, second = _halves(x, dim)
    return first / (1 + np.exp(-second))


def _glu_vjp(d: Any, g: Any) -> Any:
    dim = d.attrs["dim"]
    starts = tuple(g.shape[dim] if k == dim else 0 for k in range(g.ndim))
    first, second = d.x.part((0,) * g.ndim, g.shape), d.x.part(starts, g.shape)
    share = second.call("sigmoid")
    by_first = g * share
    return by_first.call("concatenate", by_first * first * (1 - share), axis=dim)


GLU = define("glu", in_single(_glu), (_glu_vjp,), ("x",), in_one=True)

# -- functions without arguments --------------------------------------------------------------------------------------


def _simple(name: str, p: Primitive, kernel: str, also: str = "") -> Callable[..., Tensor]:
    """A function of one tensor with the argument `inplace`."""

    def compute(input: Tensor) -> Tensor:
        x = only_floats(check_tensor(input, name, "input"), kernel, also)
        no_complex_gradient(name, x)
        return apply(p, x)

    changing = in_place(compute, name)

    def either(input: Tensor, inplace: bool = False) -> Tensor:
        return changing(check_tensor(input, name, "input")) if inplace else compute(input)

    either.__name__ = either.__qualname__ = name
    either.__doc__ = f"``torch.nn.functional.{name}``, element by element."
    function(name, method=False, namespace="functional")(either)
    return either


silu = _simple("silu", SILU, "silu_cpu", "c")
mish = _simple("mish", MISH, "mish_cpu")
hardswish = _simple("hardswish", HARDSWISH, "hardswish_cpu")
hardsigmoid = _simple("hardsigmoid", HARDSIGMOID, "hardsigmoid_cpu")


def _relu(input: Tensor) -> Tensor:
    """``torch.relu``: zero where the tensor is negative."""
    x = check_tensor(input, "relu", "input")
    if x._array.dtype.kind == "b":
        raise RuntimeError("Boolean inputs not supported for relu")
    _real(x)
    return apply(RELU, x)


def _real(x: Tensor) -> None:
    if x._array.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")


function("relu", inplace=True)(_relu)
_relu_changing = _changeable(_relu, "relu", "functional")


@function(method=False, namespace="functional")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Zero where the tensor is negative."""
    return _relu_changing(check_tensor(input, "relu", "input")) if inplace else _relu(input)


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    x = check_tensor(input, "hardtanh", "input")
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if x._array.dtype.kind == "b":
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if x._array.dtype.kind == "u" and min_val < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    _real(x)
    whole = x._array.dtype.kind in "iu"
    return apply(HARDTANH, x, low=int(min_val) if whole else min_val, high=int(max_val) if whole else max_val)


_hardtanh_changing = _changeable(_hardtanh, "hardtanh", "functional")


@function(method=False, namespace="functional")
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Not below `min_val`, not above `max_val`; the gradient is zero at these, too."""
    return (_hardtanh_changing if inplace else _hardtanh)(check_tensor(input, "hardtanh", "input"), min_val, max_val)


@function(method=False, namespace="functional")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Between 0 and 6."""
    return hardtanh(input, 0, 6, inplace)


def _leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    x = only_floats(check_tensor(input, "leaky_relu", "input"), "leaky_relu_cpu")
    return apply(LEAKY_RELU, x, slope=float(negative_slope))


_leaky_relu_changing = _changeable(_leaky_relu, "leaky_relu", "functional")


@function(method=False, namespace="functional")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Negative numbers times `negative_slope`."""
    return (_leaky_relu_changing if inplace else _leaky_relu)(check_tensor(input, "leaky_relu", "input"), negative_slope)


def _elu_of(x: Tensor, who: str, alpha: float, scale: float, input_scale: float, p: Primitive = ELU) -> Tensor:
    given = only_floats(check_tensor(x, who, "input"), "elu_cpu")
    return apply(p, given, alpha=float(alpha), scale=float(scale), input_scale=float(input_scale))


def _elu_plain(input: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu_of(input, "elu", alpha, 1, 1)


_elu_changing = _changeable(_elu_plain, "elu", "functional")


@function(method=False, namespace="functional")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``alpha * (exp(x) - 1)`` of negative numbers."""
    return (_elu_changing if inplace else _elu_plain)(check_tensor(input, "elu", "input"), alpha)


_SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _selu(input: Tensor) -> Tensor:
    """``torch.selu``."""
    return _elu_of(input, "selu", *_SELU, 1)


def _celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``torch.celu``."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _elu_of(input, "celu", alpha, 1, 1 / alpha, CELU)


function("selu", method=False)(_selu)
function("celu", method=False)(_celu)
_selu_changing = _changeable(_selu, "selu", "functional", "torch")
_celu_changing = _changeable(_celu, "celu", "functional", "torch")


@function(method=False, namespace="functional")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` with the scales with which layers keep mean 0 and variance 1."""
    return (_selu_changing if inplace else _selu)(check_tensor(input, "selu", "input"))


@function(method=False, namespace="functional")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``alpha * (exp(x / alpha) - 1)`` of negative numbers."""
    return (_celu_changing if inplace else _celu)(check_tensor(input, "celu", "input"), alpha)


def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """``torch.threshold``."""
    x = check_tensor(input, "threshold", "input")
    if x._array.dtype.kind in "bc":
        only_floats(x, "threshold_cpu")
    return apply(THRESHOLD, x, threshold=threshold, value=value)


function("threshold", method=False)(_threshold)
_threshold_changing = _changeable(_threshold, "threshold", "functional", "torch")


@function(method=False, namespace="functional")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`value` where the tensor is at most `threshold`."""
    return (_threshold_changing if inplace else _threshold)(check_tensor(input, "threshold", "input"), threshold, value)


# -- functions with arguments -----------------------------------------------------------------------------------------


@function(method=False, namespace="functional", out=True)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution's share below it; with "tanh" by the formula with tanh."""
    x = check_tensor(input, "gelu", "input")
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return apply(GELU if approximate == "none" else GELU_TANH, only_floats(x, "GeluKernelImpl"))


@function(method=False, namespace="functional", out=True)
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` exceeds the threshold."""
    x = only_floats(check_tensor(input, "softplus", "input"), "softplus_cpu")
    return apply(SOFTPLUS, x, beta=float(beta), threshold=float(threshold))


@function(method=False, namespace="functional", out=True)
def logsigmoid(input: Tensor) -> Tensor:
    """The logarithm of the sigmoid."""
    return apply(LOG_SIGMOID, only_floats(check_tensor(input, "log_sigmoid", "input"), "log_sigmoid_cpu"))


@function(method=False, namespace="functional")
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    x = check_tensor(input, "abs", "input")
    if x._array.dtype.kind == "b":
        only_floats(x, "abs_cpu")
    return div(x, x.abs() + 1)  # type: ignore[attr-defined]


@function(method=False, namespace="functional")
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return sub(input, check_tensor(input, "tanh", "input").tanh())  # type: ignore[attr-defined]


@function(namespace="functional", out=True)
@function(out=True)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Zero between ``-lambd`` and `lambd`."""
    return apply(HARDSHRINK, only_floats(check_tensor(input, "hardshrink", "input"), "hardshrink_cpu"), width=float(lambd))


@function(method=False, namespace="functional", out=True)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Nearer to zero by `lambd`; zero within that."""
    x = only_floats(check_tensor(input, "softshrink", "input"), "softshrink_check")
    most = float(np.finfo(x._array.dtype).max) if x._array.dtype.kind == "f" else math.inf
    if not 0 <= lambd <= most:
        raise RuntimeError(
            f"lambda must be in range [0, {most:g}] for input dtype {dtypes.scalar_name(x.dtype)}, but found {lambd:g}"
        )
    return apply(SOFTSHRINK, x, width=float(lambd))


@function(namespace="functional")
@function()
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Negative numbers times a weight, one for all or one a channel."""
    x, w = check_tensor(input, "prelu", "input"), check_tensor(weight, "prelu", "weight", 2)
    if x._array.dtype != w._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (x, w)]
        raise RuntimeError(f"prelu: Type promoting not supported. Got {names[0]} and {names[1]}")
    if w._array.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {w._array.ndim}")
    count = w._array.size
    if count != 1:
        if not x._array.ndim:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = x._array.shape[1] if x._array.ndim > 1 else 1
        if channels != count:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and channel size = "
                f"{channels}."
            )
    shape = (1, count) + (1,) * (x._array.ndim - 2) if x._array.ndim > 1 else (count,) * x._array.ndim
    return apply(PRELU, only_floats(x, "prelu_cpu"), w if w._array.shape == shape else reshape(w, shape))


@function(method=False, namespace="functional")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along a dimension times the sigmoid of the second."""
    x = check_tensor(input, "glu", "input")
    if not x._array.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    k = dim_of(dim, x._array.ndim)
    if x._array.shape[k] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {k} is size {x._array.shape[k]}")
    return apply(GLU, only_floats(x, "glu_cpu"), dim=k)


for _name in ("sigmoid", "tanh"):
    NAMESPACES["functional"][_name] = NAMESPACES["torch"][_name].__wrapped__

__all__ = ["HARDTANH", "LEAKY_RELU", "dense", "erased", "in_single", "no_complex_gradient", "only_floats"]
