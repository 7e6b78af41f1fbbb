"""``torch.distributed._tensor``: what `torch.distributed.tensor` was called before."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
