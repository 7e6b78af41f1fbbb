"""Losses with margins, and the distances and similarities that they compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array, ufunc_accumulate
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.activations import only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul, rsub, sub
from dynagraph.torch.functions.arithmetic import pow as power
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dim_of, function, promoted
from dynagraph.torch.functions.elementary import neg
from dynagraph.torch.functions.losses import CLAMP_THROUGH, mode_of, not_differentiable, pair_loss, reduced
from dynagraph.torch.functions.norms import norm, vector_norm
from dynagraph.torch.functions.reductions import sum as total
from dynagraph.torch.functions.shapes import broadcast_tensors, reshape, unsqueeze
from dynagraph.torch.functions.ternary import clamp_min, where

_minimum, sqrt = NAMESPACES["torch"]["minimum"], NAMESPACES["torch"]["sqrt"]

# -- distances ----------------------------------------------------------------------------------------------------------


@function(method=False)
@function(method=False, namespace="functional")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The norm of the differences along the last dimension, each with `eps` added."""
    a, b = check_tensor(x1, "pairwise_distance", "x1"), check_tensor(x2, "pairwise_distance", "x2", 2)
    difference = add(sub(a, b), eps)
    return norm(difference, p, max(a._array.ndim, b._array.ndim) - 1, keepdim)


@function(method=False)
@function(method=False, namespace="functional")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The product of two vectors, each divided by its norm; norms below `eps` count as that."""
    a, b = check_tensor(x1, "cosine_similarity", "x1"), check_tensor(x2, "cosine_similarity", "x2", 2)
    a, b = promoted("cosine_similarity", a, b)
    if a._array.dtype.kind not in "fcV":
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {dtypes.scalar_name(a.dtype)}")
    a, b = broadcast_tensors(a, b)
    k = dim_of(dim, a._array.ndim)
    unit = [div(t, apply(CLAMP_THROUGH, vector_norm(t, 2, k, True), low=eps)) for t in (a, b)]
    return total(mul(*unit), k)


NAMESPACES["functional"]["pdist"] = NAMESPACES["torch"]["pdist"]

# -- losses of several tensors ------------------------------------------------------------------------------------------


@function(method=False, namespace="functional")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target * (input1 - input2) + margin)``."""
    mode = mode_of(reduction, size_average, reduce)
    given = [check_tensor(t, "margin_ranking_loss", n, k) for k, (t, n) in enumerate(
        ((input1, "input1"), (input2, "input2"), (target, "target")), 1
    )]  # fmt: skip
    if len({t._array.ndim for t in given}) != 1:
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {input1.shape}, input2: "
            f"{input2.shape}, target: {target.shape} "
        )
    return reduced(clamp_min(add(mul(neg(target), sub(input1, input2)), margin), 0), mode)


@function(method=False, namespace="functional")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "hinge_embedding_loss", "input"), check_tensor(target, "hinge_embedding_loss", "target", 2)
    zero = wrap(library_of_array(x._array).zeros((), x._array.dtype))
    apart = where(wrap(y._array != 1), clamp_min(rsub(x, margin), 0), zero)
    return reduced(add(apart, where(wrap(y._array != -1), x, zero)), mode)


_SOFT_MARGIN = pair_loss(
    "soft_margin_loss",
    lambda x, y: np.logaddexp(-x * y, 0),
    lambda d: -d.y * (-(d.x * d.y)).call("sigmoid"),
    lambda d: -d.x * (-(d.x * d.y)).call("sigmoid"),
    saves="xy",
)


@function(method=False, namespace="functional")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """``log(1 + exp(-target * input))``."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "soft_margin_loss", "input"), check_tensor(target, "soft_margin_loss", "target", 2)
    not_differentiable("soft_margin_loss", target=y)
    x, y = promoted("soft_margin_loss", x, y)
    return apply(_SOFT_MARGIN, *broadcast_tensors(x, y), mode=mode)


@function(method=False, namespace="functional")
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the loss of each, as a yes or no."""
    mode = mode_of(reduction, size_average, reduce, " is not valid")
    who = "multilabel_soft_margin_loss"
    x, y = check_tensor(input, who, "input"), check_tensor(target, who, "target", 2)
    logsigmoid = NAMESPACES["functional"]["logsigmoid"]
    loss = neg(add(mul(y, logsigmoid(x)), mul(rsub(y, 1), logsigmoid(neg(x)))))
    if weight is not None:
        loss = mul(loss, weight)
    ndim = x._array.ndim
    return reduced(div(total(loss, ndim - 1), x._array.shape[ndim - 1]), mode)


