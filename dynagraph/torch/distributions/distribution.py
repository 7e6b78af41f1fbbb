"""What a distribution is."""

from __future__ import annotations

import warnings
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.core.arrays import any_wrong
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.utils import are_numbers, broadcast_all, lazy_property

_Size = torch.Size
_NONE = _Size()


class Distribution:
    """The base class of distributions: of a batch of them, each of which gives events of a shape.

    A subclass names its tensors in `_parameters`, those that are distributions in `_parts`, and what else its instances have in
    `_kept`: `expand` makes others of them.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    _parameters: tuple[str, ...] | None = None
    _parts: tuple[str, ...] = ()
    _kept: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether parameters and values are checked where `validate_args` is not given."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = _NONE, event_shape: Any = _NONE, validate_args: bool | None = None):
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        """Take parameters that broadcast to the batch's shape."""
        batch_shape = self._take(**parameters)
        Distribution.__init__(self, batch_shape, validate_args=validate_args)

    def _take(self, **parameters: Any) -> Any:
        given = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, given))
        return _Size() if are_numbers(*parameters.values()) else given[0].size()

    def _check_parameters(self) -> None:
        try:
            regions = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, region in regions.items():
            if constraints.is_dependent(region):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # it is computed of others
            value = getattr(self, name)
            if any_wrong((~region.check(value))._array):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to "
                    f"satisfy the constraint {region!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution for a larger batch, whose parameters are views."""
        home = next((c for c in type(self).__mro__ if "_parameters" in c.__dict__), Distribution)
        if self._parameters is None:
            raise NotImplementedError
        new = self._get_checked_instance(home, _instance)
        batch_shape = _Size(batch_shape)
        own = self.__dict__
        for name in self._parameters:
            if name in own:
                setattr(new, name, own[name].expand(batch_shape + own[name].shape[len(self._batch_shape) :]))
        for name in self._parts:
            setattr(new, name, own[name].expand(batch_shape))
        for name in self._kept:
            setattr(new, name, own[name])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Any:
        """The shape of the batch."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of what one distribution gives."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """The regions of the parameters, by their names."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The region of what it gives."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = _NONE) -> Any:
        """Draw values, of the shape ``sample_shape + batch_shape + event_shape``; they have no gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = _NONE) -> Any:
        """Draw values that have gradients by the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """Draw `n` values; deprecated."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(_Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of what is not above a value."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution, along a new first dimension; expanded to the batch."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy of each in the batch."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """The exponential of the entropy."""
        return torch.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = _NONE) -> Any:
        return _Size(_Size(sample_shape) + self._batch_shape + self._event_shape)

    def _enumerated(self, values: Any, expand: bool) -> Any:
        """Values along a new first dimension of the batch."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    def _validate_sample(self, value: Any) -> None:
        """ValueError where a value has not the shape, or is not in the region, of what the distribution gives."""
        if not isinstance(value, torch.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        actual, event = value.size(), self._event_shape
        if actual[len(actual) - len(event) :] != event:
            raise ValueError(f"The right-most size of value must match event_shape: {actual} vs {event}.")
        expected = self._batch_shape + event
        for i, j in zip(actual[::-1], expected[::-1]):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        if any_wrong((~support.check(value))._array):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also define a custom "
                ".expand() method."
            )
        return object.__new__(type(self))

    def __repr__(self) -> str:
        own = self.__dict__
        known = [name for name in self.arg_constraints if name in own]
        shown = (f"{name}: {own[name] if own[name].numel() == 1 else own[name].size()}" for name in known)
        return f"{type(self).__name__}({', '.join(shown)})"


__all__ = ["Distribution"]
