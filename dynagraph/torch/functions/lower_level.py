"""Functions of `torch` that are the operators behind others: of several results, or with modes as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor, made, wrap
from dynagraph.torch.functions import (  # noqa: F401  (each declares its functions)
    arithmetic,
    comparisons,
    dropout,
    embedding,
    normalization,
    norms,
    random,
    reductions,
    selection,
    shapes,
    ternary,
    vision,
)
from dynagraph.torch.functions import convolution as _convolution  # noqa: F401
from dynagraph.torch.functions import padding as _padding  # noqa: F401
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dims_of, function
from dynagraph.torch.functions.embedding import _renormalize
from dynagraph.torch.functions.padding import constant

_F, _torch = NAMESPACES["functional"], NAMESPACES["torch"]

# -- normalization and dropout, with what their gradients read ---------------------------------------------------------


def _moments(x: Any, dims: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Any, Any]:
    """Means and inverse deviations."""
    return x.mean(dims, keepdim), (x.var(dims, correction=0, keepdim=keepdim) + eps).rsqrt()


@function(method=False)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, ...]:
    """`layer_norm`, with the means and inverse deviations of the rows."""
    result = _F["layer_norm"](input, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    return result, *(t.detach() for t in _moments(input, dims, eps, True))


@function(method=False)
def native_group_norm(
    input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, ...]:
    """`group_norm`, with the means and inverse deviations of the groups."""
    result = _F["group_norm"](input, group, weight, bias, eps)
    groups = input.reshape(N, group, C // group * HxW)  # type: ignore[attr-defined]
    return result, *_moments(groups, (2,), eps, False)


@function(method=False)
def native_batch_norm(
    input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    """`batch_norm`, with the means and inverse deviations of the channels in training."""
    result = _F["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return result, input.new_empty(0), input.new_empty(0)  # type: ignore[attr-defined]
    return result, *(t.detach() for t in _moments(input, _without_channels(input), eps, False))


def _without_channels(x: Tensor) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != 1)


@function(method=False)
def batch_norm_update_stats(input: Tensor, running_mean: Any, running_var: Any, momentum: float) -> tuple[Tensor, ...]:
    """Means and variances of the channels, by which the running ones are changed."""
    x: Any = input
    dims = _without_channels(x)
    mean, variance = x.mean(dims), x.var(dims, correction=0)
    count = x.numel() // x.shape[1]
    for running, batch in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
        if running is not None:
            running.mul_(1 - momentum).add_(batch, alpha=momentum)
    return mean, variance


@function(method=False)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, with the mask of what is kept; where `train` is False all is."""
    x: Any = input
    if train is False or p == 0:
        return x.clone(), _torch["ones_like"](x, dtype=dtypes.bool)
    kept = _torch["empty_like"](x).bernoulli_(1 - p)
    return x * (kept * (0.0 if p == 1 else 1 / (1 - p))), kept.bool()


