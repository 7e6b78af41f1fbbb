"""Products of matrices and vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph import products
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.primitives import define, from_row
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.arithmetic import add, mul
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.numbers_first import scaled_product
from dynagraph.torch.functions.shapes import expand, reshape, unsqueeze


def _half_in_single(compute: Any) -> Any:
    def forward(a: Any, b: Any) -> Any:
        if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
            return compute(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
        return compute(a, b)

    return forward


MATMUL = from_row("own_matmul", ("y", "x"), "MmBackward0", name="matmul")
BMM = define("bmm", MATMUL.forward, MATMUL.vjps, ("y", "x"), backward="BmmBackward0")
DOT = define(
    "dot",
    _half_in_single(np.dot),
    (lambda d, g: g * d.y.conj, lambda d, g: g * d.x.conj),
    ("y", "x"),
    backward="DotBackward0",
)
MV = define(
    "mv",
    products.matmul,
    (
        lambda d, g: g.reshape((*g.shape, 1)) * d.y.conj,
        lambda d, g: (d.x.adjoint @ g.reshape((*g.shape, 1))).reshape(d.y.shape),
    ),
    ("y", "x"),
    backward="MvBackward0",
)


def _checked(who: str, a: Tensor, b: Tensor) -> None:
    check_tensor(a, who, "input")
    check_tensor(b, who, "mat2", 2)
    if a._array.dtype != b._array.dtype:
        names = [dtypes.scalar_name(t.dtype).lower() for t in (a, b)]
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")


def _product(a: Tensor, b: Tensor, p: Any = MATMUL) -> Tensor:
    if a._array.dtype.kind == "b":
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    return apply(p, a, b)


@function(out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _checked("mm", input, mat2)
    if input._array.ndim != 2:
        raise RuntimeError("self must be a matrix")
    if mat2._array.ndim != 2:
        raise RuntimeError("mat2 must be a matrix")
    (n, k), (rows, m) = input._array.shape, mat2._array.shape
    if k != rows:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {rows}x{m})")
    return _product(input, mat2)


@function(out=True)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two rows of matrices."""
    _checked("bmm", input, mat2)
    if input._array.ndim != 3 or mat2._array.ndim != 3:
        raise RuntimeError(f"batch{1 if input._array.ndim != 3 else 2} must be a 3D tensor")
    (b, _, k), (c, rows, _) = input._array.shape, mat2._array.shape
    if b != c or k != rows:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{c}, {rows}]."
        )
    return _product(input, mat2, BMM)


@function(out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    _checked("mv", input, vec)
    if input._array.ndim != 2 or vec._array.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {vec._array.ndim}, {input._array.ndim}, {vec._array.ndim}")
    if input._array.shape[1] != vec._array.shape[0]:
        n, k = input._array.shape
        raise RuntimeError(f"size mismatch, got input ({n}), mat ({n}x{k}), vec ({vec._array.shape[0]})")
    return apply(MV, input, vec)


@function(out=True, aliases=("inner_product",))
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements."""
    check_tensor(tensor, "dot", "tensor", 2)
    if input._array.ndim != 1 or tensor._array.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input._array.ndim}D and {tensor._array.ndim}D tensors")
    if input._array.dtype != tensor._array.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {dtypes.scalar_name(input.dtype)} and "
            f"{dtypes.scalar_name(tensor.dtype)}"
        )
    if input._array.shape != tensor._array.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input._array.shape[0]}] and src [{tensor._array.shape[0]}] to have the "
            f"same number of elements, but got {input._array.shape[0]} and {tensor._array.shape[0]} elements respectively"
        )
    return apply(DOT, input, tensor)


@function(out=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product; leading dimensions broadcast, vectors are rows or columns."""
    check_tensor(other, "matmul", "other", 2)
    a, b = input._array.ndim, other._array.ndim
    if a == 2 and b == 2:
        return mm(input, other)
    if not a or not b:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D")
    if a == 1 and b == 1:
        return dot(input, other)
    if a == 2 and b == 1:
        return mv(input, other)
    _checked("matmul", input, other)
    x = unsqueeze(input, 0) if a == 1 else input
    y = unsqueeze(other, -1) if b == 1 else other
    _check_inner(x, y)
    if a >= 3 and b <= 2:  # one product of all rows
        rows = reshape(x, math.prod(x._array.shape[:-1]), x._array.shape[-1])
        result = reshape(_product(rows, y), (*x._array.shape[:-1], y._array.shape[-1]))
    else:
        result = _product(x, y, MATMUL if x._array.ndim == 2 and y._array.ndim == 2 else BMM)
    if b == 1:
        result = result.squeeze(-1)  # type: ignore[attr-defined]
    return result.squeeze(-2) if a == 1 else result  # type: ignore[attr-defined]


def _check_inner(x: Tensor, y: Tensor) -> None:
    if x._array.shape[-1] != y._array.shape[-2]:
        if x._array.ndim <= 2 and y._array.ndim <= 2:
            (n, k), (rows, m) = x._array.shape, y._array.shape
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {rows}x{m})")
        b, k = x._array.shape[0], x._array.shape[-1]
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: "
            f"[{y._array.shape[0]}, {y._array.shape[-2]}]."
        )
    try:
        np.broadcast_shapes(x._array.shape[:-2], y._array.shape[:-2])
    except ValueError:
        a, b = x._array.shape[:-2], y._array.shape[:-2]
        rank = max(len(a), len(b))
        a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
        k = next(k for k in range(rank - 1, -1, -1) if a[k] != b[k] and 1 not in (a[k], b[k]))
        raise RuntimeError(
            f"The size of tensor a ({a[k]}) must match the size of tensor b ({b[k]}) at non-singleton dimension {k}"
        ) from None