@function(method=False, namespace="functional")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1."""
    mode = mode_of(reduction, size_average, reduce)
    a, b, y = (check_tensor(t, "cosine_embedding_loss", n, k) for k, (t, n) in enumerate(
        ((input1, "input1"), (input2, "input2"), (target, "target")), 1
    ))  # fmt: skip
    if y._array.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if a._array.ndim != y._array.ndim + 1:
        raise RuntimeError(
            f"{'1D' if y._array.ndim else '0D'} target tensor expects {'2D' if y._array.ndim else '1D'} input tensors, but found "
            f"inputs with sizes {list(a._array.shape)} and {list(b._array.shape)}."
        )
    axis = y._array.ndim
    product = total(mul(a, b), axis)
    sizes = [add(total(mul(t, t), axis), 1e-12) for t in (a, b)]
    cosine = div(product, sqrt(mul(*sizes)))
    zero = wrap(library_of_array(cosine._array).zeros((), cosine._array.dtype))
    near = where(wrap(y._array == 1), rsub(cosine, 1), zero)
    far = where(wrap(y._array == -1), clamp_min(sub(cosine, margin), 0), zero)
    return reduced(add(near, far), mode)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    swap: bool,
    mode: str,
    distance: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    ranks = [check_tensor(t, "triplet_margin_loss", n)._array.ndim for t, n in (
        (anchor, "anchor"), (positive, "positive"), (negative, "negative")
    )]  # fmt: skip
    if len(set(ranks)) != 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor "
            f"{ranks[0]}D, positive {ranks[1]}D, and negative {ranks[2]}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _minimum(far, distance(positive, negative))
    return reduced(clamp_min(sub(add(near, margin), far), 0), mode)


@function(method=False, namespace="functional")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, margin + |anchor - positive| - |anchor - negative|)``."""
    mode = mode_of(reduction, size_average, reduce)
    return _triplet(anchor, positive, negative, margin, swap, mode, lambda a, b: pairwise_distance(a, b, p, eps))


@function(method=False, namespace="functional")
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance that is given."""
    mode = mode_of(reduction)
    return _triplet(anchor, positive, negative, margin, swap, mode, distance_function or pairwise_distance)


# -- losses of class scores -----------------------------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    return x if x._array.ndim == 2 else reshape(x, 1, x._array.size)


def _check_scores(x: Tensor) -> None:
    shape = x._array.shape
    if len(shape) not in (0, 1, 2) or 0 in shape[1 if len(shape) == 2 else 0 :]:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")


@function(method=False, namespace="functional")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the other classes of ``max(0, margin - score of the target + score) ** p``."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "multi_margin_loss", "input"), check_tensor(target, "multi_margin_loss", "target", 2)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight._array.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    _check_scores(x)
    rows = _rows(x)
    count, classes = rows._array.shape
    if y._array.size != count or y._array.ndim > 1:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected "
            f"target size [{count}], but got {list(y._array.shape)}. Input has shape {list(x._array.shape)}."
        )
    if weight is not None and weight._array.shape != (classes,):
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight._array.shape)}")
    only_floats(x, "multi_margin_loss_out_frame")
    if y.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_name(y.dtype)}")
    places = y._array.reshape(-1, 1)
    if np.any((places < 0) | (places >= classes)):
        raise RuntimeError("target out of range")
    own = apply(PRIMITIVES["gather_along"], rows, wrap(places), dim=1)
    margins = NAMESPACES["functional"]["relu"](add(sub(rows, own), margin))
    parts = margins if p == 1 else power(margins, 2)
    others = library_of_array(places).arange(classes) != places
    parts = where(wrap(others), parts, wrap(library_of_array(rows._array).zeros((), rows._array.dtype)))
    if weight is not None:
        parts = mul(parts, wrap(weight._array[places]))
    loss = div(total(parts, 1), classes)
    return reduced(loss if x._array.ndim == 2 else reshape(loss, ()), mode)


@function(method=False, namespace="functional")
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean of ``max(0, 1 - score of a target + score of another class)``; targets end before the first -1."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "multilabel_margin_loss", "input"), check_tensor(target, "multilabel_margin_loss", "target", 2)
    _check_scores(x)
    if x._array.shape != y._array.shape:
        raise RuntimeError(f"inconsistent target size: {list(y._array.shape)} for input of size: {list(x._array.shape)}")
    only_floats(x, "multilabel_margin_loss_forward_out_frame")
    if y.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_name(y.dtype)}")
    rows, places = _rows(x), y._array.reshape(-1, x._array.shape[-1] if x._array.ndim else 1)
    classes = rows._array.shape[1]
    if np.any((places < -1) | (places >= classes)):
        raise RuntimeError("argument #2 'target' is out of range")
    given = ufunc_accumulate(np.logical_and, places >= 0, axis=1)
    chosen = np.where(given, places, 0)
    is_target = np.any((library_of_array(places).arange(classes) == chosen[:, :, None]) & given[:, :, None], axis=1)
    own = unsqueeze(apply(PRIMITIVES["gather_along"], rows, wrap(chosen), dim=1), 2)
    margins = NAMESPACES["functional"]["relu"](add(sub(unsqueeze(rows, 1), own), 1))
    counted = given[:, :, None] & ~is_target[:, None, :]
    parts = where(wrap(counted), margins, wrap(library_of_array(rows._array).zeros((), rows._array.dtype)))
    loss = div(total(parts, (1, 2)), classes)
    return reduced(loss if x._array.ndim == 2 else reshape(loss, ()), mode)


# torch's own take the reduction as a number, and no old arguments
def _of_torch(name: str, compute: Callable[..., Tensor], parameters: int) -> None:
    """``torch.name(tensors and numbers..., reduction)``."""

    def public(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > parameters:
            args, kwargs["reduction"] = args[:parameters], args[parameters]
        kwargs["reduction"] = mode_of(kwargs.get("reduction", 0))
        return compute(*args, **kwargs)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = compute.__doc__
    function(name, method=False)(public)


_of_torch("margin_ranking_loss", margin_ranking_loss, 4)
_of_torch("hinge_embedding_loss", hinge_embedding_loss, 3)
_of_torch("cosine_embedding_loss", cosine_embedding_loss, 4)
_of_torch("triplet_margin_loss", triplet_margin_loss, 7)

__all__ = ["cosine_similarity", "pairwise_distance"]
