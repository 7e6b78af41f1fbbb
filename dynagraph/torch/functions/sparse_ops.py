"""What is computed with sparse tensors: products, sums, elementwise functions that keep zeros; and where all of it is found."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, is_on_gpu, ufunc_at
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, check_write, wrap, written
from dynagraph.torch.functions.common import NAMESPACES, NUMBERS, cast, dim_of, dims_of
from dynagraph.torch.functions.indexing import getitem
from dynagraph.torch.functions.numbers_first import scaled_operand
from dynagraph.torch.functions.places import add_rows
from dynagraph.torch.functions.sparse import COOTensor, CSRTensor, SparseTensor, added, coo, csr, strides_of, taken
from dynagraph.torch.functions.sparse_creation import at_places
from dynagraph.torch.functions.sparse_shapes import concatenated, get, index_select, permute, select, t, transpose, unsqueeze

_TORCH = NAMESPACES["torch"]
zeros = _TORCH["zeros"]
SPARSE = NAMESPACES.setdefault("sparse", {})

# -- products ---------------------------------------------------------------------------------------------------------


def _none(d: Any, g: Any) -> None:
    return None


def _product(values: Any, dense: Any, rows: Any, columns: Any, count: int) -> Any:
    """Rows of `dense` times values, added up by rows of the result."""
    wide = values.dtype if values.dtype.itemsize > 2 or values.dtype.kind not in "fV" else np.dtype(np.float32)
    found = np.zeros((count, dense.shape[1]), wide)
    if len(rows):
        terms = dense[columns].astype(wide, copy=False) * values.astype(wide, copy=False)[:, None]
        if not (rows[1:] >= rows[:-1]).all():
            order = np.argsort(rows, kind="stable")
            rows, terms = rows[order], terms[order]
        starts = np.flatnonzero(np.concatenate((np.ones(1, bool), rows[1:] != rows[:-1])))
        found[rows[starts]] = np.add.reduceat(terms, starts, axis=0)
    return found.astype(values.dtype, copy=False)


def _sampled(g: Any, dense: Any, rows: Any, columns: Any) -> Any:
    """The sums of the products of rows of `g` and conjugate rows of `dense`: elements of a product of matrices at places."""
    return (g[rows] * dense[columns].conj()).sum(-1)


PRODUCT = define(
    "sparse_mm", _product,
    (
        lambda d, g: g.call("sparse_mm_values", d.y, *d.operands[2:]),
        lambda d, g: d.x.conj.call("sparse_mm", g, d.operands[3], d.operands[2], count=d.y.shape[0]),
        _none, _none,
    ),
    ("yzu", "xzu", "", ""), backward="SparseAddmmBackward0",
)  # fmt: skip
SAMPLED = define(
    "sparse_mm_values", _sampled,
    (
        lambda d, g: g.call("sparse_mm", d.y, *d.operands[2:], count=d.x.shape[0]),
        lambda d, g: g.conj.call("sparse_mm", d.x, d.operands[3], d.operands[2], count=d.y.shape[0]),
        _none, _none,
    ),
    ("yzu", "xzu", "", ""), backward="SparseMmValuesBackward0",
)  # fmt: skip


def _rows_and_columns(x: Any) -> tuple[Any, Any]:
    if isinstance(x, CSRTensor):
        return x.rows(), x._columns._array
    return x._places._array[0], x._places._array[1]


def _matrix(x: Any, who: str) -> None:
    if len(x._size) != 2 or x.sparse_dim() != 2:
        raise RuntimeError(
            f"{who}: Expected a sparse matrix, got a tensor of {len(x._size)} dimensions, {x.sparse_dim()} of them sparse"
        )


def _same_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected scalar type {dtypes.scalar_name(a.dtype)} but found {dtypes.scalar_name(b.dtype)}")


def _by_dense(x: Any, dense: Tensor) -> Tensor:
    _matrix(x, "addmm")
    if dense.dim() != 2:
        raise RuntimeError(f"addmm: matrices expected, got {dense.dim()}D tensor")
    if x._size[1] != dense.shape[0]:
        raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {x._size[1]}, got {dense.shape[0]}")
    _same_dtype(x, dense)
    return apply(PRODUCT, x._held, dense, *map(wrap, _rows_and_columns(x)), count=x._size[0])


def _both_sparse(x: Any, y: Any) -> Any:
    """The product of two sparse matrices, which is sparse."""
    _matrix(x, "mm")
    _matrix(y, "mm")
    if x._size[1] != y._size[0]:
        raise RuntimeError(f"mm: mat1 dim 1 must match mat2 dim 0, but got {x._size[1]} and {y._size[0]}")
    _same_dtype(x, y)
    a, b = x.to_sparse_coo(), y.to_sparse_csr()
    rows, inner = _rows_and_columns(a)
    starts = b._starts._array
    counts = np.diff(starts)[inner]
    left = np.repeat(np.arange(len(rows)), counts)
    offsets = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = starts[inner][left] + offsets
    values = taken(a._held, left) * taken(b._held, right)
    places = np.stack((rows[left], b._columns._array[right])).astype(np.int64)
    made = coo(wrap(places), values, (x._size[0], y._size[1]), False).coalesce()
    return made.to_sparse_csr() if isinstance(x, CSRTensor) else made


def mm(input: Tensor, mat2: Tensor) -> Any:
    """The product of two matrices, of which one or both are sparse: strided, or sparse where both are."""
    if isinstance(input, SparseTensor):
        return _both_sparse(input, mat2) if isinstance(mat2, SparseTensor) else _by_dense(input, mat2)
    if isinstance(mat2, SparseTensor):
        return _by_dense(transpose(mat2.to_sparse_coo(), 0, 1), input.t()).t()
    return _TORCH["mm"](input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a sparse matrix and a vector."""
    if not isinstance(input, SparseTensor):
        return _TORCH["mv"](input, vec.to_dense())
    if vec.dim() != 1 or input._size[-1] != vec.shape[0]:
        raise RuntimeError("mv: expected self.size(-1) == vec.size(-1)")
    return _by_dense(input, vec.to_dense().unsqueeze(1)).squeeze(1)


