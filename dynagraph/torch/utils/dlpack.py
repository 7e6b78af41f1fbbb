"""``torch.utils.dlpack``: exchange of tensors with other libraries, without copies."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of

from_dlpack = NAMESPACES["torch"]["from_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of a tensor, which another library's from_dlpack takes once."""
    return tensor.__dlpack__()


__getattr__ = getattr_of(__name__)
__all__ = ["from_dlpack", "to_dlpack"]
