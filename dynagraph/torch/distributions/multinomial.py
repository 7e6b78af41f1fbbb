"""Counts of choices."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.binomial import Binomial
from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.categories import OfCategories
from dynagraph.torch.distributions.utils import broadcast_all


class Multinomial(OfCategories):
    """How often each of several is chosen in `total_count` choices."""

    arg_constraints = constraints.regions(probs=constraints.simplex, logits=constraints.real_vector)
    _parameters = ()
    _kept = ("total_count",)

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._begin(Categorical(probs=probs, logits=logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        sample_shape = torch.Size(sample_shape)
        drawn = self._categorical.sample(torch.Size((self.total_count,)) + sample_shape)
        places = drawn.permute(*range(1, drawn.dim()), 0)
        counts = places.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add_(-1, places, torch.ones_like(places)).type_as(self.probs)

    def entropy(self) -> Any:
        n = torch.tensor(self.total_count)
        each = Binomial(total_count=self.total_count, probs=self.probs)
        counts = each.enumerate_support(expand=False)[1:]
        weights = torch.exp(each.log_prob(counts)) * torch.lgamma(counts + 1)
        return n * self._categorical.entropy() - torch.lgamma(n + 1) + weights.sum([0, -1])

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)


__all__ = ["Multinomial"]
