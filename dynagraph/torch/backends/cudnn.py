"""``torch.backends.cudnn``: cuDNN is not used; its flags are kept, and change nothing."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.backends import _flags
from dynagraph.torch.missing import getattr_of

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"
depthwise_kernel = "auto"
_FLAGS = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision", "depthwise_kernel")


def version() -> int | None:
    """None: cuDNN is not used."""
    return None


def is_available() -> bool:
    """False: cuDNN is not used."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """False: cuDNN is not used."""
    return False


def set_flags(
    _enabled: bool | None = None, _benchmark: bool | None = None, _benchmark_limit: int | None = None,
    _deterministic: bool | None = None, _allow_tf32: bool | None = None, _fp32_precision: str | None = "none",
    _depthwise_kernel: str | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Set flags; gives what they were."""
    values = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision, _depthwise_kernel)
    return _flags.set_flags(__name__, dict(zip(_FLAGS, values)))


def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False, allow_tf32: bool = True,
    fp32_precision: str = "none", depthwise_kernel: str = "auto",
) -> Any:  # fmt: skip
    """A context in which flags are set."""
    values = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision, depthwise_kernel)
    return _flags.flags(__name__, dict(zip(_FLAGS, values)))


__getattr__ = getattr_of(__name__)
__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]
