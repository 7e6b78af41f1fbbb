"""``torch.utils``"""

from __future__ import annotations

from typing import Any

from dynagraph.torch.missing import getattr_of


def set_module(obj: Any, mod: str) -> None:
    """Set what module an object says that it is from."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


__getattr__ = getattr_of(__name__)
__all__ = ["set_module"]
