"""Losses of pairs of tensors, element by element, then reduced."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, library_of_array, ufunc_reduce
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.core.terms import in_one_pass
from dynagraph.torch.functions.activations import in_single, only_floats
from dynagraph.torch.functions.arithmetic import add, div, mul, sub, xlogy
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, function, promoted
from dynagraph.torch.functions.elementary import abs as absolute
from dynagraph.torch.functions.indexing import MASKED_FILL
from dynagraph.torch.functions.reductions import mean
from dynagraph.torch.functions.reductions import sum as total
from dynagraph.torch.functions.shapes import broadcast_tensors, unsqueeze
from dynagraph.where import where

exp, log = (NAMESPACES["torch"][n].__wrapped__ for n in ("exp", "log"))
Vjp = Callable[[Any, Any], Any]

# -- how losses are reduced ---------------------------------------------------------------------------------------------

_NAMES = ("none", "mean", "sum")


def mode_of(
    reduction: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    text: str = " is not a valid value for reduction",
) -> str:
    """ "none", "mean" or "sum": as given, or by the old arguments, which come first."""
    if size_average is not None or reduce is not None:
        return mode_of_old(size_average, reduce, 5)
    if isinstance(reduction, int) and 0 <= reduction < 3:  # as functions of torch, not of nn.functional, take it
        return _NAMES[reduction]
    if reduction not in _NAMES:
        raise ValueError(f"{reduction}{text}")
    return reduction


def mode_of_old(size_average: bool | None, reduce: bool | None, stacklevel: int) -> str:
    """ "none", "mean" or "sum" by the old arguments."""
    kept = ("mean" if size_average or size_average is None else "sum") if reduce or reduce is None else "none"
    text = f"size_average and reduce args will be deprecated, please use reduction='{kept}' instead."
    warnings.warn(text, UserWarning, stacklevel=stacklevel)
    return kept


def reduced(loss: Tensor, mode: str) -> Tensor:
    """All of it, its mean or its sum."""
    return loss if mode == "none" else mean(loss) if mode == "mean" else total(loss)


def reduce_array(values: Any, mode: str) -> Any:
    if mode == "none":
        return values
    return ufunc_reduce(np.add, values, axis=None) if mode == "sum" else np.mean(values)


def pair_loss(
    name: str, compute: Callable[..., Any], *slopes: Callable[[Any], Any], saves: str, backward: str = "", in_one: bool = False
) -> Primitive:
    """A primitive: a loss by element, with its slope by each operand, and the reduction.

    `in_one`: it has two operands, and slopes that read both (`terms.in_one_pass`).
    """

    def forward(*arrays: Any, mode: str, **attrs: Any) -> Any:
        return reduce_array(compute(*arrays, **attrs), mode)

    def vjp_by(slope: Callable[[Any], Any]) -> Vjp:
        def vjp(d: Any, g: Any) -> Any:
            if d.attrs["mode"] == "mean":
                shape = np.broadcast_shapes(*(o.shape for o in d.operands))
                g = g / math.prod(shape) if math.prod(shape) else g * math.nan
            return g * slope(d)

        return vjp

    vjps = tuple(map(vjp_by, slopes))
    if in_one:
        vjps = tuple(in_one_pass(name, vjp, saves, by) for vjp, by in zip(vjps, "xy"))
    return define(name, in_single(forward), vjps, (saves,) * len(slopes), backward=backward)


def not_differentiable(who: str, **given: Any) -> None:
    """RuntimeError where a tensor requires a gradient that there is none of."""
    for name, t in given.items():
        if isinstance(t, Tensor) and t.requires_grad:
            raise RuntimeError(f"the derivative for '{name}' is not implemented.")


# -- of differences -----------------------------------------------------------------------------------------------------

MSE = pair_loss(
    "mse_loss", lambda x, y: np.square(x - y), lambda d: (d.x - d.y) * 2, lambda d: (d.y - d.x) * 2, saves="xy", in_one=True,
)  # fmt: skip


def _smooth_l1(x: Any, y: Any, beta: float) -> Any:
    size = np.abs(x - y)
    return where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta)


def _clipped(difference: Any, bound: float) -> Any:
    """The difference, or the bound that it exceeds."""
    low = difference.number(-bound).where(difference.call("less_equal", -bound), difference)
    return difference.number(bound).where(difference.call("greater_equal", bound), low)


SMOOTH_L1 = pair_loss(
    "smooth_l1_loss",
    _smooth_l1,
    lambda d: _clipped(d.x - d.y, d.attrs["beta"]) / d.attrs["beta"],
    lambda d: _clipped(d.y - d.x, d.attrs["beta"]) / d.attrs["beta"],
    saves="xy",
    backward="SmoothL1LossBackward0",
    in_one=True,
)


def _huber(x: Any, y: Any, delta: float) -> Any:
    size = np.abs(x - y)
    return where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


HUBER = pair_loss(
    "huber_loss",
    _huber,
    lambda d: _clipped(d.x - d.y, d.attrs["delta"]),
    lambda d: _clipped(d.y - d.x, d.attrs["delta"]),
    saves="xy",
    in_one=True,
)


def _warn_of_sizes(who: str, x: Tensor, y: Tensor) -> None:
    if x._array.shape != y._array.shape:
        warnings.warn(
            f"Using a target size ({y.shape}) that is different to the input size ({x.shape}). This will likely lead to incorrect "
            "results due to broadcasting. Please ensure they have the same size.",
            UserWarning,
            stacklevel=4,
        )


def _pair(who: str, kernel: str, input: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Both of one dtype and shape."""
    x, y = check_tensor(input, who, "input"), check_tensor(target, who, "target", 2)
    _warn_of_sizes(who, x, y)
    x, y = promoted(who, x, y)
    x, y = broadcast_tensors(x, y)
    return (only_floats(x, kernel) if kernel else x), y


