"""Images sampled at places of a grid, and channels exchanged for places."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, library_of_array, put_beside
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, quiet, wrap
from dynagraph.torch.functions.activations import HARDTANH, only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul, sub
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.joining import stack
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.reductions import sum as total
from dynagraph.torch.functions.resampling import cubic_weights
from dynagraph.torch.functions.shapes import reshape, transpose, unsqueeze
from dynagraph.torch.functions.splitting import select

# -- channels and places ----------------------------------------------------------------------------------------------------


def _pixel_shuffle(x: Any, factor: int) -> Any:
    *batch, channels, height, width = x.shape
    n = len(batch)
    parts = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    moved = parts.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return in_c_order(moved).reshape(*batch, channels // factor**2, height * factor, width * factor)


def _pixel_unshuffle(x: Any, factor: int) -> Any:
    *batch, channels, height, width = x.shape
    n = len(batch)
    parts = x.reshape(*batch, channels, height // factor, factor, width // factor, factor)
    moved = parts.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return in_c_order(moved).reshape(*batch, channels * factor**2, height // factor, width // factor)


def _channel_shuffle(x: Any, groups: int) -> Any:
    batch, channels, *inner = x.shape
    parts = x.reshape(batch, groups, channels // groups, *inner)
    return in_c_order(parts.swapaxes(1, 2)).reshape(x.shape)


define(
    "pixel_shuffle", _pixel_shuffle, (lambda d, g: g.call("pixel_unshuffle", factor=d.attrs["factor"]),), ("",),
    backward="PixelShuffleBackward0",
)  # fmt: skip
define(
    "pixel_unshuffle", _pixel_unshuffle, (lambda d, g: g.call("pixel_shuffle", factor=d.attrs["factor"]),), ("",),
    backward="PixelUnshuffleBackward0",
)  # fmt: skip
define(
    "channel_shuffle",
    _channel_shuffle,
    (lambda d, g: g.call("channel_shuffle", groups=g.shape[1] // d.attrs["groups"]),),
    ("",),
    backward="ChannelShuffleBackward0",
)


def _check_factor(who: str, x: Tensor, name: str, factor: int) -> tuple[int, ...]:
    shape = x._array.shape
    if len(shape) < 3:
        raise RuntimeError(f"{who} expects input to have at least 3 dimensions, but got input with {len(shape)} dimension(s)")
    if factor <= 0:
        raise RuntimeError(f"{who} expects a positive {name}, but got {factor}")
    return shape


@function(method=False)
@function(method=False, namespace="functional")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels become places: (C * r * r, H, W) gives (C, H * r, W * r)."""
    x = check_tensor(input, "pixel_shuffle", "input")
    shape = _check_factor("pixel_shuffle", x, "upscale_factor", upscale_factor)
    if shape[-3] % upscale_factor**2:
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            f"input.size(-3)={shape[-3]} is not divisible by {upscale_factor**2}"
        )
    return apply(PRIMITIVES["pixel_shuffle"], x, factor=upscale_factor)


@function(method=False)
@function(method=False, namespace="functional")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Places become channels: (C, H * r, W * r) gives (C * r * r, H, W)."""
    x = check_tensor(input, "pixel_unshuffle", "input")
    shape = _check_factor("pixel_unshuffle", x, "downscale_factor", downscale_factor)
    for k, what in ((-2, "height"), (-1, "width")):
        if shape[k] % downscale_factor:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, but input.size({k})={shape[k]} is not "
                f"divisible by {downscale_factor}"
            )
    return apply(PRIMITIVES["pixel_unshuffle"], x, factor=downscale_factor)


@function(method=False, aliases=("native_channel_shuffle",))
@function(method=False, namespace="functional", aliases=("native_channel_shuffle",))
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of groups taken in turn from each."""
    x = check_tensor(input, "channel_shuffle", "input")
    shape = x._array.shape
    if len(shape) <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    return apply(PRIMITIVES["channel_shuffle"], x, groups=groups)


# -- grids ------------------------------------------------------------------------------------------------------------------


