"""``x[...]``: parts of tensors by numbers, slices, masks and tensors of places, read and written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph._core._dispatch import put_rows
from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, in_c_order, library_of_array, put_beside, ufunc_at
from dynagraph.torch.core.batching import BatchedArray
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, as_view, check_overlap, check_write, operand_of_write, wrap, write
from dynagraph.torch.functions.common import cast
from dynagraph.torch.functions.conversion import COPY_, to_device
from dynagraph.torch.functions.pointwise_primitives import empty_in_order
from dynagraph.torch.functions.shape_primitives import SELECT
from dynagraph.torch.functions.shapes import expand, unsqueeze, view_
from dynagraph.torch.functions.splitting import select, slice_along


def _take(x: Any, *places: Any, axes: tuple[int, ...]) -> Any:
    """Elements at places along some dimensions; the places' dimensions stand where the first of these did, if they are neighbours,
    and in front otherwise.
    """
    key: list[Any] = [slice(None)] * x.ndim
    for axis, place in zip(axes, places):
        key[axis] = place
    found = x[tuple(key)]
    if x.flags.c_contiguous or not isinstance(x, np.ndarray):
        return found if found.flags.c_contiguous else in_c_order(found)
    return _in_order_of(x, places, axes, found)


def _in_order_of(x: Any, places: Any, axes: tuple[int, ...], found: Any) -> Any:
    """What was found in an operand whose elements do not stand in order, in the memory order that PyTorch gives it."""
    first = places[0]
    if first.dtype.kind == "b" or not found.size:
        return in_c_order(found)
    rest = [x.strides[k] for k in range(x.ndim) if k not in axes]
    at = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else 0
    across = len(rest) - at
    source = (*rest[:at], *(0,) * first.ndim, *rest[at:])
    place = (*(0,) * at, *first.strides, *(0,) * across)
    made = empty_in_order(found.shape, x.dtype, source, place)
    made[...] = found
    return made


def has_row_kernels(g: Any, *places: Any) -> bool:
    """Whether `put_rows` takes these arrays; captures follow NumPy's functions."""
    return not is_compiling() and g.dtype.char in "fd" and all(type(a) is np.ndarray for a in (g, *places))


def _put(g: Any, *places: Any, axes: tuple[int, ...], base: tuple[int, ...]) -> Any:
    if has_row_kernels(g, *places) and axes == tuple(range(len(axes))) and all(p.dtype.kind == "i" for p in places):
        return _put_in_front(g, places, base)
    made = library_of_array(g).zeros(base, g.dtype)
    key: list[Any] = [slice(None)] * len(base)
    for axis, place in zip(axes, places):
        key[axis] = place
    if len(places) == 1 and places[0].dtype.kind == "b":
        made[tuple(key)] = g
    else:
        ufunc_at(np.add, made, tuple(key), g)
    return made


def _put_in_front(g: Any, places: tuple[Any, ...], base: tuple[int, ...]) -> Any:
    """As `_put` along the first dimensions: rows of a table that has all others in a row, in the same order."""
    count = len(places)
    sizes = base[:count]
    numbers = [np.where(p < 0, p + n, p) for p, n in zip(places, sizes)]
    rows = numbers[0] if count == 1 else np.ravel_multi_index(tuple(np.broadcast_arrays(*numbers)), sizes)
    return put_rows(g.reshape(rows.size, math.prod(base[count:])), rows, math.prod(sizes)).reshape(base)


def _index_back(d: Any, g: Any) -> list[Any]:
    places = d.operands[1:]
    found = g.call("index_put_zeros", *places, axes=d.attrs["axes"], base=d.x.shape) if d.needs(0) else None
    return [found, *(None for _ in places)]


INDEX = define("index", _take, _index_back, "1", backward="IndexBackward0")
define(
    "index_put_zeros",
    _put,
    lambda d, g: [g.call("index", *d.operands[1:], axes=d.attrs["axes"]) if d.needs(0) else None, *(None for _ in d.operands[1:])],
    "1",
)


def _put_into(x: Any, values: Any, *places: Any, axes: tuple[int, ...], accumulate: bool) -> Any:
    made = x.copy()
    key: list[Any] = [slice(None)] * x.ndim
    for axis, place in zip(axes, places):
        key[axis] = place
    if accumulate:
        ufunc_at(np.add, made, tuple(key), values)
    else:
        made[tuple(key)] = values
    return made


def _index_put_back(d: Any, g: Any) -> list[Any]:
    """Every source has the gradient at its place, also where others were stored there later."""
    places, attrs = d.operands[2:], d.attrs
    by_x = None
    if d.needs(0):
        zero = g.number(0)
        by_x = g if attrs["accumulate"] else g.call("index_put", zero, *places, axes=attrs["axes"], accumulate=False)
    by_values = g.call("index", *places, axes=attrs["axes"]) if d.needs(1) else None
    return [by_x, by_values, *(None for _ in places)]


INDEX_PUT = define("index_put", _put_into, _index_put_back, "2", backward="IndexPutBackward0")

_ADVANCED = (Tensor, list, np.ndarray)


