"""The cross entropy of a linear layer's results, on request without all of these in memory at once."""

from __future__ import annotations

import math
import warnings
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.class_losses import cross_entropy
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.linear import linear
from dynagraph.torch.utils.checkpoint import checkpoint

_REDUCTIONS = ("mean", "sum", "none")


def _check(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if not 1 <= input.dim() <= 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    features, wanted = input.shape[-1], linear_weight.shape[-1]
    if features != wanted:
        raise RuntimeError(
            f"expected equal input and linear_weight last dimensions (in_features), got {features} and {wanted}, respectively"
        )
    shape = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise RuntimeError(f"expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")
    if len(shape) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )


@function(method=False, namespace="functional")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target, ...)``: (N, in), (classes, *out, in), classes (N, *out).

    With `options` (`LinearCrossEntropyOptions`) the results of the linear layer are computed for some of the N at a time, and once
    more when gradients are, so that they never are in memory together.
    """
    who = "linear_cross_entropy"
    x, table = check_tensor(input, who, "input"), check_tensor(linear_weight, who, "weight", 2)
    _check(x, table, linear_bias)
    classes, out_features = table.shape[0], tuple(table.shape[1:-1])
    shape = (*x.shape[:-1], classes, *out_features)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        if reduction in _REDUCTIONS and label_smoothing == 0.0 and target.dtype is dtypes.int64 and not out_features:
            return _by_chunks(x, table, target, linear_bias, weight, reduction, ignored, options)
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, label_smoothing == "
            f"0, target.dtype == int64, out_features == (). Got reduction={reduction!r}, label_smoothing={label_smoothing}, "
            f"target.dtype={target.dtype}, out_features={out_features}, tracing=False, "
            f"linear_bias.shape={None if linear_bias is None else tuple(linear_bias.shape)}.",
            stacklevel=2,
        )
    if out_features:
        rows = math.prod(out_features, start=classes)
        table = table.reshape(rows, table.shape[-1])
        linear_bias = None if linear_bias is None else linear_bias.reshape(rows)
    logits = linear(x, table, linear_bias).reshape(shape)
    return cross_entropy(
        logits, target, weight=weight, reduction=reduction, ignore_index=ignored, label_smoothing=label_smoothing
    )  # fmt: skip


def _by_chunks(
    x: Tensor, table: Tensor, target: Tensor, bias: Tensor | None, weight: Tensor | None, reduction: str, ignored: int, options: Any
) -> Tensor:
    rows, classes = (x, target) if x.dim() == 2 else (x.unsqueeze(0), target.unsqueeze(0))
    made = options._adjust(rows.shape[0], rows.shape[1], table.shape[0], x.dtype, x.device)
    kind, size = made.acc_dtype, made.batch_chunk_size
    each = "none" if reduction == "none" else "sum"

    def losses(rows: Tensor, classes: Tensor, table: Tensor, bias: Tensor | None, weight: Tensor | None) -> Tensor:
        wide = (None if t is None else t.to(kind) for t in (rows, table, bias, weight))
        rows, table, bias, weight = wide
        return cross_entropy(linear(rows, table, bias), classes, weight=weight, ignore_index=ignored, reduction=each)

    found = [
        checkpoint(
            losses, rows[k : k + size], classes[k : k + size], table, bias, weight, use_reentrant=False, preserve_rng_state=False
        )
        for k in range(0, max(rows.shape[0], 1), size)
    ]
    if reduction == "none":
        result = cat(found).to(x.dtype)
        return result if x.dim() == 2 else result.squeeze(0)
    total = found[0]
    for part in found[1:]:
        total = total + part
    if reduction == "mean":
        kept: Any = classes != ignored
        total = total / (kept.sum() if weight is None else weight.to(kind)[classes[kept]].sum())
    return total.to(x.dtype)
