"""Convolutions, pools and resampling of ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch.nn import functional as F
from dynagraph.torch.onnx.operators.registry import ints, operator

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
Pairs = list[tuple[int, int]]


def pads_of(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int] | None,
    auto_pad: str,
) -> Pairs:  # fmt: skip
    """How much is padded before and after, for each axis."""
    n = len(sizes)
    if auto_pad in ("NOTSET", ""):
        given = [0] * (2 * n) if pads is None else list(pads)
        return list(zip(given[:n], given[n:]))
    found: Pairs = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations):
        more = 0 if auto_pad == "VALID" else max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        found.append((more // 2, more - more // 2) if auto_pad == "SAME_UPPER" else (more - more // 2, more // 2))
    return found


def _padded(x: Any, pairs: Pairs, value: float = 0.0) -> Any:
    if all(before == after == 0 for before, after in pairs):
        return x
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=value)


@operator("Conv")
def conv(
    x: Any, weight: Any, bias: Any = None, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = pads_of(x.shape[2:], weight.shape[2:], strides, dilations, pads, auto_pad)
    padding = [before for before, _ in pairs]
    if any(before != after for before, after in pairs):
        x, padding = _padded(x, pairs), [0] * n
    return CONVOLUTIONS[n](x, weight, bias, tuple(strides), tuple(padding), tuple(dilations), group)


@operator("ConvTranspose")
def conv_transpose(
    x: Any, weight: Any, bias: Any = None, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations, more = strides or [1] * n, dilations or [1] * n, list(output_padding or [0] * n)
    sizes = x.shape[2:]
    full = [(s - 1) * t + (k - 1) * d + 1 + o for s, t, k, d, o in zip(sizes, strides, weight.shape[2:], dilations, more)]
    if output_shape is not None:
        wanted = list(output_shape)[-n:]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [s * t for s, t in zip(sizes, strides)]
    else:
        pairs = pads_of(sizes, weight.shape[2:], strides, dilations, pads, auto_pad)
        wanted = [f - before - after for f, (before, after) in zip(full, pairs)]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(f - w, 0) for f, w in zip(full, wanted)]
        pairs = [(t // 2, t - t // 2) if auto_pad != "SAME_LOWER" else (t - t // 2, t // 2) for t in totals]
    result = TRANSPOSED[n](x, weight, bias, tuple(strides), 0, 0, group, tuple(dilations))
    for axis, ((before, _), size) in enumerate(zip(pairs, wanted)):
        short = before + size - result.shape[2 + axis]
        if short > 0:
            tail = [0] * (2 * n)
            tail[2 * (n - 1 - axis) + 1] = short
            extended = F.pad(result, tail)
            result = extended if bias is None else _with_bias_behind(extended, bias, 2 + axis, result.shape[2 + axis])
        result = result.narrow(2 + axis, before, size)
    return result


def _with_bias_behind(x: Any, bias: Any, axis: int, first: int) -> Any:
    """Places that no product reaches have the bias alone."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    behind = (torch.arange(x.shape[axis]) >= first).reshape(shape)
    return torch.where(behind, bias.reshape(1, -1, *(1 for _ in range(x.ndim - 2))), x)


# -- pools ------------------------------------------------------------------------------------------------------------------------


def _counts(
    sizes: Sequence[int], pairs: Pairs, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], ceil_mode: int
) -> list[int]:
    """How many windows there are along each axis."""
    found = []
    for size, k, stride, dilation, (before, after) in zip(sizes, kernel, strides, dilations, pairs):
        span = size + before + after - (k - 1) * dilation - 1
        count = (-(-span // stride) if ceil_mode else span // stride) + 1
        is_behind = ceil_mode and (count - 1) * stride >= size + before  # the last one begins where there are no elements
        found.append(count - 1 if is_behind else count)
    return found


def _windows(
    x: Any, pairs: Pairs, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], counts: Any, fill: Any
) -> Any:
    """The elements of each window, along a last axis; where there are none, `fill`."""
    needed = [(c - 1) * s + (k - 1) * d + 1 for c, s, k, d in zip(counts, strides, kernel, dilations)]
    ends = [max(n - size - before, 0) for n, size, (before, _) in zip(needed, x.shape[2:], pairs)]
    x = F.pad(x, [n for (before, _), end in reversed(list(zip(pairs, ends))) for n in (before, end)], value=fill)
    for axis, (count, k, stride, dilation) in enumerate(zip(counts, kernel, strides, dilations)):
        places = torch.arange(count).unsqueeze(1) * stride + torch.arange(k) * dilation
        chosen = torch.index_select(x, 2 + axis, places.reshape(-1))
        x = chosen.reshape((*x.shape[: 2 + axis], count, k, *x.shape[3 + axis :])).movedim(3 + axis, -1)
    return x.reshape((*x.shape[: 2 + len(kernel)], -1))


@operator("MaxPool")
def max_pool(
    x: Any, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, pads: Any = None,
    storage_order: int = 0, strides: Any = None, n_outputs: int = 1,
) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = pads_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    lowest = float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    counts = _counts(x.shape[2:], pairs, kernel_shape, strides, dilations, ceil_mode)
    found = _windows(x, pairs, kernel_shape, strides, dilations, counts, lowest)
    values = torch.amax(found, -1)
    if n_outputs == 1:
        return values
    sizes = list(x.shape[2:])
    order = list(range(n)) if storage_order == 0 else list(range(n))[::-1]
    numbers = torch.arange(math.prod(sizes)).reshape([sizes[k] for k in order]).permute([order.index(k) for k in range(n)])
    whole = math.prod(sizes) * torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *(1 for _ in sizes))
    flat = (numbers + whole).to(torch.int64)
    where = _windows(flat, pairs, kernel_shape, strides, dilations, counts, 0)
    return values, torch.gather(where, -1, torch.argmax(found, -1, True)).squeeze(-1)


