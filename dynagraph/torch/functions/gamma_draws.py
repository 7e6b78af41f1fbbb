"""Gamma and Dirichlet numbers, and how they change with their parameters.

A number x drawn from a distribution function F(x; a) has the derivative ``-(dF/da) / (dF/dx)`` by a, at a fixed F ("implicit
reparameterization gradients", Figurnov, Mohamed and Mnih 2018).  Both parts are integrals over the density, so the derivative is
one integral over the density divided by that at x.  It is taken over the side of x on which the density falls, and over logarithms:
``t = x * exp(-s)`` or ``x * exp(s)``, where the integrand falls at least as exp(-s) does.  Gauss and Legendre's nodes, which a cube
draws together at x, give it to some ten places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.random import _floating_only, generator_for
from dynagraph.torch.functions.special_arrays import digamma

_ROOTS, _WEIGHTS = np.polynomial.legendre.leggauss(56)
_NODES = ((_ROOTS + 1) / 2) ** 3  # of [0, 1]
_SHARES = _WEIGHTS / 2 * 3 * ((_ROOTS + 1) / 2) ** 2
_FAR = 38.0  # where exp(-s) is nothing beside 1


def _nodes(like: Any) -> tuple[Any, Any]:
    library = library_of_array(like)
    return library.asarray(_NODES), library.asarray(_SHARES)


def _reach(slope: Any, bend: Any, most: Any) -> Any:
    """Where ``slope * s + bend * s**2 / 2`` is `_FAR`; `most` where that is beyond 1, up to which the bend is known."""
    found = 2 * _FAR / (slope + np.sqrt(slope * slope + 2 * _FAR * bend))
    return np.where(found < 1, found, most)


def gamma_slope(a: Any, x: Any) -> Any:
    """The derivative of a gamma number x by its shape a: in float64."""
    a, x = a.astype(np.float64)[..., None], x.astype(np.float64)[..., None]
    nodes, shares = _nodes(x)
    below = x < a  # the side on which the density falls
    slope = np.abs(a - x)
    up = 2 * _FAR / (slope + np.sqrt(slope * slope + 2 * _FAR * x))
    reach = np.where(below, _reach(slope, x * (2.0 / 3.0), _FAR / a + 1), up)
    t = np.where(below, -reach, reach) * nodes
    terms = np.exp(a * t - x * np.expm1(t)) * (np.log(x) - digamma(a) + t)
    return (np.where(below, -x, x) * reach * terms * shares).sum(-1)


def beta_slope(x: Any, a: Any, total: Any) -> Any:
    """The derivative of a beta number x by a, whose other parameter ``total - a`` is fixed, divided by ``1 - x``: in float64."""
    x, a, total = (v.astype(np.float64)[..., None] for v in (x, a, total))
    b = total - a
    nodes, shares = _nodes(x)
    below = x * total < a  # x is below the mean: the integral from 0, else that from 1
    near, far = np.where(below, x, 1 - x), np.where(below, 1 - x, x)
    own, other = np.where(below, a, b), np.where(below, b, a)
    odds, more = near / far, np.maximum(other - 1, 0)
    slope = own - more * odds
    bend = more * odds * (1 + odds) / (1 + 0.633 * odds) ** 2 / np.e
    reach = _reach(np.maximum(slope, 0), bend, (_FAR - more * np.log(far)) / own)
    s = reach * nodes
    exponent = (other - 1) * np.log1p(-odds * np.expm1(-s)) - own * s
    log_t = np.where(below, np.log(x) - s, np.log1p(-(1 - x) * np.exp(-s)))
    terms = np.exp(exponent) * (log_t - digamma(a) + digamma(total))
    return (np.where(below, -x / (1 - x), 1.0) * reach * terms * shares).sum(-1)


# -- tensors ----------------------------------------------------------------------------------------------------------


def _underivable(name: str) -> Any:
    def refuse(d: Any, g: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return refuse


GAMMA_GRAD = define(
    "standard_gamma_grad", lambda a, x: gamma_slope(a, x).astype(x.dtype), (_underivable("_standard_gamma_grad"),) * 2, ("", "")
)
DIRICHLET_GRAD = define(
    "dirichlet_grad", lambda x, a, total: beta_slope(x, a, total).astype(x.dtype), (_underivable("_dirichlet_grad"),) * 3,
    ("", "", ""),
)  # fmt: skip
GAMMA = define(
    "standard_gamma", lambda a, drawn: drawn, (lambda d, g: g * d.x.call("standard_gamma_grad", d.out), lambda d, g: None),
    ("xo", ""), backward="StandardGammaBackward0",
)  # fmt: skip


def _dirichlet_vjp(d: Any, g: Any) -> Any:
    total = d.x.call("sum", axis=(-1,), keepdims=True) + d.x * 0
    inner = (d.out * g).call("sum", axis=(-1,), keepdims=True)
    return d.out.call("dirichlet_grad", d.x, total) * (g - inner)


DIRICHLET = define(
    "sample_dirichlet", lambda a, drawn: drawn, (_dirichlet_vjp, lambda d, g: None), ("xo", ""), backward="_DirichletBackward"
)


def _log_gamma(x: Tensor, who: str, generator: Any) -> Any:
    _floating_only(x._array.dtype, who)
    return generator_for(generator, x.device).log_gamma(x._array)


@function(method=False)
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Gamma numbers of the shapes that a tensor holds, of scale 1."""
    x = check_tensor(input, "_standard_gamma", "input")
    dtype = x._array.dtype
    drawn = np.exp(_log_gamma(x, "gamma", generator))
    return apply(GAMMA, x, wrap(np.maximum(drawn, dtypes.finfo(x.dtype).tiny).astype(dtype)))


@function(method=False)
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivative of gamma numbers by their shapes."""
    return apply(GAMMA_GRAD, check_tensor(input, "_standard_gamma_grad", "input"), output)


@function(method=False)
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Numbers whose sum along the last dimension is 1, distributed by the parameters that a tensor holds."""
    x = check_tensor(input, "_sample_dirichlet", "input")
    logs = _log_gamma(x, "dirichlet", generator)
    shares = np.exp(logs - logs.max(-1, keepdims=True))
    about = dtypes.finfo(x.dtype)
    drawn = np.clip(shares / shares.sum(-1, keepdims=True), about.tiny, 1 - about.eps / 2)
    return apply(DIRICHLET, x, wrap(drawn.astype(x._array.dtype)))


@function(method=False)
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of a Dirichlet number by its parameter, by which `_sample_dirichlet` is differentiated."""
    return apply(DIRICHLET_GRAD, check_tensor(x, "_dirichlet_grad", "x"), alpha, total)


__all__ = ["DIRICHLET", "DIRICHLET_GRAD", "GAMMA", "GAMMA_GRAD", "beta_slope", "gamma_slope"]
