"""Absolute values of normal numbers."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.distributions.half import Half
from dynagraph.torch.distributions.normal import Normal


class HalfNormal(Half):
    """The absolute values of what ``Normal(0, scale)`` gives."""

    _parameters = ()

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)


__all__ = ["HalfNormal"]
