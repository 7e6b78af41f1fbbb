"""``torch.nn.init``: tensors filled with the numbers that training starts from.  Gradients never see it.

The draws are PyTorch's, in PyTorch's order: with ``torch.random.torch_compatible(True)`` the numbers are, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.generator import Generator
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions import creation, decompositions, diagonals, random, selection, shapes  # noqa: F401  (declare)
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.functions.random import randperm

_empty_like, _qr, _where = NAMESPACES["torch"]["empty_like"], NAMESPACES["linalg"]["qr"], NAMESPACES["torch"]["where"]
_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1),
    "sigmoid": 1, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much weights before an activation are scaled; `param` is the slope of "leaky_relu", by default 0.01."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {slope} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


# -- one distribution for all elements --------------------------------------------------------------------------------


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with numbers evenly distributed between `a` and `b`."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers between `a` and `b`: those outside are drawn again."""
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.",
            stacklevel=2,
        )
    inside = _normal_below((b - mean) / std) - _normal_below((a - mean) / std)
    with no_grad():
        if inside > 0.3:
            return _redrawn(tensor, mean, std, a, b, generator)
        return _rejected(tensor, mean, std, a, b, generator)


def _normal_below(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _redrawn(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None) -> Tensor:
    """Normal numbers, drawn until all lie between the bounds, which are rounded to the dtype."""
    low, high = tensor.new_tensor(a).item(), tensor.new_tensor(b).item()
    found = tensor.normal_(mean, std, generator=generator)
    outside = (found < low) | (found > high)
    while outside.any():
        found = _where(outside, _empty_like(found).normal_(mean, std, generator=generator), found)
        outside = (found < low) | (found > high)
    return tensor if found is tensor else tensor.copy_(found)


def _rejected(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None) -> Tensor:
    """Where few normal numbers lie between the bounds: even ones, each kept with a probability as its density."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    found, chance, pending = tensor, _empty_like(tensor), None
    while pending is None or pending.any():
        target: Any = tensor if pending is None else _empty_like(tensor)
        candidates = target.uniform_(a, b, generator=generator)
        found = candidates if pending is None else _where(pending, candidates, found)
        density = ((candidates - mean) / std) ** 2 * -0.5 - peak
        refused = chance.uniform_(generator=generator).log_() > density
        pending = refused if pending is None else pending & refused
    return tensor if found is tensor else tensor.copy_(found)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    with no_grad():
        return tensor.zero_()


_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_


# -- identities -------------------------------------------------------------------------------------------------------


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity, as far as it reaches."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.zero_().diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make the weight of a convolution of 1 to 3 dimensions the identity of as many channels as there are in each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    if tensor.is_meta:
        return tensor
    channels = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for first in range(0, tensor.shape[0], max(channels, 1)):
            for k in range(min(channels, tensor.shape[1])):
                tensor[(first + k, k, *centre)] = 1
    return tensor


# -- scaled by how many inputs and outputs there are ------------------------------------------------------------------


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode, modes = mode.lower(), ["fan_in", "fan_out"]
    if mode not in modes:
        raise ValueError(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode)]


def _xavier_deviation(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with even numbers of the variance ``gain**2 * 2 / (inputs + outputs)`` (Glorot and Bengio 2010)."""
    bound = math.sqrt(3.0) * _xavier_deviation(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers of the variance ``gain**2 * 2 / (inputs + outputs)`` (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, _xavier_deviation(tensor, gain), generator)


def _is_empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def _kaiming_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Generator | None = None
) -> Tensor:
    """Fill with even numbers of the variance ``gain**2 / fan`` (He et al. 2015); `a` is the slope of "leaky_relu"."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers of the variance ``gain**2 / fan`` (He et al. 2015); `a` is the slope of "leaky_relu"."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0, _kaiming_deviation(tensor, a, mode, nonlinearity), generator)


# -- matrices ---------------------------------------------------------------------------------------------------------


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with rows, or columns where they are fewer, that are orthogonal and of length `gain` (Saxe et al. 2013)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with no_grad():
        drawn = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        q, r = _qr(drawn.t() if rows < columns else drawn)
        q = q * r.diagonal().sign()  # evenly distributed over all orthogonal matrices (Mezzadri 2006)
        tensor.view(rows, columns).copy_(q.t() if rows < columns else q)
        return tensor.mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal numbers, and a part of each column with zeros (Martens 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    if tensor.is_meta:
        return tensor
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for k in range(columns):
            tensor[randperm(rows)[:zeros], k] = 0
    return tensor


# -- names of old -----------------------------------------------------------------------------------------------------


def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    new = function.__name__
    old = new[:-1]

    def renamed(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = renamed.__qualname__ = old
    renamed.__doc__ = f"The old name of `{new}`."
    return renamed


uniform, normal, constant = _deprecated(uniform_), _deprecated(normal_), _deprecated(constant_)
eye, dirac = _deprecated(eye_), _deprecated(dirac_)
xavier_uniform, xavier_normal = _deprecated(xavier_uniform_), _deprecated(xavier_normal_)
kaiming_uniform, kaiming_normal = _deprecated(kaiming_uniform_), _deprecated(kaiming_normal_)
orthogonal, sparse = _deprecated(orthogonal_), _deprecated(sparse_)

__all__ = [
    "calculate_gain", "constant", "constant_", "dirac", "dirac_", "eye", "eye_", "kaiming_normal", "kaiming_normal_",
    "kaiming_uniform", "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal", "orthogonal_", "sparse", "sparse_",
    "trunc_normal_", "uniform", "uniform_", "xavier_normal", "xavier_normal_", "xavier_uniform", "xavier_uniform_", "zeros_",
]  # fmt: skip
