"""Elements that masks or flat places choose, read and written: masked_*, take, put, index_put, nonzero."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, is_on_gpu, library_of_array, ufunc_at
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, check_write, made, operand_of_write, wrap, write
from dynagraph.torch.functions.common import cast, check_broadcast, check_tensor, dim_of, function, number_as
from dynagraph.torch.functions.indexing import INDEX_PUT, to_chosen
from dynagraph.torch.functions.places import change, check_places, define_store, is_batched, nothing, store_flat, storing
from dynagraph.torch.functions.selection import gather
from dynagraph.torch.functions.shapes import expand, flatten

# -- masks --------------------------------------------------------------------------------------------------------------


def _fill(array: Any, mask: Any, value: Any) -> None:
    np.copyto(array, value, where=mask)


def _fill_tensor(array: Any, value: Any, mask: Any) -> None:
    np.copyto(array, value, where=mask)


def _both(x: Any, mask: Any) -> tuple[Any, Any]:
    return tuple(np.broadcast_arrays(x, mask))  # type: ignore[return-value]


def _masked_select(x: Any, mask: Any) -> Any:
    x, mask = _both(x, mask)
    return x[mask]


def _masked_put(g: Any, mask: Any, shape: Any) -> Any:
    """Zeros, with the elements of a vector where a mask holds."""
    result = library_of_array(g).zeros(shape, g.dtype)
    result[np.broadcast_to(mask, shape)] = g
    return result


def _ranks(mask: Any, shape: tuple[int, ...], count: int) -> Any:
    """For each element of a shape how many before it a mask chooses, below `count`."""
    return np.clip(np.cumsum(np.broadcast_to(mask, shape).reshape(-1)) - 1, 0, max(count - 1, 0))


def _masked_scatter(array: Any, source: Any, mask: Any) -> None:
    mask = np.broadcast_to(mask, array.shape)
    if is_compiling() and source.size:  # of a size that is known
        given = source.reshape(-1)[_ranks(mask, array.shape, source.size)].reshape(array.shape)
        array[...] = np.where(mask, given, array)
    elif source.size:
        array[mask] = source.reshape(-1)[: int(np.count_nonzero(mask))]


def _masked_source(g: Any, mask: Any, shape: Any) -> Any:
    """Where a mask holds, as the first elements of a shape; zeros behind these."""
    count = math.prod(shape)
    result = library_of_array(g).zeros(count, g.dtype)
    if is_compiling() and count:
        ufunc_at(np.add, result, _ranks(mask, g.shape, count), np.where(mask, g, 0).reshape(-1))
    elif count:
        found = g[np.broadcast_to(mask, g.shape)]
        result[: found.size] = found
    return result.reshape(shape)


def _broadcast(d: Any, k: int) -> tuple[int, ...]:
    return np.broadcast_shapes(d.x.shape, d.operands[k].shape)


MASKED_FILL_NUMBER = define_store(
    "masked_fill_number", _fill, (lambda d, g: g.full(0, ()).where(d.y, g), nothing), ("y", ""), backward="MaskedFillBackward0"
)
MASKED_FILL_TENSOR = define_store(
    "masked_fill_tensor", _fill_tensor,
    (lambda d, g: g.full(0, ()).where(d.operands[2], g), lambda d, g: g.where(d.operands[2], 0), nothing), ("z", "z", ""),
    backward="MaskedFillBackward1",
)  # fmt: skip
MASKED_SELECT = define(
    "masked_select", _masked_select, (lambda d, g: g.call("masked_put", d.y, shape=_broadcast(d, 1)), nothing), ("y", ""),
    backward="MaskedSelectBackward0",
)  # fmt: skip
define("masked_put", _masked_put, (lambda d, g: g.call("masked_select", d.y), nothing), ("y", ""))
MASKED_SCATTER = define_store(
    "masked_scatter", _masked_scatter,
    (
        lambda d, g: g.full(0, ()).where(d.operands[2], g),
        lambda d, g: g.call("masked_source", d.operands[2], shape=d.y.shape),
        nothing,
    ),
    ("z", "z", ""),
    backward="MaskedScatterBackward0",
)  # fmt: skip
define(
    "masked_source", _masked_source,
    (lambda d, g: g.full(0, d.x.shape).call("masked_scatter", g, d.y), nothing), ("y", ""),
)  # fmt: skip


def _check_mask(mask: Any, who: str) -> None:
    check_tensor(mask, who, "mask", 2)
    if mask._array.dtype.kind != "b":
        name = _C_TYPES.get(mask.dtype.name, mask.dtype.name)
        raise RuntimeError(f"{who}_ only supports boolean masks, but got mask with dtype {name}")


_C_TYPES = {
    "int64": "long int", "uint8": "unsigned char", "int32": "int", "float32": "float", "float64": "double", "int16": "short int",
    "int8": "signed char",
}  # fmt: skip


def _fitting(x: Tensor, mask: Tensor) -> Tensor:
    """The tensor, expanded to what it and a mask broadcast to."""
    shape = check_broadcast(mask, x)
    return x if x._array.shape == shape else expand(x, shape)


def _check_in_place(x: Tensor, mask: Tensor) -> None:
    shape = check_broadcast(mask, x)
    if shape != x._array.shape:
        raise RuntimeError(f"output with shape {list(x._array.shape)} doesn't match the broadcast shape {list(shape)}")


def _fill_operands(x: Tensor, mask: Tensor, value: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value._array.ndim} dimension(s)."
            )
        if is_on_gpu(x._array):
            value = value.to(x.device)  # type: ignore[attr-defined]
        return MASKED_FILL_TENSOR, (x, cast(value, x.dtype), mask), {}
    return MASKED_FILL_NUMBER, (x, mask), {"value": number_as(value, x._array.dtype, x.dtype)}


@function()
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A number where a mask holds, the tensor's elements elsewhere."""
    x = check_tensor(input, "masked_fill", "input")
    _check_mask(mask, "masked_fill")
    p, operands, attrs = _fill_operands(_fitting(x, mask), mask, value)
    return apply(p, *operands, **attrs)


