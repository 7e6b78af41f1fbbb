"""Normalization: of batches, layers, groups and instances, by root mean squares, by neighbouring channels, to length one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array, ratio_of_sizes
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.activations import only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul
from dynagraph.torch.functions.arithmetic import pow as power
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, function
from dynagraph.torch.functions.norm_primitives import Sizes
from dynagraph.torch.functions.norms import norm
from dynagraph.torch.functions.shapes import expand_as, reshape, unsqueeze, view_
from dynagraph.torch.functions.ternary import clamp_min, where

# -- checks -----------------------------------------------------------------------------------------------------------


def _check_lengths(count: int, **given: Tensor | None) -> None:
    for name, t in given.items():
        if t is not None and t._array.size != count:
            raise RuntimeError(f"{name} should contain {count} elements not {t._array.size}")


def _check_dtypes(x: Tensor, *parameters: Tensor | None) -> None:
    """RuntimeError unless parameters have the tensor's dtype; those of halves may be of float32."""
    for p in parameters:
        if p is not None and p._array.dtype != x._array.dtype:
            if not is_half(x._array.dtype):
                raise RuntimeError(f"mixed dtype (CPU): expect parameter to have scalar type of {dtypes.scalar_name(x.dtype)}")
            if p._array.dtype != np.float32:
                raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")


def _sized(value: Any, who: str) -> Sizes:
    if isinstance(value, (int, np.integer)):
        raise TypeError(f"{who}(): argument 'normalized_shape' (position 2) must be tuple of ints, not int")
    found = tuple(int(n) for n in value)
    if not found:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    return found


def _check_normalized_shape(x: Tensor, shape: Sizes, comma: str, **parameters: Tensor | None) -> None:
    for name, p in parameters.items():
        if p is not None and p._array.shape != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape {list(p._array.shape)} and "
                f"normalized_shape = {list(shape)}"
            )
    given = x._array.shape
    if given[len(given) - len(shape) :] != shape or len(given) < len(shape):
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*{comma}{', '.join(map(str, shape))}], but got "
            f"input of size{list(given)}"
        )


def _operands(x: Tensor, weight: Tensor | None, bias: Tensor | None, count: Sizes) -> tuple[tuple[Tensor, ...], str]:
    """The tensors that there are, and the suffix of the primitive's name."""
    if weight is None and bias is None:
        return (x,), ""
    if weight is None:
        weight = wrap(library_of_array(bias._array).ones(count, bias._array.dtype))  # type: ignore[union-attr]
    return (x, weight) if bias is None else (x, weight, bias), "_affine"


# -- functions --------------------------------------------------------------------------------------------------------


@function(method=False, namespace="functional")
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over the last dimensions, then times `weight` plus `bias`."""
    x, shape = check_tensor(input, "layer_norm", "input"), _sized(normalized_shape, "layer_norm")
    _check_normalized_shape(x, shape, ", ", weight=weight, bias=bias)
    only_floats(x, "LayerNormKernelImpl")
    _check_dtypes(x, weight, bias)
    operands, suffix = _operands(x, weight, bias, shape)
    ndim = x._array.ndim
    axis = tuple(range(ndim - len(shape), ndim))
    return apply(PRIMITIVES[f"layer_norm{suffix}"], *operands, view=x._array.shape, axis=axis, affine=shape, eps=float(eps))[0]


@function(method=False, namespace="functional")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over groups of channels."""
    x = check_tensor(input, "group_norm", "input")
    shape = x._array.shape
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    _check_more_than_one((shape[0] * shape[1] // num_groups, num_groups, *shape[2:]), list(shape))
    if shape[1] % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(shape)} and "
            f"num_groups={num_groups}"
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and p._array.shape != (shape[1],):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of shape "
                f"{list(p._array.shape)} and input of shape {list(shape)}"
            )
    only_floats(x, "GroupNormKernelImpl")
    _check_dtypes(x, weight, bias)
    operands, suffix = _operands(x, weight, bias, (shape[1],))
    inner = shape[1] // num_groups
    view = (shape[0], num_groups, inner, *shape[2:])
    affine = (1, num_groups, inner, *(1,) * (len(shape) - 2))
    axis = tuple(range(2, len(view)))
    return apply(PRIMITIVES[f"group_norm{suffix}"], *operands, view=view, axis=axis, affine=affine, eps=float(eps))[0]


