"""Padding of the last 1, 2 or 3 dimensions.

`padding` is one number for all sides, or two for each dimension, the last dimension first: (left, right, top, bottom, front, back).
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.batchnorm import check_dims
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import _ntuple


class _Pad(Module):
    """Padding of `_dims` dimensions by a mode of `functional.pad`."""

    __constants__ = ["padding"]  # noqa: RUF012
    _dims = 1

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPadNd(_Pad):
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "reflect")


class ReflectionPad1d(_ReflectionPadNd):
    """(N, C, W) or (C, W) padded by its reflection at the border, which is not repeated itself.

    >>> from dynagraph import torch
    >>> torch.nn.ReflectionPad1d(2)(torch.arange(4.0).reshape(1, 4))
    tensor([[2., 1., 0., 1., 2., 3., 2., 1.]])
    """


class ReflectionPad2d(_ReflectionPadNd):
    """(N, C, H, W) or (C, H, W) padded by its reflection at the border."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """(N, C, D, H, W) or (C, D, H, W) padded by its reflection at the border."""

    _dims = 3


class _ReplicationPadNd(_Pad):
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "replicate")


class ReplicationPad1d(_ReplicationPadNd):
    """(N, C, W) or (C, W) padded by the elements at the border.

    >>> from dynagraph import torch
    >>> torch.nn.ReplicationPad1d((3, 1))(torch.arange(4.0).reshape(1, 4))
    tensor([[0., 0., 0., 0., 1., 2., 3., 3.]])
    """


class ReplicationPad2d(_ReplicationPadNd):
    """(N, C, H, W) or (C, H, W) padded by the elements at the border."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """(N, C, D, H, W) or (C, D, H, W) padded by the elements at the border."""

    _dims = 3


class _CircularPadNd(_Pad):
    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, self._dims + 1, self._dims + 2)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")


class CircularPad1d(_CircularPadNd):
    """(N, C, W) or (C, W) padded as if it were repeated.

    >>> from dynagraph import torch
    >>> torch.nn.CircularPad1d((3, 1))(torch.arange(4.0).reshape(1, 4))
    tensor([[1., 2., 3., 0., 1., 2., 3., 0.]])
    """


class CircularPad2d(_CircularPadNd):
    """(N, C, H, W) or (C, H, W) padded as if it were repeated."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """(N, C, D, H, W) or (C, D, H, W) padded as if it were repeated."""

    _dims = 3


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]  # noqa: RUF012

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """The last dimension padded with a number; negative padding takes elements away."""


class ConstantPad2d(_ConstantPadNd):
    """The last 2 dimensions padded with a number; negative padding takes elements away."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """The last 3 dimensions padded with a number; negative padding takes elements away."""

    _dims = 3


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """The last dimension padded with zeros; negative padding takes elements away."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """The last 2 dimensions padded with zeros; negative padding takes elements away."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """The last 3 dimensions padded with zeros; negative padding takes elements away."""


__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d",
]  # fmt: skip
