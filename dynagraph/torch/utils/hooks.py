"""``torch.utils.hooks``"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.nodes import Removable as RemovableHandle
from dynagraph.torch.missing import getattr_of


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a hook: a warning says that it is not stored with its tensor."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn of hooks that are not stored with a tensor."""
    hooks = getattr(tensor, "_backward_hooks", None)
    for hook in () if not hooks else hooks.values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function "
                "with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )


__getattr__ = getattr_of(__name__)
__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
