"""Factors of matrices: Cholesky, LU, QR, singular values, eigenvalues.  Matrices stand in the last two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import failing, in_c_order, library_of_array
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.arithmetic import mul, sub
from dynagraph.torch.functions.common import function, result_type_of
from dynagraph.torch.functions.lapack import (
    LinAlgError,
    by_rule,
    check_matrices,
    factored,
    in_columns,
    permutation_of,
    raise_where,
)
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.shapes import transpose

# -- Cholesky ---------------------------------------------------------------------------------------------------------


def _cholesky_or_info(a: Any) -> tuple[Any, Any]:
    """The lower factor; where there is none, which leading minor is not positive."""
    try:
        with failing(a):
            return in_columns(np.linalg.cholesky(in_c_order(a))), library_of_array(a).zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        flat = a.reshape(-1, *a.shape[-2:])
        found = [_columns_until(flat[k]) for k in range(flat.shape[0])]
        factors = np.stack([f for f, _ in found]).reshape(a.shape)
        return in_columns(factors), library_of_array(a).asarray([n for _, n in found], np.int32).reshape(a.shape[:-2])


def _columns_until(a: Any) -> tuple[Any, int]:
    """The columns of one factor until a pivot is not positive, and which pivot that is."""
    factor = np.tril(a)
    for j in range(a.shape[-1]):
        rest = factor[j:, j] - factor[j:, :j] @ factor[j, :j].conj()
        factor[j:, j] = rest
        if not rest[0].real > 0:
            return factor, j + 1
        factor[j:, j] = rest / np.sqrt(rest[0].real)
    return factor, 0


_cholesky_rule = by_rule("linalg.cholesky")
CHOLESKY = define(
    "cholesky_ex",
    _cholesky_or_info,
    lambda d, g: _cholesky_rule(_First(d), g[0]),
    "o",
    backward="LinalgCholeskyExBackward0",
    outputs=2,
    differentiable=(0,),
)


class _First:
    """A node whose first result is the one that its rule knows."""

    __slots__ = ("attrs", "operands", "out")

    def __init__(self, d: Any):
        self.attrs, self.operands, self.out = d.attrs, d.operands, d.outs[0]


_CHOLESKY_EX = result_type_of("linalg_cholesky_ex", "L", "info")


def _not_positive(k: int) -> str:
    return (
        "The factorization could not be completed because the input is not positive-definite (the leading minor of order "
        f"{k} is not positive-definite)."
    )


def _cholesky(a: Tensor, upper: bool, who: str, check: bool) -> tuple[Tensor, Tensor]:
    if upper:
        a = transpose(a, -2, -1).conj()  # type: ignore[attr-defined]
    factor, info = apply(CHOLESKY, a)
    if check:
        raise_where(info._array, who, _not_positive)
    return (transpose(factor, -2, -1).conj() if upper else factor), info


@function("cholesky_ex", namespace="linalg", method=False, out=True)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The Cholesky factor, and which leading minor of a matrix is not positive (0: it has a factor)."""
    check_matrices(A, "linalg.cholesky")
    return _CHOLESKY_EX(*_cholesky(A, upper, "linalg.cholesky_ex", check_errors))


