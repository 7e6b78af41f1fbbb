"""Normal vectors."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.utils import _standard_normal, lazy_property


class MultivariateNormal(Distribution):
    """Normal vectors of mean `loc` and a covariance, which is given as such, by its inverse or by its Cholesky factor."""

    arg_constraints = constraints.regions(
        loc=constraints.real_vector, covariance_matrix=constraints.positive_definite,
        precision_matrix=constraints.positive_definite, scale_tril=constraints.lower_cholesky,
    )  # fmt: skip
    support = constraints.real_vector
    has_rsample = True
    _parameters = ("loc", "covariance_matrix", "precision_matrix", "scale_tril")
    _kept = ("_unbroadcasted_scale_tril",)

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"scale_tril": scale_tril, "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix}
        given = [name for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, matrix = given[0], matrices[given[0]]
        if matrix.dim() < 2:
            said = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{said} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)

    def _matrices(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._matrices(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._matrices(torch.matmul(self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._matrices(torch.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + times(self._unbroadcasted_scale_tril, _standard_normal(shape, self.loc.dtype, self.loc.device))

    def _half_log_det(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Any:
        found = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return found.expand(self._batch_shape) if self._batch_shape else found


# -- matrices of a batch ----------------------------------------------------------------------------------------------


def times(matrix: Any, vector: Any) -> Any:
    """Matrices times vectors."""
    return torch.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def mahalanobis(factor: Any, x: Any) -> Any:
    """The squared lengths of ``inverse(factor) @ x``, of Cholesky factors and vectors whose batches broadcast."""
    batch = torch.broadcast_shapes(factor.shape[:-2], x.shape[:-1])
    more = len(batch) - (factor.dim() - 2)
    if factor.shape[:-2] == batch[more:]:  # vectors along the first dimensions have one matrix: its columns
        columns = x.expand((*batch, x.shape[-1])).reshape((-1, *batch[more:], x.shape[-1])).movedim(0, -1)
        found = torch.linalg.solve_triangular(factor, columns, upper=False).pow(2).sum(-2)
        return found.movedim(-1, 0).reshape(batch)
    factor = factor.expand((*batch, *factor.shape[-2:]))
    return torch.linalg.solve_triangular(factor, x.expand((*batch, x.shape[-1])).unsqueeze(-1), upper=False).pow(2).sum((-2, -1))


def factor_of(name: str, matrix: Any) -> Any:
    """The Cholesky factor of the covariance that is given by a matrix of a name."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return torch.linalg.cholesky(matrix)
    turned = torch.linalg.cholesky(torch.flip(matrix, (-2, -1)))  # of the inverse from below: its inverse is the factor
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.solve_triangular(torch.flip(turned, (-2, -1)).mT, identity, upper=False)


__all__ = ["MultivariateNormal", "factor_of", "mahalanobis", "times"]
