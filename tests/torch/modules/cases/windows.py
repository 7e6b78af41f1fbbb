"""Pools, padding, folding, sizes and shapes."""

from __future__ import annotations

from tests.torch.modules.layers import layer
from tests.torch.table import T

_1, _2, _3 = T(2, 3, 8), T(2, 3, 6, 5), T(1, 2, 4, 5, 4)

CASES = [
    layer("MaxPool1d(2)", _1),
    layer("MaxPool1d(3, stride=2, padding=1, dilation=2, ceil_mode=True)", T(3, 9)),
    layer("MaxPool1d(2, return_indices=True)", _1),
    layer("MaxPool2d(2)", _2),
    layer("MaxPool2d((3, 2), stride=(2, 1), padding=(1, 0), return_indices=True)", _2),
    layer("MaxPool2d(3, 2, ceil_mode=True)", T(3, 6, 5)),
    layer("MaxPool3d(2)", _3),
    layer("MaxPool3d((1, 2, 2), stride=1, return_indices=True)", T(2, 4, 5, 4)),
    layer("MaxUnpool1d(2)", T(2, 3, 1), T(2, 3, 1, kind="index:2")),
    layer("MaxUnpool1d(2, 3, padding=1)", T(2, 1), T(2, 1, kind="index:2"), (2,)),
    layer("MaxUnpool2d(2, stride=(2, 1))", T(2, 3, 1, 1), T(2, 3, 1, 1, kind="index:4"), (2, 3, 3, 2)),
    layer("MaxUnpool3d((2, 1, 1))", T(1, 1, 1, 1, 1), T(1, 1, 1, 1, 1, kind="index:1")),
    layer("AvgPool1d(2)", _1),
    layer("AvgPool1d((3,), 2, 1, True, False)", T(3, 8)),
    layer("AvgPool2d(2)", _2),
    layer("AvgPool2d((3, 2), (2, 1), (1, 0), count_include_pad=False)", _2),
    layer("AvgPool2d(2, ceil_mode=True, divisor_override=3)", T(3, 5, 5)),
    layer("AvgPool3d(2)", _3),
    layer("AvgPool3d((1, 2, 2), 1, divisor_override=5)", T(2, 4, 5, 4)),
    layer("LPPool1d(2, 3)", T(2, 3, 8, kind="positive")),
    layer("LPPool1d(3.0, 2, stride=1, ceil_mode=True)", T(3, 8, kind="positive")),
    layer("LPPool2d(2, (2, 3), stride=2)", T(2, 3, 6, 5, kind="positive")),
    layer("LPPool3d(1, 2)", T(1, 2, 4, 5, 4, kind="positive")),
    layer("AdaptiveMaxPool1d(3)", _1),
    layer("AdaptiveMaxPool2d((2, None), return_indices=True)", _2),
    layer("AdaptiveMaxPool3d(2)", _3),
    layer("AdaptiveAvgPool1d(3)", T(3, 8)),
    layer("AdaptiveAvgPool2d(1)", _2),
    layer("AdaptiveAvgPool2d((None, 2))", _2),
    layer("AdaptiveAvgPool3d((2, 1, None))", _3),
    layer("FractionalMaxPool2d(2, output_size=3, _random_samples=torch.full((2, 3, 2), 0.3))", _2),
    layer("FractionalMaxPool2d((2, 1), output_ratio=(0.5, 0.6), return_indices=True, _random_samples=torch.full((2, 3, 2), 0.3))", _2),
    layer("FractionalMaxPool2d(2, output_ratio=0.5)", _2, _compare="meta"),
    layer("FractionalMaxPool3d(2, output_size=(2, 3, 2), _random_samples=torch.full((1, 2, 3), 0.7))", _3),
    *(
        layer(f"{name}{n}d({args})", T(*(2, 2, 4, 5, 4)[: n + 2]))
        for name in ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad")
        for n, args in ((1, 2), (1, "(1, 0)"), (2, 1), (2, "(1, 2, 0, 1)"), (3, 1), (3, "(1, 2, 0, 1, 2, 0)"))
    ),
    *(layer(f"{name}2d(1)", T(2, 4, 5)) for name in ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad")),
    layer("ConstantPad1d(2, 3.5)", T(2, 3)),
    layer("ConstantPad2d((1, -1, 2, 0), 0.5)", _2),
    layer("ConstantPad3d(1, value=-1)", _3),
    layer("ZeroPad1d((-1, 1))", T(3)),
    layer("Unfold((2, 3))", _2),
    layer("Unfold(2, dilation=2, padding=1, stride=2)", _2),
    layer("Fold((4, 5), (2, 3))", T(2, 12, 9)),
    layer("Fold(output_size=4, kernel_size=2, stride=2)", T(8, 4)),
    layer("Upsample(scale_factor=2)", _1),
    layer("Upsample(scale_factor=(2, 1.5), mode='bilinear')", _2),
    layer("Upsample(size=(3, 7), mode='bicubic', align_corners=True)", _2),
    layer("Upsample(size=(3, 7, 2), mode='trilinear')", _3),
    layer("Upsample(scale_factor=1.6, mode='nearest', recompute_scale_factor=True)", _2),
    layer("UpsamplingNearest2d(scale_factor=2)", _2),
    layer("UpsamplingNearest2d((3, 4))", _2),
    layer("UpsamplingBilinear2d(size=(9, 4))", _2),
    layer("PixelShuffle(2)", T(2, 8, 3, 2)),
    layer("PixelUnshuffle(2)", T(8, 4, 6)),
    layer("ChannelShuffle(3)", T(2, 6, 4)),
    layer("Flatten()", _2),
    layer("Flatten(0)", _1),
    layer("Flatten(1, 2)", T(2, 3, 6, 5, layout="T")),
    layer("Unflatten(1, (2, 4))", T(3, 8)),
    layer("Unflatten(-1, [2, -1])", T(3, 8)),
]