@function("cholesky", namespace="linalg", method=False, out=True)
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L of A = LL^H, or with `upper` U of A = U^H U; LinAlgError where a matrix is not positive definite."""
    check_matrices(A, "linalg.cholesky")
    return _cholesky(A, upper, "linalg.cholesky", True)[0]


@function("cholesky", out=True)
def old_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """As `linalg.cholesky`."""
    check_matrices(input, "cholesky")
    return _cholesky(input, upper, "cholesky", True)[0]


# -- LU ---------------------------------------------------------------------------------------------------------------


def _lu_factors(a: Any) -> tuple[Any, Any, Any]:
    lu, pivots, info = factored(a)
    return in_columns(lu), pivots, info


def _triangles(lu: Any) -> tuple[Any, Any]:
    m, n = lu.shape[-2:]
    k = min(m, n)
    return np.tril(lu[..., :k], -1) + library_of_array(lu).eye(m, k, dtype=lu.dtype), np.triu(lu[..., :k, :])


def _unpacked(a: Any) -> tuple[Any, Any, Any]:
    lu, pivots, _ = factored(a)
    lower, upper = _triangles(lu)
    return _permutation_matrix(pivots, a.shape[-2], a.dtype), lower, upper


def _permutation_matrix(pivots: Any, m: int, dtype: Any) -> Any:
    order = permutation_of(pivots, m)
    return (library_of_array(order).arange(m)[:, None] == order[..., None, :]).astype(dtype)


def _part(x: Any, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """Rows and columns from one number to another."""
    batch = x.shape[:-2]
    return x.part((0,) * len(batch) + (rows[0], columns[0]), (*batch, rows[1] - rows[0], columns[1] - columns[0]))


def _solved(a: Any, b: Any, upper: bool, unit: bool = False) -> Any:
    return a.call("solve_triangular", b, upper=upper, unit=unit)


def _by_triangles(p: Any, lower: Any, upper: Any, by_lower: Any, by_upper: Any) -> Any:
    """The gradient by A of PLU = A.  S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions", 2010."""
    m, n, k = lower.shape[-2], upper.shape[-1], lower.shape[-1]
    square_l, square_u = _part(lower, (0, k), (0, k)), _part(upper, (0, k), (0, k))
    below, above = None, None
    if by_lower is not None:
        below = square_l.adjoint @ _part(by_lower, (0, k), (0, k))
        if m > k:
            rest = _part(lower, (k, m), (0, k)).adjoint @ _part(by_lower, (k, m), (0, k))
            above = -rest
    if by_upper is not None:
        products = _part(by_upper, (0, k), (0, k)) @ square_u.adjoint
        above = products if above is None else above + products
        if n > k:
            rest = _part(by_upper, (0, k), (k, n)) @ _part(upper, (0, k), (k, n)).adjoint
            below = -rest if below is None else below - rest
    total = None if below is None else below.call("tril", k=-1)
    if above is not None:
        triangle = above.call("triu", k=0)
        total = triangle if total is None else total + triangle
    inner = _solved(square_l.adjoint, total, True, True)
    found = _solved(square_u, inner.adjoint, True).adjoint
    if m > k:
        rest = lower.full(0, (*lower.shape[:-2], m - k, k)) if by_lower is None else _part(by_lower, (k, m), (0, k))
        found = found.call("concatenate", _solved(square_u, rest.adjoint, True).adjoint, axis=found.ndim - 2)
    if n > k:
        rest = upper.full(0, (*upper.shape[:-2], k, n - k)) if by_upper is None else _part(by_upper, (0, k), (k, n))
        found = found.call("concatenate", _solved(square_l.adjoint, rest, True, True), axis=found.ndim - 1)
    return p @ found


def _lu_vjp(d: Any, g: Any) -> Any:
    p, lower, upper = d.outs
    if g[1] is None and g[2] is None:
        return (None,)
    return (_by_triangles(p, lower, upper, g[1], g[2]),)


def _lu_factor_vjp(d: Any, g: Any) -> Any:
    lu, pivots = d.outs[:2]
    if g[0] is None:
        return (None,)
    m, n = lu.shape[-2:]
    k = min(m, n)
    one = lu.make("eye", shape=(m, k), k=0, dtype=lu.dtype)
    lower, upper = _part(lu, (0, m), (0, k)).call("tril", k=-1) + one, _part(lu, (0, k), (0, n)).call("triu", k=0)
    p = pivots.call("permutation_matrix", m=m, dtype=lu.dtype.numpy)
    return (_by_triangles(p, lower, upper, _part(g[0], (0, m), (0, k)), _part(g[0], (0, k), (0, n))),)