def _parts(x: Tensor, key: Any) -> tuple[Tensor, list[Any], bool]:
    """A key's basic parts done as views; what is left of it: for each dimension None or a tensor of places.

    Gives the view, the places, and whether any are left.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    items = [wrap(put_beside(np.asarray(i), x._array)) if isinstance(i, (list, np.ndarray, range)) else i for i in items]
    used = sum(_dims_taken(i) for i in items)
    if used > x._array.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x._array.ndim}")
    if Ellipsis in [i for i in items if not isinstance(i, Tensor)]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [slice(None)] * (x._array.ndim - used)
        if any(i is Ellipsis for i in items):
            raise IndexError("an index can only have a single ellipsis ('...')")
    places: list[Any] = []
    dim = selected = 0
    for item in items:
        if item is None:
            x = unsqueeze(x, dim)
            places.append(None)
            dim += 1
        elif isinstance(item, slice):
            x = _sliced(x, dim, item)
            places.append(None)
            dim += 1
        elif isinstance(item, (bool, np.bool_)):
            x = unsqueeze(x, dim)
            places.append(wrap(library_of_array(x._array).zeros(1 if item else 0, np.int64)))
            dim += 1
        elif isinstance(item, (int, np.integer)) or (
            isinstance(item, Tensor)
            and not item._array.ndim
            and item._array.dtype.kind in "iu"
            and type(item._array) is not BatchedArray
        ):
            x = _selected(x, dim, int(item), dim + selected)
            selected += 1
        elif isinstance(item, Tensor):
            kind = item._array.dtype
            if kind.kind == "b" or kind == np.uint8:
                _check_mask(x, item, dim)
                if not item._array.ndim:
                    x = unsqueeze(x, dim)
                    places.append(wrap(library_of_array(x._array).zeros(1 if item._array else 0, np.int64)))
                    dim += 1
                else:
                    for found in np.nonzero(item._array):
                        places.append(wrap(found))
                        dim += 1
            elif kind.kind in "iu":
                places.append(item)
                dim += 1
            elif not item._array.size and item._array.dtype.kind == "f":
                places.append(wrap(item._array.astype(np.int64)))
                dim += 1
            else:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        else:
            raise (TypeError if isinstance(item, str) else IndexError)(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
                f"{type(item).__name__})"
            )
    return x, places, any(p is not None for p in places)


def _dims_taken(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor) and (item._array.dtype.kind == "b" or item._array.dtype == np.uint8):
        return item._array.ndim
    return 1


def _check_mask(x: Tensor, mask: Tensor, dim: int) -> None:
    for k, n in enumerate(mask._array.shape):
        if dim + k >= x._array.ndim or x._array.shape[dim + k] != n:
            raise IndexError(
                f"The shape of the mask {list(mask._array.shape)} at index {k} does not match the shape of the indexed tensor "
                f"{list(x._array.shape)} at index {dim + k}"
            )


def _beyond(low: int, high: int, size: int, axis: int) -> str:
    return f"index {high if high >= size else low} is out of bounds for dimension {axis} with size {size}"


def _selected(x: Tensor, dim: int, index: int, given: int | None = None) -> Tensor:
    """One place along a dimension; `given` is the dimension's number as the user counts."""
    size = x._array.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {dim if given is None else given} with size {size}")
    place, array = index + size if index < 0 else index, x._array
    if type(array) is not np.ndarray:
        return select(x, dim, place)
    found = array[place, ...] if not dim else array[(slice(None),) * dim + (place, ...)]  # warns of nothing: `quiet` is for others
    return as_view(SELECT, x, found, {"dim": dim, "index": place})


def _sliced(x: Tensor, dim: int, item: slice) -> Tensor:
    if item == slice(None):
        return x
    if item.step is not None and int(item.step) < 0:
        raise ValueError("step must be greater than zero")
    whole = slice(*(None if v is None else int(v) for v in (item.start, item.stop, item.step)))
    start, stop, step = whole.indices(x._array.shape[dim])
    length = (stop - start + step - 1) // step if start < stop else 0
    if length == x._array.shape[dim] and step == 1:
        return x
    return slice_along(x, dim, min(start, x._array.shape[dim]), length, step)


def _places_of(x: Tensor, places: list[Any]) -> tuple[Tensor, list[Tensor], tuple[int, ...], tuple[int, ...]]:
    """Places broadcast to one shape, and in bounds; the dimensions that they are of; the shape of what they choose."""
    axes = tuple(k for k, p in enumerate(places) if p is not None)
    found = [places[k] for k in axes]
    try:
        shape = np.broadcast_shapes(*(p._array.shape for p in found))
    except ValueError:
        shapes = ", ".join(str(list(p._array.shape)) for p in found)
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    for axis, place in zip(axes, found):
        size, array = x._array.shape[axis], place._array
        if array.size:
            low, high = array.min(), array.max()
            if type(array) is BatchedArray:
                low, high = int(low), int(high)  # of all examples
            if any_wrong((high >= size) | (low < -size)):
                raise IndexError(_beyond(int(low), int(high), size, axis))
    found = [p if p._array.dtype == np.int64 else wrap(p._array.astype(np.int64)) for p in found]
    return x, [wrap(np.broadcast_to(p._array, shape)) for p in found], axes, shape


