"""``torch.nn.parallel``: modules whose batches are divided among devices or ranks."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.parallel.data_parallel import DataParallel, data_parallel
from dynagraph.torch.nn.parallel.parallel_apply import parallel_apply
from dynagraph.torch.nn.parallel.replicate import replicate
from dynagraph.torch.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]
# loaded when somebody asks for it, since it loads `torch.distributed`
__getattr__ = getattr_of(__name__, {"DistributedDataParallel": "dynagraph.torch.nn.parallel.distributed"})