LU = define("lu", _unpacked, _lu_vjp, "opq", backward="LinalgLuBackward0", outputs=3, differentiable=(1, 2))
LU_FACTOR = define(
    "lu_factor_ex", _lu_factors, _lu_factor_vjp, "op", backward="LinalgLuFactorExBackward0", outputs=3, differentiable=(0,)
)
define("permutation_matrix", lambda pivots, m, dtype: _permutation_matrix(pivots, m, dtype), (lambda d, g: None,), ("",))
_LU = result_type_of("linalg_lu", "P", "L", "U")
_LU_FACTOR = result_type_of("linalg_lu_factor", "LU", "pivots")
_LU_FACTOR_EX = result_type_of("linalg_lu_factor_ex", "LU", "pivots", "info")
_LU_UNPACK = result_type_of("lu_unpack", "P", "L", "U")


def _check_pivot(pivot: bool, who: str) -> None:
    if not pivot:
        raise RuntimeError(f"{who}: LU without pivoting is not implemented on the CPU")


@function("lu", namespace="linalg", method=False, out=True)
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L and U of A = PLU."""
    check_matrices(A, "linalg.lu", square=False)
    _check_pivot(pivot, "linalg.lu_factor")
    return _LU(*apply(LU, A))


@function("lu_factor_ex", namespace="linalg", method=False, out=True)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """L and U in one matrix, the rows that were exchanged, and which diagonal element is zero (0: none)."""
    found = _lu_factor(A, pivot)
    if check_errors:
        raise_where(found[2]._array, "torch.linalg.lu_factor_ex", _zero_diagonal, RuntimeError)
    return _LU_FACTOR_EX(*found)


def _zero_diagonal(k: int) -> str:
    return (
        f"U[{k},{k}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the "
        "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    )


def _lu_factor(A: Tensor, pivot: bool) -> Any:
    check_matrices(A, "torch.linalg.lu_factor", square=False)
    _check_pivot(pivot, "linalg.lu_factor")
    return apply(LU_FACTOR, A)


@function("lu_factor", namespace="linalg", method=False, out=True)
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L and U in one matrix, and the rows that were exchanged."""
    factors, pivots, info = _lu_factor(A, pivot)
    raise_where(info._array, "torch.linalg.lu_factor", _zero_diagonal, RuntimeError)
    return _LU_FACTOR(factors, pivots)


@function("lu", out=True)
def old_lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """As `linalg.lu_factor_ex`, with `get_infos` all three of its results."""
    factors, pivots, info = _lu_factor(A, pivot)
    if get_infos:
        return factors, pivots, info
    raise_where(info._array, "torch.linalg.lu_factor", _zero_diagonal, RuntimeError)
    return factors, pivots


@function("lu_unpack", method=False, out=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """P, L and U of what `linalg.lu_factor` gives."""
    check_matrices(LU_data, "torch.lu_unpack", "LU_data", square=False, floats=False)
    if unpack_pivots and LU_pivots._array.dtype != np.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this "
            "function is intended to "
            "be used with the output produced by torch.linalg.lu_factor"
        )
    m, n = LU_data._array.shape[-2:]
    k = min(m, n)
    library = library_of_array(LU_data._array)
    empty = made(library.empty(0, LU_data._array.dtype))
    lower = upper = permutation = empty
    if unpack_data:
        one = made(library.eye(m, k, dtype=LU_data._array.dtype))
        lower = LU_data[..., :k].tril(-1) + one  # type: ignore[index]
        upper = LU_data[..., :k, :].triu()  # type: ignore[index]
    if unpack_pivots:
        permutation = made(_permutation_matrix(LU_pivots._array, m, LU_data._array.dtype))
    return _LU_UNPACK(permutation, lower, upper)


# -- QR ---------------------------------------------------------------------------------------------------------------


def _qr_arrays(a: Any, mode: str) -> tuple[Any, Any]:
    if mode == "r":
        return library_of_array(a).empty(0, a.dtype), in_columns(np.linalg.qr(a, "r"))
    q, r = np.linalg.qr(a, mode)
    return in_columns(q), in_columns(r)


