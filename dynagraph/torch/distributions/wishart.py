"""Covariances of normal vectors."""

from __future__ import annotations

import math
import warnings
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.chi2 import Chi2
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.exp_family import ExponentialFamily
from dynagraph.torch.distributions.multivariate_normal import factor_of
from dynagraph.torch.distributions.utils import Number, lazy_property, vec_to_tril_matrix


class Wishart(ExponentialFamily):
    """Sums of products ``x @ x.T`` of `df` normal vectors of a covariance."""

    support = constraints.positive_definite
    has_rsample = True
    _parameters = ("df", "covariance_matrix", "precision_matrix", "scale_tril")
    _mean_carrier_measure = 0

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ):  # fmt: skip
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = [name for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, matrix = given[0], matrices[given[0]]
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape, event_shape = matrix.shape[:-2], matrix.shape[-2:]
        if isinstance(df, Number):
            self.df = torch.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = torch.broadcast_shapes(batch_shape, df.shape)
            self.df = df.expand(batch_shape)
        n = event_shape[-1]
        if self.df.le(n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        if self.df.lt(n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.", stacklevel=2
            )
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_scale_tril = factor_of(name, matrix)
        self._dist_chi2 = self._squares()

    def _squares(self) -> Chi2:
        """What the squares of the factor's diagonal are distributed by."""
        factor, n = self._unbroadcasted_scale_tril, self._event_shape[-1]
        places = torch.arange(n, dtype=factor.dtype, device=factor.device)
        return Chi2(df=self.df.unsqueeze(-1) - places.expand((*self._batch_shape, -1)))

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1),
        }  # fmt: skip

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        batch_shape = torch.Size(batch_shape)
        whole = batch_shape + self.event_shape
        new.df = self.df.expand(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand(whole)
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand(whole))
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._dist_chi2 = new._squares()
        new._validate_args = self._validate_args
        return new

    def _matrices(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._matrices(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance of the vectors."""
        return self._matrices(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        identity = torch.eye(self._event_shape[-1], device=factor.device, dtype=factor.dtype)
        return self._matrices(torch.cholesky_solve(identity, factor))

    def _factor_of_mean(self, value: Any) -> Any:
        return value.expand(self._batch_shape).reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Any:
        return self._factor_of_mean(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return self._factor_of_mean(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        whole = self.covariance_matrix
        diagonal = whole.diagonal(dim1=-2, dim2=-1)
        return self._factor_of_mean(self.df) * (whole.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Any:
        n = self._event_shape[-1]
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        roots = roots.clamp(min=torch.finfo(roots.dtype).eps)
        below = torch.randn(
            (*sample_shape, *self._batch_shape, n * (n - 1) // 2), dtype=roots.dtype, device=roots.device
        )  # fmt: skip
        triangle = vec_to_tril_matrix(below, diag=-1) if n > 1 else torch.zeros((), dtype=roots.dtype, device=roots.device)
        factor = self._unbroadcasted_scale_tril @ (triangle + roots.diag_embed(dim1=-2, dim2=-1))
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Any:
        """By Bartlett's factors; what comes out singular is drawn again, `max_try_correction` times (10 by default)."""
        sample = self._bartlett_sampling(torch.Size(sample_shape))
        singular = ~self.support.check(sample)
        if singular.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not singular.any():
                break
            sample = torch.where(singular[..., None, None], self._bartlett_sampling(torch.Size(sample_shape)), sample)
            singular = ~self.support.check(sample)
        return sample

    def _half_log_det(self) -> Any:
        n = self._event_shape[-1]
        return n * math.log(2) / 2 + self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        nu, n = self.df, self._event_shape[-1]
        trace = torch.cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        level = (nu - n - 1) / 2 * torch.linalg.slogdet(value).logabsdet
        return -nu * self._half_log_det() - torch.mvlgamma(nu / 2, p=n) + level - trace / 2

    def entropy(self) -> Any:
        nu, n = self.df, self._event_shape[-1]
        places = torch.arange(n, dtype=nu.dtype, device=nu.device) / 2
        growth = torch.digamma((nu / 2).unsqueeze(-1) - places).sum(-1)
        return (n + 1) * self._half_log_det() + torch.mvlgamma(nu / 2, p=n) - (nu - n - 1) / 2 * growth + nu * n / 2

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (-torch.linalg.slogdet(-2 * x).logabsdet + math.log(2) * n) + torch.mvlgamma(half, p=n)


__all__ = ["Wishart"]
