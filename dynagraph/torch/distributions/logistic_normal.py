"""Shares of a whole, made of normal numbers."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.normal import Normal
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Vectors whose sum is 1, made of normal vectors by `StickBreakingTransform`."""

    arg_constraints = constraints.regions(loc=constraints.real, scale=constraints.positive)
    support = constraints.simplex
    has_rsample = True
    _parameters = ()

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Any:
        """The mean of the normal vectors."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviation of the normal vectors."""
        return self.base_dist.base_dist.scale


__all__ = ["LogisticNormal"]
