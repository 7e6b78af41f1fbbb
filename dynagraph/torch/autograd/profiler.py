"""``torch.autograd.profiler``: marks of regions, as in `torch.profiler`."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.profiler import record_function

__getattr__ = getattr_of(__name__)
__all__ = ["record_function"]
