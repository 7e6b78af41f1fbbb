"""Gradients of LAPACK's functions: of matrices in the last two dimensions, real or complex.

Formulas as in M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008;
for Cholesky factors I. Murray, arXiv:1602.07527; for QR S. Walter et al., "Algorithmic differentiation of linear algebra
functions", 2012, and M. Seeger et al., arXiv:1710.08717; for pseudoinverses G. Golub and V. Pereyra, 1973; for eigenvectors and
singular vectors of complex matrices, whose phases are free, C. Boeddeker et al., arXiv:1701.00392, and Z. Wan and S. Zhang,
arXiv:1909.02659.

Of functions that look at one half of a matrix (cholesky, eigh) the gradient is the symmetric one, as if they looked at both.
Eigenvectors and singular vectors of equal values have no derivatives: infinities or NaN.  A function of complex ones must not
depend on their phases.  The gradient of a determinant is made with the inverse: of a singular matrix it raises LinAlgError.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.optable.call_gradients import called, gradient_of, refusal, sibling
from dynagraph.ir.shapes import Dim, broadcast_shapes, normalize_axis, same_dim
from dynagraph.ir.terms import Differentiated, Term, counted

One = tuple["Term"]
Two = tuple["Term | None", "Term | None"]


# -- parts of matrices ----------------------------------------------------------------------------------------------------


def _rows_of(x: Term) -> Term:
    """A number for each column: as factors of the columns."""
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def _columns_of(x: Term) -> Term:
    """A number for each row: as factors of the rows."""
    return x.reshape((*x.shape, 1))


def _numbers_of(x: Term) -> Term:
    """A number for each matrix."""
    return x.reshape((*x.shape, 1, 1))


def _diagonal(x: Term) -> Term:
    """Where square matrices, of as many columns as x, have their diagonal: bools."""
    n = x.shape[-1]
    return x.make("eye", shape=(n, n), k=0, dtype=dtypes.bool_)


def _diagonal_matrix(x: Term) -> Term:
    return _rows_of(x).where(_diagonal(x), 0)


def _lower_half(x: Term) -> Term:
    """What lies below the diagonal, and half of that."""
    n = x.shape[-1]
    places = counted(x, n)
    rows, columns = places.reshape((n, 1)), places.reshape((1, n))
    return x.where(rows.call("greater", columns), (x * 0.5).where(rows.equals(columns), 0))


def _hermitian(x: Term) -> Term:
    return (x + x.adjoint) * 0.5


def _over_differences(x: Term, values: Term) -> Term:
    """Elements (j, k) divided by ``values[k] - values[j]``; nothing on the diagonal."""
    diagonal = _diagonal(x)
    differences = _rows_of(values) - _columns_of(values)
    return x.full(0, ()).where(diagonal, x) / differences.number(1).where(diagonal, differences).cast(x.dtype)


def _first_columns(x: Term, n: Dim) -> Term:
    return x if same_dim(x.shape[-1], n) else x.part((0,) * x.ndim, (*x.shape[:-1], n))


def _first_rows(x: Term, n: Dim) -> Term:
    return x if same_dim(x.shape[-2], n) else x.part((0,) * x.ndim, (*x.shape[:-2], n, x.shape[-1]))


def _smaller(a: Term) -> Dim:
    """Of the rows and columns; the capture has decided which it is."""
    m, n = a.shape[-2:]
    return m if m <= n else n


# -- systems of equations -------------------------------------------------------------------------------------------------


def _solved(a: Term, b: Term) -> Term:
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2], who="solve")
    return called("linalg.solve", a, b, shape=(*batch, *b.shape[-2:]))


@gradient_of("linalg.solve")
def _solve(d: Differentiated, g: Term, a: Term, b: Term) -> Two:
    is_vector = b.ndim == 1
    columns, out = (_columns_of(x) if is_vector else x for x in (g, d.out))
    by_right = _solved(a.cast(g.dtype).adjoint, columns)
    by_matrix = -(by_right @ out.adjoint)
    return by_matrix, by_right.reshape(by_right.shape[:-1]) if is_vector else by_right


@gradient_of("linalg.inv")
def _inv(d: Differentiated, g: Term, a: Term) -> One:
    inverse = d.out.adjoint
    return (-(inverse @ g @ inverse),)


def _times_inverse(a: Term, factor: Term) -> Term:
    """A number for each matrix, times its inverse's adjoint: the derivative of the determinant's logarithm."""
    return _numbers_of(factor) * called("linalg.inv", a, shape=a.shape).adjoint


@gradient_of("linalg.det")
def _det(d: Differentiated, g: Term, a: Term) -> One:
    return (_times_inverse(a, g * d.out.conj),)


@gradient_of("linalg.slogdet")
def _slogdet(d: Differentiated, g: Term, a: Term) -> tuple[Term | None]:
    if d.attrs["result"] == 1:
        return (_times_inverse(a, g.cast(a.dtype)),)
    if not a.dtype.is_complex:  # a sign
        return (None,)
    turned = (g * d.out.conj).imag
    return (_times_inverse(a, turned.full(0, ()).call("complex", turned)),)


@gradient_of("linalg.cholesky")
def _cholesky(d: Differentiated, g: Term, a: Term, *, upper: bool = False) -> One:
    factor, g = (d.out.adjoint, g.adjoint) if upper else (d.out, g)
    inverse = called("linalg.inv", factor, shape=factor.shape)
    return (_hermitian(inverse.adjoint @ _lower_half(factor.adjoint @ g) @ inverse),)


# -- least squares --------------------------------------------------------------------------------------------------------


@gradient_of("linalg.pinv")
def _pinv(d: Differentiated, g: Term, a: Term, *others: Any, **more: Any) -> One:
    return (_by_pseudoinverse(g, a, d.out),)


def _by_pseudoinverse(g: Term, a: Term, inverse: Term) -> Term:
    """The gradient by a matrix whose rank does not change."""
    adjoint, back = inverse.adjoint, g.adjoint
    left, right = back @ inverse @ adjoint, adjoint @ inverse @ back
    return (left - a @ (inverse @ left)) + (right - (right @ inverse) @ a) - adjoint @ g @ adjoint


@gradient_of("linalg.lstsq")
def _lstsq(d: Differentiated, g: Term, a: Term, b: Term, rcond: Any = None) -> Two:
    """Of matrices of full rank: of others there are no residuals, and the program bails out."""
    which = d.attrs["result"]
    dtype = g.dtype.complex if a.dtype.is_complex or b.dtype.is_complex else g.dtype
    a, b = a.cast(dtype), b.cast(dtype)
    if which == 3:
        return _by_singular_values(g, a), None
    columns = _columns_of if b.ndim == 1 else lambda x: x
    if which == 0:
        inverse = called("linalg.pinv", a, shape=(a.shape[1], a.shape[0]))
        by_b = inverse.adjoint @ columns(g)
        return _by_pseudoinverse(columns(g) @ columns(b).adjoint, a, inverse), by_b.reshape(b.shape)
    x = columns(sibling(d, 0, (a.shape[1], *b.shape[1:]), dtype))
    by_b = (columns(b) - a @ x) * (g.cast(dtype) * 2).reshape((1, g.shape[0]))
    return -(by_b @ x.adjoint), by_b.reshape(b.shape)


# -- QR -------------------------------------------------------------------------------------------------------------------


@gradient_of("linalg.qr")
def _qr(d: Differentiated, g: Term, a: Term, mode: str = "reduced") -> One:
    small = _smaller(a)
    if mode == "raw" or (mode == "complete" and not same_dim(small, a.shape[-2])):
        raise refusal(d, "the factors of mode='reduced' have one")
    q_shape, r_shape = (*a.shape[:-1], small), (*a.shape[:-2], small, a.shape[-1])
    if mode == "r":
        q, r = called("linalg.qr", a, shape=q_shape, result=0), d.out
    else:
        q, r = sibling(d, 0, q_shape, a.dtype), sibling(d, 1, r_shape, a.dtype)
    by_q, by_r = (g, None) if mode != "r" and d.attrs["result"] == 0 else (None, g)
    if same_dim(a.shape[-1], small):
        return (_by_factors(q, r, by_q, by_r),)
    return (_by_wide_factors(a, q, r, by_q, by_r),)


def _by_factors(q: Term, r: Term, by_q: Term | None, by_r: Term | None) -> Term:
    """Of a matrix that has at least as many rows as columns."""
    parts = [r @ by_r.adjoint] if by_r is not None else []
    parts += [-(by_q.adjoint @ q)] if by_q is not None else []
    half = _lower_half(functools.reduce(operator.add, parts))
    inner = q @ (half + half.adjoint)
    return _solved(r, (inner if by_q is None else inner + by_q).adjoint).adjoint


def _by_wide_factors(a: Term, q: Term, r: Term, by_q: Term | None, by_r: Term | None) -> Term:
    """The first columns are a square matrix, and what r has after them is that of the rest in the basis q."""
    m, n = a.shape[-2:]
    rest = (0,) * (a.ndim - 1) + (m,), (*a.shape[:-1], n - m)
    square = _first_columns(r, m)
    if by_r is None:
        by_first = _by_factors(q, square, by_q, None)
        return by_first.call("concatenate", a.full(0, rest[1]), axis=a.ndim - 1)
    by_rest = by_r.part(*rest)
    through_q = a.part(*rest) @ by_rest.adjoint
    by_first = _by_factors(q, square, through_q if by_q is None else by_q + through_q, _first_columns(by_r, m))
    return by_first.call("concatenate", q @ by_rest, axis=a.ndim - 1)


# -- singular values ------------------------------------------------------------------------------------------------------


def _factors(a: Term) -> tuple[Term, Term]:
    """The singular vectors: columns of the first, rows of the second."""
    small = _smaller(a)
    u_shape, v_shape = (*a.shape[:-1], small), (*a.shape[:-2], small, a.shape[-1])
    u = called("linalg.svd", a, False, shape=u_shape, result=0)
    return u, called("linalg.svd", a, False, shape=v_shape, result=2)


def _by_singular_values(g: Term, a: Term) -> Term:
    u, v = _factors(a)
    return (u * _rows_of(g.cast(a.dtype))) @ v


@gradient_of("linalg.svdvals")
def _svdvals(d: Differentiated, g: Term, x: Term) -> One:
    return (_by_singular_values(g, x),)


@gradient_of("linalg.svd")
def _svd(d: Differentiated, g: Term, a: Term, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> One:
    which, small = d.attrs["result"], _smaller(a)
    if not compute_uv or which == 1:
        return (_by_singular_values(g, a),)
    m, n = a.shape[-2:]
    if full_matrices and not same_dim((m, small, n)[which], small):
        raise refusal(d, "there is one with full_matrices=False")
    u = _first_columns(sibling(d, 0, (*a.shape[:-1], m if full_matrices else small), a.dtype), small)
    v = _first_rows(sibling(d, 2, (*a.shape[:-2], n if full_matrices else small, n), a.dtype), small)
    s = sibling(d, 1, (*a.shape[:-2], small), a.dtype.real)
    return (_by_left(g, u, s, v, a) if which == 0 else _by_right(g, u, s, v, a),)


def _by_left(g: Term, u: Term, s: Term, v: Term, a: Term) -> Term:
    """By the singular vectors that are the columns of u; where they are no basis of the whole space, also out of theirs."""
    values = _rows_of(s.cast(g.dtype))
    moved = u.adjoint @ g
    skew = moved - moved.adjoint
    turned = _over_squares(skew, s) * values
    if g.dtype.is_complex:  # the phases, which the other factor shares
        turned = turned + (skew * 0.5 / values).where(_diagonal(skew), 0)
    inner = u @ turned
    if not same_dim(a.shape[-2], s.shape[-1]):
        scaled = g / values
        inner = inner + scaled - u @ (u.adjoint @ scaled)
    return inner @ v


def _by_right(g: Term, u: Term, s: Term, v: Term, a: Term) -> Term:
    """As `_by_left`, by the rows of v."""
    values = _columns_of(s.cast(g.dtype))
    moved = v @ g.adjoint
    inner = (_over_squares(moved - moved.adjoint, s) * values) @ v
    if not same_dim(a.shape[-1], s.shape[-1]):
        scaled = g / values
        inner = inner + scaled - (scaled @ v.adjoint) @ v
    return u @ inner


def _over_squares(x: Term, s: Term) -> Term:
    """Elements (j, k) divided by ``s[k]**2 - s[j]**2``, as a product, which keeps its digits."""
    sums = _rows_of(s) + _columns_of(s)
    diagonal = _diagonal(x)
    return _over_differences(x, s) / sums.number(1).where(diagonal, sums).cast(x.dtype)


@gradient_of("linalg.norm")
def _norm(d: Differentiated, g: Term, x: Term, ord: Any = None, axis: Any = None, keepdims: bool = False) -> One:
    """The norms that are made of singular values."""
    if ord not in (2, -2, "nuc"):
        raise refusal(d, "the matrix norms that have one are 2, -2 and 'nuc'")
    axes = tuple(normalize_axis(k, x.ndim, "norm") for k in (axis if axis is not None else (0, 1)))
    order = (*(k for k in range(x.ndim) if k not in axes), *axes)
    moved = x.call("transpose", axes=order)
    u, v = _factors(moved)
    u, v = (u, v) if ord == "nuc" else _one_of(u, v, is_last=ord == -2)
    by_moved = _numbers_of(g.cast(x.dtype).reshape(moved.shape[:-2])) * (u @ v)
    return (by_moved.call("transpose", axes=tuple(map(order.index, range(x.ndim)))),)


def _one_of(u: Term, v: Term, is_last: bool) -> tuple[Term, Term]:
    """The singular vectors of the largest value, or of the smallest."""
    at = u.shape[-1] - 1 if is_last else 0
    first = (0,) * (u.ndim - 2)
    return u.part((*first, 0, at), (*u.shape[:-1], 1)), v.part((*first, at, 0), (*v.shape[:-2], 1, v.shape[-1]))


@gradient_of("linalg.cond")
def _cond(d: Differentiated, g: Term, x: Term, p: Any = None) -> One:
    if p not in (None, 2, -2):
        raise refusal(d, "there is one for p=2, -2 and None")
    u, v = _factors(x)
    numerator, denominator = (operator.matmul(*_one_of(u, v, is_last)) for is_last in (p == -2, p != -2))
    size = _smaller(x)
    s = called("linalg.svd", x, False, shape=(*x.shape[:-2], size), dtype=x.dtype.real, result=1)
    divisor = s.part((0,) * (s.ndim - 1) + (0 if p == -2 else size - 1,), (*s.shape[:-1], 1)).reshape(g.shape)
    by_numerator, ratio = _numbers_of((g / divisor).cast(x.dtype)), _numbers_of(d.out.cast(x.dtype))
    return (by_numerator * (numerator - ratio * denominator),)


# -- eigenvalues ----------------------------------------------------------------------------------------------------------


@gradient_of("linalg.eigh")
def _eigh(d: Differentiated, g: Term, a: Term, UPLO: str = "L") -> One:
    v = sibling(d, 1, a.shape, a.dtype)
    if d.attrs["result"] == 0:
        return (_by_eigenvalues(g, v),)
    w = sibling(d, 0, a.shape[:-1], a.dtype.real)
    return (_hermitian(v @ _over_differences(v.adjoint @ g, w) @ v.adjoint),)


@gradient_of("linalg.eigvalsh")
def _eigvalsh(d: Differentiated, g: Term, a: Term, UPLO: str = "L") -> One:
    return (_by_eigenvalues(g, called("linalg.eigh", a, shape=a.shape, result=1, UPLO=UPLO)),)


def _by_eigenvalues(g: Term, v: Term) -> Term:
    return (v * _rows_of(g.cast(v.dtype))) @ v.adjoint


@gradient_of("linalg.eig", "linalg.eigvals")
def _eig(d: Differentiated, g: Term, a: Term) -> One:
    """Of complex matrices: of real ones the data decide whether the results are complex, and there is no external call."""
    several = d.attrs["call"].function == "linalg.eig"
    v = sibling(d, 1, a.shape, a.dtype) if several else called("linalg.eig", a, shape=a.shape, result=1)
    if not several or d.attrs["result"] == 0:
        inner = _diagonal_matrix(g)
    else:
        w = sibling(d, 0, a.shape[:-1], a.dtype)
        moved = v.adjoint @ g
        lengths = moved.call("diagonal").real.cast(a.dtype)  # the vectors have length one
        inner = _over_differences(moved - (v.adjoint @ v) * _rows_of(lengths), w.conj)
    return (_solved(v.adjoint, inner @ v.adjoint),)


__all__: list[str] = []
