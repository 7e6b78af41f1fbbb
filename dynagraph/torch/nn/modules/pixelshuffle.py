"""Channels as pixels, and pixels as channels."""

from __future__ import annotations

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.module import Module


class PixelShuffle(Module):
    """(..., C * r^2, H, W) to (..., C, H * r, W * r), r = `upscale_factor` (Shi et al. 2016)."""

    __constants__ = ["upscale_factor"]  # noqa: RUF012

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) to (..., C * r^2, H, W), r = `downscale_factor`: the inverse of `PixelShuffle`."""

    __constants__ = ["downscale_factor"]  # noqa: RUF012

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


__all__ = ["PixelShuffle", "PixelUnshuffle"]