def _qr_vjp(d: Any, g: Any) -> Any:
    mode, (m, n) = d.attrs["mode"], d.x.shape[-2:]
    if mode == "r" or (mode == "complete" and m > n):
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, "
            "mode='reduced') if you are going to differentiate through linalg.qr."
            if mode == "r"
            else "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
        )
    return _QR_RULE(d, g)


_QR_RULE = by_rule("linalg.qr", several=True)
QR = define("qr", _qr_arrays, _qr_vjp, "op", backward="LinalgQrBackward0", outputs=2)
QR_WIDE = define("qr_wide", _qr_arrays, _qr_vjp, "xop", backward="LinalgQrBackward0", outputs=2)  # more columns than rows
_QR = result_type_of("linalg_qr", "Q", "R")
_OLD_QR = result_type_of("qr", "Q", "R")


@function("qr", namespace="linalg", method=False, out=True)
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q, whose columns are orthonormal, and the upper triangle R of A = QR."""
    check_matrices(A, "linalg.qr", square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    m, n = A._array.shape[-2:]
    return _QR(*apply(QR if m >= n else QR_WIDE, A, mode=mode))


@function("qr", out=True)
def old_qr(input: Tensor, some: bool = True) -> Any:
    """As `linalg.qr`: reduced, or with ``some=False`` complete."""
    return _OLD_QR(*qr(input, "reduced" if some else "complete"))


_GEQRF = result_type_of("geqrf", "a", "tau")


@function("geqrf", out=True)
def geqrf(input: Tensor) -> Any:
    """The reflections whose product is Q, below the diagonal of R, and their factors."""
    check_matrices(input, "torch.geqrf", "input", square=False)
    reflections, tau = np.linalg.qr(input._array, "raw")
    return _GEQRF(made(reflections.swapaxes(-1, -2)), made(tau))


@function("householder_product", namespace="linalg", method=False, out=True)
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of reflections ``1 - tau v v^H``, the v being columns below the diagonal."""
    check_matrices(input, "torch.linalg.householder_product", "input", square=False)
    m, n = input._array.shape[-2:]
    if m < n:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if n < tau._array.shape[-1]:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if tau._array.ndim != input._array.ndim - 1:
        raise RuntimeError(
            "torch.linalg.householder_product: Expected tau to have one dimension less than input, but got tau.ndim equal to "
            f"{tau._array.ndim} and input.ndim is equal to {input._array.ndim}"
        )
    if tau._array.shape[:-1] != input._array.shape[:-2]:
        raise RuntimeError(
            "torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau._array.shape[:-1])}"
        )
    result = made(np.broadcast_to(library_of_array(input._array).eye(m, n, dtype=input._array.dtype), input._array.shape).copy())
    return _reflected(input, tau, result, range(tau._array.shape[-1] - 1, -1, -1), False)


def _reflected(input: Tensor, tau: Tensor, of: Any, order: Any, adjoint: bool) -> Tensor:
    """Reflections of the rows of a matrix, one after the other."""
    m = input._array.shape[-2]
    columns = input.tril(-1) + made(library_of_array(input._array).eye(m, input._array.shape[-1], dtype=input._array.dtype))  # type: ignore[attr-defined]
    for k in order:
        v, factor = columns[..., k : k + 1], tau[..., k, None, None]  # type: ignore[index]
        if adjoint:
            factor = factor.conj()
        of = sub(of, mul(mul(factor, v), matmul(transpose(v, -2, -1).conj(), of)))  # type: ignore[attr-defined]
    return of


@function("orgqr", out=True)
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """As `linalg.householder_product`."""
    return householder_product(input, input2)


@function("ormqr", out=True)
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """A matrix times the whole Q of reflections, or its adjoint."""
    check_matrices(input, "torch.ormqr", "input", square=False)
    if not left:  # CQ is the adjoint of Q^H C^H
        return ormqr(input, tau, other.mH, True, not transpose).mH  # type: ignore[attr-defined]
    if input._array.shape[-2] != other._array.shape[-2]:
        raise RuntimeError("torch.ormqr: other.shape[-2] must be equal to input.shape[-2]")
    k = tau._array.shape[-1]
    return _reflected(input, tau, other, range(k) if transpose else range(k - 1, -1, -1), transpose)