def _mean_of_windows(x: Any, pairs: Pairs, kernel: Any, strides: Any, dilations: Any, ceil_mode: int, with_pads: int) -> Any:
    counts = _counts(x.shape[2:], pairs, kernel, strides, dilations, ceil_mode)
    total = torch.sum(_windows(x, pairs, kernel, strides, dilations, counts, 0), -1)
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if with_pads:
        ones, pairs = _padded(ones, pairs, 1.0), [(0, 0)] * len(pairs)
    return total / torch.sum(_windows(ones, pairs, kernel, strides, dilations, counts, 0), -1)


@operator("AveragePool")
def average_pool(
    x: Any, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0, dilations: Any = None,
    pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = pads_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    return _mean_of_windows(x, pairs, kernel_shape, strides, dilations, ceil_mode, count_include_pad)


@operator("LpPool")
def lp_pool(
    x: Any, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, p: int = 2, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pairs = pads_of(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    counts = _counts(x.shape[2:], pairs, kernel_shape, strides, dilations, ceil_mode)
    found = _windows(torch.pow(torch.abs(x), p), pairs, kernel_shape, strides, dilations, counts, 0)
    return torch.pow(torch.sum(found, -1), 1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return torch.mean(x, tuple(range(2, x.ndim)), True)


@operator("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return torch.amax(x, tuple(range(2, x.ndim)), True)


@operator("GlobalLpPool")
def global_lp_pool(x: Any, p: int = 2) -> Any:
    return torch.pow(torch.sum(torch.pow(torch.abs(x), p), tuple(range(2, x.ndim)), True), 1 / p)


# -- resampling -------------------------------------------------------------------------------------------------------------------


@operator("Resize", host=(3,))
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, mode: str = "nearest", antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    """Along one axis after the other: each place of the result is a weighted sum of places of the operand."""
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise NotImplementedError("Resize with tf_crop_and_resize")
    along = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    wanted = None if sizes is None else ints(sizes)
    if wanted:
        ratios = [w / x.shape[a] for w, a in zip(wanted, along)]
        if keep_aspect_ratio_policy != "stretch":
            ratio = (min if keep_aspect_ratio_policy == "not_larger" else max)(ratios)
            ratios = [ratio] * len(along)
            wanted = [math.floor(ratio * x.shape[a] + 0.5) for a in along]
    else:
        ratios = [float(s) for s in scales.reshape(-1).tolist()]
        wanted = [math.floor(x.shape[a] * r) for a, r in zip(along, ratios)]
    for axis, size, ratio in zip(along, wanted, ratios):
        if size == x.shape[axis] and ratio == 1:
            continue
        places = _places(x.shape[axis], size, ratio, coordinate_transformation_mode)
        if mode == "nearest":
            x = torch.index_select(x, axis, torch.tensor([_nearest(p, x.shape[axis], nearest_mode) for p in places]))
            continue
        rows = [_weights(p, x.shape[axis], ratio, mode, bool(antialias), cubic_coeff_a, bool(exclude_outside)) for p in places]
        x = torch.movedim(torch.matmul(torch.movedim(x, axis, -1), torch.tensor(rows, dtype=x.dtype).t()), -1, axis)
    return x


@operator("Upsample")
def upsample(x: Any, scales: Any, mode: str = "nearest") -> Any:
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _places(before: int, after: int, ratio: float, mode: str) -> list[float]:
    if mode == "align_corners":
        exact = ratio * before
        return [k * (before - 1) / (exact - 1) if exact > 1 else 0.0 for k in range(after)]
    if mode == "asymmetric":
        return [k / ratio for k in range(after)]
    if mode == "pytorch_half_pixel" and after == 1:
        return [0.0]
    shift = 0.0
    if mode == "half_pixel_symmetric":
        exact = ratio * before
        shift = before / 2 * (1 - after / exact)
    return [shift + (k + 0.5) / ratio - 0.5 for k in range(after)]


def _nearest(place: float, n: int, mode: str) -> int:
    if mode == "ceil":
        found = math.ceil(place)
    elif mode == "floor":
        found = math.floor(place)
    elif mode == "round_prefer_ceil":
        found = math.floor(place + 0.5)
    else:
        found = math.ceil(place - 0.5)
    return min(max(found, 0), n - 1)


def _weights(place: float, n: int, ratio: float, mode: str, antialias: bool, a: float, exclude: bool) -> list[float]:
    """How much each element counts at a place."""
    scale = min(ratio, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / scale
    row = [0.0] * n
    total = 0.0
    for k in range(math.floor(place - reach), math.ceil(place + reach) + 1):
        weight = _triangle((k - place) * scale) if mode == "linear" else _cubic((k - place) * scale, a)
        if exclude and not 0 <= k < n:
            continue
        total += weight
        row[min(max(k, 0), n - 1)] += weight
    return [w / total for w in row] if (exclude or antialias) and total else row


def _triangle(distance: float) -> float:
    return max(0.0, 1 - abs(distance))


def _cubic(distance: float, a: float) -> float:
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


@operator("GridSample")
def grid_sample(x: Any, grid: Any, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Any:
    names = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}
    return F.grid_sample(x, grid, names[mode], padding_mode, bool(align_corners))


@operator("AffineGrid", host=(1,))
def affine_grid(theta: Any, size: Any, align_corners: int = 0) -> Any:
    return F.affine_grid(theta, ints(size), bool(align_corners))


__all__: list[str] = []
