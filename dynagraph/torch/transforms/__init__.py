"""Transforms of images and sounds: ``from dynagraph.torch import transforms``; names and arguments as torchvision's first version.

Images are tensors (..., C, H, W), or Pillow's.  Random numbers come from torch's stream, which a DataLoader seeds for each worker,
in torchvision's order.

>>> from dynagraph import torch
>>> from dynagraph.torch import transforms
>>> prepare = transforms.Compose([transforms.Resize(8), transforms.CenterCrop(6), transforms.Normalize([0.5], [0.5])])
>>> prepare(torch.zeros(1, 12, 16)).shape
torch.Size([1, 6, 6])
"""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.transforms import functional
from dynagraph.torch.transforms.audio import AmplitudeToDB, MelScale, MelSpectrogram, RandomWindow, Spectrogram, windows
from dynagraph.torch.transforms.fixed import (
    CenterCrop,
    Compose,
    ConvertImageDtype,
    Grayscale,
    Lambda,
    Normalize,
    Pad,
    PILToTensor,
    Resize,
    ToPILImage,
    ToTensor,
)
from dynagraph.torch.transforms.functional import InterpolationMode
from dynagraph.torch.transforms.random import (
    ColorJitter,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
)

__getattr__ = getattr_of(__name__)
__all__ = [
    "AmplitudeToDB", "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "Grayscale", "InterpolationMode", "Lambda",
    "MelScale", "MelSpectrogram", "Normalize", "PILToTensor", "Pad", "RandomApply", "RandomCrop", "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip", "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "RandomWindow", "Resize", "Spectrogram",
    "ToPILImage", "ToTensor", "functional", "windows",
]  # fmt: skip
