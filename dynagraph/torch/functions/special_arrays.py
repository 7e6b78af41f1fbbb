"""Special functions of arrays of float64 (`erf`: of float32, too), which NumPy has not: error, gamma, zeta, Bessel functions...

Smooth factors are sums of Chebyshev polynomials (`special_tables.py`); "DLMF" is NIST's Digital Library of Mathematical Functions.
Errors are a few units in the last place, but for zeros of oscillating functions, where they are as small in absolute terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.functions import special_tables as tables

EPS = 2.0**-53
ROOT_PI = math.sqrt(math.pi)


def chebyshev(coefficients: Sequence[float], t: Any) -> Any:
    """A sum of Chebyshev polynomials of t in [-1, 1].  C. Clenshaw, Math. Comp. 9, 1955."""
    twice = t + t
    one: Any = coefficients[-1]
    two: Any = 0.0
    for c in coefficients[-2:0:-1]:
        one, two = twice * one - two + c, one
    return t * one - two + coefficients[0]


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """``coefficients[0] + coefficients[1] * x + ...``."""
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _exp_of_square(x: Any, sign: int) -> Any:
    """``exp(x*x)``, or of its negative: the square in two parts, of which the first is exact."""
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(sign * high * high) * np.exp(sign * (x - high) * (x + high))


# -- error functions --------------------------------------------------------------------------------------------------


def _erf_near(x: Any) -> Any:
    return x * chebyshev(tables.ERF, 2 * x * x - 1)


def _erfcx_positive(x: Any) -> Any:
    found = chebyshev(tables.ERFCX, (x - 3.75) / (x + 3.75)) / (1 + 2 * x)
    return np.where(x > 1e8, 1 / (x * ROOT_PI), found)


def _erfc_far(x: Any) -> Any:
    """Of numbers from 0.5 on; from 28 on it vanishes."""
    x = np.minimum(x, 28.0)
    return _exp_of_square(x, -1) * _erfcx_positive(x)


def _erf_single(x: Any) -> Any:
    """Of float32, to one and a half units in the last place; from 4 on it is 1."""
    a = np.abs(x)
    small, large = np.minimum(a, 1), np.minimum(np.maximum(a, 1), 4)
    near = small * polynomial(tables.ERF_NEAR_SINGLE, small * small) + small
    far = 1 - np.exp(polynomial(tables.LOG_ERFC_SINGLE, large))
    is_near = (a <= 1).astype(x.dtype)  # multiplied, since kernels branch where a choice has an exponential in it
    return np.copysign(near * is_near + far * (1 - is_near), x)


def erf(x: Any) -> Any:
    if x.dtype.itemsize == 4:
        return _erf_single(x)
    a = np.abs(x)
    return np.where(a <= 1, _erf_near(np.clip(x, -1, 1)), np.copysign(1 - _erfc_far(np.maximum(a, 0.5)), x))


def erfc(x: Any) -> Any:
    far = _erfc_far(np.maximum(np.abs(x), 0.5))
    return np.where(np.abs(x) < 0.5, 1 - _erf_near(np.clip(x, -0.5, 0.5)), np.where(x < 0, 2 - far, far))


def erfcx(x: Any) -> Any:
    """``exp(x*x) * erfc(x)``."""
    found = _erfcx_positive(np.abs(x))
    return np.where(x < 0, 2 * _exp_of_square(np.clip(x, -30, 0), 1) - found, found)


# M. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988
_CENTRE = (
    (3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
     6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_MIDDLE = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
     2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_TAIL = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
     1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _ratio(parts: tuple[Sequence[float], Sequence[float]], r: Any) -> Any:
    return polynomial(parts[0], r) / polynomial(parts[1], r)


def _normal_quantile(q: Any, tail: Any) -> Any:
    """Of 0.5 + q, where `tail` is the smaller of this and of 1 less this."""
    r = np.sqrt(-np.log(tail))
    outer = np.where(r <= 5, _ratio(_MIDDLE, r - 1.6), _ratio(_TAIL, r - 5))
    inner = q * _ratio(_CENTRE, 0.180625 - q * q)
    found = np.where(np.abs(q) <= 0.425, inner, np.copysign(outer, q))
    found = np.where(tail == 0, np.copysign(np.inf, q), found)
    return np.where(tail < 0, np.nan, found)


def ndtri(p: Any) -> Any:
    """The inverse of the normal distribution."""
    return _normal_quantile(p - 0.5, np.where(p < 0.5, p, 1 - p))


def erfinv(y: Any) -> Any:
    return _normal_quantile(y * 0.5, (1 - np.abs(y)) * 0.5) * math.sqrt(0.5)


def ndtr(x: Any) -> Any:
    """The normal distribution."""
    return 0.5 * erfc(x * -math.sqrt(0.5))


def log_ndtr(x: Any) -> Any:
    """The logarithm of the normal distribution."""
    scaled = x * math.sqrt(0.5)
    low = np.log(erfcx(np.maximum(-scaled, 0)) * 0.5) - scaled * scaled
    return np.where(x < -1, low, np.log1p(-erfc(scaled) * 0.5))


# -- gamma functions --------------------------------------------------------------------------------------------------


def _log_gamma_positive(x: Any) -> Any:
    """By its zeros at 1 and 2 between these, by recurrence up to 10, by Stirling's series beyond."""
    small = np.minimum(x, 10.0)
    below = small < 1
    product = np.ones_like(small)
    above_one = np.where(below, small, small - 1)  # of what is between 1 and 2 in the end: without rounding
    for _ in range(8):
        above = above_one > 1
        product = np.where(above, product * above_one, product)
        above_one = np.where(above, above_one - 1, above_one)
    near = above_one * (above_one - 1) * chebyshev(tables.LOG_GAMMA, 2 * above_one - 1)
    near = near + np.where(below, -np.log(small), np.log(product))
    large = np.maximum(x, 10.0)
    inverse = 1 / large
    far = (
        (large - 0.5) * np.log(large)
        - large
        + (0.5 * math.log(2 * math.pi) + inverse * polynomial(tables.STIRLING, inverse * inverse))
    )
    return np.where(x < 10, near, np.where(np.isinf(x), np.inf, far))


