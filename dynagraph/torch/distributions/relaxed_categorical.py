"""Vectors that nearly have a single one, and have gradients."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.categories import OfCategories
from dynagraph.torch.distributions.transformed_distribution import TransformedDistribution
from dynagraph.torch.distributions.transforms import ExpTransform
from dynagraph.torch.distributions.utils import broadcast_all, clamp_probs


class ExpRelaxedCategorical(OfCategories):
    """The logarithms of what `RelaxedOneHotCategorical` gives (Maddison et al. 2016; Jang et al. 2017)."""

    arg_constraints = constraints.regions(probs=constraints.simplex, logits=constraints.real_vector)
    support = constraints.real_vector  # what is computed of it has the sum 1
    has_rsample = True
    _parameters = ()
    _kept = ("temperature",)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self.temperature = temperature
        self._begin(Categorical(probs, logits), validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Any) -> Any:
        count = self._categorical._num_events
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        norm = torch.full_like(self.temperature, float(count)).lgamma() + self.temperature.log() * (count - 1)
        score = logits - value.mul(self.temperature)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + norm


class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors whose sum is 1, the nearer to a single one the lower the `temperature`; they have gradients by `probs`."""

    arg_constraints = constraints.regions(probs=constraints.simplex, logits=constraints.real_vector)
    support = constraints.simplex
    has_rsample = True
    _parameters = ()

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far from a single one the vectors are."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Logarithms of probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self.base_dist.probs


__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]
