"""Differences, covariances, integrals, running sums of exponentials: made of other functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import in_c_order, ufunc_accumulate
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.arithmetic import add, div, mul, pow, sub
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, dim_of, floating, function
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.places import is_batched
from dynagraph.torch.functions.pointwise_primitives import COPY
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.reductions import CUMSUM, mean, sum
from dynagraph.torch.functions.shapes import reshape, squeeze, transpose, unsqueeze, view_
from dynagraph.torch.functions.splitting import narrow


def _logcumsumexp(x: Any, axis: int) -> Any:
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    if x.dtype.kind == "c":
        top = np.max(wide.real, axis=axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        return in_c_order(np.log(np.cumsum(np.exp(wide - top), axis=axis)) + top)
    return in_c_order(ufunc_accumulate(np.logaddexp, wide, axis=axis)).astype(x.dtype, copy=False)


def _logcumsumexp_vjp(d: Any, g: Any) -> Any:
    """From behind, the sum of the gradients of all sums that an element is in: each by its share."""
    axis = d.attrs["axis"]
    size = d.out.real if d.out.dtype.is_complex else d.out
    top = size.call("max", axis=(axis,), keepdims=True)
    share = g * (top - d.out).call("exp").conj
    steps = tuple(-1 if k == axis else 1 for k in range(share.ndim))
    starts = tuple(n - 1 if k == axis else 0 for k, n in enumerate(share.shape))
    behind = share.call("slice", starts=starts, steps=steps, shape=share.shape).call("cumsum", axis=axis)
    return behind.call("slice", starts=starts, steps=steps, shape=share.shape) * (d.x - top).call("exp").conj


LOGCUMSUMEXP = define("logcumsumexp", _logcumsumexp, (_logcumsumexp_vjp,), ("xo",), backward="LogcumsumexpBackward0")


@function(out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithms of the running sums of exponentials along a dimension."""
    x = check_tensor(input, "logcumsumexp", "input")
    k = dim_of(dim, x._array.ndim)
    if x._array.dtype.kind not in "fcV":
        raise NotImplementedError(f"\"logcumsumexp_out_cpu\" not implemented for '{x.dtype.legacy.removesuffix('Tensor')}'")
    return apply(LOGCUMSUMEXP, x, axis=k) if x._array.ndim and x._array.size else apply(COPY, x)


@function(out=True)
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences of neighbours along a dimension, `n` times; `prepend` and `append` are put on first."""
    x = check_tensor(input, "diff", "input")
    if not x._array.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    k = dim_of(dim, x._array.ndim)
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if not n:
        return apply(COPY, x)
    for other in (prepend, append):
        if other is not None and other._array.ndim != x._array.ndim:
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        if other is not None:
            for axis, (own, given) in enumerate(zip(x._array.shape, other._array.shape)):
                if axis != k and own != given:
                    raise RuntimeError(
                        "diff expects the shape of tensor to prepend or append to match that of input except along the "
                        f"differencing dimension; input.size({axis}) = {own}, but got tensor.size({axis}) = {given}"
                    )
    if prepend is not None or append is not None:
        x = cat([part for part in (prepend, x, append) if part is not None], k)
    for _ in range(min(n, x._array.shape[k])):
        length = x._array.shape[k]
        if not length:
            break
        later, sooner = narrow(x, k, 1, length - 1), narrow(x, k, 0, length - 1)
        x = NAMESPACES["torch"]["logical_xor"](later, sooner) if x._array.dtype.kind == "b" else sub(later, sooner)
    return x


@function()
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariances of the rows; columns are observations, which may have frequencies and weights."""
    x = check_tensor(input, "cov", "input")
    if x._array.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {x._array.ndim} dimensions"
        )
    if x._array.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = x if x._array.ndim == 2 else view_(x, 1, -1)
    weights = _weights(fweights, aweights, rows._array.shape[1])
    rows = floating(rows)
    count: Any = rows._array.shape[1]
    if weights is None:
        average = mean(rows, 1, True)
        norm: Any = count - correction
    else:
        total = sum(weights)
        average = div(sum(mul(rows, weights), 1, True), total)
        if correction and aweights is not None:
            squares = sum(mul(weights, aweights))
            norm = sub(total, div(mul(squares, correction), total))
        else:
            norm = sub(total, correction)
    centred = sub(rows, average)
    scaled = centred if weights is None else mul(centred, weights)
    if not isinstance(norm, Tensor):
        norm = max(norm, 0)
    found = div(matmul(scaled, transpose(centred, 0, 1).conj()), norm)  # type: ignore[attr-defined]
    return squeeze(found)