def _sine_of_turns(x: Any) -> Any:
    """``sin(pi * x)``."""
    whole = np.rint(x)
    sine = np.sin(math.pi * (x - whole))
    return np.where(np.mod(whole, 2) == 0, sine, -sine)


def log_gamma(x: Any) -> Any:
    """The logarithm of the size of Gamma; infinite at its poles."""
    a = np.abs(x)
    positive = _log_gamma_positive(np.maximum(a, 5e-324))
    reflected = math.log(math.pi) - np.log(np.abs(_sine_of_turns(a)) * a) - positive
    found = np.where(x > 0, positive, np.where(np.floor(x) == x, np.inf, reflected))
    return np.where(np.isnan(x), x, np.where(a < 1e-300, -np.log(a), found))


def _log_gamma_of_one_and(a: Any) -> Any:
    """Of 1 + a, for a up to 1, with the digits of small ones."""
    return a * (a - 1) * chebyshev(tables.LOG_GAMMA, 2 * a - 1)


def digamma(x: Any) -> Any:
    """The derivative of the logarithm of Gamma.  DLMF 5.5.2, 5.5.4, 5.11.2."""
    negative = x < 0
    y = np.where(negative, 1 - x, x)
    shift = np.zeros_like(y)
    for _ in range(10):
        small = y < 10
        shift = np.where(small, shift + 1 / np.where(small, y, 1), shift)
        y = np.where(small, y + 1, y)
    inverse = 1 / (y * y)
    tail = inverse * polynomial([(2 * k + 1) * c for k, c in enumerate(tables.STIRLING)], inverse)
    found = np.log(y) - 0.5 / y - tail - shift
    part = x - np.rint(x)
    found = np.where(negative, found - math.pi / np.tan(math.pi * part), found)
    found = np.where(negative & (part == 0), np.nan, found)
    return np.where(x == 0, np.copysign(np.inf, -x), np.where(np.isposinf(x), np.inf, found))


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz' zeta function, the sum of ``(q + k) ** -x``."""
    x, q = np.broadcast_arrays(x, q)
    lowest = np.where(np.isfinite(q), q, 0).min() if q.size else 0
    found = _zeta(x, q, 9 + min(int(-math.floor(lowest)), 100_000) if lowest < 0 else 9)
    pole = (q <= 0) & (np.floor(q) == q)
    found = np.where((q <= 0) & ~pole & (np.floor(x) != x), np.nan, found)
    return np.where(x == 1, np.inf, np.where(x < 1, np.nan, np.where(pole, np.inf, found)))


