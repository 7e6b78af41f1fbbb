"""Systems of equations and functions of square matrices: inverses, determinants, powers, exponentials, least squares.

Matrices stand in the last two dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import failing, library_of_array
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.arithmetic import add
from dynagraph.torch.functions.common import check_tensor, function, result_type_of
from dynagraph.torch.functions.decompositions import SVD, SVDVALS, lu_unpack
from dynagraph.torch.functions.lapack import (
    adjoint,
    batch_of,
    by_rule,
    check_floats,
    check_matrices,
    check_same_dtype,
    eliminated,
    factored,
    in_columns,
    of_call,
    raise_where,
    solved_triangular,
)
from dynagraph.torch.functions.products import matmul
from dynagraph.torch.functions.shapes import squeeze, transpose, unsqueeze
from dynagraph.torch.functions.ternary import where

# -- systems ----------------------------------------------------------------------------------------------------------


def _solve_arrays(a: Any, b: Any) -> Any:
    with failing(a):
        return in_columns(np.linalg.solve(a, b))


SOLVE = define("solve_ex", _solve_arrays, by_rule("linalg.solve"), "xo", backward="LinalgSolveExBackward0")
_SOLVE_EX = result_type_of("linalg_solve_ex", "result", "info")


def _is_vector(a: Tensor, b: Tensor) -> bool:
    """Whether the right hand side is a vector for each matrix."""
    return b._array.ndim == 1 or (a._array.ndim - 1 == b._array.ndim and b._array.shape == a._array.shape[:-1])


def _zero_of(a: Any) -> Any:
    """Which diagonal element of U is zero in the elimination of each matrix, counted from 1; 0: none."""
    return factored(a)[2]


def _columns_of(A: Tensor, B: Tensor, left: bool, who: str) -> tuple[Tensor, bool]:
    """The right hand sides as the columns of matrices, and whether they were vectors."""
    check_matrices(A, who)
    check_tensor(B, who, "B", 2)
    check_same_dtype(A, B, who)
    is_vector = _is_vector(A, B)
    columns = unsqueeze(B, -1) if is_vector else B
    if columns._array.ndim < 2:
        raise RuntimeError(f"{who}: The input tensor B must have at least 2 dimensions.")
    m, n = columns._array.shape[-2:]
    if is_vector and not left:
        raise RuntimeError(
            f"{who}: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is "
            "equivalent to B / A.squeeze(-1)"
        )
    if (m if left else n) != A._array.shape[-1]:
        k = A._array.shape[-1]
        equation = f"AX = B ({k}x{k} and {m}x{n})" if left else f"XA = B ({m}x{n} and {k}x{k})"
        raise RuntimeError(f"{who}: Incompatible shapes of A and B for the equation {equation}")
    batch_of(A, columns, who)
    return columns, is_vector


def _solved(A: Tensor, B: Tensor, left: bool, who: str, check: bool) -> tuple[Tensor, Tensor]:
    columns, is_vector = _columns_of(A, B, left, who)
    batch = np.broadcast_shapes(A._array.shape[:-2], columns._array.shape[:-2])
    if is_vector:
        batch = A._array.shape[:-2]
    info = made(library_of_array(A._array).zeros(batch, np.int32))
    matrix, right = (A, columns) if left else (transpose(A, -2, -1), transpose(columns, -2, -1))
    try:
        x = apply(SOLVE, matrix, right)
    except np.linalg.LinAlgError:
        zeros = _zero_of(np.broadcast_to(A._array, batch + A._array.shape[-2:]))
        if check:
            says = "The solver failed because the input matrix is singular."
            raise_where(zeros, "torch.linalg.solve", lambda k: says)
        info = made(zeros)
        x = made(in_columns(eliminated(matrix._array, right._array)))
    if not left:
        x = transpose(x, -2, -1)
    return (squeeze(x, -1) if is_vector else x), info


@function("solve", namespace="linalg", method=False, out=True)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of AX = B, or with ``left=False`` of XA = B; LinAlgError where A is singular."""
    return _solved(A, B, left, "linalg.solve", True)[0]


@function("solve_ex", namespace="linalg", method=False, out=True)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """As `solve`, with what is wrong with each matrix: which diagonal element of U is zero (0: none)."""
    return _SOLVE_EX(*_solved(A, B, left, "linalg.solve", check_errors))


