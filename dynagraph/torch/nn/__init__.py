"""``torch.nn``: what models are made of."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.nn import functional as functional
from dynagraph.torch.nn import init as init

__getattr__ = _getattr_of(__name__)