def _check_more_than_one(shape: Sizes, shown: Any) -> None:
    if shape[0] * math.prod(shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {shown}")


def _update(running: Tensor | None, batch: Any, momentum: float | Tensor) -> None:
    """Store a running statistic; PyTorch does not count that as a write."""
    if running is not None:
        array = running._array
        if isinstance(momentum, Tensor):  # of a plain average, which depends on how many batches there have been
            momentum = momentum._array
        array[...] = (1 - momentum) * array + momentum * batch


def _check_momentum(momentum: Any, who: str) -> None:
    if momentum is None:
        raise TypeError(f"{who}(): argument 'momentum' (position 7) must be float, not NoneType")


@function(method=False, namespace="functional")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 of each channel; in training of this batch, otherwise by the running statistics."""
    x = check_tensor(input, "batch_norm", "input")
    shape = x._array.shape
    if training:
        _check_more_than_one((*shape, 1, 1)[: max(len(shape), 2)], x.shape)
    _check_momentum(momentum, "batch_norm")
    if training and eps <= 0.0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    count = shape[1] if len(shape) > 1 else 0
    if not training:
        for name, t in (("running_mean", running_mean), ("running_var", running_var)):
            if t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    _check_lengths(count, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    only_floats(x, "batch_norm")
    parameters = (weight, bias, running_mean, running_var)
    if any(p is not None and p._array.dtype != x._array.dtype for p in parameters) and not is_half(x._array.dtype):
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
    affine = (1, count, *(1,) * (len(shape) - 2))
    if not training:
        return _by_running(x, running_mean, running_var, weight, bias, affine, eps)
    operands, suffix = _operands(x, weight, bias, (count,))
    axis = (0, *range(2, len(shape)))
    out, mean, variance = apply(PRIMITIVES[f"batch_norm{suffix}"], *operands, view=shape, axis=axis, affine=affine, eps=float(eps))
    if running_mean is not None or running_var is not None:
        number = math.prod(shape) // max(count, 1)
        if number:
            _update(running_mean, mean._array.reshape(-1), momentum)
            batch = variance._array.reshape(-1)
            _update(running_var, batch * ratio_of_sizes(number, max(number - 1, 1), batch), momentum)
    return out


def _by_running(
    x: Tensor, mean: Any, variance: Any, weight: Tensor | None, bias: Tensor | None, affine: Sizes, eps: float
) -> Tensor:
    operands, suffix = _operands(x, weight, bias, mean._array.shape)
    return apply(PRIMITIVES[f"standard{suffix}"], x, mean, variance, *operands[1:], affine=affine, eps=float(eps))


@function(method=False, namespace="functional")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 of each channel of each sample."""
    x = check_tensor(input, "instance_norm", "input")
    shape = x._array.shape
    if use_input_stats and math.prod(shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {x.shape}")
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    for name, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if t is not None and t._array.size != shape[1]:
            wanted, got = shape[0] * shape[1], shape[0] * t._array.size
            raise RuntimeError(f"{name} should contain {wanted} elements not {got}")
    only_floats(x, "batch_norm")
    affine = (1, shape[1], *(1,) * (len(shape) - 2))
    if not use_input_stats:
        return _by_running(x, running_mean, running_var, weight, bias, affine, eps)
    operands, suffix = _operands(x, weight, bias, (shape[1],))
    about = {"view": shape, "axis": tuple(range(2, len(shape))), "affine": affine, "eps": float(eps)}
    out, mean, variance = apply(PRIMITIVES[f"batch_norm{suffix}"], *operands, **about)
    if eps == 0:
        out = _of_constants(operands, suffix, about, variance, None if bias is None else reshape(bias, affine))
    number = math.prod(shape[2:])
    if number and shape[0]:
        _update(running_mean, mean._array.reshape(shape[:2]).mean(0), momentum)
        batch = variance._array.reshape(shape[:2]).mean(0)
        _update(running_var, batch * ratio_of_sizes(number, max(number - 1, 1), batch), momentum)
    return out


def _of_constants(operands: Any, suffix: str, about: dict[str, Any], variance: Tensor, bias: Any) -> Tensor:
    """Without `eps`, channels whose variance is zero become zeros before `weight` and `bias`; they have no gradient."""
    shape = about["view"]
    constant = wrap(variance._array.reshape(shape[:2] + (1,) * (len(shape) - 2)) == 0)
    array = operands[0]._array
    others = np.broadcast_to(library_of_array(array).arange(math.prod(shape[2:])).reshape(shape[2:]), shape).astype(array.dtype)
    varied = where(constant, wrap(others), operands[0])
    out = apply(PRIMITIVES[f"batch_norm{suffix}"], varied, *operands[1:], **about)[0]
    return where(constant, 0.0 if bias is None else cast(bias, out.dtype), out)


@function(method=False)
@function(method=False, namespace="functional")
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Divided by the root mean square over the last dimensions, then times `weight`."""
    x, shape = check_tensor(input, "rms_norm", "input"), _sized(normalized_shape, "rms_norm")
    _check_normalized_shape(x, shape, "", weight=weight)
    only_floats(x, "rms_norm")
    if eps is None:
        eps = float(np.finfo(np.float32 if is_half(x._array.dtype) else x._array.dtype).eps)
    ndim = x._array.ndim
    axis = tuple(range(ndim - len(shape), ndim))
    if weight is None:
        return apply(PRIMITIVES["rms_norm"], x, axis=axis, eps=float(eps))[0]
    return apply(PRIMITIVES["rms_norm_affine"], x, weight, axis=axis, eps=float(eps))[0]


@function(method=False, namespace="functional")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Divided by a power of the mean square of neighbouring channels."""
    x = check_tensor(input, "local_response_norm", "input")
    ndim, shape = x._array.ndim, x._array.shape
    if ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {ndim} dimensions)")
    if not x._array.size:
        return x
    functional = NAMESPACES["functional"]
    square = mul(x, x)
    border = (size // 2, (size - 1) // 2)
    if ndim == 3:
        means = functional["avg_pool2d"](functional["pad"](unsqueeze(square, 1), (0, 0, *border)), (size, 1), stride=1).squeeze(1)
    else:
        rows = functional["pad"](view_(square, shape[0], 1, shape[1], shape[2], -1), (0, 0, 0, 0, *border))
        means = view_(functional["avg_pool3d"](rows, (size, 1, 1), stride=1).squeeze(1), shape)
    return div(x, power(add(mul(means, alpha), k), beta))


@function(method=False, namespace="functional", out=True)
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """Divided by the norm along a dimension, so that this is one; norms below `eps` count as that."""
    x = check_tensor(input, "normalize", "input")
    return div(x, expand_as(clamp_min(norm(x, p, dim, True), eps), x))


# torch's own have the arguments in another order
def _torch_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``torch.batch_norm``."""
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _torch_instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``torch.instance_norm``."""
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def _torch_layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """``torch.layer_norm``."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


def _torch_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """``torch.group_norm``."""
    return group_norm(input, num_groups, weight, bias, eps)


for _name, _function in (
    ("batch_norm", _torch_batch_norm),
    ("instance_norm", _torch_instance_norm),
    ("layer_norm", _torch_layer_norm),
    ("group_norm", _torch_group_norm),
):
    function(_name, method=False)(_function)
