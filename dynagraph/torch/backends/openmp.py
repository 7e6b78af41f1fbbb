"""``torch.backends.openmp``: threads are dynagraph's own."""

from dynagraph.torch.missing import getattr_of


def is_available() -> bool:
    """False: threads are dynagraph's own."""
    return False


__getattr__ = getattr_of(__name__)
__all__ = ["is_available"]