def matmul(input: Tensor, other: Tensor) -> Any:
    """The product of sparse and strided matrices and vectors."""
    if other.dim() == 1:
        return mv(input, other)
    if input.dim() == 1:
        return mv(other.t(), input)
    return mm(input, other)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out_dtype: Any = None) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return add(input if beta == 1 else input * beta, product)


def _sparse_addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """``beta * mat + alpha * (mat1 @ mat2)``."""
    return addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> CSRTensor:
    """``beta * input + alpha * (mat1 @ mat2)`` at the places of a matrix in compressed rows; the rest is not computed."""
    if not isinstance(input, CSRTensor):
        raise NotImplementedError(f"sampled_addmm: Expected input tensor to have sparse csr layout, but got {input.layout}")
    if mat1.shape[0] != input._size[0] or mat2.shape[1] != input._size[1] or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"sampled_addmm: shapes {list(mat1.shape)} and {list(mat2.shape)} cannot be multiplied to {list(input._size)}"
        )
    product = apply(SAMPLED, mat1, mat2.t().conj(), *map(wrap, _rows_and_columns(input)))
    return input._like(input._held * beta + product * alpha)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Any:
    """A matrix with the rows of another as diagonals: row k, each element in its column, ``offsets[k]`` above the main one."""
    rows: Any = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    at = offsets._array.reshape(-1)
    if at.dtype.kind != "i" or at.dtype.itemsize != 8:
        raise RuntimeError(f"Offset tensor must have dtype Long but got: {dtypes.scalar_name(offsets.dtype)}")
    if len(at) != rows.shape[0]:
        raise RuntimeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({len(at)})")
    if len(shape) != 2:
        raise RuntimeError(f"Output shape must be 2d, but got {len(shape)}d")
    if len(np.unique(at)) != len(at):
        raise RuntimeError("Offset tensor contains duplicate values")
    n, m = shape
    which, column = np.indices((len(at), min(rows.shape[1], m)))
    row = column - at[:, None]
    kept = (row >= 0) & (row < n)
    values = taken(rows.reshape(-1), (which * rows.shape[1] + column)[kept])
    made = coo(wrap(np.stack((row[kept], column[kept])).astype(np.int64)), values, (n, m), False)
    return made.to_sparse(layout=layout) if layout is not None else made


