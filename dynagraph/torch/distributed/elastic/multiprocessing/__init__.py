"""``torch.distributed.elastic.multiprocessing``: errors of processes that a launcher has started."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
