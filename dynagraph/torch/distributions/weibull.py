"""Times until failure."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.exponential import Exponential
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import AffineTransform, PowerTransform
from dynagraph.torch.distributions.utils import euler_constant


class Weibull(TransformedDistribution):
    """Numbers of the distribution function ``1 - exp(-(x / scale)**concentration)``."""

    arg_constraints = constraints.regions(scale=constraints.positive, concentration=constraints.positive)
    support = constraints.positive
    _parameters = ("scale", "concentration")

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None):
        self._take(scale=scale, concentration=concentration)
        base = Exponential(torch.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        self.concentration_reciprocal = self.concentration.reciprocal()
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Weibull, _instance)
        new.scale, new.concentration = self.scale.expand(batch_shape), self.concentration.expand(batch_shape)
        TransformedDistribution.__init__(new, self.base_dist.expand(batch_shape), new._transforms(), validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Any:
        return self.scale * torch.exp(torch.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Any:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal()

    @property
    def variance(self) -> Any:
        r = self.concentration_reciprocal
        return self.scale.pow(2) * (torch.exp(torch.lgamma(1 + 2 * r)) - torch.exp(2 * torch.lgamma(1 + r)))

    def entropy(self) -> Any:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + torch.log(self.scale * r) + 1


__all__ = ["Weibull"]
