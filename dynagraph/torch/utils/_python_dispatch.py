"""``torch.utils._python_dispatch``: there are no wrappers of tensors below autograd."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.missing import getattr_of


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: there are no wrappers of tensors."""
    return False


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """False: there are no such modes."""
    return False


def _get_current_dispatch_mode() -> None:
    """None: there are no such modes."""


__getattr__ = getattr_of(__name__)
__all__ = ["is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass"]
