"""Angles."""

from __future__ import annotations

import math
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.distributions import constraints
from dynagraph.torch.distributions.distribution import Distribution
from dynagraph.torch.distributions.utils import broadcast_all, lazy_property


class VonMises(Distribution):
    """Angles of a density in proportion to ``exp(concentration * cos(x - loc))``."""

    arg_constraints = constraints.regions(loc=constraints.real, concentration=constraints.positive)
    support = constraints.real
    has_rsample = False
    _parameters = ("loc", "concentration")

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, torch.Size(), validate_args)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        level = self.concentration * torch.cos(value - self.loc)
        return level - math.log(2 * math.pi) - _log_bessel(self.concentration, 0)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """One minus the length of the mean direction."""
        return 1 - (_log_bessel(self.concentration, 1) - _log_bessel(self.concentration, 0)).exp()

    @lazy_property
    def _proposal_r(self) -> Any:
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return torch.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = ()) -> Any:
        """By rejection from a wrapped Cauchy distribution (Best and Fisher 1979)."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            loc, k, r = self.loc.double(), self.concentration.double(), self._proposal_r
            found = torch.empty(shape, dtype=torch.double, device=loc.device)
            done = torch.zeros(shape, dtype=torch.bool, device=loc.device)
            while not done.all():
                u1, u2, u3 = torch.rand((3, *shape), dtype=torch.double, device=loc.device).unbind()
                z = torch.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                found = torch.where(accepted, (u3 - 0.5).sign() * f.acos(), found)
                done = done | accepted
            return ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)


# Abramowitz and Stegun 9.8.1 to 9.8.4: I0, I1 by (x / 3.75)**2 below 3.75; from there on sqrt(x) exp(-x) times them by 3.75 / x
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
)  # fmt: skip
_LARGE = (
    (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377),
    (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312, 0.01787654, -0.00420059),
)  # fmt: skip


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    found: Any = 0.0
    for c in reversed(coefficients):
        found = found * x + c
    return found


def _log_bessel(x: Any, order: int) -> Any:
    """The logarithm of a modified Bessel function of order 0 or 1, to single precision."""
    small = _polynomial((x / 3.75) ** 2, _SMALL[order])
    small = (x.abs() * small if order else small).log()
    large = x - 0.5 * x.log() + _polynomial(3.75 / x, _LARGE[order]).log()
    return torch.where(x < 3.75, small, large)


__all__ = ["VonMises"]