def _zeta(x: Any, q: Any, terms: int) -> Any:
    """By Euler and Maclaurin's formula, after so many terms; these must reach 9.  DLMF 25.11."""
    total = np.power(q, -x)
    last = total
    for k in range(1, terms + 1):
        last = np.power(q + k, -x)
        total = total + last
    w = q + terms
    found = total + last * w / (x - 1) - 0.5 * last
    factor, power = x, last / w
    for k, ratio in enumerate(tables.BERNOULLI):
        found = found + ratio * factor * power
        factor = factor * (x + (2 * k + 1)) * (x + (2 * k + 2))
        power = power / (w * w)
    return np.where(last == 0, total, found)


def polygamma(x: Any, n: int) -> Any:
    """The derivative of that order of `digamma`.  DLMF 5.15."""
    if n == 0:
        return digamma(x)
    if n == 1:
        reflected = x < 0.5
        y = np.where(reflected, 1 - x, x)
        one = _zeta(np.full_like(y, 2.0), y, 9)
        sine = _sine_of_turns(x)
        return np.where(reflected, (math.pi / sine) ** 2 - one, one)
    return (1 if n % 2 else -1) * math.gamma(n + 1) * zeta(np.full_like(x, n + 1.0), x)


_MOST = 2000  # terms of series and fractions: as many as none needs


def _prefactor(a: Any, x: Any) -> Any:
    """``x**a * exp(-x) / Gamma(a + 1)``."""
    small = np.minimum(a, 20.0)
    direct = np.exp(small * np.log(x) - x - _log_gamma_positive(small + 1))
    large = np.maximum(a, 10.0)
    excess = (x - large) / large
    inverse = 1 / large
    scaled = np.exp(-inverse * polynomial(tables.STIRLING, inverse * inverse))
    exponent = np.where(np.abs(excess) < 0.5, excess - np.log1p(excess), excess - np.log(x * inverse))
    return np.where(a < 20, direct, np.exp(-large * exponent) * scaled / np.sqrt(2 * math.pi * large))


def _gamma_by_series(a: Any, x: Any) -> Any:
    """The lower function, for x up to a or 1.  DLMF 8.7.1."""
    term = total = np.ones_like(x)
    for k in range(1, _MOST):
        term = term * (x / (a + k))
        total = total + term
        if not (term > EPS * total).any():
            break
    return _prefactor(a, x) * total


def _gamma_by_fraction(a: Any, x: Any) -> Any:
    """The upper function, for x above a and 1, by W. Lentz' evaluation of the continued fraction.  DLMF 8.9.2."""
    b = x + 1 - a
    c = np.full_like(x, 1e300)
    d = 1 / b
    h = d
    for k in range(1, _MOST):
        step = -k * (k - a)
        b = b + 2
        d = step * d + b
        d = 1 / np.where(d == 0, 1e-300, d)
        c = b + step / c
        c = np.where(c == 0, 1e-300, c)
        change = d * c
        h = h * change
        if not (np.abs(change - 1) > EPS).any():
            break
    return _prefactor(a, x) * a * h


def _gamma_of_small(a: Any, x: Any) -> Any:
    """The upper function for x up to 1.1, as a difference that keeps its digits for small a, up to 1."""
    logarithm = np.log(x)
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 30):
        term = term * (-x / k)
        total = total + term / (a + k)
    exponent = a * logarithm - _log_gamma_of_one_and(a)
    return -np.expm1(exponent) - np.exp(exponent) * a * total


