"""Norms of vectors and matrices, and distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array, ufunc_reduce
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.arithmetic import add, div, mul, sub
from dynagraph.torch.functions.common import cast, check_broadcast, check_tensor, dim_of, dims_of, function
from dynagraph.torch.functions.decompositions import svdvals
from dynagraph.torch.functions.lapack import check_floats, check_matrices
from dynagraph.torch.functions.reductions import amax, amin, spread, sum
from dynagraph.torch.functions.shapes import movedim, squeeze, unsqueeze
from dynagraph.torch.functions.solvers import inv_ex
from dynagraph.torch.functions.ternary import where

# -- vectors ----------------------------------------------------------------------------------------------------------


def _vector_norm_array(x: Any, ord: float, axis: tuple[int, ...], keepdims: bool) -> Any:
    given = x.dtype
    x = x.astype(np.float32) if is_half(given) else x
    if ord == 2 and x.dtype.kind == "c":
        found = np.sqrt(ufunc_reduce(np.add, x.real * x.real + x.imag * x.imag, axis=axis, keepdims=keepdims))
    elif ord == 2:
        found = np.sqrt(ufunc_reduce(np.add, x * x, axis=axis, keepdims=keepdims))
    elif ord == 0:
        found = ufunc_reduce(np.add, (x != 0).astype(x.real.dtype), axis=axis, keepdims=keepdims)
    else:
        size = np.abs(x)
        if abs(ord) == math.inf:
            found = ufunc_reduce(np.maximum if ord > 0 else np.minimum, size, axis=axis, keepdims=keepdims)
        elif ord == 1:
            found = ufunc_reduce(np.add, size, axis=axis, keepdims=keepdims)
        else:
            found = np.power(ufunc_reduce(np.add, np.power(size, ord), axis=axis, keepdims=keepdims), 1 / ord)
    return found.astype(given if is_half(given) else x.real.dtype, copy=False)


def _vector_norm_vjp(d: Any, g: Any) -> Any:
    """Zero where the norm is."""
    p, x = d.attrs["ord"], d.x
    if p == 0:
        return None
    g = spread(d, g)
    if p == 1:
        return x.call("sgn") * g
    norm = spread(d, d.out)
    nonzero = norm.call("not_equal", 0)
    if p == 2:
        return x * (g / norm).where(nonzero, 0)
    size = x.call("absolute")
    if abs(p) == math.inf:
        chosen = size.equals(norm).call("logical_or", norm.call("isnan").call("logical_and", size.call("isnan")))
        count = spread(d, chosen.cast(g.dtype).call("sum", axis=d.attrs["axis"], keepdims=True))
        return x.call("sgn") * (g / count).where(chosen, 0)
    if p < 1:
        powers = size.call("power_of_number", exponent=p - 1).where(size.call("not_equal", 0), 0)
        return x.call("sgn") * powers * (norm.call("power_of_number", exponent=1 - p) * g)
    factor = (g / norm.call("power_of_number", exponent=p - 1)).where(nonzero, 0)
    if p < 2:
        return x.call("sgn") * size.call("power_of_number", exponent=p - 1) * factor
    return x * size.call("power_of_number", exponent=p - 2) * factor


VECTOR_NORM = define("vector_norm", _vector_norm_array, (_vector_norm_vjp,), ("xo",), backward="LinalgVectorNormBackward0")


def _vector_norm(x: Tensor, ord: Any, dim: Any, keepdim: bool, dtype: DType | None, who: str = "linalg.vector_norm") -> Tensor:
    check_tensor(x, who, "x")
    if isinstance(ord, str) or ord is None:
        raise TypeError(f"{who.replace('.', '_')}(): argument 'ord' (position 2) must be Number, not {type(ord).__name__}")
    check_floats(x, who, low=True)
    ord = float(ord)
    if dtype is not None:
        if dtype.is_complex != (x._array.dtype.kind == "c"):
            kinds = "complex" if x._array.dtype.kind == "c" else "real"
            raise RuntimeError(f"{who}: dtype should be {kinds} for {kinds} inputs, but got {dtype}")
        x = cast(x, dtype)
    axis = dims_of(dim, x._array.ndim)
    if ord < 0 or ord == math.inf:
        if dim is None and not x._array.size:
            raise RuntimeError(
                f"{who} cannot compute the {ord:g} norm on an empty tensor because the operation does not have an identity"
            )
        if any(x._array.shape[k] == 0 for k in axis):
            raise RuntimeError(
                f"{who} cannot compute the {ord:g} norm on the dimension {axis[0]} because this dimension is empty and the "
                "operation does not have an identity"
            )
    return apply(VECTOR_NORM, x, ord=ord, axis=axis, keepdims=keepdim and bool(x._array.ndim))


@function("vector_norm", namespace="linalg", method=False, out=True)
def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """``sum(|x|**ord) ** (1/ord)`` over dimensions."""
    return _vector_norm(x, ord, dim, keepdim, dtype)


# -- matrices ---------------------------------------------------------------------------------------------------------


def _matrix_norm(A: Tensor, ord: Any, dim: Any, keepdim: bool, dtype: DType | None) -> Tensor:
    who = "linalg.matrix_norm"
    check_matrices(A, who, square=False, floats=False)
    check_floats(A, who, low=ord not in ("nuc", 2, -2))
    if isinstance(dim, int) or len(dim) != 2:
        raise RuntimeError(f"{who}: dim must be a 2-tuple. Got {dim if isinstance(dim, int) else ' '.join(map(str, dim))}")
    rows, columns = (dim_of(k, A._array.ndim) for k in dim)
    if rows == columns:
        raise RuntimeError(f"{who}: dims must be different. Got ({dim[0]}, {dim[1]})")
    if dtype is not None:
        A = cast(A, dtype)
    if ord == "fro":
        return _vector_norm(A, 2, (rows, columns), keepdim, None, who)
    if ord not in ("nuc", 1, -1, 2, -2, math.inf, -math.inf):
        if isinstance(ord, str):
            raise RuntimeError(f"{who}: Order {ord} not supported.")
        raise RuntimeError(f"{who}: Order {ord} not supported.")
    if ord in ("nuc", 2, -2):
        s = svdvals(movedim(A, (rows, columns), (-2, -1)))
        found = sum(s, -1) if ord == "nuc" else amax(s, -1) if ord == 2 else amin(s, -1)
        if keepdim:
            for k in sorted((rows, columns)):
                found = unsqueeze(found, k)
        return found
    first, last = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = _vector_norm(A, 1, first, True, None, who)
    found = amax(sums, last, True) if ord > 0 else amin(sums, last, True)
    return found if keepdim else squeeze(found, (rows, columns))


@function("matrix_norm", namespace="linalg", method=False, out=True)
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """A norm of matrices: "fro", "nuc", of rows (inf), of columns (1), or the greatest singular value (2); a minus: the least."""
    return _matrix_norm(A, ord, dim, keepdim, dtype)


@function("norm", namespace="linalg", method=False, out=True)
def linalg_norm(input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The norm of vectors or of matrices, by how many dimensions there are."""
    ndim = check_tensor(input, "linalg.norm", "input")._array.ndim
    if dim is not None:
        dims = (dim,) if isinstance(dim, (int, np.integer)) else tuple(dim)
        if len(dims) not in (1, 2) and ord is not None:
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got [{', '.join(map(str, dims))}]")
    elif ord is not None and ndim not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {ndim}D.")
    if ord is None:
        return _vector_norm(input, 2, dim, keepdim, dtype)
    if (len(dims) if dim is not None else ndim) == 1 and not isinstance(ord, str):
        return _vector_norm(input, ord, dim, keepdim, dtype)
    return _matrix_norm(input, ord, dims if dim is not None else (0, 1), keepdim, dtype)


