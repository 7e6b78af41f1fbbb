"""AlexNet for one device (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks").

Names as torchvision.
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch import Tensor, nn


class AlexNet(nn.Module):
    """(N, 3, H, W), with H and W of 63 or more, to (N, num_classes).

    `width` and `hidden` are the channels of the first layer and the units of the classifier's layers.

    >>> from dynagraph import torch
    >>> AlexNet(num_classes=10, width=8, hidden=32)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, *, width: int = 64, hidden: int = 4096) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(width, width * 3, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(width * 3, width * 6, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width * 6, width * 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width * 4, width * 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width * 4 * 36, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def alexnet(**kwargs: Any) -> AlexNet:
    """`AlexNet` in the size of the paper."""
    return AlexNet(**kwargs)


__all__ = ["AlexNet", "alexnet"]