def _gamma_uniform(a: Any, x: Any) -> tuple[Any, Any]:
    """Both, for large a and x near it.  N. Temme; DLMF 8.12."""
    excess = (x - a) / a
    half_square = excess - np.log1p(excess)
    eta = np.copysign(np.sqrt(np.maximum(2 * half_square, 0)), excess)
    inverse = 1 / a
    total: Any = 0.0
    for row in reversed(tables.UNIFORM):
        total = total * inverse + polynomial(row, eta)
    rest = np.exp(-a * half_square) / np.sqrt(2 * math.pi * a) * total
    scaled = eta * np.sqrt(a / 2)
    return 0.5 * erfc(-scaled) - rest, 0.5 * erfc(scaled) + rest


def _incomplete_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """The regularised lower and upper functions of positive numbers."""
    uniform = (a > 60) & (np.abs(x - a) < 0.3 * a)
    small = ~uniform & (x <= 1.1) & (a <= 1)
    series = ~uniform & ~small & ((x <= 1) | (x <= a))
    fraction = ~uniform & ~small & ~series
    near = _gamma_uniform(np.where(uniform, a, 100.0), np.where(uniform, x, 100.0))
    below = _gamma_by_series(np.where(series | small, a, 1.0), np.where(series | small, x, 1.0))
    above = _gamma_by_fraction(np.where(fraction, a, 1.0), np.where(fraction, x, 3.0))
    upper_of_small = _gamma_of_small(np.where(small, a, 1.0), np.where(small, x, 1.0))
    lower = np.where(uniform, near[0], np.where(series | small, below, 1 - above))
    upper = np.where(uniform, near[1], np.where(small, upper_of_small, np.where(series, 1 - below, above)))
    return lower, upper


def _regularised(a: Any, x: Any, which: int) -> Any:
    a, x = np.broadcast_arrays(a, x)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    found = _incomplete_gamma(np.where(inside, a, 1.0), np.where(inside, x, 1.0))[which]
    at_zero, at_infinity = (0.0, 1.0) if which == 0 else (1.0, 0.0)
    found = np.where(x == 0, at_zero, found)
    found = np.where(np.isposinf(x), at_infinity, found)
    found = np.where(np.isposinf(a), np.where(np.isposinf(x), np.nan, at_zero), found)
    found = np.where(a == 0, np.where(x > 0, at_infinity, np.nan), found)
    return np.where((a < 0) | (x < 0) | np.isnan(a) | np.isnan(x), np.nan, found)


