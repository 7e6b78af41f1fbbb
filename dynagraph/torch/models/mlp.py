"""A perceptron of several layers; names as torchvision.ops.MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.torch import nn


class MLP(nn.Sequential):
    """Linear layers, each but the last followed by normalization, activation and dropout.

    (..., in_channels) to (..., hidden_channels[-1]).  The last layer has dropout alone.  `norm_layer` and `activation_layer` are
    called with a number of channels and with `inplace` (where that is not None).

    >>> from dynagraph import torch
    >>> MLP(4, [8, 3])(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self, in_channels: int, hidden_channels: Sequence[int], norm_layer: Callable[..., Any] | None = None,
        activation_layer: Callable[..., Any] | None = nn.ReLU, inplace: bool | None = None, bias: bool = True, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        about = {} if inplace is None else {"inplace": inplace}
        layers: list[Any] = []
        channels = in_channels
        for width in hidden_channels[:-1]:
            layers.append(nn.Linear(channels, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            if activation_layer is not None:
                layers.append(activation_layer(**about))
            layers.append(nn.Dropout(dropout, **about))
            channels = width
        layers += [nn.Linear(channels, hidden_channels[-1], bias=bias), nn.Dropout(dropout, **about)]
        super().__init__(*layers)


__all__ = ["MLP"]