# -- sums and products of elements ------------------------------------------------------------------------------------


def _same_size(who: str, x: Any, y: Any) -> None:
    if tuple(x.shape) != tuple(y.shape):
        raise RuntimeError(f"{who}: expected sizes of 'self' and 'other' to match, but {list(x.shape)} != {list(y.shape)}")


def add(input: Any, other: Any, *rest: Any, alpha: Any = 1) -> Any:
    """``input + alpha * other``: sparse where both are, strided where the first is."""
    if rest:
        other, alpha = scaled_operand("add", other, rest)
    if not isinstance(input, SparseTensor):
        if not isinstance(input, Tensor):
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        x = other.to_dense()
        return _TORCH["add"](input, x if alpha == 1 else x * alpha)
    if not isinstance(other, SparseTensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_size("add", input, other)
    common = dtypes.promote_types(input.dtype, other.dtype)
    values = other._all if alpha == 1 else other._all * alpha
    first, second = cast(input._all, common), cast(values, common)
    if type(input) is type(other) and _are_at_the_same_places(input, other):
        made = input._like(first + second)
        if isinstance(made, COOTensor):
            made._is_coalesced = input._is_coalesced and other._is_coalesced
        return made
    x, y = input.to_sparse_coo(), other.to_sparse_coo()
    made = x._with(first).joined_with(y._with(second))
    if isinstance(input, CSRTensor):
        return made.coalesce().to_sparse_csr()
    return made.coalesce() if x._is_coalesced and y._is_coalesced else made


def _are_at_the_same_places(x: Any, y: Any) -> bool:
    """Captured code takes it that they are not: a program that finds that they are leaves the call to Python."""
    if is_compiling() and isinstance(x, COOTensor) and not (x._counts is None and y._counts is None):
        if x.sparse_dim() != y.sparse_dim():
            return False
        first, second = _in_front(x), _in_front(y)
        return _are_same(*(np.concatenate((a, np.full_like(b, -1))) for a, b in ((first, second), (second, first))))
    return all(_are_same(p._array, q._array) for p, q in zip(x._parts(), y._parts()))


def _in_front(x: COOTensor) -> Any:
    """The places of the values that count in their order, and behind them, for each that does not, -1."""
    flat = x.all_flat_places(-1)
    return flat if x._counts is None else flat[np.argsort(np.logical_not(x._counts), kind="stable")]


def _are_same(a: Any, b: Any) -> bool:
    if a.shape != b.shape:
        return False
    same = (a == b).all()
    if is_compiling() and not is_on_gpu(a):
        if any_wrong(same):
            raise RuntimeError("places of sparse tensors are the same")
        return False
    return bool(same)


def sub(input: Any, other: Any, *rest: Any, alpha: Any = 1) -> Any:
    """``input - alpha * other``."""
    if rest:
        other, alpha = scaled_operand("sub", other, rest)
    return add(input, other, alpha=-alpha)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, NUMBERS) or (isinstance(value, Tensor) and not isinstance(value, SparseTensor) and not value.dim())


def mul(input: Any, other: Any) -> Any:
    """Element by element: by a number, a strided tensor, or a sparse one; sparse, at the places of the (first) sparse one."""
    if not isinstance(input, SparseTensor):
        input, other = other, input
    if _is_scalar(other):
        return input._with(input._all * other)
    if isinstance(other, SparseTensor):
        _same_size("mul", input, other)
        x = input.to_sparse_coo()
        factor = at_places(other.to_sparse_coo(), x.flat_places())
        if input.layout is other.layout is not None and x._is_coalesced:
            x, factor = _intersected(x, factor, other)
        made = x._like(x._held * factor)
        return made.to_sparse_csr() if isinstance(input, CSRTensor) else made
    x = input.to_sparse_coo()
    dense = other.expand(x._size) if tuple(other.shape) != x._size else other
    made = x._like(x._held * getitem(dense, tuple(wrap(row) for row in x._places._array)))
    return made.to_sparse_csr() if isinstance(input, CSRTensor) else made


