"""``torch._subclasses``: tensors without memory are none of ours."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
