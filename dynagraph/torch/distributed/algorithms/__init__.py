"""``torch.distributed.algorithms``: uneven inputs, communication hooks."""

from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__: list[str] = []
