"""DCGAN (Radford, Metz and Chintala 2015, "Unsupervised representation learning with deep convolutional generative adversarial
networks"); names as in PyTorch's example.

Images have 64 x 64 pixels at the defaults; `image_size` may be another power of two from 16.
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch import Tensor, nn


def _halvings(image_size: int) -> int:
    """How often the side is halved down to 8 pixels."""
    if image_size < 16 or image_size & (image_size - 1):
        raise ValueError(f"image_size: expected a power of two from 16, but got {image_size}")
    return image_size.bit_length() - 4


def _initialize(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(layer.weight, 0.0, 0.02)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)


class Generator(nn.Module):
    """Codes (N, nz, 1, 1) to images (N, nc, image_size, image_size) between -1 and 1.

    `ngf` is the channels before the last layer.

    >>> from dynagraph import torch
    >>> Generator(nz=4, ngf=2, nc=1, image_size=16)(torch.zeros(2, 4, 1, 1)).shape
    torch.Size([2, 1, 16, 16])
    """

    def __init__(self, nz: int = 100, ngf: int = 64, nc: int = 3, image_size: int = 64) -> None:
        super().__init__()
        layers: list[Any] = []
        before = nz
        for k in range(_halvings(image_size), -1, -1):
            channels = ngf * 2**k
            first = (4, 1, 0) if before == nz and not layers else (4, 2, 1)
            layers += [nn.ConvTranspose2d(before, channels, *first, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True)]
            before = channels
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(before, nc, 4, 2, 1, bias=False), nn.Tanh())
        _initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x)


class Discriminator(nn.Module):
    """Images (N, nc, image_size, image_size) to probabilities (N,) that they are real.

    `ndf` is the channels after the first layer.

    >>> from dynagraph import torch
    >>> Discriminator(ndf=2, nc=1, image_size=16)(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2])
    """

    def __init__(self, ndf: int = 64, nc: int = 3, image_size: int = 64) -> None:
        super().__init__()
        layers: list[Any] = [nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        channels = ndf
        for _ in range(_halvings(image_size)):
            layers += [nn.Conv2d(channels, channels * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(channels * 2)]
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            channels *= 2
        self.main = nn.Sequential(*layers, nn.Conv2d(channels, 1, 4, 1, 0, bias=False), nn.Sigmoid())
        _initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x).view(-1)


__all__ = ["Discriminator", "Generator"]