# -- singular values --------------------------------------------------------------------------------------------------


def _svd_arrays(a: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    try:
        with failing(a):
            u, s, v = np.linalg.svd(_without_infinities(a), full_matrices)
    except np.linalg.LinAlgError:
        raise _not_converged(a, "linalg.svd") from None
    return in_columns(u), s, in_columns(v)


def _without_infinities(a: Any) -> Any:
    """NaNs in their place: with them LAPACK gives an error, where infinities may keep it for ever."""
    return np.where(np.isfinite(a), a, a.dtype.type(np.nan))


def _not_converged(a: Any, who: str) -> LinAlgError:
    bad = ~np.isfinite(a).all((-1, -2))
    if bad.any():
        place = f"(Batch element {int(np.flatnonzero(bad)[0])}): " if bad.ndim else ""
        return LinAlgError(f"{who}: {place}The algorithm failed to converge because the input matrix contained non-finite values.")
    return LinAlgError(
        f"{who}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
        "repeated singular values."
    )


class _Thin:
    """A decomposition with all singular vectors as the one with as many as there are singular values."""

    def __init__(self, d: Any):
        (u, s, v), self.operands = d.outs, d.operands
        (m, n), k = d.x.shape[-2:], s.shape[-1]
        self.attrs = {"full_matrices": False}
        self.outs = _part(u, (0, m), (0, k)), s, _part(v, (0, k), (0, n))


_SVD_RULE = by_rule("linalg.svd", several=True)


def _svd_vjp(d: Any, g: Any) -> Any:
    m, n = d.x.shape[-2:]
    k = min(m, n)
    if d.attrs["full_matrices"] and m != n:
        d = _Thin(d)
        g = (
            None if g[0] is None else _part(g[0], (0, m), (0, k)), g[1], None if g[2] is None else _part(g[2], (0, k), (0, n))
        )  # fmt: skip
    found = None if g[0] is None and g[2] is None else _SVD_RULE(d, (g[0], None, g[2]))[0]
    if g[1] is not None:
        u, s, v = d.outs
        by_values = (u * g[1].cast(u.dtype).reshape((*s.shape[:-1], 1, k))) @ v
        found = by_values if found is None else found + by_values
    return (found,)


SVD = define("svd", _svd_arrays, _svd_vjp, "opq", backward="LinalgSvdBackward0", outputs=3)
SVDVALS = define(
    "svdvals", lambda a: _svdvals(a), by_rule("linalg.svdvals"), "x", backward="LinalgSvdBackward0",
)  # fmt: skip
_SVD = result_type_of("linalg_svd", "U", "S", "Vh")
_OLD_SVD = result_type_of("svd", "U", "S", "V")


def _svdvals(a: Any) -> Any:
    try:
        with failing(a):
            return np.linalg.svd(_without_infinities(a), compute_uv=False)
    except np.linalg.LinAlgError:
        raise _not_converged(a, "linalg.svd") from None


def _check_driver(driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")


@function("svd", namespace="linalg", method=False, out=True)
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """U, the singular values S from the greatest, and V^H of A = U diag(S) V^H."""
    check_matrices(A, "linalg.svd", square=False)
    _check_driver(driver)
    return _SVD(*apply(SVD, A, full_matrices=full_matrices))


@function("svdvals", namespace="linalg", method=False, out=True)
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, from the greatest."""
    check_matrices(A, "linalg.svdvals", square=False)
    _check_driver(driver)
    return apply(SVDVALS, A)


@function("svd", out=True)
def old_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """As `linalg.svd`, with V in place of its adjoint; without `compute_uv` U and V are zeros."""
    check_matrices(input, "linalg.svd", "input", square=False)
    if not compute_uv:
        m, n = input._array.shape[-2:]
        u, v = (made(library_of_array(input._array).zeros((*input._array.shape[:-2], k, k), input._array.dtype)) for k in (m, n))
        return _OLD_SVD(u, svdvals(input), v)
    u, s, v = apply(SVD, input, full_matrices=not some)
    return _OLD_SVD(u, s, transpose(v, -2, -1).conj())


# -- eigenvalues ------------------------------------------------------------------------------------------------------


def _eigh_arrays(a: Any, UPLO: str) -> tuple[Any, Any]:
    """NaNs of matrices that are not finite."""
    finite = np.isfinite(a).all((-1, -2), keepdims=True)
    try:
        with failing(a):
            w, v = np.linalg.eigh(np.where(finite, a, a.dtype.type(0)), UPLO)
    except np.linalg.LinAlgError:
        raise _no_eigenvalues("linalg.eigh") from None
    return np.where(finite[..., 0], w, w.dtype.type(np.nan)), in_columns(np.where(finite, v, v.dtype.type(np.nan)))


def _eigvalsh_array(a: Any, UPLO: str) -> Any:
    finite = np.isfinite(a).all((-1, -2), keepdims=True)
    w = np.linalg.eigvalsh(np.where(finite, a, a.dtype.type(0)), UPLO)
    return np.where(finite[..., 0], w, w.dtype.type(np.nan))


def _no_eigenvalues(who: str) -> LinAlgError:
    return LinAlgError(
        f"{who}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues."
    )


EIGH = define("eigh", _eigh_arrays, by_rule("linalg.eigh", several=True), "op", backward="LinalgEighBackward0", outputs=2)
EIGVALSH = define("eigvalsh", _eigvalsh_array, by_rule("linalg.eigvalsh"), "x", backward="LinalgEighBackward0")


def _eig_arrays(a: Any) -> tuple[Any, Any]:
    try:
        w, v = np.linalg.eig(a)
    except np.linalg.LinAlgError:
        raise _no_eigenvalues_of(a) from None
    kind = np.result_type(a.dtype, np.complex64)
    return w.astype(kind, copy=False), in_columns(v.astype(kind, copy=False))


def _eigvals_array(a: Any) -> Any:
    try:
        return np.linalg.eigvals(a).astype(np.result_type(a.dtype, np.complex64), copy=False)
    except np.linalg.LinAlgError:
        raise _no_eigenvalues_of(a) from None


def _no_eigenvalues_of(a: Any) -> RuntimeError:
    if np.isfinite(a).all():
        return _no_eigenvalues("linalg.eig")
    return RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")


EIG = define("eig", _eig_arrays, by_rule("linalg.eig", several=True), "op", backward="LinalgEigBackward0", outputs=2)
EIGVALS = define("eigvals", _eigvals_array)
_EIG = result_type_of("linalg_eig", "eigenvalues", "eigenvectors")
_EIGH = result_type_of("linalg_eigh", "eigenvalues", "eigenvectors")


def _uplo(UPLO: Any) -> str:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper()


@function("eigh", namespace="linalg", method=False, out=True)
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices, of which one half is read."""
    check_matrices(A, "linalg.eigh")
    return _EIGH(*apply(EIGH, A, UPLO=_uplo(UPLO)))


@function("eigvalsh", namespace="linalg", method=False, out=True)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues, ascending, of Hermitian matrices, of which one half is read."""
    check_matrices(A, "linalg.eigvalsh")
    return apply(EIGVALSH, A, UPLO=_uplo(UPLO))


@function("eig", namespace="linalg", method=False, out=True)
def eig(A: Tensor) -> Any:
    """Eigenvalues and eigenvectors, complex, in no order."""
    check_matrices(A, "linalg.eig")
    return _EIG(*apply(EIG, A))


@function("eigvals", namespace="linalg", method=False, out=True)
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues, complex, in no order."""
    check_matrices(A, "linalg.eigvals")
    return apply(EIG, A)[0] if A.requires_grad else apply(EIGVALS, A)


__all__ = ["CHOLESKY", "EIG", "EIGH", "LU", "LU_FACTOR", "QR", "SVD", "SVDVALS", "eigh", "lu_unpack", "svd", "svdvals"]
