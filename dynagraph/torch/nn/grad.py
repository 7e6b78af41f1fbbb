"""``torch.nn.grad``: gradients of convolutions by their input and by their weight, as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.autograd import grad
from dynagraph.torch.core.grad_mode import enable_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F


def _by_input(name: str) -> Callable[..., Any]:
    def compute(
        input_size: Any, weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        with enable_grad():  # convolution is linear: its gradient is the same at any input
            x = weight.new_zeros(tuple(input_size)).requires_grad_()
            out = getattr(F, name)(x, weight.detach(), None, stride, padding, dilation, groups)
        return grad(out, x, grad_output)[0]

    compute.__name__ = compute.__qualname__ = f"{name}_input"
    compute.__doc__ = f"The gradient of `{name}` by its input, which has this size."
    return compute


def _by_weight(name: str) -> Callable[..., Any]:
    def compute(
        input: Tensor, weight_size: Any, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        with enable_grad():
            weight = input.new_zeros(tuple(weight_size)).requires_grad_()
            out = getattr(F, name)(input.detach(), weight, None, stride, padding, dilation, groups)
        return grad(out, weight, grad_output)[0]

    compute.__name__ = compute.__qualname__ = f"{name}_weight"
    compute.__doc__ = f"The gradient of `{name}` by its weight, which has this size."
    return compute


conv1d_input, conv2d_input, conv3d_input = map(_by_input, ("conv1d", "conv2d", "conv3d"))
conv1d_weight, conv2d_weight, conv3d_weight = map(_by_weight, ("conv1d", "conv2d", "conv3d"))

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]
