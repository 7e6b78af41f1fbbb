"""Layers for special tasks."""

from __future__ import annotations

from typing import Any

from tests.torch.modules.layers import fill, layer, wrong
from tests.torch.table import T, case, error, program

_X, _CLASSES, _BIG = T(4, 8), T(4, kind="index:3"), T(6, kind="index:20")


def adaptive(torch: Any, x: Any, target: Any) -> Any:
    layer = fill(torch, torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [3, 7, 12], div_value=2, head_bias=True).double())
    output, loss = layer(x, target)
    first = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
    return [output, loss, first, layer.log_prob(x), layer.predict(x), layer(x[0], target[0]), layer.predict(-x), layer.predict(x[:1] * 0)]


CASES = [
    layer("AdaptiveLogSoftmaxWithLoss(8, 20, [3, 7])", T(6, 8), _BIG),
    layer("AdaptiveLogSoftmaxWithLoss(8, 20, (5,), head_bias=True)", T(8), T(kind="index:20")),
    program("adaptive", adaptive, T(6, 8), _BIG, _dtypes="", _second=False),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [])", T(6, 8), _BIG),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5, 5])", T(6, 8), _BIG),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5, 20])", T(6, 8), _BIG),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5])", T(8), _BIG),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5])", T(6), _BIG),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5])", T(6, 8), T(kind="index:20")),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 20, [5])", T(6, 8), T(6, 1, kind="index:20")),
    wrong("AdaptiveLogSoftmaxWithLoss(8, 6, [5])", T(6, 8), T(6, kind="index:90")),
    layer("CrossMapLRN2d(3)", T(2, 2, 2, 3), _grad=False),
    layer("CrossMapLRN2d(5, alpha=0.5, beta=0.6, k=2)", T(2, 9, 2, 3), _grad=False),
    layer("CrossMapLRN2d(4, alpha=0.5)", T(2, 9, 2, 3), _grad=False),
    wrong("CrossMapLRN2d(4, alpha=0.5)", T(2, 9, 2)),
    *(
        layer(f"LinearCrossEntropyLoss(8, 3{args})", _X, _CLASSES)
        for args in (
            "", ", bias=True", ", reduction='sum'", ", reduction='none', label_smoothing=0.1", ", weight=torch.tensor([1.0, 2.0, 0.5]), ignore_index=1",
            ", options=LinearCrossEntropyOptions(True)", ", options=LinearCrossEntropyOptions(True, batch_chunk_size=3), ignore_index=1, reduction='mean', bias=True",
            ", options=LinearCrossEntropyOptions(True, batch_chunk_size=3), weight=torch.tensor([1.0, 2.0, 0.5])",
            ", options=LinearCrossEntropyOptions(chunking_method='aspect_ratio:2'), reduction='none', ignore_index=0",
            ", options=LinearCrossEntropyOptions(True, batch_chunk_size=2), reduction='sum'",
        )
    ),
    layer("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(True))", T(8), T(kind="index:3")),
    layer("LinearCrossEntropyLoss(8, 3, out_features=(2,), bias=True)", _X, T(4, 2, kind="index:3")),
    layer("LinearCrossEntropyLoss(8, 3, bias=True)", _X, T(4, 3, kind="positive")),
    wrong("LinearCrossEntropyLoss(8, 3)", T(4, 7), _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3)", T(1, 4, 8), _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, out_features=(2,))", T(8), _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, ignore_index=1)", _X, T(4, 3)),
    wrong("LinearCrossEntropyLoss(8, 3, weight=torch.ones(2))", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, label_smoothing=2)", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(batch_chunk_size=0))", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(chunking_method='q'))", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(acc_policy='q'))", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(acc_dtype=torch.int64))", _X, _CLASSES),
    wrong("LinearCrossEntropyLoss(8, 3, options=LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method='aspect_ratio'))", _X, _CLASSES),
    *(
        program(f"grouped_mm {a} {b}", lambda torch, x, y: torch.nn.functional.grouped_mm(x, y, offs=torch.tensor([8, 16], dtype=torch.int32)), a, b, _dtypes="bfloat16", _second=False)
        for a, b in ((T(16, 8, dtype="float32"), T(2, 8, 8, dtype="float32")), (T(2, 8, 8, dtype="float32"), T(8, 16, dtype="float32")))
    ),
    case("nn.functional.grouped_mm", T(2, 8, 8, dtype="float32"), T(2, 8, 8, dtype="float32"), _second=False, _grad=False),
    error("nn.functional.grouped_mm", T(8, 8, dtype="float32"), T(2, 8, 8, dtype="float32"), _text=True),
    error("nn.functional.grouped_mm", T(8, 8, dtype="float32"), T(2, 8, 8, dtype="float32"), offs=T(2, kind="index:2"), _text=True),
]  # fmt: skip