def _intersected(x: COOTensor, factor: Tensor, other: Any) -> tuple[COOTensor, Tensor]:
    """Only the places that both have."""
    kept = np.flatnonzero(np.isin(x.flat_places(), other.to_sparse_coo().flat_places()))
    return coo(wrap(x._places._array[:, kept]), taken(x._held, kept), x._size, True), taken(factor, kept)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """By a number, or a strided tensor without dimensions."""
    if not isinstance(input, SparseTensor) or not _is_scalar(other):
        shape = list(other.shape) if isinstance(other, Tensor) else []
        raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)")
    x = input if rounding_mode is None or isinstance(input, CSRTensor) else input.coalesce()
    return x._with(_TORCH["div"](x._all, other, rounding_mode=rounding_mode))


def floor_divide(input: Any, other: Any) -> Any:
    """As `div`, rounded down."""
    return div(input, other, rounding_mode="floor")


def pow(input: Any, exponent: Any) -> Any:
    """To a power that is a positive number."""
    if not isinstance(exponent, NUMBERS) or exponent <= 0:
        raise RuntimeError("pow: of sparse tensors, the exponent must be a number above zero")
    power: Any = exponent
    return _mapped(input, lambda v: v**power)


def _mapped(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    y = x.coalesce() if isinstance(x, COOTensor) else x
    return y._like(change(y._held))


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    """The norm of all elements."""
    if dim is not None:
        raise RuntimeError("norm_sparse currently does not support norms of dimensions: call to_dense() first")
    if p not in ("fro", None, 2, 2.0):
        raise RuntimeError("norm: of sparse tensors, p must be 2")
    values: Any = (input.coalesce() if isinstance(input, COOTensor) else input)._held
    return _TORCH["norm"](values if dtype is None else values.to(dtype))


def sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Any:
    """The sum of all elements, or along dimensions: sparse where dimensions with coordinates are left."""
    values = input._held if dtype is None else input._held.to(dtype)
    if dim is None:
        return values.sum()
    if keepdim:
        raise RuntimeError("sum: of sparse tensors, keepdim is not supported")
    x = input.to_sparse_coo().coalesce()
    values = x._held if dtype is None else x._held.to(dtype)
    dims, count = dims_of(dim, len(x._size)), x.sparse_dim()
    inner = tuple(d - count + 1 for d in dims if d >= count)
    if inner:
        values = values.sum(inner)
    kept = [d for d in range(count) if d not in dims]
    size = tuple(n for d, n in enumerate(x._size) if d not in dims)
    if not kept:
        return values.sum(0)
    if len(kept) == count:
        return coo(x._places, values, size, x._is_coalesced)
    return coo(wrap(x._places._array[kept]), values, size, False).coalesce()


def _sparse_sum(input: Any, dim: Any = None, dtype: DType | None = None) -> Any:
    """``torch.sparse.sum``: as `sum`."""
    if not isinstance(input, SparseTensor):
        return input.coalesce()  # the error that says what was expected
    return sum(input, dim, dtype=dtype)


def _softmax(name: str, of_groups: Callable[[Tensor, Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
    def compute(input: Any, dim: int, *, dtype: DType | None = None) -> COOTensor:
        x = (input if dtype is None else input.to(dtype)).coalesce()
        k = dim_of(dim, len(x._size))
        if k >= x.sparse_dim():
            return x._like(_TORCH[name](x._held, k - x.sparse_dim() + 1))
        rest = [d for d in range(x.sparse_dim()) if d != k]
        sizes = tuple(x._size[d] for d in rest)
        flat = strides_of(sizes) @ x._places._array[rest] if rest else np.zeros(x._nnz(), np.int64)
        unique, group = np.unique(flat, return_inverse=True)
        group = group.reshape(-1)
        held = x._held._array
        largest = np.full((len(unique), *held.shape[1:]), -math.inf, held.dtype)
        ufunc_at(np.maximum, largest, group, held)

        def totals(values: Tensor) -> Tensor:
            return taken(added(values, group, len(unique)), group)

        return x._like(of_groups(x._held, totals, wrap(largest[group])))

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.sparse.{name}``: along a dimension, of the elements that have places; the others count as -inf."
    SPARSE[name] = compute


_softmax("softmax", lambda x, totals, largest: (lambda e: e / totals(e))((x - largest).exp()))
_softmax("log_softmax", lambda x, totals, largest: (x - largest) - totals((x - largest).exp()).log())

# -- in place ---------------------------------------------------------------------------------------------------------


def _become(self: Any, other: Any) -> Any:
    if mode.grad and self.requires_grad and self.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    return self.become(other)


def _changing(compute: Callable[..., Any]) -> Callable[..., Any]:
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _become(self, compute(self, *args, **kwargs))

    changing.__name__ = f"{compute.__name__}_"
    changing.__doc__ = compute.__doc__
    return changing


def _zeroed(self: Any) -> Any:
    """Without any places."""
    if isinstance(self, CSRTensor):
        starts = wrap(np.zeros_like(self._starts._array))
        return csr(starts, wrap(self._columns._array[:0].copy()), self._held.detach()[:0].clone(), self._size)
    values = zeros(0, *self._held.shape[1:], dtype=self.dtype, device=self.device)
    return coo(wrap(np.zeros((self.sparse_dim(), 0), np.int64)), values, self._size, True)


def zeros_like(input: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Any:
    """Of the same size and layout, without any places."""
    made = _zeroed(input)
    made = made if dtype is None and device is None else made.to(device=device, dtype=dtype)
    return made.requires_grad_(requires_grad)


def _copied(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Another sparse tensor's places and values."""
    if not isinstance(src, type(self)):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = "
                           f"{self.type()} and src type = {src.type()}")  # fmt: skip
    return src.to(self.dtype).clone()


# -- names ------------------------------------------------------------------------------------------------------------

KEEP_ZEROS = (
    "abs", "absolute", "neg", "negative", "sin", "sinh", "asin", "arcsin", "asinh", "arcsinh", "tan", "tanh", "atan", "arctan",
    "atanh", "arctanh", "sqrt", "ceil", "floor", "round", "trunc", "fix", "sign", "sgn", "signbit", "expm1", "log1p", "erf",
    "erfinv", "relu", "deg2rad", "rad2deg", "square", "isnan", "isinf", "isposinf", "isneginf", "positive", "frac", "angle", "conj",
)  # fmt: skip


def _elementwise(name: str) -> Callable[..., Any]:
    linear = name in ("neg", "negative", "positive", "conj", "deg2rad", "rad2deg")
    dense = getattr(Tensor, name)

    def compute(input: Any) -> Any:
        return input._with(dense(input._all)) if linear else _mapped(input, dense)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, which leaves zeros as they are."
    return compute


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: _elementwise(name) for name in KEEP_ZEROS if hasattr(Tensor, name)
} | {
    "mm": mm, "mv": mv, "matmul": matmul, "addmm": addmm, "add": add, "sub": sub, "subtract": sub, "mul": mul, "multiply": mul,
    "div": div, "divide": div, "true_divide": div, "floor_divide": floor_divide, "pow": pow, "sum": sum, "norm": norm,
    "transpose": transpose, "swapaxes": transpose, "swapdims": transpose, "permute": permute, "t": t, "unsqueeze": unsqueeze,
    "select": select, "index_select": index_select, "zeros_like": zeros_like, "empty_like": zeros_like,
    "clone": SparseTensor.clone, "numel": SparseTensor.numel, "is_floating_point": SparseTensor.is_floating_point,
    "is_complex": SparseTensor.is_complex,
}  # fmt: skip
_NO_METHODS = ("zeros_like", "empty_like", "clone", "numel", "is_floating_point", "is_complex")
_CHANGING = {**{n: FUNCTIONS[n] for n in ("add", "sub", "mul", "div", "pow", "abs", "neg", "sqrt", "relu") if n in FUNCTIONS}}


def _dispatched(name: str, dense: Callable[..., Any], sparse: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes sparse tensors as well."""

    @functools.wraps(dense)
    def public(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("input")
        if isinstance(first, SparseTensor) or (len(args) > 1 and isinstance(args[1], SparseTensor)):
            return sparse(*args, **kwargs)
        return dense(*args, **kwargs)

    return public


def _dispatched_cat(dense: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(dense)
    def public(tensors: Any = (), *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensors, (tuple, list)) and tensors and isinstance(tensors[0], SparseTensor):
            return concatenated(tensors, *args, **kwargs)
        return dense(tensors, *args, **kwargs)

    return public


for _name, _sparse in FUNCTIONS.items():
    if _name in _TORCH:
        _TORCH[_name] = _dispatched(_name, _TORCH[_name], _sparse)
    if _name not in _NO_METHODS:
        setattr(SparseTensor, _name, _sparse)
_TORCH["spmm"] = _TORCH["dsmm"] = _TORCH["mm"]
for _name in ("mm", "mv", "matmul", "addmm", "add", "mul"):  # a strided tensor's methods with a sparse argument
    setattr(Tensor, _name, _dispatched(_name, getattr(Tensor, _name), FUNCTIONS[_name]))
for _name in ("cat", "concat", "concatenate"):
    if _name in _TORCH:
        _TORCH[_name] = _dispatched_cat(_TORCH[_name])
for _name, _sparse in _CHANGING.items():
    setattr(SparseTensor, f"{_name}_", _changing(_sparse))
_dense_add_ = Tensor.add_


def _is_added_where_it_is(x: Tensor, other: COOTensor) -> bool:
    recorded = mode.grad and (x.requires_grad or other.requires_grad)
    return x._array.shape == other._size and x.dtype is other.dtype and x._array.flags.c_contiguous and not recorded


def _add_(self: Tensor, other: Any, *rest: Any, alpha: Any = 1) -> Tensor:
    """Add in place; a sparse tensor is added where it has values."""
    if rest:
        other, alpha = scaled_operand("add_", other, rest)
    if isinstance(other, COOTensor) and _is_added_where_it_is(self, other):
        check_write(self)
        count, width = math.prod(other.sparse_sizes()), math.prod(other._size[other.sparse_dim() :])
        values = other.all_or_nothing() if alpha == 1 else other._with(other._all * alpha).all_or_nothing()
        array = self._array  # captured code writes to it where it is, but not by way of another shape
        rows = array if array.shape == (count, width) else array.reshape(count, width)
        add_rows(rows, other.all_flat_places(0), values._array.reshape(values._array.shape[0], width), 0)
        written(self)
        return self
    return _dense_add_(self, other.to_dense() if isinstance(other, SparseTensor) else other, alpha=alpha)


Tensor.add_ = _add_
SparseTensor.zero_, SparseTensor.copy_ = _changing(_zeroed), _changing(_copied)
SparseTensor.sparse_resize_and_clear_ = lambda self, size, sparse_dim, dense_dim: _become(
    self, coo(wrap(np.zeros((sparse_dim, 0), np.int64)), zeros(0, *size[sparse_dim:], dtype=self.dtype), tuple(size), True)
)
SparseTensor.__getitem__ = get
SparseTensor.__iter__ = lambda self: iter([select(self, 0, k) for k in range(len(self))])
SparseTensor.__neg__ = FUNCTIONS["neg"]
SparseTensor.__add__, SparseTensor.__sub__, SparseTensor.__mul__, SparseTensor.__rmul__ = add, sub, mul, mul
SparseTensor.__radd__ = lambda self, other: add(other, self)
SparseTensor.__rsub__ = lambda self, other: add(other, self, alpha=-1)
SparseTensor.__truediv__, SparseTensor.__floordiv__, SparseTensor.__pow__, SparseTensor.__matmul__ = div, floor_divide, pow, matmul
SparseTensor.__rmatmul__ = lambda self, other: matmul(other, self)
for _operator, _name in (("__iadd__", "add_"), ("__isub__", "sub_"), ("__imul__", "mul_"), ("__itruediv__", "div_")):
    setattr(SparseTensor, _operator, getattr(SparseTensor, _name))
SPARSE |= {"mm": mm, "addmm": _sparse_addmm, "sampled_addmm": sampled_addmm, "spdiags": spdiags, "sum": _sparse_sum}
for _name in ("softmax", "log_softmax"):
    _TORCH[f"_sparse_{_name}"] = SPARSE[_name]

__all__ = ["FUNCTIONS", "SPARSE", "concatenated"]
