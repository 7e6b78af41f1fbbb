"""Linear algebra as external calls: LAPACK's routines, by NumPy's functions."""

from __future__ import annotations

from typing import Any

from dynagraph.doors.numpy.arguments import flag, numpy_error, only, several_axes
from dynagraph.doors.numpy.builder import Unsupported
from dynagraph.doors.numpy.external_calls import Shapes, _same_as, called_out, reduced_shape
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, broadcast_shapes


def _matrix(a: Node, who: str) -> tuple[Shape, Dim, Dim]:
    """The batch dimensions, rows and columns."""
    if a.ndim < 2:
        raise numpy_error(f"{who}: {a.ndim}-dimensional array given, must be at least two-dimensional")
    return a.shape[:-2], a.shape[-2], a.shape[-1]


def _square(a: Node, who: str) -> tuple[Shape, Dim]:
    batch, m, n = _matrix(a, who)
    if m != n:
        raise numpy_error(f"{who}: last 2 dimensions of the array must be square, got {a.shape}")
    return batch, n


@called_out("linalg.solve", "a", "b")
def _solve(a: Node, b: Node) -> Shapes:
    batch, n = _square(a, "solve")
    if b.ndim == 0 or b.shape[0 if b.ndim == 1 else -2] != n:
        raise numpy_error(f"solve: a right side of shape {b.shape} for a matrix of shape {a.shape}")
    if b.ndim == 1:
        return (*batch, n)
    return (*broadcast_shapes(batch, b.shape[:-2], who="solve"), n, b.shape[-1])


@_same_as("linalg.inv")
def _inv(a: Node) -> Shapes:
    _square(a, "inv")
    return a.shape


@called_out("linalg.pinv", "a")
def _pinv(a: Node, rcond: Any = None, hermitian: Any = False, **rtol: Any) -> Shapes:
    batch, m, n = _matrix(a, "pinv")
    return (*batch, n, m)


@_same_as("linalg.det")
def _det(a: Node) -> Shapes:
    return _square(a, "det")[0]


@_same_as("linalg.slogdet")
def _slogdet(a: Node) -> Shapes:
    return [_square(a, "slogdet")[0]] * 2


@called_out("linalg.cholesky", "a")
def _cholesky(a: Node, /, **upper: Any) -> Shapes:
    _square(a, "cholesky")
    return a.shape


@called_out("linalg.qr", "a")
def _qr(a: Node, mode: Any = "reduced") -> Shapes:
    batch, m, n = _matrix(a, "qr")
    small = m if m <= n else n
    shapes: dict[str, Shapes] = {
        "reduced": [(*batch, m, small), (*batch, small, n)],
        "complete": [(*batch, m, m), (*batch, m, n)],
        "r": (*batch, small, n),
        "raw": [(*batch, n, m), (*batch, small)],
    }
    only(mode in shapes, "qr", "mode", mode, f"one of {', '.join(shapes)}")
    return shapes[mode]


@called_out("linalg.svd", "a")
def _svd(a: Node, full_matrices: Any = True, compute_uv: Any = True, hermitian: Any = False) -> Shapes:
    batch, m, n = _matrix(a, "svd")
    small = m if m <= n else n
    if not flag(compute_uv, "svd"):
        return (*batch, small)
    rows, columns = (m, n) if flag(full_matrices, "svd") else (small, small)
    return [(*batch, m, rows), (*batch, small), (*batch, columns, n)]


@called_out("linalg.svdvals", "x")
def _svdvals(x: Node, /) -> Shapes:
    batch, m, n = _matrix(x, "svdvals")
    return (*batch, m if m <= n else n)


@called_out("linalg.eigh", "a")
def _eigh(a: Node, UPLO: Any = "L") -> Shapes:
    batch, n = _square(a, "eigh")
    return [(*batch, n), a.shape]


@called_out("linalg.eigvalsh", "a")
def _eigvalsh(a: Node, UPLO: Any = "L") -> Shapes:
    return (*_square(a, "eigvalsh")[0], a.shape[-1])


def _complex_only(a: Node, who: str) -> None:
    """Of a real matrix the data decide whether the eigenvalues are complex."""
    if a.dtype.kind != "c":
        raise Unsupported("DATA_DEPENDENT", f"{who}: of a real matrix it depends on the data whether the result is complex")


@_same_as("linalg.eig")
def _eig(a: Node) -> Shapes:
    _complex_only(a, "eig")
    batch, n = _square(a, "eig")
    return [(*batch, n), a.shape]


@_same_as("linalg.eigvals")
def _eigvals(a: Node) -> Shapes:
    _complex_only(a, "eigvals")
    batch, n = _square(a, "eigvals")
    return (*batch, n)


@called_out("linalg.lstsq", "a", "b")
def _lstsq(a: Node, b: Node, rcond: Any = None) -> Shapes:
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise numpy_error(f"lstsq: shapes {a.shape} and {b.shape} do not fit")
    m, n = a.shape
    columns = b.shape[1:]
    # of a matrix of full rank; of another there are no residuals, and the call runs eagerly
    residuals: Shape = (columns[0] if columns else 1,) if m > n else (0,)
    return [(n, *columns), residuals, (), (m if m <= n else n,)]


@called_out("linalg.matrix_rank", "A")
def _matrix_rank(A: Node, tol: Any = None, hermitian: Any = False, **rtol: Any) -> Shapes:
    only(A.ndim >= 2, "matrix_rank", "A", A.shape, "matrices only")
    return A.shape[:-2]


@called_out("linalg.cond", "x")
def _cond(x: Node, p: Any = None) -> Shapes:
    only(x.ndim >= 2, "cond", "x", x.shape, "matrices only")
    return x.shape[:-2]


@called_out("linalg.norm", "x", fallback=True)
def _norm(x: Node, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Shapes:
    axes = tuple(range(x.ndim)) if axis is None else several_axes(axis, x.ndim, "norm")
    return reduced_shape(x, axes, flag(keepdims, "norm"))