def _weighted(loss: Tensor, weight: Tensor, what: str = "Weights and input") -> Tensor:
    if weight._array.shape != loss._array.shape:
        raise ValueError(f"{what} must have the same size.")
    return mul(loss, weight)


def _weighted_mean(loss: Tensor, weight: Tensor, mode: str) -> Tensor:
    """Weighted losses: the mean is divided by the weights' sum."""
    weighted = _weighted(loss, weight)
    return weighted if mode == "none" else total(weighted) if mode == "sum" else div(total(weighted), total(weight))


@function(method=False, namespace="functional")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``(input - target) ** 2``."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = _pair("mse_loss", "mse_cpu", input, target)
    if weight is not None:
        return _weighted_mean(apply(MSE, x, y, mode="none"), weight, mode)
    return apply(MSE, x, y, mode=mode)


@function(method=False, namespace="functional")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``|input - target|``."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = _pair("l1_loss", "", input, target)
    loss = absolute(sub(x, y))
    return reduced(loss, mode) if weight is None else _weighted_mean(loss, weight, mode)


@function(method=False, namespace="functional")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Half the square over `beta` of differences below it, the difference less ``beta / 2`` of others."""
    mode = mode_of(reduction, size_average, reduce)
    if beta == 0:
        return l1_loss(input, target, reduction=mode)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    x, y = _pair("smooth_l1_loss", "smooth_l1_cpu", input, target)
    return apply(SMOOTH_L1, x, y, mode=mode, beta=float(beta))


@function(method=False, namespace="functional")
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square of differences up to `delta`, ``delta * (difference - delta / 2)`` of others."""
    mode = mode_of(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    x, y = _pair("huber_loss", "huber_cpu", input, target)
    if weight is not None:
        return reduced(_weighted(apply(HUBER, x, y, mode="none", delta=float(delta)), weight), mode)
    return apply(HUBER, x, y, mode=mode, delta=float(delta))


# -- of probabilities ---------------------------------------------------------------------------------------------------


def _bce(x: Any, y: Any, weight: Any = None) -> Any:
    """The logarithms are cut off at -100."""
    loss = (y - 1) * np.maximum(np.log1p(-x), -100) - y * np.maximum(np.log(x), -100)
    return loss if weight is None else loss * weight


def _times_weight(d: Any, slope: Any) -> Any:
    return slope * d.operand(2) if d.attrs["weighted"] else slope


def _bce_by_input(d: Any) -> Any:
    spread = (1 - d.x) * d.x
    kept = spread.number(1e-12).where(spread.call("less", 1e-12), spread)
    return _times_weight(d, (d.x - d.y) / kept)


def _bce_by_target(d: Any) -> Any:
    return _times_weight(d, (1 - d.x).call("log") - d.x.call("log"))


def _without_flag(compute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, weighted, **attrs: compute(*arrays, **attrs)


def _no_slope(d: Any) -> Any:
    return d.x.number(0)


for _saves, _suffix in (("xy", ""), ("xyz", "_weighted")):
    pair_loss(f"binary_cross_entropy{_suffix}", _without_flag(_bce), _bce_by_input, _bce_by_target, _no_slope, saves=_saves,
          backward="BinaryCrossEntropyBackward0")  # fmt: skip


@function(method=False, namespace="functional")
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-target * log(input) - (1 - target) * log(1 - input)``."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "binary_cross_entropy", "input"), check_tensor(target, "binary_cross_entropy", "target", 2)
    if x._array.shape != y._array.shape:
        raise ValueError(
            f"Using a target size ({y.shape}) that is different to the input size ({x.shape}) is deprecated. Please ensure they "
            "have the same size."
        )
    _check_dtype(x, y)
    only_floats(x, "binary_cross_entropy")
    for what, t in (("input", x), ("target", y)):
        if any_wrong(~((t._array >= 0) & (t._array <= 1))):
            raise RuntimeError(f"all elements of {what} should be between 0 and 1")
    if weight is None:
        return apply(PRIMITIVES["binary_cross_entropy"], x, y, mode=mode, weighted=False)
    not_differentiable("binary_cross_entropy", weight=weight)
    try:
        np.broadcast_to(weight._array, x._array.shape)
    except ValueError:
        raise RuntimeError(
            f"Attempting to broadcast a dimension of length {weight._array.shape[-1]} at -1! Mismatching argument at index 1 had "
            f"{weight.shape}; but expected shape should be broadcastable to {list(x._array.shape)}"
        ) from None
    return apply(PRIMITIVES["binary_cross_entropy_weighted"], x, y, weight, mode=mode, weighted=True)


def _check_dtype(x: Tensor, y: Tensor) -> None:
    if x._array.dtype != y._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (x, y)]
        raise RuntimeError(f"Found dtype {names[1]} but expected {names[0]}")


def _with_logits(x: Any, y: Any, weight: Any, positive: Any) -> Any:
    """``log(1 + exp(-x))`` is never taken of great exponentials."""
    loss = (1 - y) * x + (1 + (positive - 1) * y) * np.logaddexp(-x, 0)
    return loss * weight


def _logits_by_input(d: Any) -> Any:
    x, y, weight, positive = d.operands
    scaled = positive * y
    return ((scaled + 1 - y) * x.call("sigmoid") - scaled) * weight


def _logits_by_target(d: Any) -> Any:
    x, _, weight, positive = d.operands
    return ((-x).call("log_sigmoid") - positive * x.call("log_sigmoid")) * weight


WITH_LOGITS = pair_loss(
    "binary_cross_entropy_with_logits", _with_logits, _logits_by_input, _logits_by_target, _no_slope, _no_slope, saves="xyzu",
)  # fmt: skip


@function(method=False, namespace="functional")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of the sigmoid; `pos_weight` weighs the positive targets."""
    mode = mode_of(reduction, size_average, reduce)
    who = "binary_cross_entropy_with_logits"
    x, y = check_tensor(input, who, "input"), check_tensor(target, who, "target", 2)
    if x._array.shape != y._array.shape:
        raise ValueError(f"Target size ({y.shape}) must be the same as input size ({x.shape})")
    only_floats(x, "log_sigmoid_cpu")
    if y._array.dtype.kind not in "fV":
        names = [dtypes.scalar_name(t.dtype) for t in (x, y)]
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    not_differentiable(who, weight=weight, pos_weight=pos_weight)
    one = wrap(library_of_array(x._array).ones((), x._array.dtype))
    given = promoted(who, x, y, one if weight is None else weight, one if pos_weight is None else pos_weight)
    broadcast_tensors(*given)  # shapes that do not fit
    return apply(WITH_LOGITS, *given, mode=mode)


@function(method=False, namespace="functional")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log(target) - input)``; with `log_target` targets are logarithms, too."""
    if size_average is None and reduce is None and reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by the "
            "batch size, and aligns with the KL div math definition.'mean' will be changed to behave the same as 'batchmean' in "
            "the next major release.",
            stacklevel=2,
        )
    by_batch = reduction == "batchmean" and size_average is None and reduce is None
    mode = "sum" if by_batch else mode_of(reduction, size_average, reduce)
    loss = reduced(_divergence(input, target, log_target), mode)
    return div(loss, input._array.shape[0]) if by_batch and input._array.ndim else loss


