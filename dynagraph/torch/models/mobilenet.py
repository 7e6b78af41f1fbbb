"""MobileNetV2 (Sandler et al. 2018, "Inverted residuals and linear bottlenecks"); names as torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch import Tensor, nn

# table 2 of the paper: expansion, channels, blocks, stride of the first
_SETTING = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _rounded(channels: float, divisor: int) -> int:
    """The nearest multiple of `divisor` that is not below 9/10 of the number."""
    near = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * channels else near


def _convolution(before: int, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, channels, kernel, stride=stride, padding=(kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expansion, a convolution of each channel by itself, and a linear projection; added to the input where shapes agree."""

    def __init__(self, before: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = before * expansion
        self.use_res_connect = stride == 1 and before == channels
        self.conv = nn.Sequential(
            *([_convolution(before, hidden, 1)] if expansion != 1 else []),
            _convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """(N, 3, H, W) to (N, num_classes).

    `width_mult` scales all numbers of channels, which are rounded to multiples of `round_nearest`.  A row of
    `inverted_residual_setting` is expansion, channels, number of blocks, and stride of the first.

    >>> from dynagraph import torch
    >>> model = MobileNetV2(num_classes=10, inverted_residual_setting=[(1, 8, 1, 1), (2, 16, 2, 2)])
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, inverted_residual_setting: Sequence[Sequence[int]] = _SETTING,
        round_nearest: int = 8, dropout: float = 0.2,
    ) -> None:  # fmt: skip
        super().__init__()
        before = _rounded(32 * width_mult, round_nearest)
        self.last_channel = _rounded(1280 * max(1.0, width_mult), round_nearest)
        features: list[Any] = [_convolution(3, before, 3, 2)]
        for expansion, width, count, stride in inverted_residual_setting:
            channels = _rounded(width * width_mult, round_nearest)
            for k in range(count):
                features.append(InvertedResidual(before, channels, stride if k == 0 else 1, expansion))
                before = channels
        self.features = nn.Sequential(*features, _convolution(before, self.last_channel, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
            elif isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, 0, 0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


def mobilenet_v2(**kwargs: Any) -> MobileNetV2:
    """`MobileNetV2` in the size of the paper."""
    return MobileNetV2(**kwargs)


__all__ = ["InvertedResidual", "MobileNetV2", "mobilenet_v2"]
