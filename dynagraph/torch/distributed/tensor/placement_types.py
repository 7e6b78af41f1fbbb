"""``torch.distributed.tensor.placement_types``: how tensors lie on ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dynagraph.torch.distributed.tensor.sharded import Partial, Placement, Replicate, Shard
from dynagraph.torch.missing import getattr_of


@dataclass(frozen=True, repr=False)
class _StridedShard(Placement):
    """Parts of each of `split_factor` parts along a dimension, as libraries name it; `distribute_tensor` does not divide so."""

    dim: int
    split_factor: int = field(kw_only=True)

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


__getattr__: Any = getattr_of(__name__)
__all__ = ["Partial", "Placement", "Replicate", "Shard"]