@function("masked_fill_", namespace="")
def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Store a number where a mask holds."""
    check_write(self, overlap=False)
    if any(s == 0 and n > 1 for n, s in zip(self._array.shape, self._array.strides)):
        warnings.warn(
            "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
            "This also applies to advanced indexing e.g. tensor[mask] = scalar",
            UserWarning,
            stacklevel=2,
        )
    _check_mask(mask, "masked_fill")
    _check_in_place(self, mask)
    p, operands, attrs = _fill_operands(self, mask, value)
    return change(p, *operands, **attrs)


@function(out=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask holds, as a vector."""
    x = check_tensor(input, "masked_select", "input")
    check_tensor(mask, "masked_select", "mask", 2)
    if mask._array.dtype.kind != "b":
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    check_broadcast(mask, x)
    return apply(MASKED_SELECT, x, mask)


def _check_source(x: Tensor, mask: Tensor, source: Tensor) -> None:
    check_tensor(source, "masked_scatter", "source", 3)
    if source._array.dtype != x._array.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got{dtypes.scalar_name(x.dtype)} and "
            f"{dtypes.scalar_name(source.dtype)}"
        )
    check_tensor(mask, "masked_scatter", "mask", 2)
    if mask._array.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {dtypes.scalar_name(mask.dtype)}")


def _check_enough(shape: tuple[int, ...], mask: Tensor, source: Tensor) -> None:
    if not is_batched(mask._array) and np.count_nonzero(np.broadcast_to(mask._array, shape)) > source._array.size:
        raise RuntimeError("Number of elements of source < number of ones in mask")