def _turns(x: Any, low: float, span: float) -> tuple[Any, Any]:
    """How far behind the lower border a place is when its path is folded there; and whether it moves backwards then."""
    distance = np.abs(x - low)
    flips = np.floor(distance / span)
    return distance - flips * span, flips % 2 != 0


def _reflected(x: Any, low: float, span: float) -> Any:
    extra, backwards = _turns(x, low, span)
    return (np.where(backwards, span - extra, extra) + low).astype(x.dtype)


def _reflected_slope(x: Any, low: float, span: float) -> Any:
    return (np.where(x < low, -1, 1) * np.where(_turns(x, low, span)[1], -1, 1)).astype(x.dtype)


define("reflected", _reflected, (lambda d, g: g * d.x.call("reflected_slope", **d.attrs),), ("x",))
define("reflected_slope", _reflected_slope, (lambda d, g: None,), ("",))


_FLAT = define(  # of what does not change with the places
    "constant_by", lambda x, places: x, (lambda d, g: g, lambda d, g: g.full(0, d.y.shape)), ("", ""),
    backward="GridSampler2DBackward0",
)  # fmt: skip


def _unnormalized(c: Tensor, size: int, align: bool) -> Tensor:
    """From -1 to 1: to elements; -1 and 1 are the outer ones' centres, or their borders."""
    return mul(add(c, 1), (size - 1) / 2) if align else div(sub(mul(add(c, 1), size), 1), 2)


def _padded(c: Tensor, size: int, mode: str, align: bool) -> Tensor:
    if mode == "zeros":
        return c
    if mode == "reflection":
        span = size - 1 if align else size
        c = apply(PRIMITIVES["reflected"], c, low=0.0 if align else -0.5, span=float(span)) if span else mul(c, 0)
    return apply(HARDTANH, c, low=0.0, high=float(size - 1))


def _whole(c: Any) -> Any:
    """As integers; what is no number, or far away, is outside."""
    return quiet(lambda a: np.nan_to_num(np.clip(a, -(2**31), 2**31), nan=-(2.0**31)).astype(np.int64), (c,), {})


def _at(x: Tensor, places: list[Any]) -> Tensor:
    """Elements at whole places (N, points), zeros outside: (N, C, points)."""
    shape = x._array.shape[2:]
    library = library_of_array(x._array)
    inside, flat = library.ones((), bool), library.zeros((), np.int64)
    for place, size in zip(places, shape):
        inside = inside & (place >= 0) & (place < size)
        flat = flat * size + np.clip(place, 0, size - 1)
    rows = reshape(x, *x._array.shape[:2], math.prod(shape))
    found = np.broadcast_to(flat[:, None], (*x._array.shape[:2], flat.shape[-1])).copy()
    values = apply(PRIMITIVES["take_places"], rows, wrap(found), count=1)
    return mul(values, wrap(inside[:, None].astype(x._array.dtype)))


def _summed(x: Tensor, places: list[Any], weights: Tensor) -> Tensor:
    """The sum over corners of elements at places (N, corners, points) times weights."""
    batch, corners, points = weights._array.shape
    flat = [place.reshape(batch, corners * points) for place in places]
    values = reshape(_at(x, flat), batch, x._array.shape[1], corners, points)
    return total(mul(values, unsqueeze(weights, 1)), 2)


def _bilinear(x: Tensor, positions: list[Tensor]) -> Tensor:
    dtype = x._array.dtype
    steps = put_beside(np.array(list(itertools.product((0, 1), repeat=len(positions)))), x._array)
    weights: Tensor | None = None
    places = []
    for k, c in enumerate(positions):
        below, step = np.floor(c._array), steps[:, k, None]
        share = unsqueeze(sub(c, wrap(below)), 1)
        weight = add(mul(share, wrap((2 * step - 1).astype(dtype))), wrap((1 - step).astype(dtype)))
        weights = weight if weights is None else mul(weights, weight)
        places.append(_whole(below[:, None] + step))
    return _summed(x, places, weights)  # type: ignore[arg-type]


