"""The divergence of Kullback and Leibler of one distribution from another: closed forms, by the kinds of both."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions.bernoulli import Bernoulli
from dynagraph.torch.distributions.beta import Beta
from dynagraph.torch.distributions.binomial import Binomial
from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.cauchy import Cauchy
from dynagraph.torch.distributions.continuous_bernoulli import ContinuousBernoulli
from dynagraph.torch.distributions.dirichlet import Dirichlet
from dynagraph.torch.distributions.exp_family import ExponentialFamily
from dynagraph.torch.distributions.exponential import Exponential
from dynagraph.torch.distributions.gamma import Gamma
from dynagraph.torch.distributions.geometric import Geometric
from dynagraph.torch.distributions.gumbel import Gumbel
from dynagraph.torch.distributions.half_normal import HalfNormal
from dynagraph.torch.distributions.independent import Independent
from dynagraph.torch.distributions.laplace import Laplace
from dynagraph.torch.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal, scaled
from dynagraph.torch.distributions.multivariate_normal import MultivariateNormal, mahalanobis
from dynagraph.torch.distributions.normal import Normal
from dynagraph.torch.distributions.one_hot_categorical import OneHotCategorical
from dynagraph.torch.distributions.pareto import Pareto
from dynagraph.torch.distributions.poisson import Poisson
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.uniform import Uniform
from dynagraph.torch.distributions.utils import _sum_rightmost, euler_constant

_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Decorate a function of two distributions that gives the divergence where they are of these classes, or of subclasses."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):  # PyTorch takes any class: libraries have bases of their own
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function: Any) -> Any:
        _REGISTRY[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Any, q: Any) -> Any:
    """The divergence of `q` from `p`, that is the mean of ``log p(x) - log q(x)`` over `p`, for each in the batch.

    NotImplementedError where no function is registered for their classes, or for classes that they inherit from.
    """
    function = _REGISTRY.get((type(p), type(q))) or _inherited(type(p), type(q))
    return function(p, q)


def _inherited(type_p: type, type_q: type) -> Callable[[Any, Any], Any]:
    """The function of the nearest classes: by the first, and it should be the same by the second."""
    matches = [pair for pair in _REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not matches:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}"
        )
    distance = lambda pair: (type_p.__mro__.index(pair[0]), type_q.__mro__.index(pair[1]))  # noqa: E731
    left, right = min(matches, key=distance), min(matches, key=lambda pair: distance(pair)[::-1])
    if _REGISTRY[left] is not _REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({left[0].__name__}, "
            f"{right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _REGISTRY[left]


# -- pairs of which the first gives what the second cannot ------------------------------------------------------------

_INFINITE = {
    "Beta": ("concentration1", "Pareto"),
    "ContinuousBernoulli": ("probs", "Pareto"),
    "Exponential": ("rate", "Beta ContinuousBernoulli Pareto Uniform"),
    "Gamma": ("concentration", "Beta ContinuousBernoulli Pareto Uniform"),
    "Gumbel": ("loc", "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform"),
    "Laplace": ("loc", "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform"),
    "Normal": ("loc", "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform"),
    "Pareto": ("scale", "Beta ContinuousBernoulli Uniform"),
    "Poisson": ("rate", "Bernoulli Binomial"),
}


def _infinite(parameter: str) -> Callable[[Any, Any], Any]:
    return lambda p, q: torch.full_like(getattr(p, parameter), math.inf)


for _p, (_parameter, _qs) in _INFINITE.items():
    for _q in _qs.split():
        register_kl(globals()[_p], globals()[_q])(_infinite(_parameter))


# -- of one family ----------------------------------------------------------------------------------------------------


def _x_log_x(x: Any) -> Any:
    return torch.xlogy(x, x)


def _log_beta(a: Any, b: Any) -> Any:
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Any, q: Any) -> Any:
    softplus = torch.nn.functional.softplus
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    yes = yes.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
    no = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return yes + no.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0)


@register_kl(Beta, Beta)
def _beta_beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    growth = (a - c) * torch.digamma(a) + (b - d) * torch.digamma(b) + (c + d - a - b) * torch.digamma(a + b)
    return _log_beta(c, d) - _log_beta(a, b) + growth


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return (p.total_count * each).masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    return terms.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_one_hot(p: Any, q: Any) -> Any:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_continuous(p: Any, q: Any) -> Any:
    own = p._cont_bern_log_norm() + torch.log1p(-p.probs)
    return p.mean * (p.logits - q.logits) + own - q._cont_bern_log_norm() - torch.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norm = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norm + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential_exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family_family(p: Any, q: Any) -> Any:
    """Bregman's divergence of the normalizer (Nielsen and Nock 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot                             be computed using "
            "Bregman divergences"
        )
    leaves, normalizer, means = p._normalizer_and_means()
    others = q._natural_params
    result = q._log_normalizer(*others) - normalizer
    for leaf, other, mean in zip(leaves, others, means):
        result = result - _sum_rightmost((other - leaf) * mean, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma_gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    level = b * (p.rate / q.rate).log() + torch.lgamma(b) - torch.lgamma(a)
    return level + (a - b) * torch.digamma(a) + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel_gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return away - ratio.log() + ratio * euler_constant + torch.exp((1 + ratio).lgamma() - away) - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Normal, Normal)
