"""``torch.distributed._composable``: the older place of `fully_shard`."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.fsdp import fully_shard
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = ["fully_shard"]
