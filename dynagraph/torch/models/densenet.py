"""DenseNet (Huang, Liu, van der Maaten and Weinberger 2017, "Densely connected convolutional networks"); names as torchvision.

State dicts with the names of torchvision's published files (``denselayer1.norm.1.weight``) load, too.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor, nn

_OLD_NAME = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.\w+)$")


class _DenseLayer(nn.Module):
    """`growth_rate` new channels out of all earlier ones."""

    def __init__(self, before: int, growth_rate: int, bn_size: int, drop_rate: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(before, bn_size * growth_rate, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate = drop_rate

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))
        return nn.functional.dropout(new, self.drop_rate, self.training) if self.drop_rate > 0 else new


class _DenseBlock(nn.ModuleDict):
    """Layers, each of which reads the block's input and what all layers before it gave."""

    def __init__(self, count: int, before: int, bn_size: int, growth_rate: int, drop_rate: float) -> None:
        super().__init__()
        for k in range(count):
            self.add_module(f"denselayer{k + 1}", _DenseLayer(before + k * growth_rate, growth_rate, bn_size, drop_rate))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class _Transition(nn.Sequential):
    """Half of the channels, and half of the height and width."""

    def __init__(self, before: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(before)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(before, channels, 1, bias=False)
        self.pool = nn.AvgPool2d(2, stride=2)


class DenseNet(nn.Module):
    """(N, 3, H, W) to (N, num_classes); `block_config` says how many layers there are in each block.

    >>> from dynagraph import torch
    >>> model = DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8, num_classes=10)
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, growth_rate: int = 32, block_config: Sequence[int] = (6, 12, 24, 16), num_init_features: int = 64, bn_size: int = 4,
        drop_rate: float = 0, num_classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: OrderedDict[str, Any] = OrderedDict()
        layers["conv0"] = nn.Conv2d(3, num_init_features, 7, stride=2, padding=3, bias=False)
        layers["norm0"] = nn.BatchNorm2d(num_init_features)
        layers["relu0"] = nn.ReLU(inplace=True)
        layers["pool0"] = nn.MaxPool2d(3, stride=2, padding=1)
        channels = num_init_features
        for k, count in enumerate(block_config, 1):
            layers[f"denseblock{k}"] = _DenseBlock(count, channels, bn_size, growth_rate, drop_rate)
            channels += count * growth_rate
            if k < len(block_config):
                layers[f"transition{k}"] = _Transition(channels, channels // 2)
                channels //= 2
        layers["norm5"] = nn.BatchNorm2d(channels)
        self.features = nn.Sequential(layers)
        self.classifier = nn.Linear(channels, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
            elif isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        features = nn.functional.relu(self.features(x), inplace=True)
        return self.classifier(nn.functional.adaptive_avg_pool2d(features, (1, 1)).flatten(1))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in list(state_dict):
            if name.startswith(prefix) and _OLD_NAME.search(name):
                state_dict[_OLD_NAME.sub(r"\1\2", name)] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)


def densenet121(**kwargs: Any) -> DenseNet:
    """`DenseNet` of 121 layers."""
    return DenseNet(32, (6, 12, 24, 16), 64, **kwargs)


__all__ = ["DenseNet", "densenet121"]