def getitem(self: Tensor, key: Any) -> Tensor:
    if type(key) is int and self._array.ndim:
        return _selected(self, 0, key)
    x, places, advanced = _parts(self, key)
    if not advanced:
        return x if x is not self else view_(self, self._array.shape)
    x, found, axes, _ = _places_of(x, places)
    return apply(INDEX, x, *found, axes=axes)


def _chosen_shape(x: Tensor, axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of what places choose: these stand where they are neighbours, in front otherwise."""
    rest = [n for k, n in enumerate(x._array.shape) if k not in axes]
    at = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else 0
    return (*rest[:at], *shape, *rest[at:])


def setitem(self: Tensor, key: Any, value: Any) -> None:
    if isinstance(key, Tensor) and key._array.dtype.kind == "b" and not isinstance(value, Tensor):
        check_write(self, overlap=False)
        _check_mask(self, key, 0)
        from_number = wrap(put_beside(np.asarray(value).astype(self._array.dtype), self._array))
        mask = _full_mask(key, self)
        result = apply(MASKED_FILL, operand_of_write(self, ()), from_number, mask)
        write(self, result, mask._array if 0 in self._array.strides else True)
        return
    x, places, advanced = _parts(self, key)
    if not isinstance(value, Tensor):
        if isinstance(value, (bool, int, float, complex, np.generic)):
            value = wrap(_number(value, self._array.dtype))
        else:
            raise TypeError(f"can't assign a {type(value).__name__} to a {self.dtype.legacy and 'torch.' + self.dtype.legacy}")
    value = to_device(value, self.device)
    if not advanced:
        values = value
        while values._array.ndim > x._array.ndim and values._array.shape[0] == 1:
            values = view_(values, values._array.shape[1:])
        if values._array.shape != x._array.shape:
            if values._array.ndim > x._array.ndim:
                raise _mismatch(values, x._array.shape)
            values = expand(values, x._array.shape)
        values = cast(values, self.dtype)
        check_write(x, overlap=values is not x, others=(values,))
        check_overlap(x, (values,))
        _store(x, values)
        return
    check_write(x, overlap=False, others=(value,))
    is_fill = value._array.size == 1 and isinstance(key, Tensor) and key._array.dtype.kind == "b" and key._array.ndim > 0
    if not is_fill:
        check_overlap(x, (value, *(p for p in places if p is not None)), full=True)
    x, found, axes, shape = _places_of(x, places)
    if value.dtype is not self.dtype and not is_fill:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {dtypes.scalar_name(self.dtype)} for the destination "
            f"and {dtypes.scalar_name(value.dtype)} for the source."
        )
    chosen = _chosen_shape(x, axes, shape)
    while value._array.ndim > len(chosen) and value._array.shape[0] == 1:
        value = view_(value, value._array.shape[1:])
    value = cast(to_chosen(value, chosen), self.dtype)
    result = apply(INDEX_PUT, operand_of_write(x, (value,)), value, *found, axes=axes, accumulate=False)
    where: Any = True
    if 0 in x._array.strides and x._array.size:
        nowhere = library_of_array(x._array).zeros(x._array.shape, bool)
        where = _put_into(nowhere, True, *(p._array for p in found), axes=axes, accumulate=False)
    write(x, result, where)


def _number(value: Any, given: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(given)


def to_chosen(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A value in the shape of what places choose."""
    have = value._array.shape
    if have == shape:
        return value
    front = len(shape) - len(have)
    if front < 0 or any(n not in (1, m) for n, m in zip(have, shape[front:])):
        raise _mismatch(value, shape)
    return expand(value, shape)


def _mismatch(value: Tensor, shape: tuple[int, ...]) -> RuntimeError:
    return RuntimeError(
        f"shape mismatch: value tensor of shape {list(value._array.shape)} cannot be broadcast to indexing result of shape "
        f"{list(shape)}"
    )


def _store(x: Tensor, values: Tensor) -> None:
    """Write values of the same shape to a view, or to a whole tensor."""
    write(x, apply(COPY_, operand_of_write(x, (values,)), values))


def _full_mask(mask: Tensor, x: Tensor) -> Tensor:
    array = mask._array
    return wrap(np.broadcast_to(array.reshape(array.shape + (1,) * (x._array.ndim - array.ndim)), x._array.shape))


MASKED_FILL = define(
    "masked_fill",
    lambda x, value, mask: np.where(mask, value, x),
    (lambda d, g: g.full(0, ()).where(d.operands[2], g), lambda d, g: g.where(d.operands[2], 0), lambda d, g: None),
    ("z", "z", ""),
    backward="MaskedFillBackward0",
)
Tensor.__getitem__ = getitem  # type: ignore[attr-defined]
Tensor.__setitem__ = setitem  # type: ignore[attr-defined]

__all__ = ["INDEX", "INDEX_PUT", "MASKED_FILL"]
