"""Arrays at places: how elements are read, stored and combined by their index along a dimension, and stored in place.

Nothing here knows of gradients but `change`, the in-place form of what stores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import any_wrong, library_of_array, put_beside, ufunc_at
from dynagraph.torch.core.batching import BatchedArray
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, check_write, operand_of_write, quiet, write, written
from dynagraph.torch.functions.common import function

# -- arrays -----------------------------------------------------------------------------------------------------------


def flat_places(index: Any, shape: tuple[int, ...], dim: int) -> Any:
    """Where the elements of an index along a dimension stand in an array of a shape, in C order; the index has as many "
    "dimensions."""
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    offsets: Any = 0
    for k, n in enumerate(index.shape):
        if k != dim and n > 1:
            steps = library_of_array(index).arange(n) * strides[k]
            offsets = offsets + steps.reshape((1,) * k + (n,) + (1,) * (len(shape) - k - 1))
    places = index.astype(np.int64, copy=False)
    places = places * strides[dim] if strides and strides[dim] != 1 else places
    return np.broadcast_to(places + offsets, index.shape)


def row_places(index: Any, shape: tuple[int, ...], dim: int) -> Any:
    """As `flat_places`, of whole slices: a vector of their numbers along a dimension."""
    whole = _with(shape, dim, index.shape[0])
    return flat_places(np.broadcast_to(index.reshape((-1,) + (1,) * (len(shape) - dim - 1)), whole), shape, dim)


def store_flat(array: Any, places: Any, values: Any, combine: Any = None) -> None:
    """Store at places of an array in C order, or combine with what is there by a ufunc."""
    flat = array.reshape(-1)
    at, given = places.reshape(-1), np.broadcast_to(put_beside(values, array), places.shape).reshape(-1)
    if combine is None:
        flat[at] = given
    elif is_half(array.dtype):  # accumulated as float32, rounded once
        wide = flat.astype(np.float32)
        ufunc_at(combine, wide, at, given.astype(np.float32))
        flat[...] = wide.astype(array.dtype)
    else:
        ufunc_at(combine, flat, at, given.astype(array.dtype, copy=False))
    if not array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)


_WIDE = 128  # elements of a slice, from which on adding slice after slice costs less than finding all flat places


def add_rows(array: Any, index: Any, values: Any, dim: int) -> None:
    """Add slices to those along a dimension whose numbers are given."""
    if is_compiling() and dim == 0 and type(array) is np.ndarray and not is_half(array.dtype):  # the array is written where it is
        ufunc_at(np.add, array, index, np.broadcast_to(values, _with(array.shape, dim, index.size)).astype(array.dtype, copy=False))
        return
    wide = array.size >= _WIDE * max(array.shape[dim], 1) and not is_half(array.dtype)
    if not wide or is_compiling() or type(array) is not np.ndarray:
        store_flat(array, row_places(index, array.shape, dim), values, np.add)
        return
    rows, given = np.moveaxis(array, dim, 0), np.moveaxis(np.broadcast_to(values, _with(array.shape, dim, index.size)), dim, 0)
    for k, number in enumerate(index.tolist()):
        rows[number] += given[k]


