"""Norms: batch, instance, layer, group, RMS, local response."""

from __future__ import annotations

from tests.torch.modules.layers import layer
from tests.torch.table import T

_BATCH = [
    ("BatchNorm1d(3)", T(4, 3)),
    ("BatchNorm1d(3, eps=0.1, momentum=0.3)", T(4, 3, 2)),
    ("BatchNorm1d(3, momentum=None)", T(4, 3)),
    ("BatchNorm1d(3, affine=False)", T(4, 3)),
    ("BatchNorm1d(3, bias=False)", T(4, 3)),
    ("BatchNorm1d(3, track_running_stats=False)", T(4, 3)),
    ("BatchNorm2d(3)", T(2, 3, 2, 4)),
    ("BatchNorm2d(3, momentum=None, affine=False)", T(2, 3, 2, 4)),
    ("BatchNorm3d(2)", T(2, 2, 2, 3, 2)),
    ("BatchNorm3d(2, track_running_stats=False, affine=False)", T(1, 2, 2, 3, 2)),
    ("InstanceNorm1d(3)", T(2, 3, 4)),
    ("InstanceNorm1d(3, affine=True)", T(3, 4)),
    ("InstanceNorm1d(3, track_running_stats=True)", T(2, 3, 4)),
    ("InstanceNorm2d(3, affine=True, bias=False, track_running_stats=True, momentum=0.4)", T(2, 3, 4, 2)),
    ("InstanceNorm2d(3, eps=0.1)", T(3, 4, 2)),
    ("InstanceNorm2d(5)", T(2, 3, 4, 2)),
    ("InstanceNorm3d(2, affine=True)", T(2, 2, 3, 2, 2)),
    ("InstanceNorm3d(2)", T(2, 3, 2, 2)),
    ("SyncBatchNorm(3, momentum=None)", T(4, 3, 2)),
    ("SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3, affine=False))))", T(4, 3)),
]

CASES = [
    *(layer(text, x) for text, x in _BATCH),
    *(layer(text, x, train=False) for text, x in _BATCH),
    layer("LayerNorm(4)", T(2, 3, 4)),
    layer("LayerNorm((3, 4), eps=0.1)", T(2, 3, 4), _second=True),
    layer("LayerNorm([4], bias=False)", T(4)),
    layer("LayerNorm(4, elementwise_affine=False)", T(2, 4)),
    layer("GroupNorm(2, 4)", T(2, 4, 3)),
    layer("GroupNorm(4, 4, affine=False)", T(2, 4, 3, 2)),
    layer("GroupNorm(1, 4, eps=0.1, bias=False)", T(2, 4)),
    layer("RMSNorm(4)", T(2, 3, 4)),
    layer("RMSNorm((3, 4), eps=0.1, elementwise_affine=False)", T(2, 3, 4)),
    layer("LocalResponseNorm(2)", T(2, 5, 3)),
    layer("LocalResponseNorm(3, alpha=0.1, beta=0.5, k=2)", T(2, 5, 3, 2)),
]
