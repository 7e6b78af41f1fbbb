"""``torch.backends.mkldnn``: oneDNN is not used."""

from typing import Any

from dynagraph.torch.backends import _flags
from dynagraph.torch.backends.mkl import VERBOSE_OFF, VERBOSE_ON, verbose
from dynagraph.torch.missing import getattr_of

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"
VERBOSE_ON_CREATION = 2


def is_available() -> bool:
    """False: oneDNN is not used."""
    return False


def is_acl_available() -> bool:
    """False: Arm's library is not used."""
    return False


def set_flags(
    _enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None,
    _fp32_precision: str | None = "none",
) -> tuple[Any, ...]:  # fmt: skip
    """Set flags; gives what they were."""
    return _flags.set_flags(__name__, _named(_enabled, _deterministic, _allow_tf32, _fp32_precision))


def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none") -> Any:
    """A context in which flags are set."""
    return _flags.flags(__name__, _named(enabled, deterministic, allow_tf32, fp32_precision))


def _named(*values: Any) -> dict[str, Any]:
    return dict(zip(("enabled", "deterministic", "allow_tf32", "fp32_precision"), values))


__getattr__ = getattr_of(__name__)
__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "VERBOSE_ON_CREATION", "flags", "is_acl_available", "is_available", "set_flags", "verbose"]
