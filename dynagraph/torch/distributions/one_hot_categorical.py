"""Choices as vectors with a single one."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.categories import OfCategories


class OneHotCategorical(OfCategories):
    """What `Categorical` gives, as vectors that have a one at the place of the choice."""

    arg_constraints = constraints.regions(probs=constraints.simplex, logits=constraints.real_vector)
    support = constraints.one_hot
    has_enumerate_support = True
    _parameters: Any = ()

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._begin(Categorical(probs, logits), validate_args)

    @property
    def _param(self) -> Any:
        return self._categorical._param

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return _one_hot(self.probs.argmax(dim=-1), num_classes=self.probs.shape[-1]).to(self.probs)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        return _one_hot(self._categorical.sample(sample_shape), self._categorical._num_events).to(self.probs)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self.event_shape[0]
        values = torch.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose choices have the gradients of the probabilities (Bengio et al. 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


_one_hot = torch.nn.functional.one_hot


__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]
