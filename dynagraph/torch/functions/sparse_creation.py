"""How sparse tensors are made: of places and values, and of strided tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.layouts import sparse_csr, strided
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.common import NAMESPACES, function, sizes_of
from dynagraph.torch.functions.conversion import to_device
from dynagraph.torch.functions.creation import tensor as new_tensor
from dynagraph.torch.functions.indexing import getitem
from dynagraph.torch.functions.sparse import LAYOUT_NAMES, COOTensor, CSRTensor, SparseTensor, coo, csr, layout_asked, taken

_INT64 = np.dtype(np.int64)
_ALIAS = PRIMITIVES["alias"].forward
FROM_VALUES = define(
    "sparse_of_values", _ALIAS, (lambda d, g: g,), ("",), backward="SparseCooTensorWithDimsAndTensorsBackward0", is_view=True
)
FROM_CSR_VALUES = define(
    "sparse_of_csr_values", _ALIAS, (lambda d, g: g,), ("",), backward="SparseCompressedTensorBackward0", is_view=True
)

# -- of places and values -----------------------------------------------------------------------------------------------------


def _places_of(given: Any, who: str, what: str, device: Any, keep: bool = False) -> Tensor:
    found = given.detach() if isinstance(given, Tensor) else new_tensor(given)
    kind = found._array.dtype.kind
    if kind not in "iu" and found._array.size:
        raise RuntimeError(f"{who}: {what} must be an int64 tensor type, got {found.dtype}")
    found = to_device(found, device)
    return found if keep and found._array.dtype.itemsize >= 4 else wrap(found._array.astype(_INT64, copy=False))


def _values_of(given: Any, dtype: DType | None, device: Any) -> Tensor:
    if not isinstance(given, Tensor):
        return new_tensor(given, dtype=dtype, device=device)
    return to_device(given if dtype is None else given.to(dtype), device)


def _finished(made: Any, primitive: Any, requires_grad: bool) -> Any:
    values = made._held
    if values.requires_grad and not requires_grad:
        made._held = apply(primitive, values)
    else:
        made._held = values.detach()
        if requires_grad:
            made._held.requires_grad = True
    return made


@function(method=False)
def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> COOTensor:  # fmt: skip
    """A tensor of values at coordinates: the columns of `indices`.  Coordinates are always checked to lie within the sizes.

    >>> from dynagraph import torch
    >>> torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 5.]])
    """
    if isinstance(indices, (tuple, list, Size)) and values is None and size is None and all(isinstance(n, int) for n in indices):
        indices, size = None, indices  # sparse_coo_tensor(size)
    if indices is None:
        if size is None:
            raise TypeError("sparse_coo_tensor(): argument 'size' must be tuple of ints, not NoneType")
        shape = sizes_of(tuple(size), "sparse_coo_tensor")
        kind = (dtype or dtypes.get_default_dtype()).numpy
        where = devices.get_default_device() if device is None else devices.device(device)
        empty = coo(wrap(np.zeros((len(shape), 0), _INT64)), to_device(wrap(np.zeros(0, kind)), where), shape, True)
        return _finished(empty, FROM_VALUES, requires_grad)
    held = _values_of(values, dtype, device)
    places = _places_of(indices, "sparse_coo_tensor", "indices", held.device)
    rows = places._array
    if rows.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(rows.shape)}")
    if not held._array.ndim or held._array.shape[0] != rows.shape[1]:
        count = held._array.shape[0] if held._array.ndim else 0
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {rows.shape[1]}, nnz from values: {count}"
        )
    behind = held._array.shape[1:]
    if size is None:
        shape = (*(int(row.max()) + 1 if row.size else 0 for row in rows), *behind)
    else:
        shape = sizes_of(tuple(size), "sparse_coo_tensor")
    if len(shape) != len(rows) + len(behind):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {len(rows)}, "
            f"dense_dim = {len(behind)}"
        )
    if tuple(shape[len(rows) :]) != tuple(behind):
        wanted = [rows.shape[1], *shape[len(rows) :]]
        raise RuntimeError(f"values has incorrect size, expected {wanted}, got {list(held._array.shape)}")
    _check_within(rows, shape)
    return _finished(coo(places, held, shape, bool(is_coalesced)), FROM_VALUES, requires_grad)


def _check_within(rows: Any, shape: tuple[int, ...]) -> None:
    for k, row in enumerate(rows):
        if row.size:
            low, high = int(row.min()), int(row.max())
            if low < 0:
                raise RuntimeError(f"found negative index {low} for dim {k}")
            if high >= shape[k]:
                raise RuntimeError(f"size is inconsistent with indices: for dim {k}, size is {shape[k]} but found index {high}")


@function(method=False)
def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> CSRTensor:  # fmt: skip
    """A matrix in compressed rows.  The parts are always checked to fit."""
    held = _values_of(values, dtype, device)
    starts = _places_of(crow_indices, "sparse_csr_tensor", "crow_indices", held.device, True)
    columns = _places_of(col_indices, "sparse_csr_tensor", "col_indices", held.device, True)
    first, second = starts._array, columns._array
    if first.ndim != 1 or second.ndim != 1 or held._array.ndim != 1:
        raise RuntimeError("sparse_csr_tensor: crow_indices, col_indices and values must be vectors: batches are not supported")
    if size is None:
        shape: tuple[int, ...] = (len(first) - 1, int(second.max()) + 1 if second.size else 0)
    else:
        shape = sizes_of(tuple(size), "sparse_csr_tensor")
    if len(shape) != 2 or len(first) != shape[0] + 1:
        raise RuntimeError(f"crow_indices.shape[-1] must be equal to nrows + 1, but got: {len(first)} for {shape[0]} rows")
    if int(first[0]) != 0:
        raise RuntimeError("`crow_indices[..., 0] == 0` is not satisfied.")
    if int(first[-1]) != len(second):
        raise RuntimeError("`crow_indices[..., -1] == nnz` is not satisfied.")
    if len(second) != held._array.shape[0]:
        raise RuntimeError(f"sizes of col_indices and values must match: {len(second)} != {held._array.shape[0]}")
    steps = np.diff(first)
    if bool((steps < 0).any()) or bool((steps > shape[1]).any()):
        raise RuntimeError("`0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols` is not satisfied.")
    if second.size and not 0 <= int(second.min()) <= int(second.max()) < shape[1]:
        raise RuntimeError("`0 <= col_indices < ncols` is not satisfied.")
    return _finished(csr(starts, columns, held, shape), FROM_CSR_VALUES, requires_grad)


# -- of strided tensors -----------------------------------------------------------------------------------------------


def _to_sparse(self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None) -> Any:
    """The elements that are not zero, with their places: of the first `sparse_dim` dimensions, or of all."""
    if blocksize is not None or dense_dim is not None:
        raise RuntimeError("to_sparse: blocks, and dense dimensions of compressed rows, are not supported")
    if layout_asked(sparse_dim, layout) is sparse_csr:
        return _to_csr(self)
    array = self._array
    count = sparse_dim if isinstance(sparse_dim, int) else array.ndim
    if not 0 <= count <= array.ndim:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{array.ndim}] range, but {count} is given")
    some = array != 0
    if count < array.ndim:
        some = some.any(axis=tuple(range(count, array.ndim)))
    if not count:
        rows = np.zeros((0, 1 if bool(some) else 0), _INT64)
        values = self.unsqueeze(0) if rows.shape[1] else self.unsqueeze(0)[:0]
    else:
        rows = np.stack(np.nonzero(some)).astype(_INT64, copy=False)
        values = getitem(self, tuple(wrap(row) for row in rows))
    return coo(wrap(rows), values, array.shape, True)


def _to_csr(self: Tensor, dense_dim: int | None = None) -> CSRTensor:
    """The elements of a matrix that are not zero, in compressed rows."""
    if self._array.ndim != 2:
        raise RuntimeError(
            f"to_sparse_csr: expected a matrix, got a tensor of {self._array.ndim} dimensions; batches are not supported"
        )
    return _to_sparse(self).to_sparse_csr()


def _to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """Itself."""
    return self if dtype is None else self.to(dtype)


def _sparse_mask(self: Tensor, mask: Any) -> Any:
    """The elements at the places of a sparse tensor."""
    if not isinstance(mask, SparseTensor):
        raise RuntimeError("sparse_mask: expected mask to be sparse")
    if tuple(self.shape) != mask._size:
        raise RuntimeError(f"sparse_mask: expected sizes to match, but {list(self.shape)} != {list(mask._size)}")
    target = mask.to_sparse_coo()
    if isinstance(self, SparseTensor):
        values = at_places(self.to_sparse_coo(), target.flat_places())
    else:
        values = getitem(self, tuple(wrap(row) for row in target._places._array))
    return mask._like(values)


def at_places(x: COOTensor, flat: Any) -> Tensor:
    """The values at flat places; zeros where it has none."""
    x = x.coalesce()
    own = x.flat_places()
    found = np.searchsorted(own, flat)
    safe = np.minimum(found, max(len(own) - 1, 0))
    missing = own[safe] != flat if len(own) else np.ones(len(flat), bool)
    zero = NAMESPACES["torch"]["zeros"](1, *x._held.shape[1:], dtype=x.dtype, device=x.device)
    return taken(NAMESPACES["torch"]["cat"]([x._held, zero]), np.where(missing, len(own), safe))


def _layout_expected(name: str, kind: str) -> Callable[..., Any]:
    def refuse(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected sparse {kind} tensor layout but got {LAYOUT_NAMES[self.layout]}")

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: it is of sparse {kind} tensors."
    return refuse


for _name in ("indices", "coalesce", "is_coalesced"):
    setattr(Tensor, _name, _layout_expected(_name, "coordinate"))
for _name in ("crow_indices", "col_indices"):
    setattr(Tensor, _name, _layout_expected(_name, "row compressed"))


def _no_values(self: Tensor) -> Any:
    raise RuntimeError(f"values expected sparse tensor layout but got {LAYOUT_NAMES[self.layout]}")


Tensor.values = _no_values
Tensor.layout = property(lambda self: strided)
Tensor.to_sparse, Tensor.to_sparse_coo, Tensor.to_sparse_csr, Tensor.to_dense = _to_sparse, _to_sparse, _to_csr, _to_dense
Tensor.sparse_mask = _sparse_mask
Tensor.sparse_dim = lambda self: 0
Tensor.dense_dim = lambda self: self._array.ndim

__all__ = ["at_places"]
