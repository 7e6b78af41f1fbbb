"""VGG (Simonyan and Zisserman 2014, "Very deep convolutional networks for large-scale image recognition"); names as torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch import Tensor, nn

# by the number of layers with weights: how many convolutions stand before each halving of the image
_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _features(convolutions: Sequence[int], batch_norm: bool, width: int) -> nn.Sequential:
    layers: list[Any] = []
    before = 3
    for stage, count in enumerate(convolutions):
        channels = width * min(2**stage, 8)
        for _ in range(count):
            layers.append(nn.Conv2d(before, channels, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(channels))
            layers.append(nn.ReLU(inplace=True))
            before = channels
        layers.append(nn.MaxPool2d(2, stride=2))
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """(N, 3, H, W), with H and W of 32 or more, to (N, num_classes).

    `convolutions` says how many there are in each of five stages; `width` and `hidden` are the channels of the first stage and the
    units of the classifier's layers.

    >>> from dynagraph import torch
    >>> vgg11(num_classes=10, width=4, hidden=16)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(
        self, convolutions: Sequence[int], batch_norm: bool = False, num_classes: int = 1000, init_weights: bool = True,
        dropout: float = 0.5, *, width: int = 64, hidden: int = 4096,
    ) -> None:  # fmt: skip
        super().__init__()
        self.features = _features(convolutions, batch_norm, width)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(width * min(2 ** (len(convolutions) - 1), 8) * 49, hidden),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        if init_weights:
            for layer in self.modules():
                if isinstance(layer, nn.Conv2d):
                    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                    nn.init.zeros_(layer.bias)
                elif isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, 0, 0.01)
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg11(**kwargs: Any) -> VGG:
    """`VGG` of 11 layers: configuration A of the paper."""
    return VGG(_CONVOLUTIONS[11], **kwargs)


def vgg11_bn(**kwargs: Any) -> VGG:
    """`vgg11` with batch norms."""
    return VGG(_CONVOLUTIONS[11], True, **kwargs)


def vgg13(**kwargs: Any) -> VGG:
    """`VGG` of 13 layers: configuration B."""
    return VGG(_CONVOLUTIONS[13], **kwargs)


def vgg13_bn(**kwargs: Any) -> VGG:
    """`vgg13` with batch norms."""
    return VGG(_CONVOLUTIONS[13], True, **kwargs)


def vgg16(**kwargs: Any) -> VGG:
    """`VGG` of 16 layers: configuration D."""
    return VGG(_CONVOLUTIONS[16], **kwargs)


def vgg16_bn(**kwargs: Any) -> VGG:
    """`vgg16` with batch norms."""
    return VGG(_CONVOLUTIONS[16], True, **kwargs)


def vgg19(**kwargs: Any) -> VGG:
    """`VGG` of 19 layers: configuration E."""
    return VGG(_CONVOLUTIONS[19], **kwargs)


def vgg19_bn(**kwargs: Any) -> VGG:
    """`vgg19` with batch norms."""
    return VGG(_CONVOLUTIONS[19], True, **kwargs)


__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]
