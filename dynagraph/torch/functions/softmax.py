"""Softmax and its logarithm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import ufunc_reduce
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.activations import dense, in_single, only_floats
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, dim_of, function
from dynagraph.torch.functions.elementary import neg


def _softmax(x: Any, axis: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    x = dense(x)
    shares = np.exp(x - ufunc_reduce(np.maximum, x, axis=axis, keepdims=True))
    return shares / ufunc_reduce(np.add, shares, axis=axis, keepdims=True)


def _softmax_vjp(d: Any, g: Any) -> Any:
    weighted = g * d.out
    return weighted - d.out * weighted.call("sum", axis=d.attrs["axis"], keepdims=True)


def _log_softmax(x: Any, axis: tuple[int, ...]) -> Any:
    if not x.size:
        return x.copy()
    x = dense(x)
    shifted = x - ufunc_reduce(np.maximum, x, axis=axis, keepdims=True)
    return shifted - np.log(ufunc_reduce(np.add, np.exp(shifted), axis=axis, keepdims=True))


SOFTMAX = define("softmax", in_single(_softmax), (_softmax_vjp,), ("o",))
LOG_SOFTMAX = define(
    "log_softmax",
    in_single(_log_softmax),
    (lambda d, g: g - d.out.call("exp") * g.call("sum", axis=d.attrs["axis"], keepdims=True),),
    ("o",),
)


def _over(p: Primitive, name: str, input: Any, dim: int, dtype: DType | None) -> Tensor:
    x = check_tensor(input, name, "input")
    if dtype is not None:
        x = cast(x, dtype)
    k = dim_of(dim, x._array.ndim)
    last = k == max(x._array.ndim, 1) - 1
    only_floats(x, f"{name}_{'lastdim_' if last else ''}kernel_impl")
    return apply(p, x, axis=(k,) if x._array.ndim else ())


@function(out=True)
def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Exponentials along a dimension, divided by their sum."""
    return _over(SOFTMAX, "softmax", input, dim, dtype)


@function(out=True)
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _over(LOG_SOFTMAX, "log_softmax", input, dim, dtype)


NAMESPACES.setdefault("special", {}).update(
    softmax=lambda input, dim, *, dtype=None: softmax(input, dim, dtype),
    log_softmax=lambda input, dim, *, dtype=None: log_softmax(input, dim, dtype),
)


def _default_dim(name: str, x: Any, dim: int | None) -> int:
    """Where none is given: the second dimension, of tensors with one or three the first."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.", stacklevel=3
    )
    return 0 if check_tensor(x, "softmax", "input")._array.ndim in (0, 1, 3) else 1


@function("softmax", method=False, namespace="functional")
def softmax_(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Exponentials along a dimension, divided by their sum."""
    return _over(SOFTMAX, "softmax", input, _default_dim("softmax", input, dim), dtype)


@function("log_softmax", method=False, namespace="functional")
def log_softmax_(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _over(LOG_SOFTMAX, "log_softmax", input, _default_dim("log_softmax", input, dim), dtype)


@function(method=False, namespace="functional")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """`softmax` of the negated tensor."""
    return _over(SOFTMAX, "softmax", neg(input), _default_dim("softmin", input, dim), dtype)

__all__ = ["LOG_SOFTMAX", "SOFTMAX"]