def _weights(fweights: Tensor | None, aweights: Tensor | None, count: int) -> Tensor | None:
    for name, given, whole in (("fweights", fweights, True), ("aweights", aweights, False)):
        if given is None:
            continue
        if given._array.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with {given._array.ndim} dimensions"
            )
        if whole and given._array.dtype.kind not in "iu":
            raise RuntimeError("cov(): expected fweights to have integral dtype but got fweights with "
                               f"{given.dtype.legacy.removesuffix('Tensor')} dtype")  # fmt: skip
        if not whole and given._array.dtype.kind not in "fV":
            raise RuntimeError("cov(): expected aweights to have floating point dtype but got aweights with "
                               f"{given.dtype.legacy.removesuffix('Tensor')} dtype")  # fmt: skip
        if given._array.size != count:
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                               f"{given._array.size} != {count}")  # fmt: skip
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None and not is_batched(given._array) and given._array.size and (given._array < 0).any():
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is None:
        return aweights
    return fweights if aweights is None else mul(fweights, aweights)


@function()
def corrcoef(input: Tensor) -> Tensor:
    """The correlations of the rows; columns are observations."""
    if input._array.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input._array.ndim} dimensions"
        )
    c = cov(input)
    if not c._array.ndim:
        return div(c, c)
    deviations = pow(NAMESPACES["torch"]["real"](c.diagonal()), 0.5)  # type: ignore[attr-defined]
    c = div(div(c, unsqueeze(deviations, 1)), unsqueeze(deviations, 0))
    return c if c.dtype.is_complex else c.clamp(-1, 1)  # type: ignore[attr-defined]


def _middles(y: Tensor, k: int) -> Tensor:
    """The sums of neighbours along a dimension."""
    n = y._array.shape[k]
    return add(narrow(y, k, 1, n - 1), narrow(y, k, 0, n - 1))


def _strips(y: Tensor, x: Tensor | None, dx: Any, dim: int, who: str) -> tuple[Tensor, int]:
    """The areas between neighbours."""
    k = dim_of(dim, y._array.ndim)
    if "b" in (y._array.dtype.kind, "" if x is None else x._array.dtype.kind):
        which = "y" if y._array.dtype.kind == "b" else "x"
        raise RuntimeError(f"{who}: received a bool input for `{which}`, but bool is not supported")
    if y._array.shape[k] == 0:
        return y, k
    if x is None:
        return mul(_middles(y, k), dx / 2), k
    if x._array.ndim == 1:
        if x._array.shape[0] != y._array.shape[k]:
            raise RuntimeError(f"{who}: There must be one `x` value for each sample point")
        x = reshape(x, tuple(-1 if axis == k else 1 for axis in range(y._array.ndim)))
    at = k - y._array.ndim + x._array.ndim
    steps = sub(narrow(x, at, 1, x._array.shape[at] - 1), narrow(x, at, 0, x._array.shape[at] - 1))
    return div(mul(_middles(y, k), steps), 2), k


@function(method=False, aliases=("trapz",))
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral along a dimension by the trapezoidal rule: at places `x`, or at distances `dx`."""
    strips, k = _strips(check_tensor(y, "trapezoid", "y"), x, dx, dim, "trapezoid")
    return sum(strips, k)


@function(method=False)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The running integral along a dimension by the trapezoidal rule."""
    strips, k = _strips(check_tensor(y, "cumulative_trapezoid", "y"), x, dx, dim, "cumulative_trapezoid")
    return apply(CUMSUM, strips, axis=k)


@function(method=True)
def dist(input: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """The `p`-norm of the difference."""
    return NAMESPACES["torch"]["norm"](sub(input, other), p)


__all__ = ["cov", "diff", "logcumsumexp"]
