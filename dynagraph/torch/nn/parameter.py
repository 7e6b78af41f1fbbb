"""``torch.nn.parameter``: parameters and buffers."""

from __future__ import annotations

from dynagraph.torch.core.parameter import Buffer as Buffer
from dynagraph.torch.core.parameter import Parameter as Parameter
from dynagraph.torch.core.parameter import UninitializedBuffer as UninitializedBuffer
from dynagraph.torch.core.parameter import UninitializedParameter as UninitializedParameter
from dynagraph.torch.core.parameter import UninitializedTensorMixin as UninitializedTensorMixin
from dynagraph.torch.core.parameter import is_lazy as is_lazy
from dynagraph.torch.missing import getattr_of

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"]
__getattr__ = getattr_of(__name__)
