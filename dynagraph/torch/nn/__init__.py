"""``torch.nn``: what models are made of."""

from __future__ import annotations

from dynagraph.torch.nn import functional as functional
