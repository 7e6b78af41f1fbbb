"""LeNet-5 (LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition").

As it is taught today: ReLU and maxima, and a linear classifier.  Names as in PyTorch's first tutorial.
"""

from __future__ import annotations

from dynagraph.torch import Tensor, nn
from dynagraph.torch.nn import functional as F


class LeNet(nn.Module):
    """(N, in_channels, image_size, image_size) to (N, num_classes).

    >>> from dynagraph import torch
    >>> LeNet(image_size=28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, image_size: int = 32) -> None:
        super().__init__()
        side = ((image_size - 4) // 2 - 4) // 2
        if side < 1:
            raise ValueError(f"image_size: expected at least 16, but got {image_size}")
        self.conv1 = nn.Conv2d(in_channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


__all__ = ["LeNet"]
