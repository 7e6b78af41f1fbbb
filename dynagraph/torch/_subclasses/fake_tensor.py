"""``torch._subclasses.fake_tensor``: libraries ask whether they are traced with tensors without memory."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.missing import getattr_of


def is_fake(x: Any) -> bool:
    """False: every tensor has memory."""
    return False


__getattr__ = getattr_of(__name__)
__all__ = ["is_fake"]
