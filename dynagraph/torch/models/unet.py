"""U-Net (Ronneberger, Fischer and Brox 2015, "Convolutional networks for biomedical image segmentation").

With padded convolutions and batch norms, as in milesial's Pytorch-UNet, whose names the parameters have.
"""

from __future__ import annotations

from dynagraph import torch
from dynagraph.torch import Tensor, nn


class DoubleConv(nn.Module):
    """Two 3x3 convolutions with batch norm and ReLU: (N, in_channels, H, W) to (N, out_channels, H, W)."""

    def __init__(self, in_channels: int, out_channels: int, mid_channels: int | None = None) -> None:
        super().__init__()
        middle = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, middle, 3, padding=1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class Down(nn.Module):
    """Half the height and width, then a `DoubleConv`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class Up(nn.Module):
    """Twice the height and width, joined with the features of this size, then a `DoubleConv`.

    `bilinear`: interpolates, with no weights of its own; else a transposed convolution.
    """

    def __init__(self, in_channels: int, out_channels: int, bilinear: bool = False) -> None:
        super().__init__()
        self.up: nn.Module
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, 2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        x = self.up(x)
        rows, columns = skipped.shape[2] - x.shape[2], skipped.shape[3] - x.shape[3]
        if rows or columns:  # of sizes that are odd somewhere on the way down
            x = nn.functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.conv(torch.cat([skipped, x], 1))


class _OutConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class UNet(nn.Module):
    """(N, n_channels, H, W), with H and W of 16 or more, to logits (N, n_classes, H, W).

    `width` is the channels of the first stage.

    >>> from dynagraph import torch
    >>> UNet(3, 2, width=4)(torch.zeros(2, 3, 20, 18)).shape
    torch.Size([2, 2, 20, 18])
    """

    def __init__(self, n_channels: int, n_classes: int, bilinear: bool = False, *, width: int = 64) -> None:
        super().__init__()
        self.n_channels, self.n_classes, self.bilinear = n_channels, n_classes, bilinear
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, width)
        self.down1 = Down(width, width * 2)
        self.down2 = Down(width * 2, width * 4)
        self.down3 = Down(width * 4, width * 8)
        self.down4 = Down(width * 8, width * 16 // factor)
        self.up1 = Up(width * 16, width * 8 // factor, bilinear)
        self.up2 = Up(width * 8, width * 4 // factor, bilinear)
        self.up3 = Up(width * 4, width * 2 // factor, bilinear)
        self.up4 = Up(width * 2, width, bilinear)
        self.outc = _OutConv(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x = self.up1(self.down4(x4), x4)
        x = self.up2(x, x3)
        x = self.up3(x, x2)
        return self.outc(self.up4(x, x1))


__all__ = ["DoubleConv", "Down", "UNet", "Up"]
