"""Absolute values of Cauchy's numbers."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions.cauchy import Cauchy
from dynagraph.torch.distributions.half import Half


class HalfCauchy(Half):
    """The absolute values of what ``Cauchy(0, scale)`` gives."""

    _parameters = ()

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Any:
        return torch.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return super().log_prob(torch.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device))


__all__ = ["HalfCauchy"]
