"""Fisher's F."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.gamma import Gamma


class FisherSnedecor(Distribution):
    """The ratio of two sums of squares, of `df1` and `df2` normal numbers, each divided by its count."""

    arg_constraints = constraints.regions(df1=constraints.positive, df2=constraints.positive)
    support = constraints.positive
    has_rsample = True
    _parameters = ("df1", "df2")
    _parts = ("_gamma1", "_gamma2")

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None):
        batch_shape = self._take(df1=df1, df2=df2)
        self._gamma1, self._gamma2 = Gamma(self.df1 * 0.5, self.df1), Gamma(self.df2 * 0.5, self.df2)
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return found.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Any:
        df2 = self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        above, below = (g.rsample(sample_shape).view(shape) for g in (self._gamma1, self._gamma2))
        tiny = torch.finfo(below.dtype).tiny
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        norm = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return norm + a * ratio.log() + (a - 1) * torch.log(value) - (a + b) * torch.log1p(ratio * value)


__all__ = ["FisherSnedecor"]