@function("norm", out=True)
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    """The norm over all dimensions, or over `dim`: "fro", "nuc" or a number, of vectors."""
    check_tensor(input, "norm", "input")
    if p == "nuc":
        return _matrix_norm(input, "nuc", tuple(range(input._array.ndim)) if dim is None else dim, keepdim, dtype)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    return _vector_norm(input, 2 if p == "fro" or p is None else p, dim, keepdim, dtype)


@function("frobenius_norm", method=False, out=True)
def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return _vector_norm(input, 2, dim, keepdim, None)


@function("nuclear_norm", method=False, out=True)
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return _matrix_norm(input, "nuc", dim, keepdim, None)


@function("norm_except_dim", method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms over all dimensions but one, whose sizes are 1 then; of -1 over all dimensions, a number."""
    if dim == -1:
        return _vector_norm(v, pow, None, False, None)
    ndim = check_tensor(v, "norm_except_dim", "v")._array.ndim
    kept = dim_of(dim, ndim)
    return _vector_norm(v, pow, tuple(k for k in range(ndim) if k != kept), True, None)


@function("_weight_norm", method=False)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """A direction `v` with the lengths `g`, one for each index of a dimension."""
    return mul(v, div(g, norm_except_dim(v, 2, dim)))


@function("cond", namespace="linalg", method=False, out=True)
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in a norm of matrices: that of the matrix times that of its inverse; infinite without one."""
    check_matrices(A, "linalg.cond", square=False)
    if p is None or p in (2, -2):
        if not A._array.size:
            return made(library_of_array(A._array).zeros(A._array.shape[:-2], A._array.real.dtype))
        s = svdvals(A)
        first, last = s[..., 0], s[..., -1]  # type: ignore[index]
        return div(last, first) if p == -2 else div(first, last)
    check_matrices(A, f"linalg.cond(p={p})")
    if not A._array.size:
        return made(library_of_array(A._array).zeros(A._array.shape[:-2], A._array.real.dtype))
    inverse, info = inv_ex(A)
    found = mul(_matrix_norm(A, p, (-2, -1), False, None), _matrix_norm(inverse, p, (-2, -1), False, None))
    singular = info._array != 0
    return where(made(singular), math.inf, found) if singular.any() else found


# -- distances --------------------------------------------------------------------------------------------------------


@function("dist")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of a difference."""
    check_tensor(other, "dist", "other", 2)
    check_broadcast(input, other)
    return _vector_norm(sub(input, other), p, None, False, None)


def _pairs(x: Any, y: Any) -> Any:
    return x[..., :, None, :] - y[..., None, :, :]


def _is_small(x: Any, y: Any) -> bool:
    """Few rows: their differences are taken; of more the squares are multiplied out."""
    return bool(x.shape[-2] <= 25 and y.shape[-2] <= 25)


def _euclidean(x: Any, y: Any, by_product: bool) -> Any:
    if is_half(x.dtype):
        return _euclidean(x.astype(np.float32), y.astype(np.float32), by_product).astype(x.dtype)
    if not by_product:
        difference = _pairs(x, y)
        return np.sqrt((difference * difference).sum(-1))
    squares = (x * x).sum(-1)[..., :, None] + (y * y).sum(-1)[..., None, :] - 2 * (x @ y.swapaxes(-1, -2))
    return np.sqrt(np.maximum(squares, 0))


def _weights(d: Any, g: Any) -> Any:
    return (g / d.out).where(d.out.call("not_equal", 0), 0)


def _euclidean_by(which: int) -> Any:
    def vjp(d: Any, g: Any) -> Any:
        w = _weights(d, g)
        mine, other = (d.x, d.y) if which == 0 else (d.y, d.x)
        w = w if which == 0 else w.transposed
        sums = w.sum(w.ndim - 1)
        return mine * sums.reshape((*sums.shape, 1)) - w @ other

    return vjp


EUCLIDEAN = define("euclidean_cdist", _euclidean, (_euclidean_by(0), _euclidean_by(1)), ("xyo", "xyo"), backward="CdistBackward0")
_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@function("cdist", method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _MODES[0]) -> Tensor:
    """The p-norms of the differences of all rows of one matrix to all rows of another."""
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for name, x in (("X1", x1), ("X2", x2)):
        check_tensor(x, "cdist", name)
        if x._array.dtype.kind not in "fV":
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x._array.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x._array.ndim}D")
    if x1._array.shape[-1] != x2._array.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1._array.shape[-1]} X2: {x2._array.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if p == 2:
        by_product = compute_mode == _MODES[1] or (compute_mode == _MODES[0] and not _is_small(x1._array, x2._array))
        return apply(EUCLIDEAN, x1, x2, by_product=by_product)
    return _of_rows(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p)


def _of_rows(x: Tensor, p: float) -> Tensor:
    """Norms of rows, with gradients where these are zero throughout, too."""
    found = _vector_norm(x, p, -1, False, None)
    return where(made(library_of_array(x._array).ones((), bool)), found.detach(), sum(x, -1)) if p == 0 else found


@function("pdist", method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of any two rows of a matrix."""
    x = check_tensor(input, "pdist", "input")
    if x._array.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {x._array.ndim}D")
    if x._array.dtype.kind != "f":
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = np.triu_indices(x._array.shape[0], 1)
    return _of_rows(sub(x[made(first)], x[made(second)]), p)  # type: ignore[index]


@function("renorm", inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` whose p-norm is greater than `maxnorm` scaled down to it."""
    x = check_tensor(input, "renorm", "input")
    k = dim_of(dim, x._array.ndim)
    if x._array.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {x._array.ndim} dimensions")
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError("renorm: expected maxnorm to be >= 0 but got " + str(maxnorm))
    norms = _vector_norm(x, p, tuple(j for j in range(x._array.ndim) if j != k), True, None)
    large = made(norms._array > maxnorm)
    return mul(x, where(large, div(made(library_of_array(x._array).asarray(maxnorm, norms._array.dtype)), add(norms, 1e-7)), 1.0))


__all__ = ["VECTOR_NORM", "matrix_norm", "norm", "vector_norm"]
