"""Transforms of images: run by torchvision and here.

A case is a function of a namespace of transforms and an image; its random numbers come from a seed.  `small` images are uint8
(3, 9, 12), `real` ones the same as floats, `pillow` ones Pillow's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SEED = 5
KINDS = ("small", "real", "pillow")
Case = Callable[[Any, Any], Any]
CASES: dict[str, Case] = {
    "resize shorter": lambda T, x: T.Resize(6)(x),
    "resize to a shape": lambda T, x: T.Resize((5, 17))(x),
    "resize larger": lambda T, x: T.Resize(20, max_size=23)(x),
    "resize nearest": lambda T, x: T.Resize((4, 5), T.InterpolationMode.NEAREST)(x),
    "resize bicubic": lambda T, x: T.Resize((6, 7), T.InterpolationMode.BICUBIC)(x),
    "resize without antialias": lambda T, x: T.Resize((5, 6), antialias=False)(x),
    "center crop": lambda T, x: T.CenterCrop((4, 7))(x),
    "center crop of more": lambda T, x: T.CenterCrop((14, 7))(x),
    "pad": lambda T, x: T.Pad((1, 2, 3, 0))(x),
    "pad by a colour": lambda T, x: T.Pad(2, fill=1)(x),
    "pad edge": lambda T, x: T.Pad((1, 2), padding_mode="edge")(x),
    "pad reflect": lambda T, x: T.Pad((3, 2), padding_mode="reflect")(x),
    "pad symmetric": lambda T, x: T.Pad((3, 2, 1, 4), padding_mode="symmetric")(x),
    "grayscale": lambda T, x: T.Grayscale()(x),
    "grayscale of three": lambda T, x: T.Grayscale(3)(x),
    "flip": lambda T, x: T.functional.hflip(T.functional.vflip(x)),
    "crop beyond": lambda T, x: T.functional.crop(x, -1, 4, 6, 12),
    "rotate": lambda T, x: T.functional.rotate(x, 25.0),
    "rotate bilinear": lambda T, x: T.functional.rotate(x, -40.0, T.InterpolationMode.BILINEAR, fill=[0, 1, 0]),
    "rotate expand": lambda T, x: T.functional.rotate(x, 30.0, T.InterpolationMode.BILINEAR, expand=True),
    "rotate about a corner": lambda T, x: T.functional.rotate(x, 60.0, center=[0, 0]),
    "rotate a quarter": lambda T, x: T.functional.rotate(x, 90.0, expand=True),
    "brightness": lambda T, x: T.functional.adjust_brightness(x, 1.4),
    "contrast": lambda T, x: T.functional.adjust_contrast(x, 0.6),
    "saturation": lambda T, x: T.functional.adjust_saturation(x, 1.7),
    "hue": lambda T, x: T.functional.adjust_hue(x, 0.3),
    "hue backwards": lambda T, x: T.functional.adjust_hue(x, -0.45),
    "random crop": lambda T, x: T.RandomCrop((5, 6), padding=2)(x),
    "random crop if needed": lambda T, x: T.RandomCrop((14, 6), pad_if_needed=True)(x),
    "random resized crop": lambda T, x: T.RandomResizedCrop(6)(x),
    "random resized crop of thin parts": lambda T, x: T.RandomResizedCrop(6, scale=(0.9, 1.0), ratio=(3.0, 4.0))(x),
    "random flips": lambda T, x: [T.RandomHorizontalFlip()(T.RandomVerticalFlip(0.3)(x)) for _ in range(4)],
    "random rotation": lambda T, x: T.RandomRotation(30)(x),
    "random grayscale": lambda T, x: [T.RandomGrayscale(0.5)(x) for _ in range(4)],
    "color jitter": lambda T, x: [T.ColorJitter(0.4, (0.5, 1.5), 0.3, 0.2)(x) for _ in range(3)],
    "random apply": lambda T, x: [T.RandomApply([T.ColorJitter(brightness=0.5)], p=0.6)(x) for _ in range(4)],
}
TENSORS: dict[str, Case] = {
    "normalize": lambda T, x: T.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4])(T.ConvertImageDtype(_float32(x))(x)),
    "convert": lambda T, x: T.functional.convert_image_dtype(T.functional.convert_image_dtype(x, _float32(x)), x.dtype),
    "random erasing": lambda T, x: [T.RandomErasing(0.8)(x) for _ in range(4)],
    "random erasing by numbers": lambda T, x: T.RandomErasing(1, value="random")(T.ConvertImageDtype(_float32(x))(x)),
    "to pillow and back": lambda T, x: T.ToTensor()(T.ToPILImage()(x)),
    "pixels": lambda T, x: T.PILToTensor()(T.ToPILImage()(x)),
}


def _float32(x: Any) -> Any:
    return x.float().dtype


def pixels() -> np.ndarray:
    """(3, 9, 12) uint8: with gray, black and white among them."""
    image = np.random.default_rng(0).integers(0, 256, (3, 9, 12)).astype(np.uint8)
    image[:, 0, :3] = [[0, 255, 120]]
    return image


def image_of(torch: Any, kind: str) -> Any:
    if kind == "small":
        return torch.from_numpy(pixels())
    if kind == "real":
        return torch.from_numpy((pixels() / 255).astype(np.float32))
    from PIL import Image  # an optional package

    return Image.fromarray(np.ascontiguousarray(pixels().transpose(1, 2, 0)))


def cases(kind: str) -> dict[str, Case]:
    return CASES if kind == "pillow" else {**CASES, **TENSORS}


def run(torch: Any, transforms: Any, case: Case, kind: str) -> np.ndarray:
    """What a case makes of an image, as one array."""
    torch.manual_seed(SEED)
    found = case(transforms, image_of(torch, kind))
    return np.stack([np.asarray(each) for each in found]) if isinstance(found, list) else np.asarray(found)
