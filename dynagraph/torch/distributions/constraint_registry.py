"""Transforms from all numbers to a region: `biject_to` gives bijective ones, `transform_to` ones to optimize through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.distributions import constraints, transforms
from dynagraph.torch.distributions.constraints import Constraint
from dynagraph.torch.distributions.transforms import Transform
from dynagraph.torch.distributions.utils import Number

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Calling it with a region gives a transform to that; `register` adds kinds of regions."""

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Say what makes the transform to regions of a class; without `factory` this decorates it."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {kind}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _exponential_from(bound: Any, sign: int) -> Transform:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, sign)])


def _sigmoid_between(c: Any) -> Transform:
    if all(isinstance(b, Number) for b in (c.lower_bound, c.upper_bound)) and (c.lower_bound, c.upper_bound) == (0, 1):
        return transforms.SigmoidTransform()
    scaled = transforms.AffineTransform(c.lower_bound, c.upper_bound - c.lower_bound)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), scaled])


# regions, what both registries make of them, or what each does: (biject_to, transform_to)
_POSITIVE: Factory = lambda c: transforms.ExpTransform()  # noqa: E731
_CORRELATION: Factory = lambda c: transforms.CorrCholeskyTransform()  # noqa: E731
_DEFINITE: Factory = lambda c: transforms.PositiveDefiniteTransform()  # noqa: E731
_TABLE: list[tuple[Any, Factory | None, Factory | None]] = [
    *((c, _POSITIVE, _POSITIVE) for c in (constraints.positive, constraints.nonnegative)),
    *(
        (c, lambda c: _exponential_from(c.lower_bound, 1), lambda c: _exponential_from(c.lower_bound, 1))
        for c in (constraints.greater_than, constraints.greater_than_eq)
    ),
    (constraints.less_than, lambda c: _exponential_from(c.upper_bound, -1), lambda c: _exponential_from(c.upper_bound, -1)),
    *((c, _sigmoid_between, _sigmoid_between) for c in (constraints.interval, constraints.half_open_interval)),
    (constraints.real, lambda c: transforms.identity_transform, lambda c: transforms.identity_transform),
    (constraints.simplex, lambda c: transforms.StickBreakingTransform(), lambda c: transforms.SoftmaxTransform()),
    (constraints.lower_cholesky, None, lambda c: transforms.LowerCholeskyTransform()),
    *((c, None, _DEFINITE) for c in (constraints.positive_definite, constraints.positive_semidefinite)),
    (constraints.corr_cholesky, _CORRELATION, _CORRELATION),
]
for _region, _bijective, _any in _TABLE:
    if _bijective is not None:
        biject_to.register(_region, _bijective)
    if _any is not None:
        transform_to.register(_region, _any)


def _of_parts(registry: ConstraintRegistry) -> None:
    """Regions that are made of regions."""
    make = registry.register
    wide = transforms.IndependentTransform
    make(constraints.independent, lambda c: wide(registry(c.base_constraint), c.reinterpreted_batch_ndims))
    make(constraints.cat, lambda c: transforms.CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths))
    make(constraints.stack, lambda c: transforms.StackTransform([registry(part) for part in c.cseq], c.dim))


_of_parts(biject_to)
_of_parts(transform_to)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
