"""``torch.distributed.tensor``: tensors of which every rank has a part.

What `fully_shard` makes parameters of.  There is no arithmetic of whole tensors here: `to_local` gives this rank's part,
`full_tensor` the whole.
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch.distributed.tensor.sharded import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from dynagraph.torch.missing import getattr_of

__getattr__: Any = getattr_of(__name__)
__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"]
