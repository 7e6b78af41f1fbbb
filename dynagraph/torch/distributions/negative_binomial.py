"""Successes before so many failures."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.gamma import Gamma
from dynagraph.torch.distributions.probabilities import ByProbability
from dynagraph.torch.distributions.utils import lazy_property


class NegativeBinomial(ByProbability):
    """How many trials succeed, with probability `probs`, before `total_count` have failed."""

    arg_constraints = constraints.regions(
        total_count=constraints.greater_than_eq(0), probs=constraints.half_open_interval(0.0, 1.0),
        logits=constraints.real,
    )  # fmt: skip
    support = constraints.nonnegative_integer
    _parameters = ("total_count", "probs", "logits")

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(self._take_probability(probs, logits, total_count=total_count), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.total_count * torch.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / torch.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(concentration=self.total_count, rate=torch.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            return torch.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, log_sigmoid = self.total_count, torch.nn.functional.logsigmoid
        norm = -torch.lgamma(n + value) + torch.lgamma(1.0 + value) + torch.lgamma(n)
        norm = norm.masked_fill(n + value == 0.0, 0.0)
        return n * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits) - norm


__all__ = ["NegativeBinomial"]
