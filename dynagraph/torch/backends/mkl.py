"""``torch.backends.mkl``: NumPy brings its own BLAS."""

from typing import Any

from dynagraph.torch.missing import getattr_of

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """False: matrix products are NumPy's."""
    return False


class verbose:
    """A context in which MKL would report its calls; there are none."""

    def __init__(self, enable: int):
        self.enable = enable

    def __enter__(self) -> "verbose":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


__getattr__ = getattr_of(__name__)
__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]
