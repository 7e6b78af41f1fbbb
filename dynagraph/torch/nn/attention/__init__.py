"""``torch.nn.attention``: which kernels may compute attention.  One does here, so these choices are kept, and change nothing."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dynagraph.torch.core.attention_flags import ENABLED
from dynagraph.torch.missing import getattr_of

WARN_FOR_UNFUSED_KERNELS = False
_logger = logging.getLogger(__name__)


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of scaled dot product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __str__(self) -> str:
        return f"SDPBackend.{self.name}"


_FLAGS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "overrideable": SDPBackend.OVERRIDEABLE,
}
_priority = [1, 2, 0, 3, 4]


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    found = [backend for name, backend in _FLAGS.items() if ENABLED[name]]
    return sorted(found, key=lambda backend: _priority.index(int(backend))) if with_priority else found


def _set(backends: list[SDPBackend], set_priority: bool) -> None:
    for name, backend in _FLAGS.items():
        ENABLED[name] = backend in backends
    if set_priority:
        first = [int(backend) for backend in backends]
        _priority[:] = first + [number for number in _priority if number not in first]


@contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """A context in which these are the ones that may be used, and with `set_priority` in this order.

    >>> from dynagraph.torch.nn.attention import SDPBackend, sdpa_kernel
    >>> from dynagraph import torch
    >>> x = torch.ones(1, 2, 3, 4)
    >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    ...     y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends).__name__}"
        )
    before = _cur_sdpa_kernel_backends(set_priority)
    chosen = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends))
    try:
        _set(chosen, set_priority)
        yield {}
    finally:
        _set(before, set_priority)


@contextmanager
def _sdpa_kernel_variadic(*backends: SDPBackend) -> Iterator[None]:
    with sdpa_kernel(list(backends)):
        yield


# -- flash attention by others ----------------------------------------------------------------------------------------------------

_implementations: dict[str, Callable[[], Any]] = {}
_active: list[tuple[str, Any]] = []  # at most one


def register_flash_attention_impl(impl: str, *, register_fn: Callable[[], Any]) -> None:
    """Name what makes an implementation the one in use; it gives None, or a handle whose `remove` takes it back."""
    _implementations[impl] = register_fn


def list_flash_attention_impls() -> list[str]:
    """The names that there are."""
    return sorted(_implementations)


def activate_flash_attention_impl(impl: str) -> None:
    """Have an implementation in use."""
    restore_flash_attention_impl(_raise_warn=False)
    if impl not in _implementations:
        raise ValueError(f"Unknown flash attention impl '{impl}'. Available implementations: {list_flash_attention_impls()}")
    handle = _implementations[impl]()
    if handle is not None:
        _active.append((impl, handle))


def current_flash_attention_impl() -> str | None:
    """The name of the one in use, or None."""
    return _active[0][0] if _active else None


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Take back what `activate_flash_attention_impl` did."""
    if _active:
        _active.pop()[1].remove()
    elif _raise_warn:
        _logger.warning("Trying to restore default FA2 impl when no custom impl was activated")


__all__ = [
    "WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "activate_flash_attention_impl", "current_flash_attention_impl",
    "list_flash_attention_impls", "register_flash_attention_impl", "restore_flash_attention_impl", "sdpa_kernel",
]  # fmt: skip
_OF_CUDA = ("SDPAParams", "can_use_efficient_attention", "can_use_flash_attention")
__getattr__ = getattr_of(__name__, dict.fromkeys(_OF_CUDA, "dynagraph.torch.backends.cuda"))
