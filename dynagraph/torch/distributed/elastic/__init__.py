"""``torch.distributed.elastic``: what scripts use that a launcher may start again."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
