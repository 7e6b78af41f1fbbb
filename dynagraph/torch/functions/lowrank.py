"""Decompositions of low rank, by random projections.

N. Halko, P. Martinsson and J. Tropp, "Finding structure with randomness", SIAM Review 53, 2011: algorithms 4.4 and 5.1.
"""

from __future__ import annotations

from dynagraph.torch.core.dtypes import of_numpy
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.arithmetic import sub
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, function
from dynagraph.torch.functions.decompositions import qr, svd
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.reductions import mean
from dynagraph.torch.functions.shapes import transpose


def _adjoint(x: Tensor) -> Tensor:
    return transpose(x, -2, -1).conj()  # type: ignore[attr-defined]


def _basis(a: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that span nearly what those of a matrix do."""
    n = a._array.shape[-1]
    directions = NAMESPACES["torch"]["randn"](n, q, dtype=of_numpy(a._array.dtype), device=a.device)
    found = qr(matmul(a, directions)).Q
    for _ in range(niter):
        found = qr(matmul(_adjoint(a), found)).Q
        found = qr(matmul(a, found)).Q
    return found


def _low_rank(a: Tensor, q: int, niter: int) -> tuple[Tensor, Tensor, Tensor]:
    m, n = a._array.shape[-2:]
    if m < n:
        v, s, u = _low_rank(_adjoint(a), q, niter)
        return u, s, v
    basis = _basis(a, q, niter)
    u, s, v = svd(matmul(_adjoint(basis), a), full_matrices=False)
    return matmul(basis, u), s, _adjoint(v)


@function("svd_lowrank", method=False)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The greatest `q` singular values of A, or of A - M, and their vectors, nearly: U, S and V."""
    check_tensor(A, "svd_lowrank", "A")
    if M is not None:
        A = sub(A, M)
    return _low_rank(A, 6 if q is None else q, 2 if niter is None else niter)


@function("pca_lowrank", method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of rows: `svd_lowrank` of the matrix, with `center` less its mean row."""
    check_tensor(A, "pca_lowrank", "A")
    m, n = A._array.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if A._array.dtype.kind not in "fc":
        raise ValueError(f"input expected to be floating point or complex tensor, but got {A.dtype}")
    return _low_rank(sub(A, mean(A, -2, True)) if center else A, q, niter)


__all__ = ["pca_lowrank", "svd_lowrank"]
