"""Factors of symmetric and Hermitian matrices that are not definite: A = LDL^T, D of blocks of one and two rows.

J. Bunch and L. Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", Math. Comp. 31, 1977.
The results are packed as LAPACK's ?sytrf does it, of the lower triangle.  There are no gradients, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.common import function, result_type_of
from dynagraph.torch.functions.lapack import batch_of, check_matrices, check_same_dtype, in_columns, raise_where

_GROWTH = (1 + math.sqrt(17)) / 8


def _mirror(x: Any, hermitian: bool) -> Any:
    return x.conj() if hermitian else x


def _size(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def _pivot(a: Any, k: int, own: Any) -> tuple[int, int, bool]:
    """Which row comes to the front, how many rows the block has, and whether the column is zero."""
    below = _size(a[k + 1 :, k])
    largest = int(np.argmax(below)) + k + 1 if below.size else k
    column = below.max() if below.size else 0.0
    if max(own, column) == 0:
        return k, 1, True
    if own >= _GROWTH * column:
        return k, 1, False
    row = np.concatenate([_size(a[largest, k:largest]), _size(a[largest + 1 :, largest])]).max()
    if own >= _GROWTH * column * (column / row):
        return k, 1, False
    at = _size(a[largest, largest : largest + 1])[0]
    return largest, 1 if at >= _GROWTH * row else 2, False


def _factor(given: Any, hermitian: bool) -> tuple[Any, Any, int]:
    """Of one matrix."""
    lower = np.tril(given)
    a = lower + _mirror(np.tril(given, -1).T, hermitian)
    n = a.shape[0]
    if hermitian:
        a[range(n), range(n)] = a.diagonal().real
    pivots, info, k = np.empty(n, np.int32), 0, 0
    while k < n:
        front, rows, is_zero = _pivot(a, k, _size(a[k, k : k + 1])[0])
        info = k + 1 if is_zero and not info else info
        last = k + rows - 1
        if front != last:  # of what is not factored yet, rows and columns
            a[[last, front], k:] = a[[front, last], k:]
            a[k:, [last, front]] = a[k:, [front, last]]
        rest = slice(k + rows, n)
        if not is_zero:
            columns = a[rest, k : k + rows].copy()
            block = a[k : k + rows, k : k + rows]
            factors = columns / block[0, 0] if rows == 1 else np.linalg.solve(block.T, columns.T).T
            a[rest, rest] -= factors @ _mirror(columns.T, hermitian)
            a[rest, k : k + rows] = factors
        pivots[k : k + rows] = front + 1 if rows == 1 else -(front + 1)
        k += rows
    return np.tril(a), pivots, info


def _factor_arrays(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    n = a.shape[-1]
    found = [_factor(one, hermitian) for one in a.reshape(math.prod(a.shape[:-2]), n, n)]
    packed = np.stack([f for f, _, _ in found]).reshape(a.shape) if found else a.copy()
    pivots = np.stack([p for _, p, _ in found]).reshape(a.shape[:-1]) if found else np.empty(a.shape[:-1], np.int32)
    return in_columns(packed), pivots, np.asarray([i for _, _, i in found], np.int32).reshape(a.shape[:-2])


def _solved(packed: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """Of one matrix: forward through L and D, and back."""
    x, n, blocks, k = b.copy(), packed.shape[0], [], 0
    while k < n:
        rows = 1 if pivots[k] > 0 else 2
        blocks.append((k, rows, k + rows - 1, abs(int(pivots[k])) - 1))
        k += rows
    for k, rows, last, front in blocks:
        x[[last, front]] = x[[front, last]]
        x[k + rows :] -= packed[k + rows :, k : k + rows] @ x[k : k + rows]
        d = packed[k : k + rows, k : k + rows]
        x[k : k + rows] = np.linalg.solve(np.tril(d) + _mirror(np.tril(d, -1).T, hermitian), x[k : k + rows])
    for k, rows, last, front in reversed(blocks):
        x[k : k + rows] -= _mirror(packed[k + rows :, k : k + rows].T, hermitian) @ x[k + rows :]
        x[[last, front]] = x[[front, last]]
    return x


def _solve_arrays(packed: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    batch = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    n, count = packed.shape[-1], math.prod(batch)
    factors = np.broadcast_to(packed, (*batch, n, n)).reshape(count, n, n)
    orders = np.broadcast_to(pivots, (*batch, n)).reshape(count, n)
    sides = np.broadcast_to(b, batch + b.shape[-2:]).reshape(count, *b.shape[-2:])
    found = [_solved(*one, hermitian) for one in zip(factors, orders, sides)]
    return in_columns(np.stack(found).reshape(batch + b.shape[-2:]) if found else sides.reshape(batch + b.shape[-2:]))


def _refusing(name: str) -> Any:
    def vjp(d: Any, g: Any) -> Any:
        raise RuntimeError(f"the derivative for '{name}' is not implemented.")

    return vjp


_FACTOR = define(
    "ldl_factor_ex",
    _factor_arrays,
    _refusing("linalg_ldl_factor_ex"),
    "",
    backward="NotImplemented",
    outputs=3,
    differentiable=(0,),
)
_SOLVE = define("ldl_solve", _solve_arrays, _refusing("linalg_ldl_solve"), "", backward="NotImplemented")
_LDL_FACTOR = result_type_of("linalg_ldl_factor", "LD", "pivots")
_LDL_FACTOR_EX = result_type_of("linalg_ldl_factor_ex", "LD", "pivots", "info")


@function("ldl_factor_ex", namespace="linalg", method=False, out=True)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """L and D in one matrix, the rows that were exchanged, and which diagonal block of D is zero (0: none)."""
    check_matrices(A, "torch.linalg.ldl_factor_ex")
    found = apply(_FACTOR, A, hermitian=hermitian and A._array.dtype.kind == "c")
    if check_errors:
        raise_where(found[2]._array, "torch.linalg.ldl_factor_ex", _singular)
    return _LDL_FACTOR_EX(*found)


def _singular(k: int) -> str:
    return f"The factorization could not be completed because the diagonal block {k} of D is zero."


@function("ldl_factor", namespace="linalg", method=False, out=True)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """L and D in one matrix, and the rows that were exchanged."""
    check_matrices(A, "torch.linalg.ldl_factor")
    packed, pivots, info = apply(_FACTOR, A, hermitian=hermitian and A._array.dtype.kind == "c")
    raise_where(info._array, "torch.linalg.ldl_factor", _singular, RuntimeError)
    return _LDL_FACTOR(packed, pivots)


@function("ldl_solve", namespace="linalg", method=False, out=True)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of AX = B from the factors of A."""
    who = "torch.linalg.ldl_solve"
    check_matrices(LD, who, "LD")
    check_matrices(B, who, "B", square=False)
    check_same_dtype(LD, B, "ldl_solve", "LD", "B")
    if pivots._array.dtype.kind not in "iu":
        raise RuntimeError(f"{who}: Expected pivots to be integers. Got {pivots.dtype}")
    if pivots._array.shape != LD._array.shape[:-1]:
        raise RuntimeError(f"{who}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots._array.shape)} instead")  # fmt: skip
    if B._array.shape[-2] != LD._array.shape[-1]:
        (m, n), k = B._array.shape[-2:], LD._array.shape[-1]
        raise RuntimeError(f"{who}: Incompatible shapes of A and B for the equation AX = B ({k}x{k} and {m}x{n})")
    batch_of(LD, B, who)
    return apply(_SOLVE, LD, made(pivots._array), B, hermitian=hermitian and LD._array.dtype.kind == "c")


__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]
