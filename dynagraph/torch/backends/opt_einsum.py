"""``torch.backends.opt_einsum``: einsum finds its own order of products."""

from typing import Any

from dynagraph.torch.backends import _flags
from dynagraph.torch.missing import getattr_of

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: einsum finds its own order of products."""
    return False


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[Any, ...]:
    """Set flags; gives what they were."""
    return _flags.set_flags(__name__, {"enabled": _enabled, "strategy": _strategy})


def flags(enabled: bool | None = None, strategy: str | None = None) -> Any:
    """A context in which flags are set."""
    return _flags.flags(__name__, {"enabled": enabled, "strategy": strategy})


__getattr__ = getattr_of(__name__)
__all__ = ["flags", "is_available", "set_flags"]
