"""Numbers between 0 and 1 that lean to one side."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.exp_family import ExponentialFamily
from dynagraph.torch.distributions.probabilities import ByProbability
from dynagraph.torch.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs


class ContinuousBernoulli(ByProbability, ExponentialFamily):
    """Numbers in [0, 1] of a density in proportion to ``probs**x * (1 - probs)**(1 - x)``.

    Between `lims`, where the closed forms divide by nearly zero, Taylor's series about one half are computed.
    """

    arg_constraints = constraints.regions(probs=constraints.unit_interval, logits=constraints.real)
    support = constraints.unit_interval
    has_rsample = True
    _parameters = ("probs", "logits")
    _kept = ("_given", "_lims")
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None
    ):
        batch_shape = self._take_probability(probs, logits)
        if probs is not None:
            if validate_args is not None and not self.arg_constraints["probs"].check(self.probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(batch_shape, validate_args=validate_args)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside_unstable_region(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        return torch.where(self._outside_unstable_region(), self.probs, self._lims[0] * torch.ones_like(self.probs))

    def _chosen(self, closed: Any, series: Any) -> Any:
        return torch.where(self._outside_unstable_region(), closed, series)

    def _cont_bern_log_norm(self) -> Any:
        p = self._cut_probs()
        low, high = torch.where(p <= 0.5, p, torch.zeros_like(p)), torch.where(p >= 0.5, p, torch.ones_like(p))
        distance = torch.where(p <= 0.5, torch.log1p(-2.0 * low), torch.log(2.0 * high - 1.0))
        closed = torch.log(torch.abs(torch.log1p(-p) - torch.log(p))) - distance
        x = torch.pow(self.probs - 0.5, 2)
        return self._chosen(closed, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Any:
        p = self._cut_probs()
        closed = p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - torch.log(p))
        x = self.probs - 0.5
        return self._chosen(closed, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * torch.pow(x, 2)) * x)

    @property
    def stddev(self) -> Any:
        return torch.sqrt(self.variance)

    @property
    def variance(self) -> Any:
        p = self._cut_probs()
        closed = p * (p - 1.0) / torch.pow(1.0 - 2.0 * p, 2) + 1.0 / torch.pow(torch.log1p(-p) - torch.log(p), 2)
        x = torch.pow(self.probs - 0.5, 2)
        return self._chosen(closed, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        u = torch.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        return self.icdf(u)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return -entropy + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut_probs()
        closed = (torch.pow(p, value) * torch.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        found = torch.where(value >= 1.0, torch.ones_like(value), self._chosen(closed, value))
        return torch.where(value <= 0.0, torch.zeros_like(value), found)

    def icdf(self, value: Any) -> Any:
        p = self._cut_probs()
        closed = (torch.log1p(-p + value * (2.0 * p - 1.0)) - torch.log1p(-p)) / (torch.log(p) - torch.log1p(-p))
        return self._chosen(closed, value)

    def entropy(self) -> Any:
        no, yes = torch.log1p(-self.probs), torch.log(self.probs)
        return self.mean * (no - yes) - self._cont_bern_log_norm() - no

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        stable = (x <= low) | (x > high)
        cut = torch.where(stable, x, low * torch.ones_like(x))
        closed = torch.log(torch.abs(torch.expm1(cut))) - torch.log(torch.abs(cut))
        return torch.where(stable, closed, 0.5 * x + torch.pow(x, 2) / 24.0 - torch.pow(x, 4) / 2880.0)


__all__ = ["ContinuousBernoulli"]
