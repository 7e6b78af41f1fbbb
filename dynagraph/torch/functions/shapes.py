"""Sizes, strides and shapes of tensors, and views that change them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.storage import address_of
from dynagraph.torch.core.tensor import AS_STRIDED, Tensor, apply, as_view, storage_of, view
from dynagraph.torch.functions.common import as_sequence, check_broadcast, check_tensor, dim_of, dims_of, function, sizes_of
from dynagraph.torch.functions.pointwise_primitives import COPY
from dynagraph.torch.functions.shape_primitives import (
    _RESHAPE_ALIAS,
    _SQUEEZE_ONE,
    _SQUEEZE_SOME,
    ALIAS,
    EXPAND,
    PERMUTE,
    RESHAPE,
    SQUEEZE,
    TRANSPOSE,
    UNSQUEEZE,
    VIEW,
    T,
    shares,
)


@function(namespace="")
def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or its size along a dimension."""
    return Size(self._array.shape) if dim is None else self._array.shape[dim_of(dim, self._array.ndim)]


@function(namespace="")
def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements of memory lie between neighbours, along each dimension."""
    strides = tuple(s // self._array.itemsize for s in self._array.strides)
    if not self._array.size and 0 in strides:  # of new arrays without elements NumPy says so
        sizes = [max(n, 1) for n in self._array.shape]
        strides = tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes)))
    return strides if dim is None else strides[dim_of(dim, self._array.ndim)]


@function(namespace="")
def storage_offset(self: Tensor) -> int:
    """How many elements of the storage lie before the first."""
    return (address_of(self._array) - storage_of(self).start()) // self._array.itemsize if self._array.size else 0


@function()
def numel(input: Tensor) -> int:
    """How many elements there are."""
    return int(input._array.size)


Tensor.nelement = numel  # type: ignore[attr-defined]
Tensor.dim = Tensor.ndimension = lambda self: self._array.ndim  # type: ignore[attr-defined]


def _is_dense_in(x: Tensor, order: Sequence[int]) -> bool:
    expected = x._array.itemsize
    for k in order:
        n = x._array.shape[k]
        if n != 1:
            if x._array.strides[k] != expected:
                return False
            expected *= n
    return True


class memory_format:
    """How the dimensions of images lie in memory."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


contiguous_format, channels_last, preserve_format, channels_last_3d = map(
    memory_format, ("contiguous_format", "channels_last", "preserve_format", "channels_last_3d")
)
_ORDERS = {channels_last: (1, 3, 2, 0), channels_last_3d: (1, 4, 3, 2, 0)}


@function(namespace="")
def is_contiguous(self: Tensor, *, memory_format: memory_format = contiguous_format) -> bool:
    """Whether its elements lie in memory in order."""
    if memory_format in _ORDERS:
        order = _ORDERS[memory_format]
        return self._array.ndim == len(order) and _is_dense_in(self, order)
    return bool(self._array.flags.c_contiguous)


@function(namespace="")
def contiguous(self: Tensor, *, memory_format: memory_format = contiguous_format) -> Tensor:
    """The tensor, if its elements lie in memory in order; otherwise a copy of which that is true."""
    if is_contiguous(self, memory_format=memory_format):
        return self
    return _in_format(self, memory_format)


def _in_format(x: Tensor, form: memory_format) -> Tensor:
    if form in _ORDERS:
        order = tuple(reversed(_ORDERS[form]))
        if x._array.ndim != len(order):
            raise RuntimeError(f"required rank {len(order)} tensor to use {form.name} format")
        back = tuple(map(order.index, range(len(order))))
        return permute(apply(PRIMITIVES["contiguous"], permute(x, order)), back)
    return apply(PRIMITIVES["contiguous"] if not x._array.flags.c_contiguous else COPY, x)


@function()
def clone(input: Tensor, *, memory_format: memory_format = preserve_format) -> Tensor:
    """A copy."""
    if memory_format is preserve_format or (memory_format is contiguous_format and input._array.flags.c_contiguous):
        return apply(COPY, input)
    return _in_format(input, memory_format)


# -- shapes -----------------------------------------------------------------------------------------------------------


@at_capture
def _inferred(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """With the size that is -1 found from the others."""
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if any(n < -1 for n in shape):
        raise RuntimeError(f"invalid shape dimension {next(n for n in shape if n < -1)}")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be "
                "any value and is ambiguous"
            )
        if count % rest == 0:
            return tuple(count // rest if n == -1 else n for n in shape)
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    if math.prod(shape) != count:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return shape


@function("view", namespace="")
def view_(self: Tensor, *shape: Any, dtype: DType | None = None, size: Any = None) -> Tensor:
    """The same memory in another shape, or its bits as another dtype; RuntimeError where that would need a copy."""
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], DType)):
        return _view_dtype(self, dtype or shape[0])
    sizes = _inferred(sizes_of(shape if size is None else (size,), "view"), self._array.size)
    return view(VIEW, self, shape=sizes)


