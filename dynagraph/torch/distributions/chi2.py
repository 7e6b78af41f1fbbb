"""Sums of squares of normal numbers."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.gamma import Gamma


class Chi2(Gamma):
    """The distribution of the sum of squares of `df` normal numbers."""

    arg_constraints = constraints.regions(df=constraints.positive)
    _parameters = ("concentration", "rate")

    def __init__(self, df: Any, validate_args: bool | None = None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Any:
        """How many numbers."""
        return self.concentration * 2


__all__ = ["Chi2"]
