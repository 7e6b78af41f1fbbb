"""Activations: functions of each element, and softmax; the result has the input's shape.  MultiheadAttention is attention.py's."""

from __future__ import annotations

import warnings
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init as _init
from dynagraph.torch.nn.modules.attention import MultiheadAttention
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters


class _MayBeInPlace(Module):
    """Activations whose one argument is `inplace`: whether the input itself is changed."""

    __constants__ = ["inplace"]  # noqa: RUF012

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


def _and_inplace(module: Any) -> str:
    return ", inplace=True" if module.inplace else ""


class ReLU(_MayBeInPlace):
    """``max(x, 0)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SiLU(_MayBeInPlace):
    """``x * sigmoid(x)``, also known as swish"""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_MayBeInPlace):
    """``x * tanh(softplus(x))``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class SELU(_MayBeInPlace):
    """``scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0))`` with the two numbers that keep mean 0 and variance 1 (Klambauer et al.
    2017): alpha = 1.6732632..., scale = 1.0507009..."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardsigmoid(_MayBeInPlace):
    """``min(max(x / 6 + 1/2, 0), 1)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_MayBeInPlace):
    """``x * hardsigmoid(x)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Tanh(Module):
    """``tanh(x)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class LogSigmoid(Module):
    """``log(1 / (1 + exp(-x)))``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """``x / (1 + |x|)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """``x - tanh(x)``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Threshold(Module):
    """``x`` where it is above `threshold`, otherwise `value`"""

    __constants__ = ["threshold", "value", "inplace"]  # noqa: RUF012

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{_and_inplace(self)}"


class Hardtanh(Module):
    """``min(max(x, min_val), max_val)``"""

    __constants__ = ["min_val", "max_val", "inplace"]  # noqa: RUF012

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, old in (("min_val", min_value), ("max_val", max_value)):
            if old is not None:
                text = f"keyword argument `{name}ue` is deprecated and renamed to `{name}`"
                warnings.warn(text, FutureWarning, stacklevel=2)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{_and_inplace(self)}"


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ELU(Module):
    """``x`` where it is positive, otherwise ``alpha * (exp(x) - 1)``"""

    __constants__ = ["alpha", "inplace"]  # noqa: RUF012

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_and_inplace(self)}"


class CELU(Module):
    """``max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``"""

    __constants__ = ["alpha", "inplace"]  # noqa: RUF012

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_and_inplace(self)}"


class LeakyReLU(Module):
    """``x`` where it is positive, otherwise ``negative_slope * x``"""

    __constants__ = ["inplace", "negative_slope"]  # noqa: RUF012

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{_and_inplace(self)}"


class RReLU(Module):
    """A `LeakyReLU` whose slopes are drawn evenly between `lower` and `upper` in training, and are their mean in evaluation."""

    __constants__ = ["lower", "upper", "inplace"]  # noqa: RUF012

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{_and_inplace(self)}"


class PReLU(Module):
    """A `LeakyReLU` whose slopes are learnt: one, or one for each channel, the second dimension."""

    __constants__ = ["num_parameters"]  # noqa: RUF012
    weight: Tensor

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        add_parameters(self, device, dtype, weight=num_parameters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to what they were first."""
        _init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """``a * sigmoid(b)``, where a and b are the halves of the input along `dim`, whose size is halved"""

    __constants__ = ["dim"]  # noqa: RUF012

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """``x * P(X <= x)`` for normal X; `approximate` "tanh": ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))``"""

    __constants__ = ["approximate"]  # noqa: RUF012

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` is above `threshold`"""

    __constants__ = ["beta", "threshold"]  # noqa: RUF012

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrink(Module):
    __constants__ = ["lambd"]  # noqa: RUF012

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """``x``, but 0 where ``|x| <= lambd``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """``x`` moved by `lambd` towards 0; 0 where ``|x| <= lambd``"""

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class _AlongDim(Module):
    """Functions along a dimension.  `dim` None is deprecated: 0 of inputs with 0, 1 or 3 dimensions, otherwise 1."""

    __constants__ = ["dim"]  # noqa: RUF012
    dim: int | None = None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """``exp(x) / sum(exp(x))`` along `dim`"""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """``exp(-x) / sum(exp(-x))`` along `dim`"""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """``log(exp(x) / sum(exp(x)))`` along `dim`"""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)"""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "MultiheadAttention",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]  # fmt: skip