@function(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms of what has one place in a dimension, which is kept; of all for -1."""
    x: Any = v
    if dim == -1:
        return x.norm(pow)
    return x.norm(pow, [k for k in range(x.ndim) if k != _torch_dim(dim, x.ndim)], True)


def _torch_dim(dim: int, ndim: int) -> int:
    return dims_of(dim, ndim)[0]


# -- convolution, padding, grids --------------------------------------------------------------------------------------


@function(method=False)
def convolution(
    input: Tensor, weight: Tensor, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """A convolution of 1 to 3 dimensions, or a transposed one."""
    count = check_tensor(weight, "convolution", "weight", 2).ndim - 2
    steps, pads, gaps, more = (tuple(v) * (count if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding))
    if transposed:
        return _F[f"conv_transpose{count}d"](input, weight, bias, steps, pads, more, groups, gaps)
    return _F[f"conv{count}d"](input, weight, bias, steps, pads, gaps, groups)


@function(method=False)
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """With borders of a number."""
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if isinstance(value, complex):  # which `pad` refuses
        return constant(check_tensor(input, "constant_pad_nd", "input"), [int(n) for n in pad], value)
    return _F["pad"](input, pad, "constant", value)


_INTERPOLATION, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _grid_sampler(name: str, dims: tuple[int, ...]) -> Callable[..., Tensor]:
    def sample(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Tensor:
        x = check_tensor(input, name, "input")
        if x.ndim not in dims:
            raise RuntimeError(f"{name}(): expected {dims[0]}D input, but got input with sizes {list(x.shape)}")
        for mode, names in ((interpolation_mode, _INTERPOLATION), (padding_mode, _PADDING)):
            if not 0 <= mode < len(names):
                raise RuntimeError(f"{name}(): there is no mode {mode}")
        return _F["grid_sample"](x, grid, _INTERPOLATION[interpolation_mode], _PADDING[padding_mode], align_corners)

    sample.__name__ = sample.__qualname__ = name
    sample.__doc__ = f"`grid_sample` whose modes are numbers: of {' and '.join(map(repr, _INTERPOLATION))}, {_PADDING}."
    return function(name, method=False)(sample)


_grid_sampler("grid_sampler", (4, 5))
_grid_sampler("grid_sampler_2d", (4,))
_grid_sampler("grid_sampler_3d", (5,))


@function(method=False)
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`affine_grid`."""
    return _F["affine_grid"](theta, size, align_corners)


# -- copies of what views show ----------------------------------------------------------------------------------------


@function(method=False, out=True)
def alias_copy(input: Tensor) -> Tensor:
    """A copy."""
    return check_tensor(input, "alias_copy", "input").clone()  # type: ignore[attr-defined, no-any-return]


@function(method=False, out=True)
def slice_copy(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy of a slice of a dimension."""
    k = _torch_dim(dim, check_tensor(input, "slice_copy", "input").ndim)
    return input[(slice(None),) * k + (slice(start, end, step),)].clone()  # type: ignore[index, no-any-return]


# -- rows of tables ---------------------------------------------------------------------------------------------------

_BAGS = ("sum", "mean", "max")


@function(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows of a table that are used, and longer than `max_norm`, are shortened to that."""
    places = check_tensor(indices, "embedding_renorm_", "indices", 2)._array
    rows = input._array.shape[0]
    if places.size and not 0 <= places.min() <= places.max() < rows:
        wrong = places[(places < 0) | (places >= rows)].reshape(-1)[0]
        raise IndexError(f"select(): index {wrong} out of range for tensor of size {list(input.shape)} at dimension 0")
    _renormalize(input, indices, max_norm, norm_type)
    return input


@function(method=False)
def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """`nn.functional.embedding_bag`, with each row's bag, the bags' sizes, and where maxima are: zeros of sums."""
    if not 0 <= mode < 3:
        raise RuntimeError(f"embedding_bag: there is no mode {mode}")
    name = _BAGS[mode]
    result = _F["embedding_bag"](
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, name, sparse, per_sample_weights, include_last_offset, padding_idx
    )
    array, starts = indices._array.reshape(-1), offsets._array
    count = len(starts) - include_last_offset
    if mode == 0:
        zeros = np.zeros(len(starts), np.int64)
        return result, wrap(np.zeros(0, np.int64)), wrap(zeros), wrap(zeros.copy())
    bags = np.searchsorted(starts[:count], np.arange(array.size), side="right") - 1
    kept = np.ones(array.size, bool) if padding_idx is None else array != padding_idx % weight.shape[0]
    sizes = np.bincount(bags[kept], minlength=count).astype(np.int64)
    if mode == 1:
        return result, wrap(bags), wrap(sizes), wrap(sizes.copy())
    where = np.zeros(result._array.shape, np.int64)
    for bag in range(count):
        inside = array[(bags == bag) & kept]
        if inside.size:
            where[bag] = inside[weight._array[inside].argmax(0)]
    return result, wrap(bags), wrap(sizes), wrap(where)


# -- parts of a dimension ---------------------------------------------------------------------------------------------

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}


@function(method=False)
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None,
    axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, product, maximum or minimum of each of several segments of a dimension, which follow one another."""
    x: Any = check_tensor(data, "segment_reduce", "data")
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if kind not in _NEUTRAL:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    given: Any = lengths if offsets is None else offsets
    if axis != given.ndim - 1:
        name = "lengths" if offsets is None else "offsets"
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}.")
    counts = given._array if offsets is None else np.diff(given._array, axis=-1)
    if not unsafe and bool((counts < 0).any()):
        raise RuntimeError("lengths contains negative value!")
    if not unsafe and bool((counts.sum(-1) != x.shape[axis]).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )
    first = _NEUTRAL[kind] if initial is None else initial
    shape = (*x.shape[:axis], counts.shape[-1], *x.shape[axis + 1 :])
    segments = np.broadcast_to(np.arange(counts.shape[-1]), counts.shape)
    places = np.repeat(segments.reshape(-1), counts.reshape(-1)).reshape((*counts.shape[:-1], -1))
    wide = (*places.shape, *(1,) * (x.ndim - places.ndim))
    index = wrap(np.array(np.broadcast_to(places.reshape(wide), x.shape), np.int64))
    target = x.new_full(shape, first)
    result = target.scatter_reduce(axis, index, x, "sum" if kind == "mean" else kind, include_self=True)
    if kind != "mean":
        return result  # type: ignore[no-any-return]
    sizes = wrap(counts.reshape((*counts.shape, *(1,) * (x.ndim - counts.ndim))).astype(x._array.dtype))
    means = result / sizes
    return means if initial is None else _torch["where"](sizes == 0, result, means)  # type: ignore[no-any-return]


# -- hashes -----------------------------------------------------------------------------------------------------------


@function(out=True)
def hash_tensor(input: Tensor, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
    """The exclusive or of the bits of all elements as float64 or int64, or of those along dimensions; as uint64."""
    array = check_tensor(input, "hash_tensor", "input")._array
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    if array.dtype.kind == "c":
        name = dtypes.scalar_name(input.dtype)
        raise NotImplementedError(f"\"xor_sum_cpu\" not implemented for '{name}'")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if not array.size and not dims:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            "argument."
        )
    wide = array.astype(np.float64 if array.dtype.kind in "fV" else np.int64)
    axes = dims_of(dims, array.ndim)
    return made(np.bitwise_xor.reduce(wide.view(np.uint64), axis=axes, keepdims=keepdim))


__all__ = ["convolution", "embedding_bag", "hash_tensor", "segment_reduce"]