def _view_dtype(x: Tensor, target: DType) -> Tensor:
    array, wanted = x._array, target.numpy
    if wanted == array.dtype:
        return view(ALIAS, x)
    if wanted.itemsize != array.itemsize:
        if not array.ndim:
            raise RuntimeError(
                f"self.dim() cannot be 0 to view {dtypes.scalar_name(x.dtype)} as {dtypes.scalar_name(target)} (different element "
                "sizes)"
            )
        if array.strides[-1] != array.itemsize and array.shape[-1] != 1:
            raise RuntimeError(
                f"self.stride(-1) must be 1 to view {dtypes.scalar_name(x.dtype)} as {dtypes.scalar_name(target)} (different "
                f"element sizes), but got {array.strides[-1] // array.itemsize}"
            )
        if (array.shape[-1] * array.itemsize) % wanted.itemsize:
            raise RuntimeError(
                f"self.size(-1) must be divisible by {wanted.itemsize // array.itemsize} to view {dtypes.scalar_name(x.dtype)} as "
                f"{dtypes.scalar_name(target)} (different element sizes), but got {array.shape[-1]}"
            )
    result = as_view(ALIAS, x.detach(), array.view(wanted), {})
    result._base = x if x._base is None else x._base
    result._storage = storage_of(x)
    return result


@function()
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """In another shape: a view where the memory allows one, otherwise a copy."""
    x = check_tensor(input, "reshape", "input")
    sizes = _inferred(sizes_of(sizes if shape is None else (shape,), "reshape"), x._array.size)
    array = np.reshape(x._array, sizes)
    p = VIEW if x._array.flags.c_contiguous else _RESHAPE_ALIAS
    return as_view(p, x, array, {"shape": sizes}) if shares(array, x._array) else apply(RESHAPE, x, shape=sizes)


@function(namespace="")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same memory in another tensor's shape."""
    return view_(self, other._array.shape)


@function(namespace="")
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """In another tensor's shape."""
    return reshape(self, other._array.shape)


@function()
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """With a range of dimensions made one."""
    x = check_tensor(input, "flatten", "input")
    if not x._array.ndim:
        return reshape(x, 1)
    first, last = dim_of(start_dim, x._array.ndim), dim_of(end_dim, x._array.ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return x
    shape = x._array.shape
    return reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@function()
def ravel(input: Tensor) -> Tensor:
    """As one dimension."""
    return view_(contiguous(input), -1)


@function()
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """With a dimension made several."""
    k = dim_of(dim, input._array.ndim)
    shape, given = input._array.shape, tuple(sizes)
    if -1 not in given and math.prod(given) != shape[k]:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(given)} don't multiply up to the size of dim {k} ({shape[k]}) in the input tensor"
        )
    return view_(input, (*shape[:k], *_inferred(given, shape[k]), *shape[k + 1 :]))


@function(inplace=False)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without the dimensions of size 1, or without those of `dim` that are."""
    x = check_tensor(input, "squeeze", "input")
    shape = x._array.shape
    dims = dims_of(dim if dim is None or not isinstance(dim, (tuple, list)) or dim else (), x._array.ndim)
    if isinstance(dim, (tuple, list)) and not dim:
        dims = ()
    p = SQUEEZE if dim is None else _SQUEEZE_SOME if isinstance(dim, (tuple, list)) else _SQUEEZE_ONE
    return view(p, x, shape=tuple(n for k, n in enumerate(shape) if n != 1 or k not in dims))


@function()
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of size 1 put in."""
    x = check_tensor(input, "unsqueeze", "input")
    k = dim_of(dim, x._array.ndim + 1)
    shape = x._array.shape
    return view(UNSQUEEZE, x, shape=(*shape[:k], 1, *shape[k:]))


@function()
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """With two dimensions exchanged."""
    x = check_tensor(input, "transpose", "input")
    a, b = dim_of(dim0, x._array.ndim), dim_of(dim1, x._array.ndim)
    if not x._array.ndim:
        return view(ALIAS, x)
    axes = list(range(x._array.ndim))
    axes[a], axes[b] = b, a
    return view(TRANSPOSE, x, axes=tuple(axes))


@function(aliases=())
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    x = check_tensor(input, "t", "input")
    if x._array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x._array.ndim}D")
    return view(T, x, axes=tuple(reversed(range(x._array.ndim))))


@function(method=False)
def permute(input: Tensor, dims: Any) -> Tensor:
    """With its dimensions in another order."""
    x = check_tensor(input, "permute", "input")
    given = tuple(dims)
    if len(given) != x._array.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {x._array.ndim} is not equal to len(dims) = {len(given)}"
        )
    axes = tuple(dim_of(k, x._array.ndim) for k in given)
    if len(set(axes)) != len(axes):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return view(PERMUTE, x, axes=axes)


Tensor.permute = lambda self, *given, dims=None: permute(self, sizes_of(given if dims is None else (dims,), "permute"))


def _all_reversed(x: Tensor) -> Tensor:
    return permute(x, tuple(reversed(range(x._array.ndim))))


