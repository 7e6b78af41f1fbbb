"""Rearrangements of sparse tensors: dimensions exchanged, selected, added, joined."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import NAMESPACES, dim_of
from dynagraph.torch.functions.sparse import COOTensor, CSRTensor, SparseTensor, coo, strides_of, taken

cat, zeros = NAMESPACES["torch"]["cat"], NAMESPACES["torch"]["zeros"]


def transpose(input: Any, dim0: int, dim1: int) -> Any:
    """With two dimensions exchanged, which both have coordinates, or both have none."""
    if isinstance(input, CSRTensor):
        raise RuntimeError(
            "transpose: a matrix in compressed rows would have compressed columns, which are not supported: call to_sparse_coo()"
        )
    rank, count = len(input._size), input.sparse_dim()
    a, b = dim_of(dim0, rank), dim_of(dim1, rank)
    if max(a, b) >= count:
        raise RuntimeError(f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {count}, d0: {a}, d1: {b}")
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    return permute(input, order)


def permute(input: Any, *dims: Any) -> Any:
    """With dimensions in another order; those with coordinates stay in front."""
    given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    rank, count = len(input._size), input.sparse_dim()
    order = [dim_of(d, rank) for d in given]
    if sorted(order) != list(range(rank)):
        raise RuntimeError(f"permute(dims): the dims must be a permutation of all {rank} dimensions, got {list(given)}")
    if any((d < count) != (k < count) for k, d in enumerate(order)):
        raise RuntimeError("permute: dimensions with coordinates and those without cannot be exchanged")
    if order == list(range(rank)):
        return input
    values = input._held
    if order[count:] != list(range(count, rank)):
        values = values.permute(0, *(d - count + 1 for d in order[count:]))
    is_coalesced = input._is_coalesced and order[:count] == list(range(count))
    return coo(wrap(input._places._array[order[:count]]), values, tuple(input._size[d] for d in order), is_coalesced)


def t(input: Any) -> Any:
    """The transpose of a matrix."""
    if len(input._size) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {len(input._size)}D tensor")
    return input if len(input._size) < 2 else transpose(input, 0, 1)


def unsqueeze(input: Any, dim: int) -> COOTensor:
    """With one more dimension of size 1."""
    rank, count = len(input._size), input.sparse_dim()
    k = dim_of(dim, rank + 1)
    size = (*input._size[:k], 1, *input._size[k:])
    if k > count:
        return coo(input._places, input._held.unsqueeze(k - count + 1), size, input._is_coalesced)
    return coo(wrap(np.insert(input._places._array, k, 0, axis=0)), input._held, size, input._is_coalesced)


def select(input: Any, dim: int, index: int) -> Any:
    """At one place along a dimension; strided where no coordinates are left."""
    x = input.to_sparse_coo()
    k = dim_of(dim, len(x._size))
    n = x._size[k]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x._size)} at dimension {k}")
    index, count = index % n, x.sparse_dim()
    size = (*x._size[:k], *x._size[k + 1 :])
    if k >= count:
        return coo(x._places, x._held.select(k - count + 1, index), size, x._is_coalesced)
    here = np.flatnonzero(x._places._array[k] == index)
    values = taken(x._held, here)
    if count == 1:
        return values.sum(0)
    return coo(wrap(np.delete(x._places._array[:, here], k, axis=0)), values, size, x._is_coalesced)


def index_select(input: Any, dim: int, index: Tensor) -> COOTensor:
    """At places along a dimension, in their order."""
    x = input.to_sparse_coo()
    k, count = dim_of(dim, len(x._size)), x.sparse_dim()
    wanted = index._array
    if wanted.size and not -1 < int(wanted.min()) <= int(wanted.max()) < x._size[k]:
        raise IndexError(f"index_select(): index out of range for tensor of size {list(x._size)} at dimension {k}")
    size = (*x._size[:k], len(wanted), *x._size[k + 1 :])
    if k >= count:
        return coo(x._places, x._held.index_select(k - count + 1, index), size, x._is_coalesced)
    row = x._places._array[k]
    order = np.argsort(row, kind="stable")
    first, behind = (np.searchsorted(row[order], wanted, side) for side in ("left", "right"))
    counts = behind - first
    target = np.repeat(np.arange(len(wanted)), counts)
    source = order[np.repeat(first, counts) + np.arange(len(target)) - np.repeat(np.cumsum(counts) - counts, counts)]
    places = x._places._array[:, source]
    places[k] = target
    order = np.argsort(strides_of(size[:count]) @ places, kind="stable")
    return coo(wrap(places[:, order]), taken(x._held, source[order]), size, x._is_coalesced)


def _sliced(x: Any, dim: int, item: slice) -> COOTensor:
    start, stop, step = item.indices(x._size[dim])
    return index_select(x, dim, wrap(np.arange(start, stop, step)))


def get(self: Any, key: Any) -> Any:
    """``x[0, :, index]``: ints, slices with positive steps, and one tensor of places."""
    items = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [i for i in items if not isinstance(i, Tensor)]:
        place = next(n for n, i in enumerate(items) if i is Ellipsis)
        items[place : place + 1] = [slice(None)] * (len(self._size) - len([i for i in items if i is not None]) + 1)
    x, dim = self, 0
    for item in items:
        if item is None:
            x, dim = unsqueeze(x, dim), dim + 1
        elif isinstance(item, slice):
            x = x if item == slice(None) else _sliced(x, dim, item)
            dim += 1
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            x = select(x, dim, int(item)) if isinstance(x, SparseTensor) else x.select(dim, int(item))
        elif isinstance(item, Tensor) and item.dim() == 1 and item.dtype.category == 1:
            x, dim = index_select(x, dim, item), dim + 1
        else:
            raise NotImplementedError(f"a sparse tensor is not indexed by {type(item).__name__}: call to_dense() first")
    return x


def concatenated(tensors: Any, dim: int = 0) -> COOTensor:
    """One behind the other along a dimension."""
    parts = [x.to_sparse_coo() for x in tensors]
    first = parts[0]
    k, count = dim_of(dim, len(first._size)), first.sparse_dim()
    if any(p.sparse_dim() != count or len(p._size) != len(first._size) for p in parts):
        raise RuntimeError("cat: sparse tensors must have the same numbers of sparse and of dense dimensions")
    if any(p._size[:k] + p._size[k + 1 :] != first._size[:k] + first._size[k + 1 :] for p in parts):
        raise RuntimeError("cat: sizes of sparse tensors must match except in the dimension of concatenation")
    total = 0
    places, values = [], []
    for p in parts:
        own = p._places._array.copy()
        if k < count:
            own[k] += total
            values.append(p._held)
        else:
            before = [*p._held.shape]
            sizes = [n._size[k] for n in parts]
            axis = k - count + 1
            before[axis] = total
            behind = list(before)
            behind[axis] = int(np.sum(sizes)) - total - p._size[k]
            values.append(cat([zeros(before, dtype=p.dtype), p._held, zeros(behind, dtype=p.dtype)], axis))
        places.append(own)
        total += p._size[k]
    size = (*first._size[:k], total, *first._size[k + 1 :])
    return coo(wrap(np.concatenate(places, 1)), cat(values), size, False)


__all__ = ["concatenated", "get", "index_select", "permute", "select", "t", "transpose", "unsqueeze"]
