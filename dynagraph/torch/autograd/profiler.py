"""``torch.autograd.profiler``: marks of regions, which do nothing."""

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.profiler import kineto_available, record_function

__getattr__ = getattr_of(__name__)
__all__ = ["kineto_available", "record_function"]
