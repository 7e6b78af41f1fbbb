"""Failures before the first success."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.core.arrays import any_wrong
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.probabilities import ByProbability
from dynagraph.torch.distributions.utils import broadcast_all


class Geometric(ByProbability):
    """How many trials fail before the first succeeds, with probability `probs`."""

    arg_constraints = constraints.regions(probs=constraints.unit_interval, logits=constraints.real)
    support = constraints.nonnegative_integer
    _parameters = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(self._take_probability(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None and any_wrong((self.probs <= 0)._array):
            value = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to be "
                f"positive but found invalid values:\n{value.data[value <= 0]}"
            )

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return torch.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            u = self.probs.new_empty(self._extended_shape(sample_shape)).uniform_(torch.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        failing = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


__all__ = ["Geometric"]
