"""``torch.distributed.nn``: collectives that gradients pass through."""

from dynagraph.torch.distributed.nn import functional as functional
from dynagraph.torch.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)  # fmt: skip
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "functional", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip
