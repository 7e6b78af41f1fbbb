"""What distributions have that are given by probabilities, or by logarithms of odds."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.utils import lazy_property, logits_to_probs, probs_to_logits


class ByProbability(Distribution):
    """A distribution with `probs` or `logits`: one is given, the other computed when it is asked for."""

    _parameters: Any = ("probs", "logits")
    _kept: Any = ("_given",)
    _is_binary = True

    def _take_probability(self, probs: Any, logits: Any, **others: Any) -> Any:
        """Take the one that is given, and other parameters of its shape and dtype; gives the batch's shape."""
        self._given = given(probs, logits)
        value = probs if self._given == "probs" else logits
        if not others:
            return self._take(**{self._given: value})
        self._take(**others, **{self._given: value})
        for name in others:
            self.__dict__[name] = self.__dict__[name].type_as(self._param)
        return self._param.size()

    @lazy_property
    def logits(self) -> Any:
        """Logarithms of odds, or of probabilities."""
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._is_binary)

    @property
    def _param(self) -> Any:
        return self.__dict__[self._given]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)


def given(probs: Any, logits: Any) -> str:
    """Which of the two is given; ValueError where it is none or both."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return "logits" if probs is None else "probs"


__all__ = ["ByProbability", "given"]
