"""Largest values."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import AffineTransform, ExpTransform
from dynagraph.torch.distributions.uniform import Uniform
from dynagraph.torch.distributions.utils import are_numbers, euler_constant


class Gumbel(TransformedDistribution):
    """Gumbel's numbers: of the distribution function ``exp(-exp(-(x - loc) / scale))``."""

    arg_constraints = constraints.regions(loc=constraints.real, scale=constraints.positive)
    support = constraints.real
    _parameters = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self._take(loc=loc, scale=scale)
        about = torch.finfo(self.loc.dtype)
        low, high = about.tiny, 1 - about.eps
        if not are_numbers(loc, scale):
            low, high = torch.full_like(self.loc, low), torch.full_like(self.loc, high)
        transforms = [
            ExpTransform().inv, AffineTransform(loc=0, scale=-torch.ones_like(self.scale)), ExpTransform().inv,
            AffineTransform(loc=loc, scale=-self.scale),
        ]  # fmt: skip
        super().__init__(Uniform(low, high, validate_args=validate_args), transforms, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def entropy(self) -> Any:
        return self.scale.log() + (1 + euler_constant)


__all__ = ["Gumbel"]
