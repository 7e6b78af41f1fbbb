"""Losses of class scores: negative log likelihoods and cross entropies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, library_of_array, ufunc_reduce
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, made, wrap
from dynagraph.torch.functions.activations import only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul
from dynagraph.torch.functions.common import cast, check_tensor, function, integer
from dynagraph.torch.functions.elementary import neg
from dynagraph.torch.functions.indexing import MASKED_FILL
from dynagraph.torch.functions.linear import linear
from dynagraph.torch.functions.losses import mode_of, not_differentiable, reduce_array
from dynagraph.torch.functions.reductions import sum as total
from dynagraph.torch.functions.shapes import reshape
from dynagraph.torch.functions.softmax import log_softmax


def _nll(x: Any, target: Any, weight: Any = None, *, ignore: int, mode: str) -> tuple[Any, Any]:
    """The loss; and what the score of each target is multiplied with in it."""
    kept = target != ignore
    wide = x.astype(np.float32) if is_half(x.dtype) else x
    chosen = np.where(kept, target, 0)
    scores = np.take_along_axis(wide, np.expand_dims(chosen, 1), 1).squeeze(1)
    weights = kept.astype(wide.dtype) if weight is None else np.where(kept, weight.astype(wide.dtype)[chosen], 0)
    parts = np.where(kept, -weights * scores, 0)
    if mode == "mean":
        whole = ufunc_reduce(np.add, weights, axis=None)
        return (ufunc_reduce(np.add, parts, axis=None) / whole).astype(x.dtype), np.where(kept, -weights / whole, 0)
    return reduce_array(parts, mode).astype(x.dtype), -weights


def _nll_vjp(d: Any, g: Any) -> Any:
    if g[0] is None:
        return None
    places = d.operand(1).call("kept_targets", ignore=d.attrs["ignore"])
    return (g[0] * d.outs[1]).call("put_along", places, shape=d.x.shape, dim=1)


define("kept_targets", lambda target, ignore: np.where(target == ignore, 0, target).astype(np.int64))
for _name in ("nll_loss", "nll_loss2d"):
    define(
        _name, _nll, (_nll_vjp, lambda d, g: None, lambda d, g: None), ("yp", "", ""), outputs=2, differentiable=(0,),
        backward="NllLossBackward0" if _name == "nll_loss" else "NllLoss2DBackward0",
    )  # fmt: skip


def _check_targets(x: Tensor, target: Tensor, weight: Tensor | None, ignore: int) -> None:
    classes = x._array.shape[1]
    if weight is not None and weight._array.shape != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: "
            f"{list(weight._array.shape)}"
        )
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {dtypes.scalar_name(target.dtype)}")
    array = target._array
    outside = ((array < 0) | (array >= classes)) & (array != ignore)
    if any_wrong(outside):
        raise IndexError(f"Target {int(array[outside][0])} is out of bounds.")
    if weight is not None and weight._array.dtype != x._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (x, weight)]
        raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")


@function(method=False, namespace="functional")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative of each target's score; the mean is divided by the targets' weights."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "nll_loss_nd", "input"), check_tensor(target, "nll_loss_nd", "target", 2)
    shape, given = x._array.shape, y._array.shape
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if len(shape) != 1 and (not given or shape[0] != given[0]):
        raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({given[0] if given else 1}).")
    not_differentiable("nll_loss", weight=weight)
    ignore_index = integer(ignore_index)
    if len(shape) <= 2:
        if len(given) > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        only_floats(x, "nll_loss_out_frame")
        single = len(shape) == 1
        rows, classes = (reshape(x, 1, shape[0]), reshape(y, 1)) if single else (x, y)
        _check_targets(rows, classes, weight, ignore_index)
        operands = (rows, classes) if weight is None else (rows, classes, weight)
        loss = apply(PRIMITIVES["nll_loss"], *operands, ignore=ignore_index, mode=mode)[0]
        return reshape(loss, given) if single and mode == "none" else loss
    if len(shape) == 4 and len(given) != 3:
        raise RuntimeError(f"only batches of spatial targets supported (3D tensors) but got targets of dimension: {len(given)}")
    if given != (shape[0], *shape[2:]):
        if len(shape) == 4:
            raise RuntimeError(f"size mismatch (got input: {list(shape)} , target: {list(given)}")
        raise RuntimeError(f"Expected target size {[shape[0], *shape[2:]]}, got {list(given)}")
    only_floats(x, "nll_loss2d_forward_out_frame")
    _check_targets(x, y, weight, ignore_index)
    operands = (x, y) if weight is None else (x, y, weight)
    return apply(PRIMITIVES["nll_loss2d"], *operands, ignore=ignore_index, mode=mode)[0]


@function(method=False, namespace="functional")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative logarithm of the softmax at the targets: classes, or probabilities of classes."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "cross_entropy_loss", "input"), check_tensor(target, "cross_entropy_loss", "target", 2)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    axis = 0 if x._array.ndim == 1 else 1
    if x._array.shape == y._array.shape:
        if y._array.dtype.kind not in "fV":
            raise RuntimeError(
                f"Expected floating point type for target with class probabilities, got {dtypes.scalar_name(y.dtype)}"
            )
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _of_probabilities(log_softmax(x, axis), y, weight, mode, label_smoothing, axis)
    scores = log_softmax(x, axis)
    if label_smoothing:
        return _smoothed(scores, y, weight, mode, ignore_index, label_smoothing, axis)
    return nll_loss(scores, y, weight, None, ignore_index, None, mode)


def _along_classes(weight: Tensor, scores: Tensor, axis: int) -> Tensor:
    classes = scores._array.shape[axis]
    if weight._array.shape != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor "
            f"of shape: {list(weight._array.shape)}"
        )
    return reshape(weight, *(classes if k == axis else 1 for k in range(scores._array.ndim)))


def _of_probabilities(scores: Tensor, y: Tensor, weight: Tensor | None, mode: str, smoothing: float, axis: int) -> Tensor:
    classes = scores._array.shape[axis]
    if smoothing:
        y = add(mul(y, 1 - smoothing), smoothing / classes)
    product = mul(scores, y)
    if weight is not None:
        product = mul(product, _along_classes(weight, scores, axis))
    if mode == "none":
        return neg(total(product, axis))
    loss = neg(total(product))
    return loss if mode == "sum" else div(loss, scores._array.size // classes if classes else math.nan)


def _smoothed(
    scores: Tensor, y: Tensor, weight: Tensor | None, mode: str, ignore: int, smoothing: float, axis: int
) -> Tensor:
    """Part of the loss by the targets, part of it by all classes alike."""
    sharp = nll_loss(scores, y, weight, None, ignore, None, mode)
    weighted = scores if weight is None else mul(scores, _along_classes(weight, scores, axis))
    kept = y._array != ignore
    zero = wrap(library_of_array(scores._array).zeros((), scores._array.dtype))
    flat = neg(total(weighted, axis))
    if flat._array.shape != kept.shape:
        kept = kept.reshape(flat._array.shape)
    flat = apply(MASKED_FILL, flat, zero, wrap(~kept))
    if mode == "mean":
        if weight is None:
            flat = div(total(flat), cast(made(kept.sum()), scores.dtype))
        else:
            chosen = weight._array[np.where(kept, y._array.reshape(kept.shape), 0)]
            flat = div(total(flat), cast(made(np.where(kept, chosen, 0).sum()), weight.dtype))
    elif mode == "sum":
        flat = total(flat)
    return add(mul(sharp, 1 - smoothing), mul(flat, smoothing / scores._array.shape[axis]))


@function(method=False, namespace="functional")
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """`cross_entropy` of `linear`; `options` say in which parts PyTorch computes it, and change nothing here."""
    scores = linear(input, linear_weight, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(scores, target, weight, None, ignored, None, reduction, label_smoothing)