Tensor.T = property(_all_reversed)  # type: ignore[attr-defined]
Tensor.mT = property(lambda x: transpose(_matrices(x, "mT"), -2, -1))  # type: ignore[attr-defined]
Tensor.H = property(lambda x: transpose(x, 0, 1).conj())  # type: ignore[attr-defined]
Tensor.mH = property(lambda x: transpose(_matrices(x, "mH"), -2, -1).conj())  # type: ignore[attr-defined]


def _matrices(x: Tensor, who: str) -> Tensor:
    if x._array.ndim < 2:
        raise RuntimeError(f"tensor.{who} is only supported on matrices or batches of matrices. Got {x._array.ndim}-D tensor.")
    return x


@function()
def swapaxes(input: Tensor, axis0: Any, axis1: Any) -> Tensor:
    """As `transpose`."""
    return transpose(input, axis0, axis1)


function("swapdims")(transpose)


@function("adjoint")
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    return transpose(input, -2, -1).conj()


@function(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """With some dimensions at other places, the others in order."""
    ndim = input._array.ndim
    froms, tos = (as_sequence(v) for v in (source, destination))
    if len(froms) != len(tos):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(froms)} dims) should contain the same number of dims as "
            f"destination ({list(tos)} dims)"
        )
    froms, tos = tuple(dim_of(k, ndim) for k in froms), tuple(dim_of(k, ndim) for k in tos)
    for what, dims in (("source", froms), ("destination", tos)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({list(dims)})")
    axes = [k for k in range(ndim) if k not in froms]
    for to, source_dim in sorted(zip(tos, froms)):
        axes.insert(to, source_dim)
    return permute(input, axes)


@function(namespace="")
def expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated without a copy; -1 keeps a size."""
    wanted, shape = sizes_of(sizes if size is None else (size,), "expand"), self._array.shape
    if len(wanted) < len(shape):
        raise RuntimeError(
            f"expand(torch.{dtypes.scalar_name(self.dtype)}Tensor{{{list(shape)}}}, size={list(wanted)}): the number of sizes "
            f"provided ({len(wanted)}) must be greater or equal to the number of dimensions in the tensor ({len(shape)})"
        )
    front = len(wanted) - len(shape)
    result = list(wanted)
    for k in range(len(wanted) - 1, -1, -1):
        n = wanted[k]
        have = shape[k - front] if k >= front else 1
        if n == -1:
            if k < front:
                raise RuntimeError(
                    f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {k}"
                )
            n = have
        elif have != 1 and have != n:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension {k}.  "
                f"Target sizes: {list(wanted)}.  Tensor sizes: {list(shape)}"
            )
        result[k] = n
    return view(EXPAND, self, shape=tuple(result))


@function(namespace="")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Expanded to another tensor's shape."""
    return expand(self, other._array.shape)


@function(method=False)
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Expanded to a shape."""
    return expand(input, tuple(size))


Tensor.broadcast_to = expand  # type: ignore[attr-defined]


@function(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to."""
    try:
        return Size(np.broadcast_shapes(*(s if isinstance(s, int) else tuple(s) for s in shapes)))
    except ValueError:
        raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape") from None


@function(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape; those that have it as they are."""
    given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = check_broadcast(*given)
    return tuple(x if x._array.shape == shape else expand(x, shape) for x in given)


def meshgrid_views(tensors: Sequence[Tensor], indexing: str) -> tuple[Tensor, ...]:
    """Vectors expanded along dimensions of their own; with "xy" the first two exchanged."""
    for x in tensors:
        if x._array.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x}")
    count = len(tensors)
    order = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    vectors = [reshape(x, -1) for x in tensors]
    shape = [0] * count
    for k, x in enumerate(vectors):
        shape[order[k]] = x._array.shape[0]
    return tuple(
        expand(view_(x, tuple(-1 if axis == order[k] else 1 for axis in range(count))), tuple(shape)) for k, x in enumerate(vectors)
    )


@function()
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage by sizes, strides and an offset; RuntimeError where it would reach beyond."""
    x = check_tensor(input, "as_strided", "input")
    shape, strides = tuple(size), tuple(stride)
    own = Tensor.storage_offset(x)  # type: ignore[attr-defined]
    offset = own if storage_offset is None else storage_offset
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in strides):
        raise RuntimeError("as_strided: Negative strides are not supported at the moment, got strides: " + str(list(strides)))
    storage = storage_of(x)
    reach = 0 if 0 in shape else (offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1) * x._array.itemsize
    if reach > storage.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize {x._array.itemsize} "
            f"requiring a storage size of {reach} are out of bounds for storage of size {storage.nbytes()}"
        )
    array = storage.at(x._array.dtype, shape, strides, offset)
    base = tuple(s // x._array.itemsize for s in x._array.strides)
    return as_view(AS_STRIDED, x, array, {"shape": shape, "strides": strides, "offset": offset - own, "base": base})
