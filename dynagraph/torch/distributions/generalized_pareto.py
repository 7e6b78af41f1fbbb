"""What exceeds a threshold."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.distribution import Distribution


class GeneralizedPareto(Distribution):
    """Numbers above `loc`, of a tail that falls as a power; `concentration` is 0 where it falls exponentially."""

    arg_constraints = constraints.regions(loc=constraints.real, scale=constraints.positive, concentration=constraints.real)
    has_rsample = True
    _parameters = ("loc", "scale", "concentration")

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None):
        self._set(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        highest = torch.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, highest)

    def _exponential(self) -> tuple[Any, Any]:
        """Where the tail falls exponentially, and the concentration with 1 at these places."""
        zero = torch.isclose(self.concentration, torch.zeros_like(self.concentration))
        return zero, torch.where(zero, torch.ones_like(self.concentration), self.concentration)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, c = self._exponential()
        power = 1 / c + torch.ones_like(z)
        fall = torch.where(power == 0, power, power * torch.log1p(c * z))
        return -self.scale.log() - torch.where(zero, z, fall)

    def log_survival_function(self, value: Any) -> Any:
        """The logarithm of the probability of what is above a value."""
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, c = self._exponential()
        return torch.where(zero, -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of `cdf`."""
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return torch.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        zero, c = self._exponential()
        left = torch.log1p(-value)
        return torch.where(zero, self.loc - self.scale * left, self.loc + self.scale / c * torch.expm1(-c * left))

    @property
    def mean(self) -> Any:
        exists = self.concentration < 1
        found = self.loc + self.scale / (1 - torch.where(exists, self.concentration, 0.5))
        return torch.where(exists, found, math.nan)

    @property
    def variance(self) -> Any:
        exists = self.concentration < 0.5
        c = torch.where(exists, self.concentration, 0.25)
        return torch.where(exists, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    def entropy(self) -> Any:
        return torch.broadcast_to(torch.log(self.scale) + self.concentration + 1, self._batch_shape)


__all__ = ["GeneralizedPareto"]
