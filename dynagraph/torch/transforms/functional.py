"""Transforms as functions of an image: a tensor (..., C, H, W), or one of Pillow's, whose own operations it then uses."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph import torch
from dynagraph.torch import Tensor
from dynagraph.torch.transforms import tensors

try:
    from PIL import Image, ImageEnhance, ImageOps
except ImportError:  # an optional package: no image can be Pillow's
    Image = ImageEnhance = ImageOps = None  # type: ignore[assignment]


class InterpolationMode(enum.Enum):
    """How images are resized and turned."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOWS = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_TENSORS = ("nearest", "nearest-exact", "bilinear", "bicubic")


def is_image(value: Any) -> bool:
    """Whether it is one of Pillow's."""
    return Image is not None and isinstance(value, Image.Image)


def _check(image: Any) -> bool:
    """Whether it is a tensor; TypeError where it is no image."""
    if isinstance(image, Tensor):
        if image.dim() < 2:
            raise TypeError("Tensor is not a torch image.")
        return True
    if not is_image(image):
        raise TypeError(f"img should be PIL Image or Tensor. Got {type(image)}")
    return False


def get_image_size(img: Any) -> tuple[int, int]:
    """(width, height)."""
    return (img.shape[-1], img.shape[-2]) if _check(img) else img.size


def get_dimensions(img: Any) -> tuple[int, int, int]:
    """(channels, height, width)."""
    if _check(img):
        return (1 if img.dim() == 2 else img.shape[-3]), img.shape[-2], img.shape[-1]
    return len(img.getbands()), img.size[1], img.size[0]


# -- to tensors and back ----------------------------------------------------------------------------------------------


def _pixels(pic: Any) -> Tensor:
    """(C, H, W) of an image of Pillow's, or of an array (H, W) or (H, W, C)."""
    array = np.array(pic, copy=True)
    if is_image(pic) and pic.mode == "1":
        array = array.astype(np.uint8) * 255
    return torch.from_numpy(np.ascontiguousarray(np.atleast_3d(array).transpose(2, 0, 1)))


def to_tensor(pic: Any) -> Tensor:
    """An image of Pillow's, or an array (H, W) or (H, W, C), as (C, H, W): uint8 as floats from 0 to 1, others as they are."""
    if not (is_image(pic) or isinstance(pic, np.ndarray)):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    if isinstance(pic, np.ndarray) and pic.ndim not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
    pixels = _pixels(pic)
    return pixels.to(torch.get_default_dtype()) / 255 if pixels.dtype == torch.uint8 else pixels