def _divergence(input: Tensor, target: Tensor, log_target: bool) -> Tensor:
    x, y = check_tensor(input, "kl_div", "input"), check_tensor(target, "kl_div", "target", 2)
    if any(t._array.dtype.kind not in "fcV" for t in (x, y)):
        raise RuntimeError("kl_div: Integral inputs not supported.")
    return mul(exp(y), sub(y, x)) if log_target else sub(xlogy(y, y), mul(y, x))


@function(method=False, namespace="functional")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative logarithm of Poisson's distribution; `full` adds Stirling's term."""
    mode = mode_of(reduction, size_average, reduce)
    x, y = check_tensor(input, "poisson_nll_loss", "input"), check_tensor(target, "poisson_nll_loss", "target", 2)
    loss = sub(exp(x), mul(y, x)) if log_input else sub(x, mul(y, log(add(x, eps))))
    if full:
        stirling = add(sub(mul(y, log(y)), y), mul(log(mul(y, 2 * math.pi)), 0.5))
        zero = wrap(library_of_array(stirling._array).zeros((), stirling._array.dtype))
        loss = add(loss, apply(MASKED_FILL, stirling, zero, wrap(y._array <= 1)))
    return reduced(loss, mode)


CLAMP_THROUGH = define(
    "clamp_through", in_single(lambda x, low: np.maximum(x, low)), (lambda d, g: g,), ("",), backward="CloneBackward0"
)


@function(method=False, namespace="functional")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative logarithm of the normal distribution, of which `var` is the variance."""
    x, y = check_tensor(input, "gaussian_nll_loss", "input"), check_tensor(target, "gaussian_nll_loss", "target", 2)
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = wrap(library_of_array(x._array).full(x._array.shape, var, x._array.dtype))
    elif np.any(var._array < 0):
        raise ValueError("var has negative entry/entries")
    shape, given = x._array.shape, var._array.shape
    if given != shape:
        if shape[:-1] == given:
            var = unsqueeze(var, -1)
        elif len(shape) != len(given) or sum(n for m, n in zip(shape, given) if m != n) != 1:
            raise ValueError("var is of incorrect size")
    mode = mode_of(reduction, text=" is not valid")
    variance = apply(CLAMP_THROUGH, var, low=eps)
    difference = sub(x, y)
    loss = mul(add(log(variance), div(mul(difference, difference), variance)), 0.5)
    return reduced(add(loss, 0.5 * math.log(2 * math.pi)) if full else loss, mode)


# torch's own take the reduction as a number, and no old arguments
function("kl_div", method=False)(
    lambda input, target, reduction=0, *, log_target=False: reduced(_divergence(input, target, log_target), mode_of(reduction))
)
function("poisson_nll_loss", method=False)(
    lambda input, target, log_input, full, eps, reduction: poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=mode_of(reduction)
    )
)
function("binary_cross_entropy_with_logits", method=False)(
    lambda input, target, weight=None, pos_weight=None, reduction=0: binary_cross_entropy_with_logits(
        input, target, weight, pos_weight=pos_weight, reduction=mode_of(reduction)
    )
)

__all__ = ["CLAMP_THROUGH", "mode_of", "not_differentiable", "pair_loss", "reduce_array", "reduced"]
