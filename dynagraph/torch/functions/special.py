"""``torch.special``, and its functions' older names: error, gamma, zeta and Bessel functions, orthogonal polynomials.

They are computed in float64 (`special_arrays.py`) and rounded once, but for `erf` of float32 and halves, computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions import activations, reductions
from dynagraph.torch.functions import special_arrays as arrays
from dynagraph.torch.functions.arithmetic import mul
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, floating, function, pointwise, promoted

ROOT_PI, ROOT_HALF, ROOT_TWO_PI = math.sqrt(math.pi), math.sqrt(0.5), math.sqrt(2 * math.pi)


def _in_double(compute: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*operands: Any, **attrs: Any) -> Any:
        kind = next(x.dtype for x in operands if isinstance(x, (np.ndarray, np.generic)) or hasattr(x, "dtype"))
        wide = (x.astype(np.float64) if hasattr(x, "dtype") else np.float64(x) for x in operands)
        return compute(*wide, **attrs).astype(kind)

    return forward


def _in_single(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Halves as float32; others in their own dtype."""

    def forward(x: Any, **attrs: Any) -> Any:
        return compute(x.astype(np.float32), **attrs).astype(x.dtype) if is_half(x.dtype) else compute(x, **attrs)

    return forward


def _refusing(name: str) -> Callable[[Any, Any], Any]:
    def vjp(d: Any, g: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return vjp


# -- primitives -------------------------------------------------------------------------------------------------------


def _define(name: str, compute: Callable[..., Any], vjp: Any, reads: str, node: str) -> Primitive:
    return define(name, _in_double(compute), (vjp,), (reads,), backward=node)


def _bell(x: Any) -> Any:
    """``exp(-x*x)``."""
    return (-(x * x)).call("exp")


def _i1_slope(d: Any, other: str, edge: Callable[[Any], Any]) -> Any:
    """The slope of I1, or of the scaled one, which at 0 is a half."""
    tiny = d.x.call("absolute").call("less_equal", float(np.finfo(d.x.dtype.numpy).eps))
    safe = d.x.number(1).where(tiny, d.x)
    return d.x.number(0.5).where(tiny, safe.call(other) - d.out * edge(safe))


def _sinc_vjp(d: Any, g: Any) -> Any:
    turned = d.x * math.pi
    square = turned * d.x
    zero = square.equals(0)
    slope = (turned * turned.call("cos") - turned.call("sin")) / square.number(1).where(zero, square)
    return (g * slope.conj).where(zero.call("logical_not"), 0)


def _logit(x: Any, eps: float | None) -> Any:
    z = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.log(z / (1 - z))


def _logit_vjp(d: Any, g: Any) -> Any:
    eps = d.attrs["eps"]
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    inside = d.x.call("greater_equal", low).call("logical_and", d.x.call("less_equal", high))
    return (g / (d.x * (1 - d.x))).where(inside, math.nan if eps is None else 0)


def _entropy(x: Any) -> Any:
    positive = x > 0
    found = np.where(positive, -x * np.log(np.where(positive, x, 1)), np.where(x == 0, 0.0, -np.inf))
    return np.where(np.isnan(x), x, found)


ERF = define("erf", _in_single(arrays.erf), (lambda d, g: g * _bell(d.x) * (2 / ROOT_PI),), ("x",))
ERFC = _define("erfc", arrays.erfc, lambda d, g: g * _bell(d.x) * (-2 / ROOT_PI), "x", "ErfcBackward0")
ERFCX = _define("erfcx", arrays.erfcx, lambda d, g: g * (d.x * d.out * 2 - 2 / ROOT_PI), "xo", "SpecialErfcxBackward0")
ERFINV = _define("erfinv", arrays.erfinv, lambda d, g: g * (d.out * d.out).call("exp") * (ROOT_PI / 2), "o", "ErfinvBackward0")
NDTRI = _define(
    "ndtri", arrays.ndtri, lambda d, g: g * (d.out * d.out * 0.5).call("exp") * ROOT_TWO_PI, "o", "SpecialNdtriBackward0"
)
LOG_NDTR = _define(
    "log_ndtr",
    arrays.log_ndtr,
    lambda d, g: g / (d.x * -ROOT_HALF).call("erfcx") * (2 / ROOT_TWO_PI),
    "x",
    "SpecialLogNdtrBackward0",
)
LGAMMA = _define("lgamma", arrays.log_gamma, lambda d, g: g * d.x.call("digamma"), "x", "LgammaBackward0")
DIGAMMA = _define("digamma", arrays.digamma, lambda d, g: g * d.x.call("polygamma", n=1), "x", "DigammaBackward0")
POLYGAMMA = _define(
    "polygamma", arrays.polygamma, lambda d, g: g * d.x.call("polygamma", n=d.attrs["n"] + 1), "x", "PolygammaBackward0"
)
I0 = _define("i0", arrays.i0, lambda d, g: g * d.x.call("i1"), "x", "I0Backward0")
I0E = _define("i0e", arrays.i0e, lambda d, g: g * (d.x.call("i1e") - d.x.call("sgn") * d.out), "xo", "SpecialI0EBackward0")
I1 = _define("i1", arrays.i1, lambda d, g: g * _i1_slope(d, "i0", lambda x: x.call("reciprocal")), "xo", "SpecialI1Backward0")
I1E = _define(
    "i1e", arrays.i1e, lambda d, g: g * _i1_slope(d, "i0e", lambda x: x.call("sgn") + x.call("reciprocal")), "xo",
    "SpecialI1EBackward0",
)  # fmt: skip
SINC = define("sinc", _in_single(np.sinc), (_sinc_vjp,), ("x",), backward="SincBackward0")
LOGIT = define("logit", _in_single(_logit), (_logit_vjp,), ("x",), backward="LogitBackward0")
ENTR = _define("entr", _entropy, lambda d, g: -(g * (d.x.call("log") + 1)), "x", "SpecialEntrBackward0")


def _many_log_gammas(x: Any, dimensions: int) -> Any:
    constant = dimensions * (dimensions - 1) / 4 * math.log(math.pi)
    return sum(arrays.log_gamma(x - 0.5 * j) for j in range(dimensions)) + constant


def _many_digammas(d: Any, g: Any) -> Any:
    total = d.x.call("digamma")
    for j in range(1, d.attrs["dimensions"]):
        total = total + (d.x - 0.5 * j).call("digamma")
    return g * total


MVLGAMMA = _define("mvlgamma", _many_log_gammas, _many_digammas, "x", "MvlgammaBackward0")


def _gamma_density(d: Any) -> Any:
    """The derivative of the regularised lower function by its second argument."""
    return ((d.x - 1) * d.y.call("log") - d.y - d.x.call("lgamma")).call("exp")


IGAMMA = define(
    "igamma", _in_double(arrays.gammainc), (_refusing("igamma: input"), lambda d, g: g * _gamma_density(d)), ("", "xy"),
    backward="IgammaBackward0",
)  # fmt: skip
IGAMMAC = define(
    "igammac", _in_double(arrays.gammaincc), (_refusing("igammac: input"), lambda d, g: -(g * _gamma_density(d))), ("", "xy"),
    backward="IgammacBackward0",
)  # fmt: skip
ZETA = define(
    "hurwitz_zeta", _in_double(arrays.zeta),
    (_refusing("zeta"), lambda d, g: -(g * d.x * (d.x + 1).call("hurwitz_zeta", d.y))), ("", "xy"), backward="SpecialZetaBackward0",
)  # fmt: skip


def _xlog1py(x: Any, y: Any) -> Any:
    return np.where(np.isnan(y), np.nan, np.where(x == 0, 0.0, x * np.log1p(y)))


def _xlog1py_by_factor(d: Any, g: Any) -> Any:
    both = d.x.equals(0).call("logical_and", d.y.call("less_equal", -1))
    return (g * d.y.call("log1p")).where(both.call("logical_not"), 0)


XLOG1PY = define(
    "xlog1py", _in_double(_xlog1py), (_xlog1py_by_factor, lambda d, g: g * (d.x / (d.y + 1))), ("xy", "xy"),
    backward="SpecialXlog1PyBackward0",
)  # fmt: skip

# -- functions of one tensor ------------------------------------------------------------------------------------------


def _real(x: Tensor, who: str) -> Tensor:
    """A tensor of floating point numbers; integers as the default dtype."""
    check_tensor(x, who, "input")
    if x._array.dtype.kind == "c":
        raise NotImplementedError(f"\"{who}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    return floating(x)


def _unary(p: Primitive, special: tuple[str, ...], old: str = "", about: str = "", complex: bool = False) -> Callable[..., Tensor]:
    """Its names in torch.special, and the one in torch."""

    def compute(input: Tensor) -> Tensor:
        x = check_tensor(input, old or special[0], "input")
        return apply(p, floating(x) if complex else _real(x, old or special[0]))

    compute.__name__ = compute.__qualname__ = old or special[0]
    compute.__doc__ = about
    for name in special:
        function(name, namespace="special", method=False, out=True)(compute)
    if old:
        function(old, inplace=True, out=True)(compute)
    return compute


erf = _unary(ERF, ("erf",), "erf", "The error function.")
erfc = _unary(ERFC, ("erfc",), "erfc", "1 - erf, with the digits of small results.")
erfcx = _unary(ERFCX, ("erfcx",), "", "``exp(x**2) * erfc(x)``.")
erfinv = _unary(ERFINV, ("erfinv",), "erfinv", "The inverse of the error function.")
ndtri = _unary(NDTRI, ("ndtri",), "", "The inverse of the normal distribution.")
log_ndtr = _unary(LOG_NDTR, ("log_ndtr",), "", "The logarithm of the normal distribution.")
lgamma = _unary(LGAMMA, ("gammaln",), "lgamma", "The logarithm of the size of the gamma function.")
digamma = _unary(DIGAMMA, ("digamma", "psi"), "digamma", "The derivative of `lgamma`.")
i0 = _unary(I0, ("i0",), "i0", "The modified Bessel function I0.")
i0e = _unary(I0E, ("i0e",), "", "``exp(-|x|) * i0(x)``.")
i1 = _unary(I1, ("i1",), "", "The modified Bessel function I1.")
i1e = _unary(I1E, ("i1e",), "", "``exp(-|x|) * i1(x)``.")
sinc = _unary(SINC, ("sinc",), "sinc", "``sin(pi * x) / (pi * x)``.", complex=True)
entr = _unary(ENTR, ("entr",), "", "``-x * log(x)``; negative infinity for negative numbers.")


@function("ndtr", namespace="special", method=False, out=True)
def ndtr(input: Tensor) -> Tensor:
    """The normal distribution."""
    x = _real(input, "ndtr")
    return mul(apply(ERFC, mul(x, -ROOT_HALF)), 0.5)


def _without_gradient(name: str, compute: Callable[..., Any], about: str) -> None:
    p = define(name, _in_double(compute))

    def of(input: Tensor) -> Tensor:
        return apply(p, _real(input, name).detach())

    of.__name__ = of.__qualname__ = name
    of.__doc__ = about
    function(name, namespace="special", method=False, out=True)(of)


for _name, _compute, _about in (
    ("airy_ai", arrays.airy_ai, "Airy's function Ai."),
    ("bessel_j0", arrays.j0, "The Bessel function J0."),
    ("bessel_j1", arrays.j1, "The Bessel function J1."),
    ("bessel_y0", arrays.y0, "The Bessel function Y0."),
    ("bessel_y1", arrays.y1, "The Bessel function Y1."),
    ("modified_bessel_i0", arrays.i0, "The modified Bessel function I0."),
    ("modified_bessel_i1", arrays.i1, "The modified Bessel function I1."),
    ("modified_bessel_k0", arrays.k0, "The modified Bessel function K0."),
    ("modified_bessel_k1", arrays.k1, "The modified Bessel function K1."),
    ("scaled_modified_bessel_k0", arrays.k0e, "``exp(x) * K0(x)``."),
    ("scaled_modified_bessel_k1", arrays.k1e, "``exp(x) * K1(x)``."),
    ("spherical_bessel_j0", arrays.spherical_j0, "``sin(x) / x``."),
):
    _without_gradient(_name, _compute, _about)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``; with `eps` of x clamped to ``[eps, 1 - eps]``."""
    return apply(LOGIT, _real(input, "logit"), eps=None if eps is None or eps < 0 else float(eps))


function(inplace=True, out=True)(logit)
function(namespace="special", method=False, out=True)(logit)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    x = _real(input, "polygamma")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return apply(DIGAMMA, x) if n == 0 else apply(POLYGAMMA, x, n=int(n))


function(method=False, out=True)(polygamma)
function(namespace="special", method=False, out=True)(polygamma)
function("polygamma", namespace="", inplace=True)(lambda self, n: polygamma(n, self))


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of that many dimensions."""
    x = _real(input, "mvlgamma")
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    return apply(MVLGAMMA, x, dimensions=int(p))


function(inplace=True, out=True)(mvlgamma)
function("multigammaln", namespace="special", method=False, out=True)(mvlgamma)

# -- functions of two -------------------------------------------------------------------------------------------------


def _two(who: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands of one dtype of floating point numbers."""
    a, b = promoted(who, a, b)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(f"special_{who}() received an invalid combination of arguments: one must be a Tensor")
    given = next(x for x in (a, b) if isinstance(x, Tensor))
    kind = given._array.dtype.kind
    if kind == "c":
        raise NotImplementedError(f"\"{who}\" not implemented for '{dtypes.scalar_name(given.dtype)}'")
    if kind not in "fV":
        wanted = dtypes.get_default_dtype()
        a, b = (cast(x, wanted) if isinstance(x, Tensor) else wanted.numpy.type(x) for x in (a, b))
    return a, b


def igamma(input: Tensor, other: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function."""
    return _gamma_of_two(IGAMMA, "igamma", input, other)


def igammac(input: Tensor, other: Tensor) -> Tensor:
    """The regularised upper incomplete gamma function."""
    return _gamma_of_two(IGAMMAC, "igammac", input, other)


def _gamma_of_two(p: Primitive, who: str, input: Tensor, other: Tensor) -> Tensor:
    check_tensor(input, who, "input")
    check_tensor(other, who, "other", 2)
    a, x = promoted(who, input, other)
    if a._array.dtype.kind not in "fV":
        raise NotImplementedError(f"\"{who}_cpu\" not implemented for '{dtypes.scalar_name(a.dtype)}'")
    return pointwise(p, who, a, x)


for _compute, _name in ((igamma, "gammainc"), (igammac, "gammaincc")):
    function(inplace=True, out=True)(_compute)
    function(_name, namespace="special", method=False, out=True)(_compute)


@function(namespace="special", method=False, out=True)
def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz' zeta function: the sum of ``(other + k) ** -input``."""
    return pointwise(ZETA, "zeta", *_two("zeta", input, other))


@function(namespace="special", method=False, out=True)
def xlog1py(input: Any, other: Any) -> Tensor:
    """``input * log1p(other)``; 0 where `input` is 0."""
    return pointwise(XLOG1PY, "xlog1py", *_two("xlog1py", input, other))


def _polynomial(name: str, compute: Callable[..., Any]) -> None:
    p = define(name, _in_double(compute))

    def of(input: Any, n: Any) -> Tensor:
        x, degree = (v.detach() if isinstance(v, Tensor) else v for v in _two(name, input, n))
        return pointwise(p, name, x, degree)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"The {name.replace('_polynomial_', ' polynomials ').replace('_', ' ')} of degree `n`."
    function(name, namespace="special", method=False, out=True)(of)


for _name, _compute in arrays.POLYNOMIALS.items():
    _polynomial(_name, _compute)

# -- functions that are elsewhere -------------------------------------------------------------------------------------

assert activations and reductions  # their import defines some of these
for _name, _other in (
    ("exp2", "exp2"), ("expit", "sigmoid"), ("expm1", "expm1"), ("log1p", "log1p"), ("log_softmax", "log_softmax"),
    ("logsumexp", "logsumexp"), ("round", "round"), ("softmax", "softmax"), ("xlogy", "xlogy"),
):  # fmt: skip
    NAMESPACES["special"][_name] = NAMESPACES["torch"][_other]

__all__ = ["digamma", "erf", "erfc", "erfinv", "i0", "igamma", "igammac", "lgamma", "logit", "mvlgamma", "polygamma", "sinc"]