@function()
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source`, one after the other, where a mask holds; the tensor's elements elsewhere."""
    x = check_tensor(input, "masked_scatter", "input")
    _check_source(x, mask, source)
    whole = _fitting(x, mask)
    _check_enough(whole._array.shape, mask, source)
    return apply(MASKED_SCATTER, whole, source, mask)


@function("masked_scatter_", namespace="")
def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Store the elements of `source`, one after the other, where a mask holds."""
    check_write(self)
    _check_source(self, mask, source)
    _check_in_place(self, mask)
    _check_enough(self._array.shape, mask, source)
    return change(MASKED_SCATTER, self, source, mask)


# -- flat places --------------------------------------------------------------------------------------------------------


def _put(array: Any, source: Any, index: Any, accumulate: bool) -> None:
    places = np.where(index < 0, index + array.size, index)
    store_flat(array, places, source.reshape(index.shape), np.add if accumulate else None)


def _put_zeros(g: Any, index: Any, shape: Any) -> Any:
    result = library_of_array(g).zeros(shape, g.dtype)
    _put(result, g, index, True)
    return result


def _put_by_self(d: Any, g: Any) -> Any:
    if d.attrs["accumulate"]:
        return g
    index = d.operands[2]
    return g.call("put", g.full(0, index.shape), index, accumulate=False)


TAKE = define(
    "take", lambda x, index: np.take(x, index), (lambda d, g: g.call("put_zeros", d.y, shape=d.x.shape), nothing), ("y", ""),
    backward="TakeBackward0",
)  # fmt: skip
define("put_zeros", _put_zeros, (lambda d, g: g.call("take", d.y), nothing), ("y", ""))
PUT = define_store(
    "put", _put, (_put_by_self, lambda d, g: g.call("take", d.operands[2]).reshape(d.y.shape), nothing), ("z", "z", ""),
    backward="PutBackward0",
)  # fmt: skip


def _check_flat(who: str, x: Tensor, index: Tensor) -> None:
    check_tensor(index, who.removesuffix("_"), "index", 2)
    if index._array.dtype != np.int64:
        raise RuntimeError(f"{who}(): Expected a long tensor for index, but got {dtypes.scalar_name(index.dtype)}")
    size = x._array.size
    if not size and index._array.size:
        what = "take from" if who == "take" else "put elements into"
        raise IndexError(f"{who}(): tried to {what} an empty tensor")
    check_places(
        index._array, -size, size,
        lambda found: IndexError(f"out of range: tried to access index {found} on a tensor of {size} elements."),
    )  # fmt: skip


@function(out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at places in the tensor read as one row; negative ones count from the end."""
    x = check_tensor(input, "take", "input")
    _check_flat("take", x, index)
    return apply(TAKE, x, index) if x._array.size else apply(PRIMITIVES["new_zeros"], x, shape=index._array.shape)


@storing()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    """Elements of `source` stored, or with `accumulate` added, at places in the tensor read as one row."""
    x = check_tensor(input, "put", "input")
    check_tensor(source, "put", "source", 3)
    if index._array.size != source._array.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source._array.size}, index.numel() = {index._array.size}"
        )
    if source._array.dtype != x._array.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {dtypes.scalar_name(x.dtype)} and "
            f"source.dtype = {dtypes.scalar_name(source.dtype)}"
        )
    _check_flat("put_", x, index)
    return PUT, (x, source, index), {"accumulate": accumulate}


@function(out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, with the index broadcast to the other dimensions; without `dim` from the tensor as one row."""
    x = check_tensor(input, "take_along_dim", "input")
    if check_tensor(indices, "take_along_dim", "indices", 2)._array.dtype != np.int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {dtypes.scalar_name(indices.dtype)}")
    if dim is None:
        return gather(flatten(x), 0, flatten(indices))
    if x._array.ndim != indices._array.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{x._array.ndim} dimensions for input, and {indices._array.ndim} dimensions for indices"
        )
    k = dim_of(dim, x._array.ndim)
    own, at = list(x._array.shape), list(indices._array.shape)
    if own:
        own[k] = at[k] = 1
    common = list(check_broadcast(wrap(np.empty(own, bool)), wrap(np.empty(at, bool))))
    wanted = [n if j != k else m for j, (n, m) in enumerate(zip(common, x._array.shape))]
    chosen = [n if j != k else m for j, (n, m) in enumerate(zip(common, indices._array.shape))]
    if own:  # PyTorch takes places modulo the size here
        indices = made(np.remainder(indices._array, max(x._array.shape[k], 1)))
    return gather(expand(x, wanted), k, expand(indices, chosen))


# -- several dimensions -------------------------------------------------------------------------------------------------


def _index_put_operands(x: Tensor, indices: Any, values: Any, accumulate: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    for k, index in enumerate(indices):
        if not isinstance(index, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 1, but got {type(index).__name__}")
    if not isinstance(values, Tensor):
        raise TypeError(f"index_put(): argument 'values' (position 3) must be Tensor, not {type(values).__name__}")
    if values._array.dtype != x._array.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {dtypes.scalar_name(x.dtype)} for the destination "
            f"and {dtypes.scalar_name(values.dtype)} for the source."
        )
    places = _places(x, indices)
    chosen = (*places[0]._array.shape, *x._array.shape[len(places) :])
    return INDEX_PUT, (x, to_chosen(values, chosen), *places), {"axes": tuple(range(len(places))), "accumulate": accumulate}


def _places(x: Tensor, indices: Any) -> list[Tensor]:
    """Tensors of places, and masks, as tensors of places of one shape, for the first dimensions."""
    found: list[Any] = []
    for index in indices:
        array = index._array
        if array.dtype.kind == "b" or array.dtype == np.uint8:
            for k, n in enumerate(array.shape):
                at = len(found) + k
                if at >= x._array.ndim or x._array.shape[at] != n:
                    raise IndexError(
                        f"The shape of the mask {list(array.shape)} at index {k} does not match the shape of the indexed tensor "
                        f"{list(x._array.shape)} at index {at}"
                    )
            found += np.nonzero(array)
        elif array.dtype.kind in "iu":
            found.append(array.astype(np.int64, copy=False))
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if not found:
        raise RuntimeError("index_put(): at least one index is needed")
    if len(found) > x._array.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x._array.ndim} (got {len(found)})")
    try:
        shape = np.broadcast_shapes(*(f.shape for f in found))
    except ValueError:
        shapes = ", ".join(str(list(f.shape)) for f in found)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    for k, places in enumerate(found):
        size = x._array.shape[k]
        check_places(places, -size, size, _beyond(k, size))
    return [wrap(np.broadcast_to(f, shape)) for f in found]


def _beyond(dim: int, size: int) -> Any:
    return lambda found: IndexError(f"index {found} is out of bounds for dimension {dim} with size {size}")


@function()
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Values stored, or with `accumulate` added, at places of the first dimensions: ``x[indices] = values``."""
    p, operands, attrs = _index_put_operands(check_tensor(input, "index_put", "input"), indices, values, accumulate)
    return apply(p, *operands, **attrs)


@function("index_put_")
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Store values, or with `accumulate` add them, at places of the first dimensions."""
    check_write(input)
    p, (x, *others), attrs = _index_put_operands(input, indices, values, accumulate)
    return write(x, apply(p, operand_of_write(x, others), *others, **attrs))


# -- what is not zero ---------------------------------------------------------------------------------------------------


def _nonzero(array: Any) -> Any:
    if not array.ndim:
        return library_of_array(array).zeros((int(np.count_nonzero(array)), 0), np.int64)
    return np.argwhere(array)


def _columns(array: Any) -> tuple[Tensor, ...]:
    return tuple(made(in_c_order(found)) for found in np.nonzero(np.atleast_1d(array)))


@function(out=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The places of the elements that are not zero: as rows of a matrix, or as a tuple of vectors, one for each dimension."""
    x = check_tensor(input, "nonzero", "input")
    return _columns(x._array) if as_tuple else made(_nonzero(x._array))


@function()
def argwhere(input: Tensor) -> Tensor:
    """The places of the elements that are not zero, as rows of a matrix."""
    return made(_nonzero(check_tensor(input, "argwhere", "input")._array))


@function(out=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """As `nonzero`, with as many rows as asked for: missing ones are filled."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    x = check_tensor(input, "nonzero_static", "input")
    return apply(NONZERO_STATIC, x, size=size, fill_value=fill_value)


def _nonzero_static(x: Any, size: int, fill_value: int) -> Any:
    chosen = (x != 0).reshape(-1)
    rank = np.cumsum(chosen) - 1
    places = library_of_array(x).full(size + 1, -1, np.int64)
    places[np.where(chosen & (rank < size), rank, size)] = library_of_array(x).arange(chosen.size)
    places = places[:size]
    result = library_of_array(x).full((size, x.ndim), fill_value, np.int64)
    behind = 1
    for k in range(x.ndim - 1, -1, -1):
        result[:, k] = np.where(places < 0, fill_value, places // behind % max(x.shape[k], 1))
        behind *= max(x.shape[k], 1)
    return result


NONZERO_STATIC = define("nonzero_static", _nonzero_static)


__all__ = ["MASKED_SELECT", "TAKE", "index_put", "masked_fill", "masked_select", "nonzero", "take"]
