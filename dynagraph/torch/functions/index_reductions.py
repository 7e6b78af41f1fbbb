"""What scatter_reduce and index_reduce do: elements that are sent to places combined there, and the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array, ufunc_at
from dynagraph.torch.functions.places import define_store, flat_places, leading, row_places, store_flat

_FLAT_COMBINE = {"sum": np.add, "prod": np.multiply, "mean": np.add, "amax": np.maximum, "amin": np.minimum}
_FIRST = {"sum": 0, "prod": 1, "mean": 0}


def _reduce_at(array: Any, places: Any, values: Any, reduce: str, include_self: bool) -> None:
    """Combine the values at each place, and, with `include_self`, what stood there."""
    if array.dtype.itemsize == 2 and array.dtype.kind in "fV":
        wide = array.astype(np.float32)
        _reduce_at(wide, places, values.astype(np.float32), reduce, include_self)
        array[...] = wide.astype(array.dtype)
        return
    if not include_self:
        store_flat(array, places, _first(reduce, array.dtype))
    store_flat(array, places, values, _FLAT_COMBINE[reduce])
    if reduce == "mean":
        counts = library_of_array(array).full(array.size, 1 if include_self else 0)
        ufunc_at(np.add, counts, places.reshape(-1), 1)
        counts = np.maximum(counts, 1).reshape(array.shape)
        if array.dtype.kind in "iu":
            array[...] = np.floor_divide(array, counts)
        else:
            array[...] = array / counts


def _first(reduce: str, dtype: np.dtype) -> Any:
    """What changes nothing that it is combined with."""
    if reduce in _FIRST:
        return dtype.type(_FIRST[reduce])
    if dtype.kind == "f":
        return dtype.type(-np.inf if reduce == "amax" else np.inf)
    if dtype.kind == "b":
        return reduce == "amin"
    limits = np.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _scatter_reduce(array: Any, src: Any, index: Any, dim: int, reduce: str, include_self: bool) -> None:
    _reduce_at(array, flat_places(index, array.shape, dim), leading(src, index.shape), reduce, include_self)


def _index_reduce(array: Any, src: Any, index: Any, dim: int, reduce: str, include_self: bool) -> None:
    _reduce_at(array, row_places(index, array.shape, dim), src, reduce, include_self)


class _Along:
    """How the gradients of scatter_reduce and of index_reduce read and add at an index along a dimension."""

    def __init__(self, d: Any, index: Any, rows: bool):
        self.index, self.dim, self.rows, self.d = index, d.attrs["dim"], rows, d

    def read(self, x: Any) -> Any:
        if self.rows:
            return x.call("index_select", self.index, dim=self.dim)
        return x.call("gather_along", self.index, dim=self.dim)

    def used(self, src: Any) -> Any:
        """What of the source is read."""
        if self.rows or src.shape == self.index.shape:
            return src
        return src.part((0,) * src.ndim, self.index.shape)

    def add(self, x: Any, values: Any) -> Any:
        return x.call("index_add" if self.rows else "scatter_add", values, self.index, dim=self.dim)

    def again(self, x: Any, values: Any) -> Any:
        return x.call("index_reduce" if self.rows else "scatter_reduce", values, self.index, **self.d.attrs)

    def without(self, g: Any) -> Any:
        """Zeros at the index."""
        return g.call("index_zero" if self.rows else "scatter_zero", self.index, dim=self.dim)

    def by_source(self, found: Any, shape: Any) -> Any:
        if found.shape == shape:
            return found
        return found.call("put_slice", base=shape, starts=(0,) * len(shape), steps=(1,) * len(shape))


def _reduce_back(rows: bool) -> Any:
    def vjp(d: Any, g: Any) -> list[Any]:
        x, src, index = d.operands
        along = _Along(d, index, rows)
        by_x, by_src = _REDUCED[d.attrs["reduce"]](d, g, x, src, along)
        if not d.attrs["include_self"]:
            by_x = along.without(by_x)
        return [by_x, along.by_source(by_src, src.shape), None]

    return vjp


def _sum_back(d: Any, g: Any, x: Any, src: Any, along: _Along) -> tuple[Any, Any]:
    return g, along.read(g)


def _mean_back(d: Any, g: Any, x: Any, src: Any, along: _Along) -> tuple[Any, Any]:
    used = along.used(src)
    counts = along.add(g.full(1 if d.attrs["include_self"] else 0, g.shape), g.full(1, used.shape))
    share = g / counts.number(1).where(counts.equals(0), counts)
    return share, along.read(share)


def _extreme_back(d: Any, g: Any, x: Any, src: Any, along: _Along) -> tuple[Any, Any]:
    """In equal shares to all that are the extreme."""
    stayed = x.equals(d.out).cast(g.dtype)
    came = along.used(src).equals(along.read(d.out)).cast(g.dtype)
    share = g / along.add(stayed, came)
    return stayed * share, came * along.read(share)


def _prod_back(d: Any, g: Any, x: Any, src: Any, along: _Along) -> tuple[Any, Any]:
    """The product of the others: where one value alone is zero, of all but this."""
    used = along.used(src)
    one = x.number(1)
    some = one.where(x.equals(0), x)
    by_x = g * (along.again(some, src) / some).conj
    zero = used.equals(0)
    count = along.read(along.add(x.full(0, x.shape), zero.cast(x.dtype)))
    alone = zero.call("logical_and", count.equals(1))
    others = one.where(alone, used)
    without = along.read(g * along.again(x, others).conj)
    with_all = along.read(g * d.out.conj) / one.where(zero, used).conj
    return by_x, without.where(alone, with_all)


_REDUCED = {"sum": _sum_back, "mean": _mean_back, "amax": _extreme_back, "amin": _extreme_back, "prod": _prod_back}


SCATTER_REDUCE = define_store("scatter_reduce", _scatter_reduce, _reduce_back(False), "xyzo", backward="ScatterReduceBackward0")
INDEX_REDUCE = define_store("index_reduce", _index_reduce, _reduce_back(True), "xyzo", backward="IndexReduceBackward0")

__all__ = ["INDEX_REDUCE", "SCATTER_REDUCE"]
