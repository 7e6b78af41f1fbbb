"""``torch.distributed._composable.fsdp``: the older place of `fully_shard` and its policies."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
)
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method",
]  # fmt: skip
