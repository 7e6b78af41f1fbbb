"""Exponential families: ``p(x) = exp(parameters * statistics(x) - normalizer(parameters) + carrier(x))``."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions.distribution import Distribution


class ExponentialFamily(Distribution):
    """A family whose entropy, and divergence between two of it, follow from its normalizer (Nielsen and Nock 2010)."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def _normalizer_and_means(self) -> tuple[list[Any], Any, Any]:
        """The natural parameters as leaves, the normalizer, and its gradients: the means of the statistics."""
        leaves = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*leaves)
        return leaves, normalizer, torch.autograd.grad(normalizer.sum(), leaves, create_graph=True)

    def entropy(self) -> Any:
        """By the normalizer."""
        leaves, normalizer, means = self._normalizer_and_means()
        result = normalizer - self._mean_carrier_measure
        for leaf, mean in zip(leaves, means):
            result = result - (leaf * mean).reshape(self._batch_shape + (-1,)).sum(-1)
        return result


__all__ = ["ExponentialFamily"]