def _with(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def leading(x: Any, shape: tuple[int, ...]) -> Any:
    """The first elements along each dimension: as many as a shape says."""
    return x if x.shape == shape else x[tuple(map(slice, shape))]


def at_slices(dim: int, index: Any) -> Any:
    """The key of slices along a dimension."""
    return (slice(None),) * dim + (index,)


_MANY = 4096  # elements, from which on computing flat places costs less than NumPy's way through all dimensions


def elements_at(x: Any, index: Any, dim: int) -> Any:
    """The elements at an index along a dimension, in C order; the index may be smaller along the others."""
    if not x.ndim:
        return np.take(x.reshape(1), index)
    if x.ndim > 1 and index.size >= _MANY and x.flags.c_contiguous:
        return x.reshape(-1)[flat_places(index, x.shape, dim)]
    rest = index.shape[:dim] + (x.shape[dim],) + index.shape[dim + 1 :]
    found = np.take_along_axis(leading(x, rest), index, dim)
    return found if found.flags.c_contiguous else found.copy(order="C")


def elements_added(g: Any, index: Any, shape: tuple[int, ...], dim: int) -> Any:
    """Zeros, with elements added at an index along a dimension."""
    made = library_of_array(g).zeros(shape, g.dtype)
    store_flat(made, flat_places(index, shape, dim), g, np.add)
    return made


def is_unknown(array: Any) -> bool:
    """Whether nothing can depend on an array's values: in captured code, and of examples under `vmap`."""
    return is_compiling() or type(array) is BatchedArray


def is_batched(array: Any) -> bool:
    """Whether an array is of examples under `vmap`, whose values nothing is asked about."""
    return type(array) is BatchedArray


def check_places(index: Any, low: int, size: int, refuse: Callable[[int], Exception]) -> None:
    """Raise what `refuse` makes of the first number that is below `low`, or not below `size`."""
    if not is_compiling() and (not index.size or (int(index.min()) >= low and int(index.max()) < size)):
        return
    outside = (index < low) | (index >= size)
    if any_wrong(outside):
        raise refuse(int(index.reshape(-1)[np.argmax(outside.reshape(-1))]))


def nothing(d: Any, g: Any) -> None:
    """The gradient by an index."""
    return


GATHER = define(
    "gather_along", elements_at,
    (lambda d, g: g.call("scatter_add_zeros", d.y, shape=d.x.shape, dim=d.attrs["dim"]), nothing), ("y", ""),
    backward="GatherBackward0",
)  # fmt: skip
define("scatter_add_zeros", elements_added, (lambda d, g: g.call("gather_along", d.y, dim=d.attrs["dim"]), nothing), ("y", ""))


def check_complex_gradient(who: str, x: Tensor, *others: Tensor) -> None:
    """RuntimeError where a gradient of complex numbers is asked for that PyTorch does not have."""
    if mode.grad and x._array.dtype.kind == "c" and any(t.requires_grad for t in (x, *others)):
        raise RuntimeError(f"{who} does not support automatic differentiation for outputs with complex dtype.")


# -- what stores ------------------------------------------------------------------------------------------------------

_STORES: dict[str, Callable[..., None]] = {}


def define_store(name: str, store: Callable[..., None], vjps: Any, saves: Any, order: Any = "C", **about: Any) -> Primitive:
    """A primitive that is its first operand with something stored in it: ``store(array, *others, **attrs)`` does so."""

    def forward(x: Any, *others: Any, **attrs: Any) -> Any:
        # a gradient without dimensions may be NumPy's scalar, whose copies cannot be written to
        made = np.array(x) if isinstance(x, np.generic) else x.copy(order=order)
        store(made, *others, **attrs)
        return made

    _STORES[name] = store
    return define(name, forward, vjps, saves, **about)


def change(p: Primitive, x: Tensor, *others: Any, **attrs: Any) -> Tensor:
    """Store in a tensor, in place: without a copy of it where nothing is recorded.  `check_write` has been called."""
    for other in others:
        if isinstance(other, Tensor) and other._storage is x._storage:
            check_overlap(x._array, other._array)
    array = x._array
    arrays = [o._array if isinstance(o, Tensor) else o for o in others]
    recorded = mode.grad and (x.requires_grad or any(isinstance(o, Tensor) and o.requires_grad for o in others))
    if recorded or is_compiling() or any(type(a) is BatchedArray for a in (array, *arrays)):
        return write(x, apply(p, operand_of_write(x, others), *others, **attrs))
    own = [a.copy() if hasattr(a, "strides") and np.may_share_memory(a, array) else a for a in arrays]
    quiet(_STORES[p.name], (array, *own), attrs)
    written(x)
    return x


def check_overlap(array: Any, other: Any) -> None:
    """RuntimeError where what is written to and what is read are the same memory; masks may be."""
    if isinstance(array, BatchedArray) or other.dtype.kind == "b" or not np.may_share_memory(array, other):
        return
    if all(a.transpose(sorted(range(a.ndim), key=lambda k: -a.strides[k])).flags.c_contiguous for a in (array, other)):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def storing(name: str = "", *, method: bool = True, out: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Declare a function that stores in its first argument, with its in-place form.

    What is decorated checks the arguments and gives the primitive, its operands and its attributes.
    """

    def declare(prepare: Callable[..., Any]) -> Callable[..., Tensor]:
        own = name or prepare.__name__

        @functools.wraps(prepare)
        def compute(*args: Any, **kwargs: Any) -> Tensor:
            p, operands, attrs = prepare(*args, **kwargs)
            return apply(p, *operands, **attrs)

        @functools.wraps(prepare)
        def changing(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            check_write(self)
            p, (_, *others), attrs = prepare(self, *args, **kwargs)
            return change(p, self, *others, **attrs)

        compute.__name__ = compute.__qualname__ = own
        changing.__name__ = changing.__qualname__ = f"{own}_"
        setattr(Tensor, f"{own}_", changing)
        return function(own, method=method, out=out)(compute)

    return declare


__all__ = [
    "GATHER", "add_rows", "at_slices", "change", "check_complex_gradient", "check_places", "define_store", "elements_added",
    "elements_at", "flat_places", "is_batched", "is_unknown", "leading", "nothing", "row_places", "store_flat", "storing",
]  # fmt: skip
