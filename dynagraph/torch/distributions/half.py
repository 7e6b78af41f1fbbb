"""What distributions of absolute values have in common."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import AbsTransform


class Half(TransformedDistribution):
    """The absolute values of what `base` gives, which is symmetric around 0 and has a `scale`."""

    arg_constraints = constraints.regions(scale=constraints.positive)
    support = constraints.nonnegative
    has_rsample = True
    _parameters = ()

    def __init__(self, base: Any, validate_args: bool | None = None):
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Any:
        """The scale of what the absolute values are taken of."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        return torch.zeros_like(self.scale)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Any) -> Any:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
