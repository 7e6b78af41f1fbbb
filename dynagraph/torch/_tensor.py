"""``torch._tensor``: the Tensor by the module that PyTorch defines it in."""

from __future__ import annotations

from dynagraph.torch._utils import _rebuild_from_type_v2 as _rebuild_from_type_v2
from dynagraph.torch.core.overriding import converted as _convert  # noqa: F401  (libraries call it)
from dynagraph.torch.core.tensor import Tensor as Tensor
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
