"""``torch.distributed.optim``: optimizers whose states are divided among ranks."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = ["ZeroRedundancyOptimizer"]
