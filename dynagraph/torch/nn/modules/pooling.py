"""Pooling: one number from each window of 1, 2 or 3 dimensions.

Inputs are (N, C, *sizes) or (C, *sizes), results have other sizes. Windows of `kernel_size` begin every `stride` elements (by
default they lie side by side); `padding` is added on both sides of a dimension; each is a number, or one for each dimension:
``size' = floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1)``, rounded up with `ceil_mode`.
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import _pair, _single, _triple

# -- largest elements -------------------------------------------------------------------------------------------------


class _MaxPoolNd(Module):
    """The largest element of each window, and with `return_indices` its place; padding counts as minus infinity."""

    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]  # noqa: RUF012

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest of each window of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool2d(_MaxPoolNd):
    """The largest of each window of (N, C, H, W) or (C, H, W).

    >>> from dynagraph import torch
    >>> torch.nn.MaxPool2d((3, 2), stride=(2, 1))(torch.ones(20, 16, 50, 32)).shape
    torch.Size([20, 16, 24, 31])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool3d(_MaxPoolNd):
    """The largest of each window of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class _MaxUnpoolNd(Module):
    """The elements of a max pooling back at their places, given by `indices`; zeros elsewhere.  `forward` takes an `output_size`,
    as several sizes give pooled ones of one size."""

    def __init__(self, repeated: Any, kernel_size: Any, stride: Any, padding: Any) -> None:
        super().__init__()
        self.kernel_size = repeated(kernel_size)
        self.stride = repeated(kernel_size if stride is None else stride)
        self.padding = repeated(padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """What `MaxPool1d` took, back at its places.

    >>> from dynagraph import torch
    >>> found, indices = torch.nn.MaxPool1d(2, return_indices=True)(torch.tensor([[1.0, 2, 4, 3, 5]]))
    >>> torch.nn.MaxUnpool1d(2)(found, indices, output_size=(5,))
    tensor([[0., 2., 4., 0., 0.]])
    """

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__(_single, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """What `MaxPool2d` took, back at its places."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__(_pair, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """What `MaxPool3d` took, back at its places."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__(_triple, kernel_size, stride, padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _FractionalMaxPoolNd(Module):
    """The largest of windows whose places are drawn by chance (Graham 2014), so that the result has the size `output_size`, or
    `output_ratio` (between 0 and 1) times the input's."""

    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]  # noqa: RUF012

    def __init__(
        self, repeated: Any, kernel_size: Any, output_size: Any, output_ratio: Any, return_indices: bool, _random_samples: Any
    ) -> None:
        super().__init__()
        self.kernel_size, self.return_indices = repeated(kernel_size), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else repeated(output_size)
        self.output_ratio = None if output_ratio is None else repeated(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The largest of windows at random places of (N, C, H, W) or (C, H, W): so many, or a fraction of the sizes."""

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(_pair, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples
        )


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The largest of windows at random places of (N, C, D, H, W) or (C, D, H, W): so many, or a fraction of the sizes."""

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:  # fmt: skip
        if any(k <= 0 for k in _triple(kernel_size)):
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        super().__init__(_triple, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples
        )


# -- means and norms --------------------------------------------------------------------------------------------------


class _AvgPoolNd(Module):
    """The mean of each window; padding counts as zeros, or not at all where `count_include_pad` is False."""

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]  # noqa: RUF012

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L) or (C, L)."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = _single(kernel_size), _single(kernel_size if stride is None else stride)
        self.padding, self.ceil_mode, self.count_include_pad = _single(padding), ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolWithDivisor(_AvgPoolNd):
    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]  # noqa: RUF012

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window of (N, C, H, W) or (C, H, W); `divisor_override` divides sums in place of the window's size."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override
        )


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W); `divisor_override` divides sums in place of the window's size."""

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override
        )


class _LPPoolNd(Module):
    """``(sum of x^p)^(1/p)`` of each window, p = `norm_type`; without padding."""

    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]  # noqa: RUF012

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


# -- to a given size --------------------------------------------------------------------------------------------------


class _AdaptiveMaxPoolNd(Module):
    """The largest of windows that divide the input so that the result has the size `output_size`; None keeps a dimension's size."""

    __constants__ = ["output_size", "return_indices"]  # noqa: RUF012

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest of as many windows of (N, C, L) or (C, L) as are asked for."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest of as many windows of (N, C, H, W) or (C, H, W) as are asked for."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest of as many windows of (N, C, D, H, W) or (C, D, H, W) as are asked for."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPoolNd(Module):
    """The means of windows that divide the input so that the result has the size `output_size`; None keeps a dimension's size."""

    __constants__ = ["output_size"]  # noqa: RUF012

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of as many windows of (N, C, L) or (C, L) as are asked for."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of as many windows of (N, C, H, W) or (C, H, W) as are asked for.

    >>> from dynagraph import torch
    >>> torch.nn.AdaptiveAvgPool2d((None, 7))(torch.ones(1, 64, 10, 9)).shape
    torch.Size([1, 64, 10, 7])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of as many windows of (N, C, D, H, W) or (C, D, H, W) as are asked for."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip
