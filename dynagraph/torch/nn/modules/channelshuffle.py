"""Channels of groups, mixed."""

from __future__ import annotations

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.module import Module


class ChannelShuffle(Module):
    """The channels of (N, C, ...) in `groups` groups, taken in turns: the first of each, the second of each..."""

    __constants__ = ["groups"]  # noqa: RUF012

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


__all__ = ["ChannelShuffle"]
