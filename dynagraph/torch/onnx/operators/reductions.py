"""Reductions, softmax, products of matrices and norms of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph import torch
from dynagraph.torch.nn import functional as F
from dynagraph.torch.onnx.operators.registry import number, operator, optional_ints


def _reduction(name: str, function: Callable[..., Any], identity: bool = True) -> None:
    """`identity`: of no axes at all it gives the operand."""

    @operator(name, host=(1,))
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0, **attributes: Any) -> Any:
        along = optional_ints(axes, attributes.get("axes"))
        if not along:
            if noop_with_empty_axes:
                return x if identity else function(x.unsqueeze(0), (0,), False)
            along = list(range(x.ndim))
        return function(x, tuple(a % x.ndim for a in along), bool(keepdims)) if along else function(x.unsqueeze(0), (0,), False)


def _sum(x: Any, axes: Any, keepdims: bool) -> Any:
    return torch.sum(x, axes, keepdims, dtype=x.dtype)


def _prod(x: Any, axes: Any, keepdims: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdims, dtype=x.dtype)
    return x


def _extreme(of: Callable[..., Any], everything: str) -> Callable[..., Any]:
    def compute(x: Any, axes: Any, keepdims: bool) -> Any:
        if x.dtype == torch.bool:
            return compute(x.to(torch.uint8), axes, keepdims) > 0
        return _or_of_none(x, axes, keepdims)

    def _or_of_none(x: Any, axes: Any, keepdims: bool) -> Any:
        if x.numel():
            return of(x, axes, keepdims)
        kept = [1 if k in axes else n for k, n in enumerate(x.shape) if keepdims or k not in axes]
        info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        none = getattr(info, everything)
        if x.is_floating_point():
            none = float("-inf") if everything == "min" else float("inf")
        return torch.full(kept, none, dtype=x.dtype)

    return compute


def _mean(x: Any, axes: Any, keepdims: bool) -> Any:
    if x.is_floating_point():
        return torch.mean(x, axes, keepdims)
    return torch.mean(x.to(torch.float64), axes, keepdims).to(x.dtype)


_reduction("ReduceSum", _sum)
_reduction("ReduceMean", _mean)
_reduction("ReduceProd", _prod)
_reduction("ReduceMax", _extreme(torch.amax, "min"))
_reduction("ReduceMin", _extreme(torch.amin, "max"))
_reduction("ReduceL1", lambda x, axes, keepdims: _sum(torch.abs(x), axes, keepdims), False)
_reduction("ReduceL2", lambda x, axes, keepdims: torch.sqrt(_sum(x * x, axes, keepdims)), False)
_reduction("ReduceSumSquare", lambda x, axes, keepdims: _sum(x * x, axes, keepdims), False)
_reduction("ReduceLogSum", lambda x, axes, keepdims: torch.log(_sum(x, axes, keepdims)), False)
_reduction("ReduceLogSumExp", lambda x, axes, keepdims: torch.logsumexp(x, axes, keepdims), False)


def _place(name: str, function: Callable[..., Any]) -> None:
    @operator(name)
    def place(x: Any, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if not select_last_index:
            return function(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - function(x.flip(axis), axis, bool(keepdims))


_place("ArgMax", torch.argmax)
_place("ArgMin", torch.argmin)


@operator("TopK", host=(1,))
def topk(x: Any, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    values, places = torch.sort(x, axis, bool(largest), stable=True)
    n = int(number(k))
    return values.narrow(axis, 0, n), places.narrow(axis, 0, n)


def _running(name: str, function: Callable[..., Any], neutral: int) -> None:
    @operator(name, host=(1,))
    def running(x: Any, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
        along = int(number(axis)) % x.ndim
        x = x.flip(along) if reverse else x
        if exclusive:
            first = torch.full_like(x.narrow(along, 0, 1), neutral)
            x = torch.cat([first, x.narrow(along, 0, x.shape[along] - 1)], along)
        total = function(x, along, dtype=x.dtype)
        return total.flip(along) if reverse else total


_running("CumSum", torch.cumsum, 0)
_running("CumProd", torch.cumprod, 1)


def _shares(name: str, function: Callable[..., Any]) -> None:
    """`coerced`: along all axes from that one on, as opsets before 13 have it."""

    @operator(name)
    def shares(x: Any, axis: int = -1, coerced: bool = False) -> Any:
        return function(x.flatten(axis % x.ndim), -1).reshape(x.shape) if coerced else function(x, axis)


_shares("Softmax", F.softmax)
_shares("LogSoftmax", F.log_softmax)


def _hardmax(x: Any, axis: int) -> Any:
    axis = axis % x.ndim
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return (torch.arange(x.shape[axis]).reshape(shape) == torch.argmax(x, axis, True)).to(x.dtype)


_shares("Hardmax", _hardmax)


@operator("Gemm")
def gemm(a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Any:
    product = torch.matmul(a.t() if transA else a, b.t() if transB else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (c if beta == 1 else c * beta)


@operator("Einsum")
def einsum(*operands: Any, equation: str) -> Any:
    return torch.einsum(equation.replace(" ", ""), *operands)


@operator("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    a, b = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        zero = a_zero.to(torch.int32)
        a = a - (zero.unsqueeze(-1) if zero.ndim else zero)
    return torch.matmul(a, b if b_zero is None else b - b_zero.to(torch.int32))


# -- norms ------------------------------------------------------------------------------------------------------------------------


@operator("LayerNormalization")
def layer_normalization(x: Any, scale: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.float() if stash_type == 1 else x
    mean = torch.mean(wide, axes, True)
    apart = wide - mean
    inverse = torch.rsqrt(torch.mean(apart * apart, axes, True) + epsilon)
    result = (apart * inverse).to(x.dtype) * scale
    return result if bias is None else result + bias, mean, inverse


@operator("RMSNormalization")
def rms_normalization(x: Any, scale: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.float() if stash_type == 1 else x
    return (wide * torch.rsqrt(torch.mean(wide * wide, axes, True) + epsilon)).to(x.dtype) * scale


def _along_channels(parameter: Any, rank: int) -> Any:
    return parameter.reshape(1, -1, *(1 for _ in range(rank - 2)))


@operator("BatchNormalization")
def batch_normalization(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
    **attributes: Any,
) -> Any:  # fmt: skip
    if not training_mode:
        return F.batch_norm(x, mean, variance, scale, bias, False, 0.1, epsilon)
    axes = (0, *range(2, x.ndim))
    own = torch.mean(x, axes)
    spread = torch.var(x, axes, correction=0)
    apart = (x - _along_channels(own, x.ndim)) / torch.sqrt(_along_channels(spread, x.ndim) + epsilon)
    result = apart * _along_channels(scale, x.ndim) + _along_channels(bias, x.ndim)
    return result, mean * momentum + own * (1 - momentum), variance * momentum + spread * (1 - momentum)


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, bias: Any, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@operator("GroupNormalization")
def group_normalization(x: Any, scale: Any, bias: Any, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    if scale.shape[0] != x.shape[1]:  # of opset 18: one for each group
        scale, bias = (p.repeat_interleave(x.shape[1] // num_groups) for p in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@operator("LpNormalization")
def lp_normalization(x: Any, axis: int = -1, p: int = 2) -> Any:
    length = torch.sum(torch.abs(x), axis, True) if p == 1 else torch.sqrt(torch.sum(x * x, axis, True))
    return torch.where(length == 0, torch.zeros_like(x), x / length)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, axes: Any = (0, 2, 3)) -> Any:
    apart = x - torch.mean(x, tuple(axes), True)
    return apart / (torch.sqrt(torch.mean(apart * apart, tuple(axes), True)) + 1e-9)


@operator("LRN")
def local_response_normalization(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = x * x
    nothing = [torch.zeros_like(squares.narrow(1, 0, 1))]
    padded = torch.cat([*(nothing * before), squares, *(nothing * after)], 1)
    n = x.shape[1]
    total = padded.narrow(1, 0, n)
    for k in range(1, size):
        total = total + padded.narrow(1, k, n)
    return x / torch.pow(bias + alpha / size * total, beta)


@operator("Dropout", host=())
def dropout(x: Any, ratio: Any = None, training: Any = None, seed: int | None = None, **attributes: Any) -> Any:
    """Models are run as they are for inference."""
    if training is not None and bool(training):
        raise NotImplementedError("Dropout in training mode")
    return x, torch.ones_like(x, dtype=torch.bool)


__all__: list[str] = []