def gammainc(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return _regularised(a, x, 0)


def gammaincc(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return _regularised(a, x, 1)


# -- Bessel functions -------------------------------------------------------------------------------------------------


def i0e(x: Any) -> Any:
    """``exp(-|x|) * I0(x)``."""
    a = np.abs(x)
    far = np.maximum(a, 8.0)
    return np.where(
        a <= 8, chebyshev(tables.I0_NEAR, np.minimum(a, 8.0) * 0.25 - 1), chebyshev(tables.I0_FAR, 16 / far - 1) / np.sqrt(far)
    )


def i0(x: Any) -> Any:
    a = np.abs(x)
    half = np.exp(a * 0.5)  # the whole exponential might overflow where the product does not
    return half * (half * i0e(np.minimum(a, 1e300)))


def i1e(x: Any) -> Any:
    """``exp(-|x|) * I1(x)``."""
    a = np.abs(x)
    near, far = np.minimum(a, 8.0), np.maximum(a, 8.0)
    found = np.where(
        a <= 8, near * chebyshev(tables.I1_NEAR, near * 0.25 - 1), chebyshev(tables.I1_FAR, 16 / far - 1) / np.sqrt(far)
    )
    return np.copysign(found, x)


def i1(x: Any) -> Any:
    half = np.exp(np.abs(x) * 0.5)
    return half * (half * i1e(np.clip(x, -1e300, 1e300)))


def _k(x: Any, near: Callable[[Any], Any], far: Sequence[float], scaled: bool) -> Any:
    """Below 2, from a logarithm; beyond with its exponential."""
    low, high = np.clip(x, 5e-324, 2.0), np.maximum(x, 2.0)
    inner, outer = near(low), chebyshev(far, 4 / high - 1) / np.sqrt(high)
    found = np.where(x <= 2, inner * np.exp(low), outer) if scaled else np.where(x <= 2, inner, np.exp(-high) * outer)
    return np.where(x == 0, np.inf, np.where(x < 0, np.nan, found))


def _k0_near(x: Any) -> Any:
    return chebyshev(tables.K0_NEAR, x * x * 0.5 - 1) - np.log(0.5 * x) * i0(x)


def _k1_near(x: Any) -> Any:
    return chebyshev(tables.K1_NEAR, x * x * 0.5 - 1) / x + np.log(0.5 * x) * i1(x)


def k0(x: Any) -> Any:
    return _k(x, _k0_near, tables.K0_FAR, False)


def k0e(x: Any) -> Any:
    """``exp(x) * K0(x)``."""
    return _k(x, _k0_near, tables.K0_FAR, True)


def k1(x: Any) -> Any:
    return _k(x, _k1_near, tables.K1_FAR, False)


def k1e(x: Any) -> Any:
    """``exp(x) * K1(x)``."""
    return _k(x, _k1_near, tables.K1_FAR, True)


def _waves(x: Any, order: int) -> tuple[Any, Any]:
    """J and Y of numbers from 5 on, by Hankel's expansion.  DLMF 10.17."""
    w = 5 / x
    t = 2 * w * w - 1
    p, q = (chebyshev(c, t) for c in ((tables.P0, tables.Q0) if order == 0 else (tables.P1, tables.Q1)))
    q = q * w
    sine, cosine = np.sin(x), np.cos(x)
    # of x - pi/4, and of x - 3 pi/4
    shifted = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -(sine + cosine))
    scale = 1 / np.sqrt(math.pi * x)
    return scale * (p * shifted[0] - q * shifted[1]), scale * (p * shifted[1] + q * shifted[0])


def _j0_near(x: Any) -> Any:
    w = x * x
    return (w - tables.J0_ZERO) * chebyshev(tables.J0_NEAR, w * 0.08 - 1)


def _j1_near(x: Any) -> Any:
    w = x * x
    return x * (w - tables.J1_ZERO) * chebyshev(tables.J1_NEAR, w * 0.08 - 1)


def j0(x: Any) -> Any:
    a = np.abs(x)
    found = np.where(a <= 5, _j0_near(np.minimum(a, 5.0)), _waves(np.maximum(a, 5.0), 0)[0])
    return np.where(np.isinf(a), 0.0, found)


def j1(x: Any) -> Any:
    a = np.abs(x)
    found = np.where(a <= 5, _j1_near(np.minimum(a, 5.0)), _waves(np.maximum(a, 5.0), 1)[0])
    return np.where(np.isinf(a), 0.0, np.where(x < 0, -found, found))


def y0(x: Any) -> Any:
    low = np.clip(x, 5e-324, 5.0)
    near = chebyshev(tables.Y0_NEAR, low * low * 0.08 - 1) + 2 / math.pi * np.log(low) * _j0_near(low)
    return _second_kind(x, np.where(x <= 5, near, _waves(np.maximum(x, 5.0), 0)[1]))


def y1(x: Any) -> Any:
    low = np.clip(x, 5e-324, 5.0)
    near = low * chebyshev(tables.Y1_NEAR, low * low * 0.08 - 1) + 2 / math.pi * (np.log(low) * _j1_near(low) - 1 / low)
    return _second_kind(x, np.where(x <= 5, near, _waves(np.maximum(x, 5.0), 1)[1]))


def _second_kind(x: Any, found: Any) -> Any:
    found = np.where(np.isposinf(x), 0.0, found)
    return np.where(x == 0, -np.inf, np.where(x < 0, np.nan, found))


def spherical_j0(x: Any) -> Any:
    """``sin(x) / x``."""
    return np.where(x == 0, 1.0, np.where(np.isinf(x), 0.0, np.sin(x) / np.where(x == 0, 1.0, x)))


def airy_ai(x: Any) -> Any:
    """Airy's function Ai.  DLMF 9.7."""
    far = np.maximum(np.abs(x), 2.0)
    root = np.sqrt(far)
    z = far * root * (2 / 3)
    w = tables.ZETA_2 / z
    t = 2 * w - 1
    amplitude = 1 / (ROOT_PI * np.sqrt(root))
    decay = 0.5 * np.exp(-z) * amplitude * chebyshev(tables.AIRY_DECAY, t)
    p, q = chebyshev(tables.AIRY_P, t), w * chebyshev(tables.AIRY_Q, t)
    wave = amplitude * (p * np.sin(z + math.pi / 4) + q * np.cos(z + math.pi / 4))
    near = chebyshev(tables.AIRY_NEAR, np.clip(x, -2, 2) * 0.5)
    found = np.where(np.abs(x) <= 2, near, np.where(x > 0, decay, wave))
    return np.where(np.isinf(x), np.nan, found)


# -- orthogonal polynomials, by their recurrences: DLMF 18.9 ----------------------------------------------------------


def orthogonal(first: Callable[[Any], Any], step: Callable[[Any, int, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Polynomials by degree: 0 for negative ones, 1, `first`, and then `step` of x, the degree before, and the two before."""

    def of(x: Any, n: Any) -> Any:
        x, n = np.broadcast_arrays(x, n)
        degree = np.trunc(n)
        before, last = np.ones_like(x), first(x)
        found = np.where(degree < 0, 0.0, np.where(degree == 0, before, last))
        for k in range(1, int(np.where(np.isfinite(degree), degree, 0).max() if degree.size else 0)):
            before, last = last, step(x, k, last, before)
            found = np.where(degree == k + 1, last, found)
        return np.where(np.isnan(x), x, found)

    return of


def _chebyshev_step(x: Any, k: int, last: Any, before: Any) -> Any:
    return (x + x) * last - before


def _shifted(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, n: of(x + x - 1, n)


_T, _U, _V, _W = (
    orthogonal(first, _chebyshev_step) for first in (lambda x: x, lambda x: x + x, lambda x: x + x - 1, lambda x: x + x + 1)
)
POLYNOMIALS: dict[str, Callable[[Any, Any], Any]] = {
    "chebyshev_polynomial_t": _T,
    "chebyshev_polynomial_u": _U,
    "chebyshev_polynomial_v": _V,
    "chebyshev_polynomial_w": _W,
    "shifted_chebyshev_polynomial_t": _shifted(_T),
    "shifted_chebyshev_polynomial_u": _shifted(_U),
    "shifted_chebyshev_polynomial_v": _shifted(_V),
    "shifted_chebyshev_polynomial_w": _shifted(_W),
    "hermite_polynomial_h": orthogonal(lambda x: x + x, lambda x, k, last, before: (x + x) * last - 2 * k * before),
    "hermite_polynomial_he": orthogonal(lambda x: x, lambda x, k, last, before: x * last - k * before),
    "laguerre_polynomial_l": orthogonal(
        lambda x: 1 - x, lambda x, k, last, before: ((2 * k + 1 - x) * last - k * before) / (k + 1)
    ),
    "legendre_polynomial_p": orthogonal(lambda x: x, lambda x, k, last, before: ((2 * k + 1) * x * last - k * before) / (k + 1)),
}

__all__ = [
    "POLYNOMIALS", "airy_ai", "chebyshev", "digamma", "erf", "erfc", "erfcx", "erfinv", "gammainc", "gammaincc", "i0", "i0e", "i1",
    "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "log_gamma", "log_ndtr", "ndtr", "ndtri", "polygamma", "polynomial",
    "spherical_j0", "y0", "y1", "zeta",
]  # fmt: skip