def _normal_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_half(p: Any, q: Any) -> Any:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return away / q.scale - ratio.log() + ratio * torch.exp(-away / p.scale) - 1


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return result.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Any, q: Any) -> Any:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Any, q: Any) -> Any:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent_independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# -- normal vectors ---------------------------------------------------------------------------------------------------


def _squares(matrix: Any) -> Any:
    """The sum of squares of all elements of matrices."""
    return matrix.pow(2).sum((-2, -1))


def _same_events(p: Any, q: Any, kind: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {kind} Normals with                          different event shapes cannot be computed"
        )


def _log_det(d: Any) -> Any:
    if isinstance(d, LowRankMultivariateNormal):
        return d.log_det()
    return 2 * d._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _wide(p: Any, q: Any, matrix: Any) -> Any:
    """A matrix of p's for the batch of both."""
    batch = torch.broadcast_shapes(q._unbroadcasted_scale_tril.shape[:-2], matrix.shape[:-2])
    return matrix.expand((*batch, *matrix.shape[-2:])), q._unbroadcasted_scale_tril.expand(
        (*batch, *q._unbroadcasted_scale_tril.shape[-2:])
    )


def _solved(p: Any, q: Any, matrix: Any) -> Any:
    matrix, factor = _wide(p, q, matrix)
    return _squares(torch.linalg.solve_triangular(factor, matrix, upper=False))


@register_kl(MultivariateNormal, MultivariateNormal)
def _full_full(p: Any, q: Any) -> Any:
    _same_events(p, q, "Multivariate")
    trace = _solved(p, q, p._unbroadcasted_scale_tril)
    distance = mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_full(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate")
    diagonal = torch.diag_embed(p._unbroadcasted_cov_diag.sqrt())
    trace = _solved(p, q, p._unbroadcasted_cov_factor) + _solved(p, q, diagonal)
    distance = mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


def _narrow(q: Any) -> tuple[Any, Any]:
    """What a covariance is multiplied with from the left for its trace with q's inverse: added, and subtracted."""
    diagonal = q._unbroadcasted_cov_diag
    small = torch.linalg.solve_triangular(q._capacitance_tril, scaled(q._unbroadcasted_cov_factor, diagonal), upper=False)
    return diagonal, small


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_low(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate")
    diagonal, small = _narrow(q)
    factor = p._unbroadcasted_scale_tril
    trace = _squares(factor * diagonal.rsqrt().unsqueeze(-1)) - _squares(small.matmul(factor))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + q.distance(q.loc - p.loc) - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_low(p: Any, q: Any) -> Any:
    _same_events(p, q, "Low Rank Multivariate")
    diagonal, small = _narrow(q)
    factor, own = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    trace = (own / diagonal).sum(-1) + _squares(factor * diagonal.rsqrt().unsqueeze(-1))
    trace = trace - _squares(small * own.sqrt().unsqueeze(-2)) - _squares(small.matmul(factor))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + q.distance(q.loc - p.loc) - p.event_shape[0])


# -- of one family from another ---------------------------------------------------------------------------------------
# what is added to the negative entropy is the mean of the second's negative logarithm over the first


def _of_normal(q: Any, mean: Any, square: Any) -> Any:
    """The mean of a normal distribution's negative logarithm, over one of a mean and a mean square."""
    variance = q.scale.pow(2)
    return 0.5 * (2 * math.pi * variance).log() + 0.5 * (square - 2 * q.loc * mean + q.loc.pow(2)) / variance


def _of_gamma(q: Any, log: Any, mean: Any) -> Any:
    """That of a gamma distribution, over one whose logarithm has a mean."""
    return q.concentration.lgamma() - q.concentration * q.rate.log() - (q.concentration - 1) * log + q.rate * mean


def _of_continuous(q: Any, mean: Any) -> Any:
    return -mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_continuous(q, p.mean)


@register_kl(Beta, Exponential)
def _beta_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Any:
    log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return -p.entropy() + _of_gamma(q, log, p.mean)


@register_kl(Beta, Normal)
def _beta_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + p.mean.pow(2))