def pil_to_tensor(pic: Any) -> Tensor:
    """An image of Pillow's as a tensor (C, H, W) of its own numbers."""
    if not is_image(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return _pixels(pic)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (C, H, W) or array (H, W, C) as an image of Pillow's; floats are from 0 to 1."""
    if Image is None:
        raise ImportError("to_pil_image needs pillow: pip install pillow", name="PIL")
    if isinstance(pic, Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        real = pic.is_floating_point() and mode != "F"
        numbers: Any = pic.mul(255).byte() if real else pic
        array = numbers.detach().cpu().numpy()
        array = array[:, :, None] if array.ndim == 2 else array.transpose(1, 2, 0)
    elif isinstance(pic, np.ndarray):
        array = pic[:, :, None] if pic.ndim == 2 else pic
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if array.ndim != 3 or array.shape[2] > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {array.shape[-1]} channels.")
    image = Image.fromarray(np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array))
    return image if mode in (None, image.mode) else image.convert(mode)


def convert_image_dtype(image: Tensor, dtype: Any = torch.float) -> Tensor:
    """A tensor as another dtype: floats from 0 to 1, integers up to their largest."""
    return tensors.converted(image, dtype)


def normalize(tensor: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """``(tensor - mean) / std`` for each channel."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.dim() < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}")
    means, deviations = (torch.as_tensor(t, dtype=tensor.dtype, device=tensor.device) for t in (mean, std))
    if (deviations == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    means, deviations = (t.view(-1, 1, 1) if t.dim() == 1 else t for t in (means, deviations))
    written: Any = tensor if inplace else tensor.clone()
    return written.sub_(means).div_(deviations)


# -- sizes ------------------------------------------------------------------------------------------------------------


def _target(height: int, width: int, size: Any, max_size: int | None) -> tuple[int, int]:
    """(H, W) of a resized image: of one number, that of the shorter side."""
    if not isinstance(size, int) and len(size) == 2:
        if max_size is not None:
            raise ValueError("max_size should only be passed if size specifies the length of the smaller edge")
        return int(size[0]), int(size[1])
    wanted = size if isinstance(size, int) else size[0]
    short, long = min(height, width), max(height, width)
    new_short, new_long = wanted, int(wanted * long / short)
    if max_size is not None:
        if max_size <= wanted:
            raise ValueError(f"max_size: expected more than size, the length of the smaller edge, {wanted}, but got {max_size}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


def _mode_name(mode: Any) -> str:
    """"bilinear", of a mode or of Pillow's number."""
    if isinstance(mode, int):
        return next(name for name, number in _PILLOWS.items() if number == mode)
    return InterpolationMode(mode).value


def resize(
    img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: int | None = None, antialias: bool | None = True
) -> Any:
    """To (H, W), or to the length of the shorter side.  `antialias` counts for tensors; Pillow's resize always does it."""
    name = _mode_name(interpolation)
    _, height, width = get_dimensions(img)
    rows, columns = _target(height, width, size, max_size)
    if (rows, columns) == (height, width):
        return img
    if not _check(img):
        return img.resize((columns, rows), _PILLOWS[name])
    if name not in _TENSORS:
        raise ValueError(f"interpolation: expected one of {', '.join(_TENSORS)} for a tensor, but got {name!r}")
    return tensors.resized(img, (rows, columns), name, bool(antialias))


def _sides(padding: Any) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of one number, of two or of four."""
    given = [padding] if isinstance(padding, int) else list(padding)
    if len(given) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(given)} element tuple")
    left, top, right, bottom = given * (4 // len(given))
    return left, top, right, bottom


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """With a border: one width, (left/right, top/bottom), or (left, top, right, bottom)."""
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    sides = _sides(padding)
    if _check(img):
        return tensors.padded(img, sides, fill, padding_mode)
    if padding_mode == "constant":
        color = tuple(fill) if isinstance(fill, (list, tuple)) else (fill,) * len(img.getbands())
        return ImageOps.expand(img, border=sides, fill=color if len(color) > 1 else color[0])
    left, top, right, bottom = sides
    array = np.asarray(img)
    width = ((top, bottom), (left, right), *[(0, 0)] * (array.ndim - 2))
    return Image.fromarray(np.pad(array, width, mode=padding_mode))  # type: ignore[call-overload]


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the image; beyond it there are zeros."""
    return tensors.cropped(img, top, left, height, width) if _check(img) else img.crop((left, top, left + width, top + height))


def center_crop(img: Any, output_size: Any) -> Any:
    """(H, W), or a square, of the middle; of smaller images with zeros around."""
    rows, columns = (output_size, output_size) if isinstance(output_size, int) else (output_size * 2)[:2]
    _, height, width = get_dimensions(img)
    if columns > width or rows > height:
        left, top = max(columns - width, 0), max(rows - height, 0)
        img = pad(img, [left // 2, top // 2, (left + 1) // 2, (top + 1) // 2], fill=0)
        _, height, width = get_dimensions(img)
        if (rows, columns) == (height, width):
            return img
    return crop(img, round((height - rows) / 2.0), round((width - columns) / 2.0), rows, columns)


def resized_crop(
    img: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:  # fmt: skip
    """A part of the image, resized."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


# -- turns ------------------------------------------------------------------------------------------------------------


def hflip(img: Any) -> Any:
    """Left and right changed."""
    return img.flip(-1) if _check(img) else img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(img: Any) -> Any:
    """Top and bottom changed."""
    return img.flip(-2) if _check(img) else img.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def rotate(
    img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False,
    center: Sequence[float] | None = None, fill: Any = None,
) -> Any:  # fmt: skip
    """Turned counter-clockwise by `angle` degrees about `center` (x, y); `expand` keeps all of it."""
    name = _mode_name(interpolation)
    if _check(img):
        if name not in ("nearest", "bilinear"):
            raise ValueError(f"interpolation: expected nearest or bilinear for a tensor, but got {name!r}")
        return tensors.rotated(img, angle, name, expand, None if expand else center, fill)
    bands = len(img.getbands())
    color = 0 if fill is None else fill
    several = tuple(color) if isinstance(color, (list, tuple)) else (color,) * bands
    return img.rotate(angle, _PILLOWS[name], expand, center, fillcolor=several if bands > 1 else several[0])


# -- colours ----------------------------------------------------------------------------------------------------------


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the image, 2 twice as bright."""
    _check_factor("brightness_factor", brightness_factor)
    if _check(img):
        return tensors.blended(img, torch.zeros_like(img), brightness_factor)
    return ImageEnhance.Brightness(img).enhance(brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 is the mean gray, 1 the image."""
    _check_factor("contrast_factor", contrast_factor)
    return tensors.contrasted(img, contrast_factor) if _check(img) else ImageEnhance.Contrast(img).enhance(contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 is black and white, 1 the image."""
    _check_factor("saturation_factor", saturation_factor)
    if _check(img):
        return img if img.shape[-3] == 1 else tensors.blended(img, tensors.gray(img), saturation_factor)
    return ImageEnhance.Color(img).enhance(saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """The hue turned by `hue_factor`, from -0.5 to 0.5 (both are complementary colours)."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if _check(img):
        return img if img.shape[-3] == 1 else tensors.hue_shifted(img, hue_factor)
    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, saturation, value = img.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int32) + int(hue_factor * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert(img.mode)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Luma, in one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if _check(img):
        return tensors.gray(img, num_output_channels)
    image = img.convert("L")
    return image if num_output_channels == 1 else Image.merge("RGB", (image,) * 3)


to_grayscale = rgb_to_grayscale


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """With `v` in the rows from `i` and the columns from `j`."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be Tensor. Got {type(img)}")
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation", "center_crop",
    "convert_image_dtype", "crop", "erase", "get_dimensions", "get_image_size", "hflip", "is_image", "normalize", "pad",
    "pil_to_tensor", "resize", "resized_crop", "rgb_to_grayscale", "rotate", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip
