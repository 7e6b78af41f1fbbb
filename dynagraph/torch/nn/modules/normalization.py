"""Normalization within each sample: over the last dimensions, groups of channels, neighbouring channels."""

from __future__ import annotations

import numbers
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters


def _shape_of(normalized_shape: Any) -> tuple[int, ...]:
    return (int(normalized_shape),) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)


class LayerNorm(Module):
    """``y = (x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimensions, those of `normalized_shape`.

    The variance is the biased one. Weight and bias have the shape `normalized_shape`; with ``elementwise_affine=False`` there are
    none. The result has the input's shape, (..., *normalized_shape).
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]  # noqa: RUF012
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape = self.normalized_shape if elementwise_affine else None
        add_parameters(self, device, dtype, weight=shape, bias=shape if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights one, biases zero."""
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """``y = (x - mean) / sqrt(variance + eps) * weight + bias``, mean and variance over each of `num_groups` groups of channels.

    (N, num_channels, ...) to the same shape; weight and bias are (num_channels,).
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]  # noqa: RUF012
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        shape = num_channels if affine else None
        add_parameters(self, device, dtype, weight=shape, bias=shape if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights one, biases zero."""
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """``y = x / sqrt(mean(x^2) + eps) * weight`` over the last dimensions, those of `normalized_shape`.

    `eps` None: that of the dtype. The result has the input's shape.
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]  # noqa: RUF012
    weight: Tensor | None

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        add_parameters(self, device, dtype, weight=self.normalized_shape if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights one."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """``y = x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta``: (N, C, ...) to the same shape."""

    __constants__ = ["size", "alpha", "beta", "k"]  # noqa: RUF012

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


__all__ = ["GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]
