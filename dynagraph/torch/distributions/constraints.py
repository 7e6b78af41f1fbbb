"""Regions of numbers, vectors and matrices: what parameters must be in, and what distributions give.

A constraint has `is_discrete`, `event_dim` (how many of the last dimensions it judges together) and ``check(value)``, which gives a
tensor of bools for each such event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import dynagraph.torch as torch


class Constraint:
    """A region."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Any:
        """For each event whether it is in the region."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}()"


# -- regions that are known with the distribution ---------------------------------------------------------------------


class _Dependent(Constraint):
    """A region that depends on other parameters."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _known(self, name: str) -> Any:
        value = getattr(self, f"_{name}")
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        return self._known("is_discrete")

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        return self._known("event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def regions(**by_name: Constraint) -> dict[str, Constraint]:
    """The regions of parameters, by their names."""
    return by_name


def is_dependent(constraint: Any) -> bool:
    """Whether a region depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of distributions that is a region; of the class it says what is known without an instance."""

    def __init__(self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


# -- regions of regions -----------------------------------------------------------------------------------------------


def _all_of(result: Any, dims: int) -> Any:
    """Whether all along the last dimensions are."""
    return result.reshape(result.shape[: result.dim() - dims] + (-1,)).all(-1)


def _asserted(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


class _IndependentConstraint(Constraint):
    """A region for each of several events that are judged together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        count = reinterpreted_batch_ndims
        kinds = type(base_constraint).__name__, type(count).__name__
        _asserted(isinstance(base_constraint, Constraint), f"base_constraint must be a Constraint, got {kinds[0]}")
        _asserted(isinstance(count, int), f"reinterpreted_batch_ndims must be an int, got {kinds[1]}")
        _asserted(count >= 0, f"reinterpreted_batch_ndims must be >= 0, got {count}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, count

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_of(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """What is in the region of all components of a mixture."""

    def __init__(self, base_constraint: Constraint):
        kind = type(base_constraint).__name__
        _asserted(isinstance(base_constraint, Constraint), f"base_constraint must be a Constraint, got {kind}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_of(result, result.dim() - (value.dim() - self.event_dim))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Several(Constraint):
    """Regions along a dimension."""

    def __init__(self, cseq: Iterable[Constraint], dim: int = 0):
        self.cseq, self.dim = list(cseq), dim
        _asserted(all(isinstance(c, Constraint) for c in self.cseq), "All elements of cseq must be Constraint instances")

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    def _check_dim(self, value: Any) -> None:
        inside = -value.dim() <= self.dim < value.dim()
        _asserted(inside, f"dim {self.dim} out of range for value with {value.dim()} dimensions")


class _Cat(_Several):
    """Regions of parts of a dimension, each of so many elements."""

    def __init__(self, cseq: Iterable[Constraint], dim: int = 0, lengths: Iterable[int] | None = None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        same = len(self.lengths) == len(self.cseq)
        _asserted(same, f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        parts = torch.split(value, self.lengths, self.dim)
        return torch.cat([c.check(v) for c, v in zip(self.cseq, parts)], self.dim)


class _Stack(_Several):
    """A region for each element of a dimension."""

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        return torch.stack([c.check(v) for c, v in zip(self.cseq, value.unbind(self.dim))], self.dim)


# -- numbers ----------------------------------------------------------------------------------------------------------


class _Bounded(Constraint):
    _bounds: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({', '.join(f'{name}={getattr(self, name)}' for name in self._bounds)})"


class _Above(_Bounded):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound


class _Below(_Bounded):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound


class _Between(_Bounded):
    _bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _IntegerInterval(_Between):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerLessThan(_Below):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value


class _GreaterThan(_Above):
    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _LessThan(_Below):
    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _Interval(_Between):
    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


# -- vectors ----------------------------------------------------------------------------------------------------------


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, x: Any) -> Any:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


# -- matrices ---------------------------------------------------------------------------------------------------------


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return (value.tril() == value).reshape(value.shape[:-2] + (-1,)).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Any) -> Any:
        tolerance = torch.finfo(value.dtype).eps * value.size(-1) * 10  # of so many additions
        lengths = torch.linalg.norm(value.detach(), dim=-1)
        return super().check(value) & (lengths - 1.0).abs().le(tolerance).all(dim=-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return torch.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=torch.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return torch.where(symmetric.all(), torch.linalg.eigvalsh(value).ge(0).all(-1), symmetric)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return torch.where(symmetric.all(), torch.linalg.cholesky_ex(value).info.eq(0), symmetric)


dependent, dependent_property, independent = _Dependent(), _DependentProperty, _IndependentConstraint
boolean, one_hot, real = _Boolean(), _OneHot(), _Real()
nonnegative_integer, positive_integer, integer_interval = _IntegerGreaterThan(0), _IntegerGreaterThan(1), _IntegerInterval
real_vector = independent(real, 1)
positive, nonnegative = _GreaterThan(0.0), _GreaterThanEq(0.0)
greater_than, greater_than_eq, less_than, multinomial = _GreaterThan, _GreaterThanEq, _LessThan, _Multinomial
unit_interval, interval, half_open_interval = _Interval(0.0, 1.0), _Interval, _HalfOpenInterval
simplex, lower_triangular, lower_cholesky, corr_cholesky = _Simplex(), _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _Cat, _Stack

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip
