"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import UninitializedParameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.lazy import LazyModuleMixin
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters


def reset_by_fan(weight: Tensor, bias: Tensor | None) -> None:
    """Draw a weight, then a bias, evenly between -1/sqrt(n) and 1/sqrt(n), where n is how many inputs an output has."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = init._calculate_fan_in_and_fan_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        init.uniform_(bias, -bound, bound)


class Identity(Module):
    """Gives its input; takes any arguments, and does nothing with them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``y = x A^T + b``: (..., in_features) to (..., out_features).

    The weight is (out_features, in_features), the bias (out_features,).

    >>> from dynagraph import torch
    >>> torch.nn.Linear(20, 30)(torch.ones(128, 20)).shape
    torch.Size([128, 30])
    """

    __constants__ = ["in_features", "out_features"]  # noqa: RUF012
    weight: Tensor
    bias: Tensor | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        add_parameters(self, device, dtype, weight=(out_features, in_features), bias=out_features if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew: evenly between -1/sqrt(in_features) and 1/sqrt(in_features)."""
        reset_by_fan(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under another name, which tools that quantize models leave alone."""


class Bilinear(Module):
    """``y = x1^T A x2 + b``: (..., in1_features) and (..., in2_features) to (..., out_features).

    The weight is (out_features, in1_features, in2_features), the bias (out_features,).
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]  # noqa: RUF012
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        shape = (out_features, in1_features, in2_features)
        add_parameters(self, device, dtype, weight=shape, bias=out_features if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew: evenly between -1/sqrt(in1_features) and 1/sqrt(in1_features)."""
        if self.in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={self.in1_features})")
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that learns `in_features` from its first input: the size of the last dimension."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            wanted, got = self.weight.shape[-1], input.shape[-1]
            if got != wanted:
                raise AssertionError(
                    f"The in_features inferred from input: {got} is not equal to in_features from self.weight: {wanted}"
                )
            self.in_features = got


__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]
