"""Mixtures."""

from __future__ import annotations

from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.categorical import Categorical
from dynagraph.torch.distributions.distribution import Distribution


class MixtureSameFamily(Distribution):
    """One of several distributions of a family, those along the last dimension of a batch, each with a probability."""

    arg_constraints: Any = constraints.regions()
    has_rsample = False
    _parameters = ()
    _kept = ("_num_component", "_event_ndims")

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        of_mixture, of_components = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for m, c in zip(of_mixture[::-1], of_components[::-1]):
            if m != 1 and c != 1 and m != c:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({of_mixture}) is not compatible with "
                    f"`component_distribution.batch_shape`({of_components})"
                )
        count, components = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if count != components:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` ({components})"
            )
        self._num_component, event_shape = count, component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(of_components, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand(new._batch_shape + (self._num_component,))
        new._mixture_distribution = self._mixture_distribution.expand(new._batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The probabilities of the components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _averaged(self, values: Any) -> Any:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return torch.sum(probs * values, dim=-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._averaged(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        away = self.component_distribution.mean - self._pad(self.mean)
        return self._averaged(self.component_distribution.variance) + self._averaged(away.pow(2.0))

    def cdf(self, x: Any) -> Any:
        return torch.sum(self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs, dim=-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        levels = self.component_distribution.log_prob(self._pad(x))
        return torch.logsumexp(levels + torch.log_softmax(self.mixture_distribution.logits, dim=-1), dim=-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with torch.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            places = chosen.reshape(chosen.shape + torch.Size([1] * (self._event_ndims + 1)))
            places = places.repeat(torch.Size([1] * (chosen.dim() + 1)) + self.event_shape)
            return torch.gather(drawn, dim, places).squeeze(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Any) -> Any:
        own, theirs = len(self.batch_shape), len(self.mixture_distribution.batch_shape)
        more = 0 if theirs == 1 else own - theirs
        return x.reshape(x.shape[:-1] + torch.Size(more * [1]) + x.shape[-1:] + torch.Size(self._event_ndims * [1]))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"


__all__ = ["MixtureSameFamily"]
