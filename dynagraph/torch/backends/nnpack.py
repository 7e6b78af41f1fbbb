"""``torch.backends.nnpack``: NNPACK is not used."""

from typing import Any

from dynagraph.torch.backends import _flags
from dynagraph.torch.missing import getattr_of

enabled = False


def is_available() -> bool:
    """False: NNPACK is not used."""
    return False


def set_flags(_enabled: bool) -> tuple[Any, ...]:
    """Set the flag; gives what it was."""
    return _flags.set_flags(__name__, {"enabled": _enabled})


def flags(enabled: bool = False) -> Any:
    """A context in which the flag is set."""
    return _flags.flags(__name__, {"enabled": enabled})


__getattr__ = getattr_of(__name__)
__all__ = ["flags", "is_available", "set_flags"]
