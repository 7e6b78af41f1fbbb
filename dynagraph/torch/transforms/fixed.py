"""Transforms without random numbers, as objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.torch import nn
from dynagraph.torch.transforms import functional as F


class Compose:
    """One transform after the other.

    >>> double = Lambda(lambda x: x * 2)
    >>> Compose([double, double])(1)
    4
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        inner = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({inner}\n)"


class Lambda:
    """A function of the user's."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToTensor:
    """An image of Pillow's, or an array (H, W) or (H, W, C) uint8, to a tensor (C, H, W) from 0 to 1."""

    def __call__(self, pic: Any) -> Any:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """An image of Pillow's to a tensor (C, H, W) of its own numbers."""

    def __call__(self, pic: Any) -> Any:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) to an image of Pillow's."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(nn.Module):
    """A tensor as another dtype, with white as white."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Any) -> Any:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(nn.Module):
    """``(x - mean) / std`` for each channel of a tensor of floats.

    >>> from dynagraph import torch
    >>> Normalize([0.5], [0.25])(torch.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Any) -> Any:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class Resize(nn.Module):
    """To (H, W), or with one number to that length of the shorter side, the longer one being at most `max_size`."""

    def __init__(
        self, size: Any, interpolation: Any = F.InterpolationMode.BILINEAR, max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if not isinstance(size, int) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation, max_size, antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        name = F._mode_name(self.interpolation)
        about = f"size={self.size}, interpolation={name}, max_size={self.max_size}, antialias={self.antialias}"
        return f"{type(self).__name__}({about})"


def size_pair(size: Any) -> tuple[int, int]:
    """(H, W) of one number or two."""
    if isinstance(size, int):
        return size, size
    if len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return size[0], size[1]


class CenterCrop(nn.Module):
    """(H, W), or a square, of the middle; of smaller images with zeros around."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = size_pair(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class Pad(nn.Module):
    """A border: one width, (left/right, top/bottom), or (left, top, right, bottom)."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        F._sides(padding)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class Grayscale(nn.Module):
    """Luma, in one channel or three equal ones.

    >>> from dynagraph import torch
    >>> Grayscale()(torch.ones(3, 2, 2)).shape
    torch.Size([1, 2, 2])
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"


__all__ = [
    "CenterCrop", "Compose", "ConvertImageDtype", "Grayscale", "Lambda", "Normalize", "PILToTensor", "Pad", "Resize", "ToPILImage",
    "ToTensor", "size_pair",
]  # fmt: skip