def _bicubic(x: Tensor, positions: list[Tensor], mode: str, align: bool) -> Tensor:
    steps = put_beside(np.array(list(itertools.product(range(4), repeat=2))), x._array)
    along, places = [], []
    for k, (c, size) in enumerate(zip(positions, x._array.shape[2:])):
        below = np.floor(c._array)
        along.append(stack(cubic_weights(sub(c, wrap(below))), 1))
        moved = wrap(below[:, None] + (steps[:, k, None] - 1))
        places.append(_whole(_padded(moved, size, mode, align)._array))
    batch, _, points = along[0]._array.shape
    weights = mul(unsqueeze(along[0], 2), unsqueeze(along[1], 1))
    return _summed(x, places, reshape(weights, batch, 16, points))


def _aligned(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired. See the documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


def _check_grid(x: Tensor, grid: Tensor, mode: str) -> None:
    shape, given = x._array.shape, grid._array.shape
    if x._array.dtype != grid._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (x, grid)]
        raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")
    if not shape or not given or shape[0] != given[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {list(shape)} and grid "
            f"with sizes {list(given)}"
        )
    if given[-1] != len(shape) - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {len(shape) - 2} in last dimension, but got grid with sizes {list(given)}"
        )
    if len(shape) not in (4, 5) or len(shape) != len(given):
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{list(shape)} and grid with sizes {list(given)}"
        )
    for k in range(2, len(shape)):
        if shape[k] == 0:
            raise RuntimeError(
                f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(shape)} with "
                f"dimension {k} being empty"
            )
    if mode == "bicubic" and len(shape) != 4:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


@function(method=False, namespace="functional")
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """An image at the places of a grid, whose coordinates run from -1 to 1, that of the last dimension first."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    x, places = check_tensor(input, "grid_sampler", "input"), check_tensor(grid, "grid_sampler", "grid", 2)
    _check_grid(x, places, mode)
    only_floats(x, "grid_sampler_2d_cpu_kernel_impl")
    align = _aligned(align_corners)
    shape, points = x._array.shape, places._array.shape[1:-1]
    n = len(points)
    rows = reshape(places, shape[0], math.prod(points), n)
    sizes = shape[2:]
    positions = [_unnormalized(select(rows, 2, n - k - 1), sizes[k], align) for k in range(n)]
    if mode == "bicubic":
        found = _bicubic(x, positions, padding_mode, align)
    else:
        positions = [_padded(c, size, padding_mode, align) for c, size in zip(positions, sizes)]
        if mode == "bilinear":
            found = _bilinear(x, positions)
        else:
            found = apply(_FLAT, _at(x, [_whole(np.rint(c._array)) for c in positions]), places)
    return reshape(found, *shape[:2], *points)


@function(method=False, namespace="functional")
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The grid of `grid_sample` that matrices of affine maps give."""
    t = check_tensor(theta, "affine_grid_generator", "theta")
    shape = tuple(int(n) for n in size)
    if t._array.dtype.kind not in "fV":
        raise ValueError(f"Expected theta to have floating point type, but got {t.dtype}")
    n = len(shape) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {tuple(shape)}."
        )
    if t._array.ndim != 3 or t._array.shape[1:] != (n, n + 1):
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {shape}. Got {t.shape}.")
    if min(shape) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {shape}")
    if t._array.shape[0] != shape[0]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{shape[0]}, {n + 1}] but got: "
            f"[{t._array.shape[0]}, {n + 1}]."
        )
    axes, align = [], _aligned(align_corners)
    for m in shape[2:]:
        line = np.linspace(-1, 1, m) if m > 1 else np.zeros(1)
        axes.append(line if align else line * (m - 1) / m)
    columns = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(shape[2:])]
    base = np.stack(columns, axis=-1).reshape(1, -1, n + 1).astype(t._array.dtype)
    base = put_beside(np.ascontiguousarray(np.broadcast_to(base, (shape[0], *base.shape[1:]))), t._array)
    return reshape(matmul(wrap(base), transpose(t, 1, 2)), shape[0], *shape[2:], n)
