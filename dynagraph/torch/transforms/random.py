"""Transforms with random numbers, which are drawn from torch's stream in torchvision's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch import nn
from dynagraph.torch.transforms import functional as F
from dynagraph.torch.transforms.fixed import size_pair

_TRIES = 10  # to find a part of the shape that was drawn within the image


def _uniform(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high).item())


def _below(count: int) -> int:
    return int(torch.randint(0, count, (1,)).item())


class RandomHorizontalFlip(nn.Module):
    """Left and right changed with probability `p`.

    >>> from dynagraph import torch
    >>> RandomHorizontalFlip(p=1.0)(torch.tensor([[[1, 2]]]))
    tensor([[[2, 1]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.hflip(img) if torch.rand(1) < self.p else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom changed with probability `p`."""

    def forward(self, img: Any) -> Any:
        return F.vflip(img) if torch.rand(1) < self.p else img


class RandomGrayscale(RandomHorizontalFlip):
    """Black and white with probability `p`, with as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def forward(self, img: Any) -> Any:
        channels = F.get_dimensions(img)[0]
        return F.rgb_to_grayscale(img, channels) if torch.rand(1) < self.p else img


class RandomApply(nn.Module):
    """All of some transforms, with probability `p`, or none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        if self.p < torch.rand(1):
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}(\n    p={self.p}{inner}\n)"


class RandomCrop(nn.Module):
    """A part of `size` (H, W), anywhere; after `padding`, and with more of it where the image is smaller and `pad_if_needed`."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__()
        self.size = size_pair(size)
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Draw (top, left, height, width)."""
        _, height, width = F.get_dimensions(img)
        rows, columns = output_size
        if height < rows or width < columns:
            raise ValueError(f"Required crop size {(rows, columns)} is larger than input image size {(height, width)}")
        if (height, width) == (rows, columns):
            return 0, 0, height, width
        top = _below(height - rows + 1)
        return top, _below(width - columns + 1), rows, columns

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


class RandomResizedCrop(nn.Module):
    """A part with a share of the area between `scale`, and width / height between `ratio`, resized to `size`."""

    def __init__(
        self, size: Any, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = F.InterpolationMode.BILINEAR, antialias: bool | None = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size_pair(size)
        self.scale, self.ratio, self.interpolation, self.antialias = scale, ratio, interpolation, antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """Draw (top, left, height, width)."""
        _, height, width = F.get_dimensions(img)
        logs = torch.log(torch.tensor(list(ratio)))
        for _ in range(_TRIES):
            area = height * width * _uniform(scale[0], scale[1])
            aspect = float(torch.exp(torch.empty(1).uniform_(float(logs[0]), float(logs[1]))).item())
            columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < columns <= width and 0 < rows <= height:
                top = _below(height - rows + 1)
                return top, _below(width - columns + 1), rows, columns
        rows, columns = height, width  # the middle, as near to the shape as can be
        if width / height < min(ratio):
            rows = round(width / min(ratio))
        elif width / height > max(ratio):
            columns = round(height * max(ratio))
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def forward(self, img: Any) -> Any:
        place = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *place, self.size, self.interpolation, self.antialias)

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(x, 4) for x in pair) for pair in (self.scale, self.ratio))
        about = f"size={self.size}, scale={scale}, ratio={ratio}, interpolation={F._mode_name(self.interpolation)}"
        return f"{type(self).__name__}({about}, antialias={self.antialias})"


class RandomRotation(nn.Module):
    """Turned by an angle between `degrees`; of one number, between minus and plus."""

    def __init__(
        self, degrees: Any, interpolation: Any = F.InterpolationMode.NEAREST, expand: bool = False,
        center: Sequence[float] | None = None, fill: Any = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if isinstance(degrees, (int, float)):
            if degrees < 0:
                raise ValueError("If degrees is a single number, it must be positive.")
            degrees = [-degrees, degrees]
        self.degrees = [float(degree) for degree in degrees]
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """Draw the angle."""
        return _uniform(float(degrees[0]), float(degrees[1]))

    def forward(self, img: Any) -> Any:
        channels = F.get_dimensions(img)[0]
        fill = self.fill
        if isinstance(img, torch.Tensor):
            fill = [float(fill)] * channels if isinstance(fill, (int, float)) else [float(f) for f in fill]
        return F.rotate(img, self.get_params(self.degrees), self.interpolation, self.expand, self.center, fill)

    def __repr__(self) -> str:
        about = f"degrees={self.degrees}, interpolation={F._mode_name(self.interpolation)}, expand={self.expand}"
        more = "" if self.center is None else f", center={self.center}"
        return f"{type(self).__name__}({about}{more}, fill={self.fill})"


class ColorJitter(nn.Module):
    """Brightness, contrast and saturation by factors, and hue by a shift, in a random order.

    A number x means from 1 - x (0 at least) to 1 + x, of `hue` from -x to x; or the ends are given.
    """

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        super().__init__()
        self.brightness = self._ends(brightness, "brightness", 1.0, (0.0, math.inf))
        self.contrast = self._ends(contrast, "contrast", 1.0, (0.0, math.inf))
        self.saturation = self._ends(saturation, "saturation", 1.0, (0.0, math.inf))
        self.hue = self._ends(hue, "hue", 0.0, (-0.5, 0.5))

    @staticmethod
    def _ends(value: Any, name: str, center: float, bounds: tuple[float, float]) -> tuple[float, float] | None:
        if isinstance(value, (int, float)):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            low, high = center - float(value), center + float(value)
            low = max(low, 0.0) if center else low
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            low, high = float(value[0]), float(value[1])
        else:
            raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
        if not bounds[0] <= low <= high <= bounds[1]:
            raise ValueError(f"{name} values should be between {bounds}, but got {[low, high]}.")
        return None if low == high == center else (low, high)

    @staticmethod
    def get_params(brightness: Any, contrast: Any, saturation: Any, hue: Any) -> tuple[Any, ...]:
        """Draw the order, and the four factors."""
        order = torch.randperm(4)
        factors = [None if ends is None else _uniform(ends[0], ends[1]) for ends in (brightness, contrast, saturation, hue)]
        return (order, *factors)

    def forward(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        changes: list[Callable[[Any, float], Any]] = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue]
        for k in order.tolist():
            if factors[k] is not None:
                img = changes[k](img, factors[k])
        return img

    def __repr__(self) -> str:
        names = ("brightness", "contrast", "saturation", "hue")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


class RandomErasing(nn.Module):
    """With probability `p` a part of a tensor replaced by `value`, or with "random" by normal numbers (Zhong et al. 2017)."""

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3), value: Any = 0,
        inplace: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError("Scale should be between 0 and 1")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float], value: list[float] | None = None) -> tuple[Any, ...]:
        """Draw (top, left, height, width, what is put there); the whole image as it is, where no part was found."""
        channels, height, width = img.shape[-3:]
        logs = torch.log(torch.tensor(list(ratio)))
        for _ in range(_TRIES):
            area = height * width * _uniform(scale[0], scale[1])
            aspect = float(torch.exp(torch.empty(1).uniform_(float(logs[0]), float(logs[1]))).item())
            rows, columns = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if rows >= height or columns >= width:
                continue
            if value is None:
                new = torch.empty([channels, rows, columns], dtype=torch.float32).normal_()
            else:
                new = torch.tensor(value)[:, None, None]
            top = _below(height - rows + 1)
            return top, _below(width - columns + 1), rows, columns, new
        return 0, 0, height, width, img

    def forward(self, img: Any) -> Any:
        if torch.rand(1) >= self.p:
            return img
        value = self.value
        if isinstance(value, (int, float)):
            value = [float(value)]
        elif isinstance(value, str):
            value = None
        elif len(value) not in (1, img.shape[-3]):
            raise ValueError(f"If value is a sequence, it should have either a single value or {img.shape[-3]} channels")
        top, left, rows, columns, new = self.get_params(img, self.scale, self.ratio, value)
        return F.erase(img, top, left, rows, columns, new, self.inplace)

    def __repr__(self) -> str:
        about = f"p={self.p}, scale={self.scale}, ratio={self.ratio}, value={self.value}, inplace={self.inplace}"
        return f"{type(self).__name__}({about})"


__all__ = [
    "ColorJitter", "RandomApply", "RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop",
    "RandomRotation", "RandomVerticalFlip",
]  # fmt: skip
