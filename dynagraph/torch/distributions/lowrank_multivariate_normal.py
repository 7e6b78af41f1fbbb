"""Normal vectors whose covariance is a diagonal and a product of narrow matrices."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.multivariate_normal import mahalanobis, times
from dynagraph.torch.distributions.utils import _standard_normal, lazy_property


class LowRankMultivariateNormal(Distribution):
    """Normal vectors of mean `loc` and covariance ``cov_factor @ cov_factor.T + diag(cov_diag)``.

    Inverse and determinant are those of the small matrix ``1 + cov_factor.T @ diag(1 / cov_diag) @ cov_factor`` (Woodbury).
    """

    arg_constraints = constraints.regions(
        loc=constraints.real_vector, cov_factor=constraints.independent(constraints.real, 2),
        cov_diag=constraints.independent(constraints.positive, 1),
    )  # fmt: skip
    support = constraints.real_vector
    has_rsample = True
    _parameters = ("loc", "cov_factor", "cov_diag")
    _kept = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            wide = torch.broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_factor, self.cov_diag = wide[0][..., 0], wide[1], wide[2][..., 0]
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        small = torch.matmul(scaled(cov_factor, cov_diag), cov_factor)
        self._capacitance_tril = torch.linalg.cholesky(small + _identity(small))
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def _matrices(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The variance of each element."""
        found = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return found.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        roots = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        narrow = self._unbroadcasted_cov_factor / roots
        whole = torch.matmul(narrow, narrow.mT)
        return self._matrices(roots * torch.linalg.cholesky(whole + _identity(whole)))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._matrices(torch.matmul(factor, factor.mT) + torch.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        diagonal = self._unbroadcasted_cov_diag
        a = torch.linalg.solve_triangular(self._capacitance_tril, scaled(self._unbroadcasted_cov_factor, diagonal), upper=False)
        return self._matrices(torch.diag_embed(diagonal.reciprocal()) - a.mT @ a)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape, about = self._extended_shape(sample_shape), (self.loc.dtype, self.loc.device)
        narrow = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], *about)
        own = _standard_normal(shape, *about)
        return self.loc + times(self._unbroadcasted_cov_factor, narrow) + self._unbroadcasted_cov_diag.sqrt() * own

    def log_det(self) -> Any:
        """The logarithm of the covariance's determinant."""
        return 2 * self._capacitance_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) + self._unbroadcasted_cov_diag.log().sum(-1)

    def distance(self, x: Any) -> Any:
        """``x @ precision_matrix @ x``."""
        diagonal = self._unbroadcasted_cov_diag
        narrow = times(scaled(self._unbroadcasted_cov_factor, diagonal), x)
        return (x.pow(2) / diagonal).sum(-1) - mahalanobis(self._capacitance_tril, narrow)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self.log_det() + self.distance(value - self.loc))

    def entropy(self) -> Any:
        found = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.log_det())
        return found.expand(self._batch_shape) if self._batch_shape else found


def scaled(factor: Any, diagonal: Any) -> Any:
    """``factor.T @ diag(1 / diagonal)``."""
    return factor.mT / diagonal.unsqueeze(-2)


def _identity(like: Any) -> Any:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


__all__ = ["LowRankMultivariateNormal", "scaled"]
