"""Powers and exponentials of square matrices, and tensors that are inverted as matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.common import function
from dynagraph.torch.functions.lapack import check_floats, check_matrices
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.shapes import permute, reshape
from dynagraph.torch.functions.solvers import inv, solve
from dynagraph.torch.functions.ternary import where

# -- powers and exponentials ------------------------------------------------------------------------------------------


def _power(A: Tensor, n: int, who: str) -> Tensor:
    check_matrices(A, who, floats=n < 0)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"{who}(): argument 'n' must be int, not {type(n).__name__}")
    if n == 0:
        one = np.broadcast_to(library_of_array(A._array).eye(A._array.shape[-1], dtype=A._array.dtype), A._array.shape)
        return where(made(library_of_array(A._array).ones((), bool)), made(one), A)  # with gradients, of zero
    if n < 0:
        A, n = inv(A), -n
    result = None
    square = A
    while True:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if not n:
            return result.clone() if result is A else result  # type: ignore[union-attr, return-value]
        square = matmul(square, square)


@function("matrix_power", namespace="linalg", method=False, out=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """The n-th power; of the inverse where n is negative."""
    return _power(A, n, "linalg.matrix_power")


@function("matrix_power", out=True)
def old_matrix_power(input: Tensor, n: int) -> Tensor:
    """As `linalg.matrix_power`."""
    return _power(input, n, "linalg.matrix_power")


# of degree 13, up to a 1-norm of 5.37
_PADE = [
    math.factorial(26 - k) * math.factorial(13) / (math.factorial(26) * math.factorial(13 - k) * math.factorial(k))
    for k in range(14)
]


def _exponential(a: Any) -> Any:
    """Padé's approximation of a matrix halved until it is small, squared as often.  N. Higham, "The scaling and squaring method for
    the matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26, 2005.
    """
    n = a.shape[-1]
    if not n or not a.size:
        return a.copy()
    if is_half(a.dtype):
        return _exponential(a.astype(np.float32)).astype(a.dtype)
    size = np.abs(a).sum(-2).max(-1)
    halvings = np.maximum(np.ceil(np.log2(np.where(np.isfinite(size) & (size > 0), size, 1) / 5.37)), 0).astype(np.int64)
    x = a * np.ldexp(a.real.dtype.type(1), -halvings)[..., None, None]
    one = library_of_array(a).eye(n, dtype=a.dtype)
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    b = [x.real.dtype.type(c) for c in _PADE]
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    result = np.linalg.solve(even - odd, even + odd) if np.isfinite(a).all() else np.full(a.shape, np.nan, a.dtype)
    for k in range(int(halvings.max())):
        result = np.where((k < halvings)[..., None, None], result @ result, result)
    return result


def _exponential_vjp(d: Any, g: Any) -> Any:
    """A block of the exponential of ``[[A^H, G], [0, A^H]]``.  R. Mathias, SIAM J. Matrix Anal. Appl. 17, 1996."""
    back = d.x.adjoint
    n, axis = back.shape[-1], back.ndim - 1
    above = back.call("concatenate", g, axis=axis)
    below = back.full(0, back.shape).call("concatenate", back, axis=axis)
    whole = above.call("concatenate", below, axis=axis - 1).call("matrix_exp")
    return whole.part((0,) * (axis - 1) + (0, n), back.shape)


MATRIX_EXP = define("matrix_exp", _exponential, (_exponential_vjp,), ("x",), backward="LinalgMatrixExpBackward0")


@function("matrix_exp")
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
    check_matrices(input, "linalg.matrix_exp", floats=False)
    check_floats(input, "linalg.matrix_exp", low=True)
    return apply(MATRIX_EXP, input)


@function("matrix_exp", namespace="linalg", method=False)
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices."""
    return matrix_exp(A)


# -- tensors as matrices ----------------------------------------------------------------------------------------------


@function("tensorinv", namespace="linalg", method=False, out=True)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor whose first `ind` dimensions are the rows of a matrix, and the others its columns."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    shape = A._array.shape
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{columns} != {rows}"
        )
    return reshape(inv(reshape(A, rows, columns)), (*shape[ind:], *shape[:ind]))


@function("tensorsolve", namespace="linalg", method=False, out=True)
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X of ``tensordot(A, X, X.ndim) = B``; `dims` of A are moved behind the others first."""
    if dims is not None:
        moved = [d % A._array.ndim for d in dims]
        A = permute(A, [k for k in range(A._array.ndim) if k not in moved] + moved)
    result = A._array.shape[B._array.ndim :]
    n = math.prod(result)
    if n != B._array.size:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{n} != {B._array.size}"
        )
    return reshape(solve(reshape(A, n, n), reshape(B, -1)), result)


__all__ = ["MATRIX_EXP", "matrix_exp"]
