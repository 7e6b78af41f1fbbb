"""What distributions have that are made of a categorical one."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.distribution import Distribution


class OfCategories(Distribution):
    """A distribution of vectors over the choices of `_categorical`."""

    _parameters: Any = ()
    _parts: Any = ("_categorical",)
    _categorical: Categorical

    def _begin(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        Distribution.__init__(self, categorical.batch_shape, categorical.param_shape[-1:], validate_args=validate_args)

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Logarithms of probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)


__all__ = ["OfCategories"]
