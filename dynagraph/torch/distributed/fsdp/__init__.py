"""``torch.distributed.fsdp``: modules whose parameters, gradients and optimizer states are divided among ranks."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.fsdp.modules import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from dynagraph.torch.distributed.fsdp.parameters import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method",
]  # fmt: skip
