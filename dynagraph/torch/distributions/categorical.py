"""Choices among several."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.probabilities import ByProbability, given


class Categorical(ByProbability):
    """Integers from 0 on, with probabilities in proportion to the last dimension of `probs`, or of the exponentials of `logits`."""

    arg_constraints = constraints.regions(probs=constraints.simplex, logits=constraints.real_vector)
    has_enumerate_support = True
    _parameters = ("probs", "logits")
    _kept = ("_given", "_num_events")
    _is_binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._given = given(probs, logits)
        value = probs if self._given == "probs" else logits
        if value.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        if self._given == "probs":
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = value.size()[-1]
        super().__init__(value.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def _nan(self) -> Any:
        return torch.full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mean(self) -> Any:
        return self._nan()

    @property
    def mode(self) -> Any:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Any:
        return self._nan()

    def sample(self, sample_shape: Any = ()) -> Any:
        rows = self.probs.reshape(-1, self._num_events)
        drawn = torch.multinomial(rows, torch.Size(sample_shape).numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        places, levels = torch.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return levels.gather(-1, places[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        levels = torch.clamp(self.logits, min=torch.finfo(self.logits.dtype).min)
        return -(levels * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        return self._enumerated(torch.arange(self._num_events, dtype=torch.long, device=self._param.device), expand)


__all__ = ["Categorical"]
