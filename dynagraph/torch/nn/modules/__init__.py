"""``torch.nn.modules``: the layers, each in the module of its family."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules.module import Module as Module

__all__ = ["Module"]
__getattr__ = getattr_of(__name__)