@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Any) -> Any:
    result = -p.entropy() + (q.high - q.low).log()
    return result.masked_fill((q.low > 0) | (q.high < 1), math.inf)


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - torch.log(q.rate) + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + torch.square(p.mean))


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_uniform(p: Any, q: Any) -> Any:
    result = -p.entropy() + (q.high - q.low).log()
    return torch.where((q.low >= 0) | (q.high <= 1), math.inf, result)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_gamma(q, -euler_constant - p.rate.log(), p.mean)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Any:
    product, away = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - away + torch.exp(away) * product / (product + 1) + product.reciprocal()


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, 2 * p.variance)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Any:
    a, product, away = p.concentration, p.rate * q.scale, q.loc / q.scale
    own = (a - 1) * a.digamma() - a.lgamma() - a
    return own + product.log() + a / product + torch.exp(away) * (1 + product.reciprocal()).pow(-a) - away


@register_kl(Gamma, Normal)
def _gamma_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + p.mean.pow(2))


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + p.mean.pow(2))


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + p.mean.pow(2))


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Any:
    away, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale).pow(2)
    return away - 0.5 * ratio.log() + torch.exp(0.5 * ratio - away) - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    deviations = away / p.scale
    near = math.sqrt(2 / math.pi) * p.scale * torch.exp(-0.5 * deviations.pow(2))
    distance = near + away * torch.erf(math.sqrt(0.5) * deviations)
    return distance / q.scale - torch.log(p.scale / q.scale) - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    result = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return result.masked_fill(p.alpha <= 1, math.inf)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Any:
    mean = p.alpha * p.scale / (p.alpha - 1)
    result = -p.entropy() + _of_gamma(q, p.scale.log() + p.alpha.reciprocal(), mean)
    return result.masked_fill(p.alpha <= 1, math.inf)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Any:
    share = p.scale / (p.alpha - 1)
    mean, variance = p.alpha * share, p.alpha * share.pow(2) / (p.alpha - 2)
    result = -p.entropy() + _of_normal(q, mean, variance + mean.pow(2))
    return result.masked_fill(p.alpha <= 2, math.inf)


def _mean_log(low: Any, high: Any) -> Any:
    """The mean logarithm between two bounds."""
    return (_x_log_x(high) - _x_log_x(low)) / (high - low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    log, log_rest = _mean_log(p.low, p.high), _mean_log(1 - p.high, 1 - p.low)
    norm = _log_beta(q.concentration1, q.concentration0)
    result = norm - p.entropy() - (q.concentration1 - 1) * log - (q.concentration0 - 1) * log_rest
    return result.masked_fill((p.high > 1) | (p.low < 0), math.inf)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous(p: Any, q: Any) -> Any:
    result = -p.entropy() + _of_continuous(q, p.mean)
    return torch.where((p.high >= 1) | (p.low <= 0), math.inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Any:
    result = q.rate * p.mean - ((p.high - p.low) * q.rate).log()
    return result.masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Any:
    result = -p.entropy() + _of_gamma(q, _mean_log(p.low, p.high), p.mean)
    return result.masked_fill(p.low < 0, math.inf)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Any:
    share = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return share.log() + 0.5 * (high + low) - share * (torch.exp(-high) - torch.exp(-low))


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _of_normal(q, p.mean, p.variance + p.mean.pow(2))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    result = (q.alpha + 1) * _mean_log(p.low, p.high) - (q.alpha * q.scale.pow(q.alpha) * (p.high - p.low)).log()
    return result.masked_fill(p.low < q.scale, math.inf)


__all__ = ["kl_divergence", "register_kl"]
