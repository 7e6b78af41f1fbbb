"""Linear and bilinear layers as functions."""

from __future__ import annotations

import math
from typing import Any

from dynagraph import products
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.activations import in_single
from dynagraph.torch.functions.arithmetic import add
from dynagraph.torch.functions.common import cast, check_tensor, function
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.shapes import reshape, unsqueeze


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """One product of all rows."""
    rows = x.reshape(-1, x.shape[-1]) if x.size or x.shape[-1] else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    result = products.matmul(rows, weight.T)
    if bias is not None:
        result = result + bias
    return result.reshape(*x.shape[:-1], weight.shape[0])


def _rows(term: Any) -> Any:
    return term if term.ndim == 2 else term.reshape((math.prod(term.shape[:-1]), term.shape[-1]))


LINEAR = define(
    "linear",
    in_single(_linear),
    (
        lambda d, g: (_rows(g) @ d.y.conj).reshape(d.x.shape),
        lambda d, g: _rows(g).transposed @ _rows(d.x.conj),
        lambda d, g: _rows(g).sum(0),
    ),
    ("y", "x", ""),
    backward="AddmmBackward0",
)


@function(method=False, namespace="functional", out=True)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    x, w = check_tensor(input, "linear", "input"), check_tensor(weight, "linear", "weight", 2)
    if not x._array.ndim or not w._array.ndim:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x._array.ndim}D and {w._array.ndim}D")
    if x._array.dtype != w._array.dtype:
        names = [dtypes.scalar_name(t.dtype).lower() for t in (x, w)]
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")
    if w._array.ndim == 1:
        if bias is not None and bias._array.ndim:
            raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
        product = matmul(x, w)
        return product if bias is None else add(product, bias)
    if w._array.ndim != 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {w._array.ndim}D")
    if x._array.dtype.kind == "b":
        raise NotImplementedError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    shape, (outs, ins) = x._array.shape, w._array.shape
    if shape[-1] != ins:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({math.prod(shape[:-1])}x{shape[-1]} and {ins}x{outs})"
        )
    if bias is None:
        return apply(LINEAR, x, w)
    if bias._array.dtype != x._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (bias, w)]
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {names[0]} and {names[1]}")
    if bias._array.ndim > 1 or (bias._array.ndim and bias._array.shape[0] not in (1, outs)):
        raise RuntimeError(
            f"The expanded size of the tensor ({outs}) must match the existing size ({bias._array.shape[-1]}) at non-singleton "
            f"dimension {len(shape) - 1}.  Target sizes: {[*shape[:-1], outs]}.  Tensor sizes: {list(bias._array.shape)}"
        )
    return apply(LINEAR, x, w, bias)


@function(namespace="functional", method=False)
@function(method=False)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2`` for each output ``k``, plus `bias`."""
    a, b, w = (check_tensor(t, "bilinear", n, k) for k, (t, n) in enumerate(
        ((input1, "input1"), (input2, "input2"), (weight, "weight")), 1
    ))  # fmt: skip
    if a._array.ndim != b._array.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {a._array.ndim} and {b._array.ndim}")
    for k in range(a._array.ndim - 1):
        if a._array.shape[k] != b._array.shape[k]:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {k}: got {a._array.shape[k]} and {b._array.shape[k]}"
            )
    outs, first, second = w._array.shape
    for t, n, name in ((a, first, "input1"), (b, second, "input2")):
        if t._array.shape[-1] != n:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {t._array.shape[-1]} but expected {n}")
    if bias is not None and bias._array.shape[0] != outs:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias._array.shape[0]} but expected {outs}")
    count = math.prod(a._array.shape[:-1])
    by_first = linear(reshape(a, count, first), reshape(w.permute(0, 2, 1), outs * second, first))  # type: ignore[attr-defined]
    product = matmul(reshape(by_first, count, outs, second), unsqueeze(reshape(b, count, second), -1))
    result = cast(reshape(product, (*a._array.shape[:-1], outs)), a.dtype)  # autocast changes the products alone
    return result if bias is None else add(result, bias)


__all__ = ["LINEAR", "linear"]
