"""Convolutions and transposed convolutions of 1, 2 and 3 dimensions."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import UninitializedParameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.lazy import LazyModuleMixin
from dynagraph.torch.nn.modules.linear import reset_by_fan
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import _pair, _reverse_repeat_tuple, _single, _triple, add_parameters

_PADDINGS = ("same", "valid")
_MODES = ("zeros", "reflect", "replicate", "circular")


def _either(names: tuple[str, ...]) -> str:
    return "{" + ", ".join(map(repr, names)) + "}"


class _ConvNd(Module):
    """The parameters of convolutions: weight (out_channels, in_channels / groups, *kernel_size), transposed (in_channels,
    out_channels / groups, *kernel_size); bias (out_channels,)."""

    __constants__ = [  # noqa: RUF012
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels", "kernel_size",
    ]  # fmt: skip
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...], padding: Any,
        dilation: tuple[int, ...], transposed: bool, output_padding: tuple[int, ...], groups: int, bias: bool, padding_mode: str,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in _PADDINGS:
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {_either(_PADDINGS)}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {_either(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding, self.groups, self.padding_mode = transposed, output_padding, groups, padding_mode
        self._reversed_padding_repeated_twice = self._border()
        add_parameters(self, device, dtype, weight=self._weight_shape(), bias=out_channels if bias else None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        return (first, second // self.groups, *self.kernel_size)

    def _border(self) -> Any:
        """The padding as `functional.pad` takes it: the last dimension first, of "same" the odd one behind."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        if self.padding == "valid":
            return [0, 0] * len(self.kernel_size)
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
        return [n for total in reversed(totals) for n in (total // 2, total - total // 2)]

    def reset_parameters(self) -> None:
        """Draw the parameters anew: evenly between -1/sqrt(n) and 1/sqrt(n), n = in_channels / groups times the kernel's size."""
        with no_grad():
            reset_by_fan(self.weight, self.bias)

    def extra_repr(self) -> str:
        n = len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", (0,) * len(self.padding)), ("dilation", (1,) * n), ("output_padding", (0,) * n)):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class Conv1d(_ConvNd):
    """Cross-correlation with a kernel: (N, C_in, L) or (C_in, L) to (N, C_out, L') or (C_out, L').

    ``L' = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1)``. Sizes are numbers or tuples, one for each
    dimension. `padding` may be "valid" (none) or "same" (the output is as large as the input); `padding_mode` "zeros", "reflect",
    "replicate" or "circular". With `groups` inputs and outputs are divided into so many groups, each convolved by itself.

    >>> from dynagraph import torch
    >>> torch.nn.Conv1d(16, 33, 3, stride=2)(torch.ones(20, 16, 50)).shape
    torch.Size([20, 33, 24])
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        padding = padding if isinstance(padding, str) else _single(padding)
        super().__init__(
            in_channels, out_channels, _single(kernel_size), _single(stride), padding, _single(dilation), False, (0,), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return F.conv1d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv2d(_ConvNd):
    """Cross-correlation with a kernel: (N, C_in, H, W) or (C_in, H, W) to (N, C_out, H', W') or (C_out, H', W').

    Arguments and sizes are those of `Conv1d`, in each dimension.

    >>> from dynagraph import torch
    >>> torch.nn.Conv2d(16, 33, (3, 5), stride=(2, 1), padding=(4, 2), dilation=(3, 1))(torch.ones(2, 16, 50, 100)).shape
    torch.Size([2, 33, 26, 100])
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        padding = padding if isinstance(padding, str) else _pair(padding)
        super().__init__(
            in_channels, out_channels, _pair(kernel_size), _pair(stride), padding, _pair(dilation), False, (0, 0), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return F.conv2d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv3d(_ConvNd):
    """Cross-correlation with a kernel: (N, C_in, D, H, W) or (C_in, D, H, W) to (N, C_out, D', H', W') or (C_out, D', H', W').

    Arguments and sizes are those of `Conv1d`, in each dimension.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        padding = padding if isinstance(padding, str) else _triple(padding)
        super().__init__(
            in_channels, out_channels, _triple(kernel_size), _triple(stride), padding, _triple(dilation), False, (0, 0, 0), groups,
            bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return F.conv3d(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {self.__class__.__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any, num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:  # fmt: skip
        """How much is added to the smallest output so that it has the size that is asked for."""
        if output_size is None:
            return self.output_padding
        n = num_spatial_dims
        before = 2 if input.dim() == n + 2 else 1  # dimensions of the batch and the channels
        if len(output_size) == before + n:
            output_size = output_size[before:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {before + n} elements "
                f"(got {len(output_size)})"
            )
        smallest = [
            (input.size(before + d) - 1) * stride[d] - 2 * padding[d] + (dilation[d] if dilation else 1) * (kernel_size[d] - 1) + 1
            for d in range(n)
        ]
        largest = [size + s - 1 for size, s in zip(smallest, stride)]
        if any(size < low or size > high for size, low, high in zip(output_size, smallest, largest)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {smallest} to {largest} (for an input of "
                f"{input.size()[2:]})"
            )
        return [size - low for size, low in zip(output_size, smallest)]


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of `Conv1d` by its input, as a layer: (N, C_in, L) or (C_in, L) to (N, C_out, L') or (C_out, L').

    ``L' = (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1``. `forward` takes an `output_size`, from
    which `output_padding` follows: with a stride several sizes have the same convolution.

    >>> from dynagraph import torch
    >>> up = torch.nn.ConvTranspose1d(2, 3, 3, stride=2)
    >>> up(torch.ones(1, 2, 4)).shape, up(torch.ones(1, 2, 4), output_size=(10,)).shape
    (torch.Size([1, 3, 9]), torch.Size([1, 3, 10]))
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, _single(kernel_size), _single(stride), _single(padding), _single(dilation), True,
            _single(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 1, self.dilation)
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of `Conv2d` by its input, as a layer; sizes are those of `ConvTranspose1d`, in each dimension."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, _pair(kernel_size), _pair(stride), _pair(padding), _pair(dilation), True,
            _pair(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of `Conv3d` by its input, as a layer; sizes are those of `ConvTranspose1d`, in each dimension."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, _triple(kernel_size), _triple(stride), _triple(padding), _triple(dilation), True,
            _triple(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 3, self.dilation)
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)


# -- whose channels follow from the first input ------------------------------------------------------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """Lazy convolutions: `in_channels` is the size of the dimension of channels of the first input."""

    def _without_sizes(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[safe-super]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        single = len(self.kernel_size) + 1
        if input.dim() not in (single, single + 1):
            raise RuntimeError(
                f"Expected {single}D (unbatched) or {single + 1}D (batched) input to {self.__class__.__name__}, but got input of "
                f"size: {input.shape}"
            )
        return input.shape[0 if input.dim() == single else 1]

    def _get_num_spatial_dims(self) -> int:
        return len(self.kernel_size)


def _lazy_conv(kind: type[_ConvNd]) -> type[Any]:
    def init(
        self: Any, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super(_LazyConvXdMixin, self).__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype
        )
        self._without_sizes(out_channels, bias, device, dtype)

    return _lazy(kind, init)


def _lazy_transposed(kind: type[_ConvNd]) -> type[Any]:
    def init(
        self: Any, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super(_LazyConvXdMixin, self).__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._without_sizes(out_channels, bias, device, dtype)

    return _lazy(kind, init)


def _lazy(kind: type[_ConvNd], init: Any) -> type[Any]:
    name = f"Lazy{kind.__name__}"
    init.__name__, init.__qualname__ = "__init__", f"{name}.__init__"
    doc = f"A `{kind.__name__}` that learns `in_channels` from its first input."
    members = {"__init__": init, "__doc__": doc, "__module__": __name__, "cls_to_become": kind}
    return type(name, (_LazyConvXdMixin, kind), members)


LazyConv1d, LazyConv2d, LazyConv3d = map(_lazy_conv, (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = map(
    _lazy_transposed, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip
