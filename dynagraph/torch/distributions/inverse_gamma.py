"""Reciprocals of gamma numbers."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.gamma import Gamma
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import PowerTransform


class InverseGamma(TransformedDistribution):
    """The reciprocals of what ``Gamma(concentration, rate)`` gives."""

    arg_constraints = constraints.regions(concentration=constraints.positive, rate=constraints.positive)
    support = constraints.positive
    has_rsample = True
    _parameters = ()

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self) -> Any:
        """The concentration of the reciprocals."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """The rate of the reciprocals."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        return torch.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        found = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return torch.where(self.concentration > 2, found, math.inf)

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


__all__ = ["InverseGamma"]
