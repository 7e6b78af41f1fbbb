"""ResNet (He, Zhang, Ren and Sun 2015, "Deep residual learning for image recognition"); names as torchvision.

In blocks of three convolutions the second one has the stride, as in torchvision; the paper has it in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.torch import Tensor, nn


def _conv3x3(before: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)


def _conv1x1(before: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, channels, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to their input: (N, inplanes, H, W) to (N, planes, H / stride, W / stride).

    >>> from dynagraph import torch
    >>> BasicBlock(4, 4)(torch.zeros(1, 4, 8, 8)).shape
    torch.Size([1, 4, 8, 8])
    """

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None,
        norm_layer: Callable[[int], Any] = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv1 = _conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1, added to their input: (N, inplanes, H, W) to (N, 4 planes, H / stride, W / stride).

    >>> from dynagraph import torch
    >>> Bottleneck(16, 4)(torch.zeros(1, 16, 8, 8)).shape
    torch.Size([1, 16, 8, 8])
    """

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None,
        norm_layer: Callable[[int], Any] = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv1 = _conv1x1(inplanes, planes)
        self.bn1 = norm_layer(planes)
        self.conv2 = _conv3x3(planes, planes, stride)
        self.bn2 = norm_layer(planes)
        self.conv3 = _conv1x1(planes, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """(N, 3, H, W) to (N, num_classes); `layers` says how many blocks there are in each of four stages.

    `zero_init_residual` has each block begin as the identity (Goyal et al. 2017).  `width` is the channels of the first stage.

    >>> from dynagraph import torch
    >>> ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10, width=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], layers: Sequence[int], num_classes: int = 1000,
        zero_init_residual: bool = False, norm_layer: Callable[[int], Any] = nn.BatchNorm2d, *, width: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm_layer(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(block, width, layers[0], 1, norm_layer)
        self.layer2 = self._stage(block, width * 2, layers[1], 2, norm_layer)
        self.layer3 = self._stage(block, width * 4, layers[2], 2, norm_layer)
        self.layer4 = self._stage(block, width * 8, layers[3], 2, norm_layer)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 8 * block.expansion, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        if zero_init_residual:
            for layer in self.modules():
                if isinstance(layer, (BasicBlock, Bottleneck)):
                    nn.init.zeros_((layer.bn2 if isinstance(layer, BasicBlock) else layer.bn3).weight)

    def _stage(self, block: Any, planes: int, count: int, stride: int, norm_layer: Callable[[int], Any]) -> nn.Sequential:
        channels = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != channels:
            downsample = nn.Sequential(_conv1x1(self.inplanes, channels, stride), norm_layer(channels))
        blocks = [block(self.inplanes, planes, stride, downsample, norm_layer)]
        self.inplanes = channels
        blocks += [block(channels, planes, norm_layer=norm_layer) for _ in range(1, count)]
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(**kwargs: Any) -> ResNet:
    """`ResNet` of 18 layers."""
    return ResNet(BasicBlock, [2, 2, 2, 2], **kwargs)


def resnet34(**kwargs: Any) -> ResNet:
    """`ResNet` of 34 layers."""
    return ResNet(BasicBlock, [3, 4, 6, 3], **kwargs)


def resnet50(**kwargs: Any) -> ResNet:
    """`ResNet` of 50 layers, in blocks of three."""
    return ResNet(Bottleneck, [3, 4, 6, 3], **kwargs)


__all__ = ["BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50"]