def _scaled(product: Tensor, input: Tensor, beta: Any, alpha: Any) -> Tensor:
    kind = product._array.dtype.kind
    if kind == "b":
        alpha, beta = bool(alpha), bool(beta)
    elif kind in "iu":
        alpha, beta = int(alpha), int(beta)
    product = product if alpha == 1 else mul(product, alpha)
    given = expand(input, product._array.shape)
    if beta == 0:
        return product
    return add(given if beta == 1 else mul(given, beta), product)


@function(inplace=True, out=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *rest: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    if rest:
        input, mat1, mat2, beta, alpha = scaled_product("addmm", input, mat1, mat2, *rest)
    return _scaled(mm(mat1, mat2), input, beta, alpha)


@function(inplace=True, out=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *rest: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)``, of rows of matrices."""
    if rest:
        input, batch1, batch2, beta, alpha = scaled_product("baddbmm", input, batch1, batch2, *rest)
    return _scaled(bmm(batch1, batch2), input, beta, alpha)


@function(inplace=True, out=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *rest: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * sum(batch1 @ batch2)``, of rows of matrices."""
    if rest:
        input, batch1, batch2, beta, alpha = scaled_product("addbmm", input, batch1, batch2, *rest)
    return _scaled(bmm(batch1, batch2).sum(0, dtype=batch1.dtype), input, beta, alpha)  # type: ignore[attr-defined]


@function(inplace=True, out=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *rest: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``."""
    if rest:
        input, mat, vec, beta, alpha = scaled_product("addmv", input, mat, vec, *rest)
    return _scaled(mv(mat, vec), input, beta, alpha)


@function(inplace=True, out=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *rest: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    if rest:
        input, vec1, vec2, beta, alpha = scaled_product("addr", input, vec1, vec2, *rest)
    for name, number in (("beta", beta), ("alpha", alpha)):
        if isinstance(number, float) and all(t._array.dtype.kind in "iub" for t in (input, vec1, vec2)):
            raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
    return _scaled(outer(vec1, vec2), input, beta, alpha)


@function(out=True, aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors' elements."""
    if input._array.ndim != 1 or vec2._array.ndim != 1:
        raise RuntimeError(
            f"outer: Expected 1-D argument {'self' if input._array.ndim != 1 else 'vec2'}, but got "
            f"{(input if input._array.ndim != 1 else vec2)._array.ndim}-D"
        )
    return mul(unsqueeze(input, 1), vec2)


@function(out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """`dot` with the first conjugated."""
    return dot(input.conj(), other)  # type: ignore[attr-defined]


def _matmul(self: Tensor, other: Any) -> Any:
    return matmul(self, other) if isinstance(other, Tensor) else NotImplemented


Tensor.__matmul__ = _matmul  # type: ignore[attr-defined]
Tensor.__rmatmul__ = lambda self, other: matmul(other, self)  # type: ignore[attr-defined]

__all__ = ["BMM", "MATMUL"]
