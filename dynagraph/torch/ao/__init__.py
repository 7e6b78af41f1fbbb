"""``torch.ao``: tensors are not quantized; what marks models for it is there."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
