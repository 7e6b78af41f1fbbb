"""What transforms do to images that are tensors: (..., C, H, W), uint8 or floats from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor
from dynagraph.torch.nn import functional as F

_GRAY = (0.2989, 0.587, 0.114)  # of red, green and blue: the luma of ITU-R 601


def bound_of(dtype: Any) -> float:
    """The number that is white."""
    return 1.0 if dtype.is_floating_point else float(torch.iinfo(dtype).max)


def converted(image: Tensor, dtype: Any) -> Tensor:
    """An image as another dtype, with white as white."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        if (image.dtype, dtype) in ((torch.float32, torch.int32), (torch.float32, torch.int64), (torch.float64, torch.int64)):
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        return image.mul(bound_of(dtype) + 1.0 - 1e-3).to(dtype)
    before, after = int(bound_of(image.dtype)), bound_of(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / before
    after = int(after)
    if before > after:
        return image.div((before + 1) // (after + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((after + 1) // (before + 1))


def resized(image: Tensor, size: Sequence[int], mode: str, antialias: bool) -> Tensor:
    """Interpolated to (H, W); integers are rounded."""
    if tuple(size) == tuple(image.shape[-2:]):
        return image
    batch = image.reshape(-1, *image.shape[-3:])
    real: Any = batch if batch.dtype in (torch.float32, torch.float64) else batch.to(torch.float32)
    about = {"align_corners": False, "antialias": antialias} if mode in ("bilinear", "bicubic") else {}
    real = F.interpolate(real, tuple(size), mode=mode, **about)
    if mode == "bicubic" and not image.is_floating_point():
        real = real.clamp(0, bound_of(image.dtype))
    return _as_before(real, image).reshape(*image.shape[:-2], *size)


def _as_before(real: Tensor, image: Tensor) -> Tensor:
    rounded: Any = real if image.is_floating_point() else real.round()
    return rounded.to(image.dtype)


def padded(image: Tensor, sides: Sequence[int], fill: Any, mode: str) -> Tensor:
    """With a border of (left, top, right, bottom) pixels; negative ones cut off."""
    left, top, right, bottom = sides
    if mode == "symmetric":
        return _symmetric(image, left, top, right, bottom)
    batch = image.reshape(-1, *image.shape[-3:])
    real = batch if image.is_floating_point() or mode == "constant" else batch.to(torch.float32)
    about = {"value": float(fill)} if mode == "constant" else {}
    how = "replicate" if mode == "edge" else mode
    return F.pad(real, [left, right, top, bottom], mode=how, **about).to(image.dtype).reshape(
        *image.shape[:-2], image.shape[-2] + top + bottom, image.shape[-1] + left + right
    )


def _symmetric(image: Tensor, left: int, top: int, right: int, bottom: int) -> Tensor:
    """Mirrored with the outermost pixels twice."""
    if min(left, top, right, bottom) < 0:
        raise ValueError("padding: expected 0 or more with padding_mode 'symmetric'")
    height, width = image.shape[-2:]
    rows = [k if k < height else 2 * height - 1 - k for k in _folded(top, height, bottom)]
    columns = [k if k < width else 2 * width - 1 - k for k in _folded(left, width, right)]
    return image[..., torch.tensor(rows)[:, None], torch.tensor(columns)]


def _folded(before: int, size: int, after: int) -> list[int]:
    return [k % (2 * size) for k in range(-before, size + after)]


def cropped(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """The rows from `top`, the columns from `left`; zeros beyond the image."""
    rows, columns = image.shape[-2:]
    if left < 0 or top < 0 or top + height > rows or left + width > columns:
        sides = (max(-left, 0), max(-top, 0), max(left + width - columns, 0), max(top + height - rows, 0))
        image = padded(image, sides, 0, "constant")
        top, left = max(top, 0), max(left, 0)
    return image[..., top : top + height, left : left + width]


def gray(image: Tensor, channels: int = 1) -> Tensor:
    """Luma of an image of three channels, or an image of one."""
    if image.shape[-3] == 3:
        red, green, blue = image.unbind(-3)
        image = (red * _GRAY[0] + green * _GRAY[1] + blue * _GRAY[2]).to(image.dtype).unsqueeze(-3)
    return image.expand(*image.shape[:-3], channels, *image.shape[-2:]).clone() if channels != 1 else image


def blended(image: Tensor, other: Any, ratio: float) -> Tensor:
    """`ratio` of one image and the rest of the other, within the bounds."""
    ratio = float(ratio)
    return (ratio * image + (1.0 - ratio) * other).clamp(0, bound_of(image.dtype)).to(image.dtype)


def contrasted(image: Tensor, factor: float) -> Tensor:
    dtype = image.dtype if image.is_floating_point() else torch.float32
    return blended(image, gray(image).to(dtype).mean((-3, -2, -1), keepdim=True), factor)


def hue_shifted(image: Tensor, shift: float) -> Tensor:
    """The hue turned by `shift` (1 is once around)."""
    real = converted(image, torch.float32)
    hue, saturation, value = _to_hsv(real)
    return converted(_from_hsv((hue + shift) % 1.0, saturation, value), image.dtype)


def _to_hsv(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value (Smith 1978)."""
    red, green, blue = image.unbind(-3)
    most, least = image.amax(-3), image.amin(-3)
    flat = most == least
    span = most - least
    saturation = span / torch.where(flat, torch.ones_like(most), most)
    span = torch.where(flat, torch.ones_like(span), span)
    r, g, b = (most - red) / span, (most - green) / span, (most - blue) / span
    is_red, is_green = most == red, (most == green) & (most != red)
    is_blue = (most != red) & (most != green)
    hue = is_red * (b - g) + is_green * (2.0 + r - b) + is_blue * (4.0 + g - r)
    return torch.fmod(hue / 6.0 + 1.0, 1.0), saturation, most


def _from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sector = torch.floor(hue * 6.0)
    rest = hue * 6.0 - sector
    sector = sector.to(torch.int32) % 6
    p = (value * (1.0 - saturation)).clamp(0.0, 1.0)
    q = (value * (1.0 - saturation * rest)).clamp(0.0, 1.0)
    t = (value * (1.0 - saturation * (1.0 - rest))).clamp(0.0, 1.0)
    table = ((value, q, p, p, t, value), (t, value, value, q, p, p), (p, p, t, value, value, q))
    channels = []
    for by_sector in table:
        channel = torch.zeros_like(value)
        for k, part in enumerate(by_sector):
            channel = torch.where(sector == k, part, channel)
        channels.append(channel)
    return torch.stack(channels, -3)


def rotated(image: Tensor, degrees: float, mode: str, expand: bool, center: Sequence[float] | None, fill: Any) -> Tensor:
    """Turned counter-clockwise about `center` (x, y), by default the middle; `fill` is what comes in from outside."""
    height, width = image.shape[-2:]
    x0, y0 = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # where a pixel of the result comes from, with the middle as origin
    matrix = [[cos, -sin, x0 - cos * x0 + sin * y0], [sin, cos, y0 - sin * x0 - cos * y0]]
    rows, columns = _bounds(matrix, height, width) if expand else (height, width)
    dtype = image.dtype if image.is_floating_point() else torch.float32
    x = torch.linspace(-columns * 0.5 + 0.5, columns * 0.5 - 0.5, columns).to(dtype)
    y = torch.linspace(-rows * 0.5 + 0.5, rows * 0.5 - 0.5, rows).to(dtype)
    ones = torch.ones(rows, columns, dtype=dtype)
    places = torch.stack([x.expand(rows, columns), y[:, None].expand(rows, columns), ones], -1)
    theta = torch.tensor(matrix, dtype=dtype).t() / torch.tensor([0.5 * width, 0.5 * height], dtype=dtype)
    grid = (places.reshape(-1, 3) @ theta).reshape(1, rows, columns, 2).to(image.device)
    batch = image.reshape(-1, *image.shape[-3:]).to(dtype)
    inside = torch.ones_like(batch[:, :1])
    grid = grid.expand(batch.shape[0], rows, columns, 2)
    both = F.grid_sample(torch.cat([batch, inside], 1), grid, mode=mode, padding_mode="zeros", align_corners=False)
    result, share = both[:, :-1], both[:, -1:]
    if fill is not None:
        color = torch.tensor(fill if isinstance(fill, (list, tuple)) else [float(fill)], dtype=dtype).view(1, -1, 1, 1)
        result = torch.where(share < 0.5, color, result) if mode == "nearest" else result * share + (1.0 - share) * color
    return _as_before(result, image).reshape(*image.shape[:-2], rows, columns)


def _bounds(matrix: list[list[float]], height: int, width: int) -> tuple[int, int]:
    """The rows and columns that a turned image needs."""
    corners = [(x * width, y * height) for x in (-0.5, 0.5) for y in (-0.5, 0.5)]
    sizes = []
    for (a, b, c), size in zip(matrix, (width, height)):
        ends = [a * x + b * y + c + size * 0.5 for x, y in corners]
        low, high = (math.trunc(end / 1e-4) * 1e-4 for end in (min(ends), max(ends)))  # as Pillow: 3.00000001 is 3
        sizes.append(math.ceil(high) - math.floor(low))
    return sizes[1], sizes[0]


__all__ = [
    "blended", "bound_of", "contrasted", "converted", "cropped", "gray", "hue_shifted", "padded", "resized", "rotated",
]  # fmt: skip
