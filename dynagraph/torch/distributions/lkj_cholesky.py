"""Cholesky factors of correlations."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.beta import Beta
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.utils import broadcast_all


class LKJCholesky(Distribution):
    """Cholesky factors of correlations of `dim` numbers, of a density that is a power of the determinant.

    They are drawn by the onion method of Lewandowski, Kurowicka and Joe 2009.
    """

    arg_constraints = constraints.regions(concentration=constraints.positive)
    support = constraints.corr_cholesky
    _parameters = ("concentration",)
    _kept = ("dim",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        rows = torch.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        rows = torch.cat([rows.new_zeros((1,)), rows])
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(rows + 0.5, marginal.unsqueeze(-1) - 0.5 * rows)
        super().__init__(self.concentration.size(), torch.Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._beta = self._beta.expand((*new._batch_shape, self.dim))
        return new

    def sample(self, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            drawn = torch.randn(self._extended_shape(sample_shape), dtype=length.dtype, device=length.device).tril(-1)
            direction = drawn / drawn.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0
            rows = torch.sqrt(length) * direction
            left = torch.clamp(1 - torch.sum(rows**2, dim=-1), min=torch.finfo(rows.dtype).tiny)
            return rows + torch.diag_embed(left.sqrt())

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = torch.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        rest = self.dim - 1
        alpha = self.concentration + 0.5 * rest
        norm = 0.5 * rest * math.log(math.pi) + torch.mvlgamma(alpha - 0.5, rest) - torch.lgamma(alpha) * rest
        return torch.sum(order * diagonal.log(), dim=-1) - norm


__all__ = ["LKJCholesky"]
