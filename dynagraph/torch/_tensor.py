"""``torch._tensor``: the Tensor by the module that PyTorch defines it in."""

from __future__ import annotations

from typing import Any

from dynagraph.torch._utils import _rebuild_from_type_v2 as _rebuild_from_type_v2
from dynagraph.torch.core.tensor import Tensor as Tensor
from dynagraph.torch.missing import getattr_of


def _convert(ret: Any, cls: type) -> Any:
    """Results, tensors in tuples and lists among them, as tensors of a subclass."""
    if cls is Tensor:
        return ret
    if isinstance(ret, Tensor) and not isinstance(ret, cls):
        return ret.as_subclass(cls)
    if isinstance(ret, (tuple, list)):
        return type(ret)(_convert(each, cls) for each in ret)
    return ret


__getattr__ = getattr_of(__name__)
