"""``torch.fx.experimental``: what libraries ask while they are traced."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