def _triangular_arrays(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    return in_columns(solved_triangular(a, b, upper, unit))


def _triangular_by_right(d: Any, g: Any) -> Any:
    return d.x.adjoint.call("solve_triangular", g, upper=not d.attrs["upper"], unit=d.attrs["unit"])


def _triangular_by_matrix(d: Any, g: Any) -> Any:
    whole = -(_triangular_by_right(d, g) @ d.out.adjoint)
    skipped = 1 if d.attrs["unit"] else 0
    return whole.call("triu", k=skipped) if d.attrs["upper"] else whole.call("tril", k=-skipped)


SOLVE_TRIANGULAR = define(
    "solve_triangular", _triangular_arrays, (_triangular_by_matrix, _triangular_by_right), ("xo", "x"),
    backward="LinalgSolveTriangularBackward0",
)  # fmt: skip


@function("solve_triangular", namespace="linalg", method=False, out=True)
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X of AX = B, or of XA = B, where A is a triangle; what lies on its other side is not read."""
    who = "linalg.solve_triangular"
    check_matrices(A, who, floats=False)
    check_matrices(B, who, "B", square=False, floats=False)
    check_same_dtype(A, B, who)
    (m, n), k = B._array.shape[-2:], A._array.shape[-1]
    if (m if left else n) != k:
        equation = f"AX = B ({k}x{k} and {m}x{n})" if left else f"XA = B ({m}x{n} and {k}x{k})"
        raise RuntimeError(f"{who}: Incompatible shapes of A and B for the equation {equation}")
    check_floats(A, who)
    batch_of(A, B, who)
    if left:
        return apply(SOLVE_TRIANGULAR, A, B, upper=upper, unit=unitriangular)
    x = apply(SOLVE_TRIANGULAR, transpose(A, -2, -1), transpose(B, -2, -1), upper=not upper, unit=unitriangular)
    return transpose(x, -2, -1)


_TRIANGULAR = result_type_of("triangular_solve", "solution", "cloned_coefficient")


@function("triangular_solve", out=True)
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """As `linalg.solve_triangular`; also a copy of the triangle."""
    if transpose:
        x = solve_triangular(A.mT, b, upper=not upper, unitriangular=unitriangular)  # type: ignore[attr-defined]
    else:
        x = solve_triangular(A, b, upper=upper, unitriangular=unitriangular)
    return _TRIANGULAR(x, A.clone())  # type: ignore[attr-defined]


@function("lu_solve", namespace="linalg", method=False, out=True)
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X of AX = B from the factors of A that `linalg.lu_factor` gives."""
    who = "linalg.lu_solve"
    check_matrices(LU, who, "LU")
    check_same_dtype(LU, B, who, "LU", "B")
    if pivots._array.dtype != np.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if not left:  # the adjoint of A^H X^H = B^H
        return lu_solve(LU, pivots, B.mH, left=True, adjoint=not adjoint).mH  # type: ignore[attr-defined]
    m, k = B._array.shape[-2], LU._array.shape[-1]
    if m != k:
        n = B._array.shape[-1]
        raise RuntimeError(f"{who}: Incompatible shapes of A and B for the equation AX = B ({k}x{k} and {m}x{n})")
    p = lu_unpack(LU, pivots, unpack_data=False).P
    if adjoint:
        x = solve_triangular(LU.mH, B, upper=False)  # type: ignore[attr-defined]
        return matmul(p, solve_triangular(LU.mH, x, upper=True, unitriangular=True))  # type: ignore[attr-defined]
    x = solve_triangular(LU, matmul(transpose(p, -2, -1), B), upper=False, unitriangular=True)
    return solve_triangular(LU, x, upper=True)


@function("lu_solve", out=True)
def old_lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """As `linalg.lu_solve`."""
    return lu_solve(LU_data, LU_pivots, b)


def _cholesky_solve_array(b: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(factor) if upper else factor
    return in_columns(solved_triangular(adjoint(lower), solved_triangular(lower, b, False), True))


def _by_factor(d: Any, factor: Any, common: Any) -> Any:
    """The gradient by a Cholesky factor, of a function of the matrix: also on the side that is not read."""
    return -(factor @ common) if d.attrs["upper"] else -(common @ factor)


def _cholesky_solve_by_factor(d: Any, g: Any) -> Any:
    product = g.call("cholesky_solve", d.y, upper=d.attrs["upper"]) @ d.out.adjoint
    return _by_factor(d, d.y, product + product.adjoint)


def _cholesky_inverse_vjp(d: Any, g: Any) -> Any:
    return _by_factor(d, d.x, d.out @ (g + g.adjoint) @ d.out)


CHOLESKY_SOLVE = define(
    "cholesky_solve",
    _cholesky_solve_array,
    (lambda d, g: g.call("cholesky_solve", d.y, upper=d.attrs["upper"]), _cholesky_solve_by_factor),
    ("y", "yo"),
    backward="CholeskySolveBackward0",
)
CHOLESKY_INVERSE = define(
    "cholesky_inverse",
    lambda factor, upper: _cholesky_solve_array(library_of_array(factor).eye(factor.shape[-1], dtype=factor.dtype), factor, upper),
    (_cholesky_inverse_vjp,),
    ("xo",),
    backward="CholeskyInverseBackward0",
)


@function("cholesky_solve", out=True)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of AX = B from the Cholesky factor of A."""
    if B._array.ndim < 2:
        raise RuntimeError(f"b should have at least 2 dimensions, but has {B._array.ndim} dimensions instead")
    if L._array.ndim < 2:
        raise RuntimeError(f"u should have at least 2 dimensions, but has {L._array.ndim} dimensions instead")
    check_matrices(L, "cholesky_solve", "L")
    check_same_dtype(B, L, "cholesky_solve", "B", "L")
    if B._array.shape[-2] != L._array.shape[-1]:
        n = L._array.shape[-1]
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {n} by {n} but each b matrix is {B._array.shape[-2]} "
            f"by {B._array.shape[-1]}"
        )
    batch_of(L, B, "cholesky_solve")
    return apply(CHOLESKY_SOLVE, B, L, upper=upper)


@function("cholesky_inverse", out=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A from its Cholesky factor."""
    check_matrices(L, "cholesky_inverse", "A")
    return apply(CHOLESKY_INVERSE, L, upper=upper)


# -- inverses ---------------------------------------------------------------------------------------------------------


def _inverse(a: Any) -> Any:
    with failing(a):
        return in_columns(np.linalg.inv(a))


INV = define("inv_ex", _inverse, by_rule("linalg.inv"), "o", backward="LinalgInvExBackward0")
_INV_EX = result_type_of("linalg_inv_ex", "inverse", "info")


def _no_inverse(k: int) -> str:
    return f"The diagonal element {k} is zero, the inversion could not be completed because the input matrix is singular."


@function("inv", namespace="linalg", method=False, out=True)
def inv(A: Tensor) -> Tensor:
    """The inverse; LinAlgError where a matrix has none."""
    check_matrices(A, "linalg.inv")
    try:
        return apply(INV, A)
    except np.linalg.LinAlgError:
        raise_where(_zero_of(A._array), "linalg.inv", _no_inverse)
        raise


@function("inv_ex", namespace="linalg", method=False, out=True)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and which diagonal element of U is zero where there is none (0: there is one)."""
    check_matrices(A, "linalg.inv")
    try:
        return _INV_EX(apply(INV, A), made(library_of_array(A._array).zeros(A._array.shape[:-2], np.int32)))
    except np.linalg.LinAlgError:
        info = _zero_of(A._array)
        if check_errors:
            raise_where(info, "linalg.inv_ex", _no_inverse)
        one = library_of_array(A._array).eye(A._array.shape[-1], dtype=A._array.dtype)
        return _INV_EX(made(in_columns(eliminated(A._array, one))), made(info))


@function("inverse", out=True)
def inverse(input: Tensor) -> Tensor:
    """As `linalg.inv`."""
    return inv(input)


def _singular(a: Any) -> Any:
    return SVD.forward(a, full_matrices=False)


def _reciprocals(s: Any, tolerance: Any) -> Any:
    large = s > tolerance
    return np.where(large, 1 / np.where(large, s, 1), 0).astype(s.dtype)


def _tolerance(top: Any, atol: Any, rtol: Any) -> Any:
    """What counts as zero, for each matrix."""
    return np.maximum(atol, rtol * top)[..., None]


def _pinv_array(a: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    if 0 in a.shape:
        return library_of_array(a).zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        w, v = np.linalg.eigh(a)
        sizes = np.abs(w)
        kept = _reciprocals(sizes, _tolerance(sizes.max(-1), atol, rtol)) * np.sign(w)
        return (v * kept[..., None, :]) @ adjoint(v)
    u, s, v = _singular(a)
    kept = _reciprocals(s, _tolerance(s.max(-1), atol, rtol))
    return (adjoint(v) * kept[..., None, :]) @ adjoint(u)


_PINV_RULE = by_rule("linalg.pinv")
PINV = define("pinv", _pinv_array, _PINV_RULE, "xo", backward="LinalgPinvBackward0")


def _tolerances(A: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """By default a multiple of the greatest singular value; nothing of it where an absolute one is given."""
    default = float(np.finfo(A._array.dtype).eps) * max(A._array.shape[-2:])
    if rtol is None:
        if isinstance(atol, Tensor):
            rtol = np.where(atol._array > 0, 0, default)
        else:
            rtol = 0.0 if atol is not None and atol > 0 else default
    plain = [t._array if isinstance(t, Tensor) else t for t in (0.0 if atol is None else atol, rtol)]
    return plain[0], plain[1]


@function("pinv", namespace="linalg", method=False, out=True)
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudoinverse; singular values up to ``max(atol, rtol * the greatest)`` count as zero."""
    check_matrices(A, "linalg.pinv", square=hermitian)
    absolute, relative = _tolerances(A, atol, rcond if rtol is None else rtol)
    return apply(PINV, A, atol=absolute, rtol=relative, hermitian=hermitian)


@function("pinverse")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """As `linalg.pinv` with that relative tolerance."""
    return pinv(input, rcond)


@function("matrix_rank", namespace="linalg", method=False, out=True)
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values are greater than ``max(atol, rtol * the greatest)``."""
    check_matrices(A, "linalg.matrix_rank", square=hermitian)
    if tol is not None:
        atol, rtol = tol, 0.0
    if 0 in A._array.shape:
        return made(library_of_array(A._array).zeros(A._array.shape[:-2], np.int64))
    absolute, relative = _tolerances(A, atol, rtol)
    s = np.abs(np.linalg.eigvalsh(A._array)) if hermitian else apply(SVDVALS, A.detach())._array
    return made((s > _tolerance(s.max(-1), absolute, relative)).sum(-1))


# -- least squares ----------------------------------------------------------------------------------------------------


def _greatest(s: Any) -> Any:
    """The first singular value, or 0."""
    return s[..., :1] if s.shape[-1] else s.sum(-1, keepdims=True)


def _least_squares(a: Any, b: Any, rcond: float, residuals: bool) -> tuple[Any, Any]:
    """By singular values, of which those up to `rcond` times the greatest count as zero."""
    u, s, v = _singular(a)
    kept = _reciprocals(s, rcond * _greatest(s))
    x = in_columns(adjoint(v) @ (kept[..., None] * (adjoint(u) @ b)))
    if not residuals:
        return x, library_of_array(s).empty(0, s.dtype)
    rest = np.abs(a @ x - b)
    return x, (rest * rest).sum(-2)


def _least_squares_vjp(d: Any, g: Any) -> Any:
    """The residuals do not change with X, as it makes them least."""
    a, b = d.x, d.y
    by_a = by_b = None
    if g[0] is not None:
        inverse = a.call("pinv", atol=0.0, rtol=d.attrs["rcond"], hermitian=False)
        by_a, by_b = _PINV_RULE(_Inverse(a, inverse), g[0] @ b.adjoint)[0], inverse.adjoint @ g[0]
    if g[1] is not None and d.attrs["residuals"]:
        x = d.outs[0]
        columns = g[1].cast(x.dtype).reshape((*g[1].shape[:-1], 1, g[1].shape[-1])) * 2
        rest = (a @ x - b) * columns
        along = rest @ x.adjoint
        by_a, by_b = along if by_a is None else by_a + along, -rest if by_b is None else by_b - rest
    return by_a, by_b


class _Inverse:
    """A pseudoinverse in the gradient of a solution, as its rule sees it."""

    def __init__(self, a: Any, inverse: Any):
        self.operands, self.out = (a,), inverse
        self.attrs: dict[str, Any] = {}


LSTSQ = define("lstsq_solution", _least_squares, _least_squares_vjp, "xyo", backward="LinalgLstsqBackward0", outputs=2)
_LSTSQ = result_type_of("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


@function("lstsq", namespace="linalg", method=False, out=True)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """X with the least ``|AX - B|``, of these the shortest; squared residuals where A has more rows than columns, and full rank."""
    who = "torch.linalg.lstsq"
    check_matrices(A, who, "input", square=False)
    check_same_dtype(A, B, who, "input", "other")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{who}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    if B._array.ndim < 1:
        raise RuntimeError(f"{who}: other must have at least 1 dimension.")
    is_vector = _is_vector(A, B)
    columns = unsqueeze(B, -1) if is_vector else B
    (m, n), dtype = A._array.shape[-2:], A._array.dtype
    if columns._array.shape[-2] != m:
        raise RuntimeError(f"{who}: input.size(-2) should match other.size(-{1 if is_vector else 2})")
    batch = batch_of(A, columns, who)
    if rcond is None:
        rcond = float(np.finfo(dtype).eps) * max(m, n)
    used = 0.0 if driver == "gels" else rcond
    s = np.broadcast_to(apply(SVDVALS, A.detach())._array, (*batch, min(m, n)))
    rank = (s > used * _greatest(s)).sum(-1)
    wanted = bool(m > n and driver not in (None, "gelsy") and (rank == n).all())
    x, residuals = apply(LSTSQ, A, columns, rcond=used, residuals=wanted)
    ranks = made(rank) if driver != "gels" else made(library_of_array(s).empty(0, np.int64))
    values = made(s.copy()) if driver in ("gelsd", "gelss") else made(library_of_array(s).empty(0, s.dtype))
    return _LSTSQ(squeeze(x, -1) if is_vector else x, residuals, ranks, values)


# -- determinants -----------------------------------------------------------------------------------------------------


def _cofactors(a: Any) -> Any:
    """The gradient of the determinant: its conjugate times the adjoint of the inverse; of singular matrices by singular values
    (N. Higham, "What is the adjugate of a matrix?", 2020).
    """
    try:
        with failing(a):
            return np.linalg.det(a)[..., None, None].conj() * adjoint(np.linalg.inv(a))
    except np.linalg.LinAlgError:
        u, s, v = _singular(a)
        n = s.shape[-1]
        others = np.where(library_of_array(a).eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
        phase = (np.linalg.det(u) * np.linalg.det(v)).conj() if a.dtype.kind != "c" else np.linalg.det(u @ v).conj()
        unit = np.where(phase == 0, 1, phase / np.abs(phase))
        found = (u * others[..., None, :]) @ v
        return found * unit[..., None, None].conj() if a.dtype.kind == "c" else found * unit[..., None, None]


def _numbers(x: Any) -> Any:
    """A number for each matrix."""
    return x.reshape((*x.shape, 1, 1))


def _cofactors_vjp(d: Any, g: Any) -> Any:
    a = d.x
    inverse = of_call("linalg.inv", a, shape=a.shape)
    value = a.call("det")
    along = (g.conj * inverse.adjoint).sum(a.ndim - 2, a.ndim - 1)
    back = inverse.adjoint @ (g * _numbers(value)).adjoint @ inverse.adjoint
    return _numbers(along) * d.out - back


define("cofactors", _cofactors, (_cofactors_vjp,), ("xo",))
DET = define(
    "det", lambda a: np.linalg.det(a), (lambda d, g: _numbers(g) * d.x.call("cofactors"),), ("x",),
    backward="LinalgDetBackward0",
)  # fmt: skip


def _slogdet_arrays(a: Any) -> tuple[Any, Any]:
    sign, size = np.linalg.slogdet(a)
    return sign, size


SLOGDET = define(
    "slogdet", _slogdet_arrays, by_rule("linalg.slogdet", several=True), "xo", backward="LinalgSlogdetBackward0", outputs=2
)
_SLOGDET = {name: result_type_of(name, "sign", "logabsdet") for name in ("linalg_slogdet", "slogdet")}


@function("det", namespace="linalg", method=False, out=True)
def det(A: Tensor) -> Tensor:
    """The determinant."""
    return apply(DET, check_matrices(A, "linalg.det"))


@function("det")
def old_det(input: Tensor) -> Tensor:
    """As `linalg.det`."""
    return apply(DET, check_matrices(input, "linalg.det"))


@function("slogdet", namespace="linalg", method=False, out=True)
def slogdet(A: Tensor) -> Any:
    """The determinant's sign, or phase, and the logarithm of its size."""
    return _SLOGDET["linalg_slogdet"](*apply(SLOGDET, check_matrices(A, "linalg.slogdet")))


@function("slogdet", out=True)
def old_slogdet(input: Tensor) -> Any:
    """As `linalg.slogdet`."""
    return _SLOGDET["slogdet"](*apply(SLOGDET, check_matrices(input, "linalg.slogdet")))


@function("logdet")
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    sign, size = apply(SLOGDET, check_matrices(input, "linalg.slogdet"))
    if input._array.dtype.kind == "c":
        return add(size, sign.log())
    return where(made(sign._array == -1), math.nan, size)


__all__ = ["DET", "INV", "PINV", "SOLVE", "SOLVE_TRIANGULAR", "det", "inv", "pinv", "solve", "solve_triangular"]
