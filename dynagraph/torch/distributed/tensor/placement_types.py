"""``torch.distributed.tensor.placement_types``: how tensors lie on ranks."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.tensor.sharded import Partial, Placement, Replicate, Shard
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = ["Partial", "Placement", "Replicate", "Shard"]
