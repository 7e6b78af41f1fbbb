"""Diagonals, blocks and repeats: tensors whose elements are put at places that shapes and numbers say."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array, put_beside
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.storage import address_of
from dynagraph.torch.core.tensor import Tensor, apply, check_write, made, storage_of
from dynagraph.torch.functions.common import NUMBERS, cast, check_tensor, dim_of, function, number_as, promoted
from dynagraph.torch.functions.places import change, check_complex_gradient, check_places, define_store, is_batched
from dynagraph.torch.functions.selection import index_select
from dynagraph.torch.functions.shape_primitives import store_diagonal
from dynagraph.torch.functions.shapes import clone, contiguous_format, expand, flatten, reshape, unsqueeze
from dynagraph.torch.functions.splitting import diagonal

# -- parts replaced -------------------------------------------------------------------------------------------------------


def _replacing(name: str, part: str, backward: str) -> Any:
    """A primitive that is its first operand with one part, which a view reads, replaced by the second."""
    read = PRIMITIVES[part]

    def forward(x: Any, source: Any, **attrs: Any) -> Any:
        result = x.copy(order="K")
        read.forward(result, **attrs)[...] = source
        return result

    def by_self(d: Any, g: Any) -> Any:
        return g.call(name, g.full(0, d.y.shape), **d.attrs)

    return define(name, forward, (by_self, lambda d, g: g.call(part, **d.attrs)), ("", ""), backward=backward)


SELECT_SCATTER = _replacing("select_scatter", "select", "SelectScatterBackward0")
SLICE_SCATTER = _replacing("slice_scatter", "slice", "SliceScatterBackward0")


def _diagonal_scatter(x: Any, source: Any, offset: int, dim1: int, dim2: int) -> Any:
    result = x.copy(order="K")
    store_diagonal(result, source, offset, dim1, dim2)
    return result


DIAGONAL_SCATTER = define(
    "diagonal_scatter", _diagonal_scatter,
    (
        lambda d, g: g.call("diagonal_scatter", g.full(0, d.y.shape), **d.attrs),
        lambda d, g: g.call("diagonal", **d.attrs),
    ),
    ("", ""),
    backward="DiagonalScatterBackward0",
)  # fmt: skip


def _as_strided_scatter(x: Any, source: Any, **attrs: Any) -> Any:
    result = np.empty_like(x, order="K")
    result[...] = x
    PRIMITIVES["as_strided"].forward(result, **attrs)[...] = source
    return result


AS_STRIDED_SCATTER = define(
    "as_strided_scatter", _as_strided_scatter,
    (lambda d, g: g.call("zero_part", **d.attrs), lambda d, g: g.call("take_part", **d.attrs)), ("", ""),
    backward="AsStridedScatterBackward0",
)  # fmt: skip


def _check_part(source: Tensor, shape: tuple[int, ...]) -> None:
    if source._array.shape != shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(source._array.shape)}, slice size = "
            f"{list(shape)}"
        )


@function(out=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """The tensor with the slice of one number along `dim` replaced."""
    x = check_tensor(input, "select_scatter", "input")
    k = dim_of(dim, x._array.ndim)
    shape = x._array.shape
    if not -shape[k] <= index < shape[k]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {k}")
    _check_part(check_tensor(src, "select_scatter", "src", 2), (*shape[:k], *shape[k + 1 :]))
    check_complex_gradient("select_scatter", x, src)
    return apply(SELECT_SCATTER, x, cast(src, x.dtype), dim=k, index=int(index) % shape[k])


@function(out=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """The tensor with a slice along `dim` replaced."""
    x = check_tensor(input, "slice_scatter", "input")
    k = dim_of(dim, x._array.ndim)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    shape = x._array.shape
    first, last, _ = slice(start, end, step).indices(shape[k])
    count = (last - first + step - 1) // step if first < last else 0
    part = (*shape[:k], count, *shape[k + 1 :])
    _check_part(check_tensor(src, "slice_scatter", "src", 2), part)
    starts = tuple(first if j == k else 0 for j in range(len(shape)))
    steps = tuple(step if j == k else 1 for j in range(len(shape)))
    check_complex_gradient("slice_scatter", x, src)
    return apply(SLICE_SCATTER, x, cast(src, x.dtype), starts=starts, steps=steps, shape=part)


@function(out=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The tensor with a diagonal replaced."""
    x = check_tensor(input, "diagonal_scatter", "input")
    _check_part(check_tensor(src, "diagonal_scatter", "src", 2), diagonal(x.detach(), offset, dim1, dim2)._array.shape)
    a, b = dim_of(dim1, x._array.ndim), dim_of(dim2, x._array.ndim)
    return apply(DIAGONAL_SCATTER, x, cast(src, x.dtype), offset=offset, dim1=a, dim2=b)


@function(out=True)
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """The tensor with the elements that shape and strides choose from its memory replaced."""
    x = check_tensor(input, "as_strided_scatter", "input")
    shape, strides = tuple(map(int, size)), tuple(map(int, stride))
    array, item = x._array, x._array.itemsize
    own = (address_of(array) - storage_of(x).start()) // item if array.size else 0
    offset = 0 if storage_offset is None else int(storage_offset) - own
    reach = offset + sum((n - 1) * s for n, s in zip(shape, strides)) + 1 if 0 not in shape else 0
    if reach > array.size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize {item} requiring a "
            f"storage size of {reach * item} are out of bounds for storage of size {array.nbytes}"
        )
    _check_part(check_tensor(src, "as_strided_scatter", "src", 2), shape)
    base = tuple(s // item for s in array.strides)
    return apply(AS_STRIDED_SCATTER, x, cast(src, x.dtype), shape=shape, strides=strides, offset=offset, base=base)


# -- diagonals --------------------------------------------------------------------------------------------------------------

DIAG_EMBED = define(
    "diag_embed", PRIMITIVES["put_diagonal"].forward, PRIMITIVES["put_diagonal"].vjps, ("",), backward="DiagEmbedBackward0"
)
DIAG_COPY = define(
    "diag_copy", lambda x, offset: np.diagonal(x, offset).copy(),
    (lambda d, g: g.call("put_diagonal", base=d.x.shape, offset=d.attrs["offset"], dim1=0, dim2=1),), ("",),
    backward="DiagonalBackward0_copy",
)  # fmt: skip


@function(out=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the elements of the last dimension on a diagonal, zeros elsewhere."""
    x = check_tensor(input, "diag_embed", "input")
    rank = x._array.ndim + 1
    a, b = dim_of(dim1, rank), dim_of(dim2, rank)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = x._array.shape[-1] + abs(offset)
    rest = iter(x._array.shape[:-1])
    shape = tuple(n if k in (a, b) else next(rest) for k in range(rank))
    return apply(DIAG_EMBED, x, base=shape, offset=offset, dim1=a, dim2=b)


@function(out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """Of a vector a matrix with it on a diagonal; of a matrix a copy of a diagonal."""
    x = check_tensor(input, "diag", "input")
    if x._array.ndim == 1:
        return diag_embed(x, diagonal)
    if x._array.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x._array.ndim}D")
    return apply(DIAG_COPY, x, offset=diagonal)


@function()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all of a tensor's elements on a diagonal."""
    return diag_embed(flatten(check_tensor(input, "diagflat", "input")), offset)


@function(namespace="")
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Store a number in the main diagonal; with `wrap` of a tall matrix in those that follow, too."""
    shape = self._array.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    check_write(self)
    number = fill_value._array.item() if isinstance(fill_value, Tensor) else fill_value
    return change(FILL_DIAGONAL, self, value=number_as(number, self._array.dtype, self.dtype), wrap=bool(wrap) and len(shape) == 2)


@at_capture
def _diagonal_places(shape: tuple[int, ...], wrap: bool) -> tuple[np.ndarray, ...]:
    """Where the main diagonal is; with `wrap` of a tall matrix those that follow, too, with one row between them."""
    if not wrap:
        return (np.arange(min(shape)),) * len(shape)
    rows, columns = shape
    numbers = np.arange(rows)
    numbers = numbers[numbers % (columns + 1) < columns]
    return numbers, numbers % (columns + 1)


def _fill_diagonal(array: Any, value: Any, wrap: bool) -> None:
    array[tuple(put_beside(places, array) for places in _diagonal_places(array.shape, wrap))] = value


FILL_DIAGONAL = define_store(
    "fill_diagonal", _fill_diagonal, (lambda d, g: g.call("fill_diagonal", value=0, wrap=d.attrs["wrap"]),), ("",),
    order="K", backward="FillDiagonalBackward0",
)  # fmt: skip


# -- blocks, repeats, combinations --------------------------------------------------------------------------------------------


def _block_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    return (1, math.prod(shape)) if len(shape) < 2 else shape  # type: ignore[return-value]


def _block_diag(*blocks: Any) -> Any:
    shapes = [_block_shape(b.shape) for b in blocks]
    result = library_of_array(blocks[0]).zeros((sum(r for r, _ in shapes), sum(c for _, c in shapes)), blocks[0].dtype)
    row = column = 0
    for block, (rows, columns) in zip(blocks, shapes):
        result[row : row + rows, column : column + columns] = block
        row, column = row + rows, column + columns
    return result


def _block_diag_back(d: Any, g: Any) -> list[Any]:
    found: list[Any] = []
    row = column = 0
    for k, block in enumerate(d.operands):
        rows, columns = _block_shape(block.shape)
        found.append(g.part((row, column), (rows, columns)).reshape(block.shape) if d.needs(k) else None)
        row, column = row + rows, column + columns
    return found


BLOCK_DIAG = define("block_diag", _block_diag, _block_diag_back, "", backward="BlockDiagBackward0")


@function(method=False)
def block_diag(*tensors: Any) -> Tensor:
    """A matrix with other matrices along its diagonal; vectors are rows, numbers blocks of one element."""
    given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if not given:
        return made(np.zeros((1, 0), dtypes.get_default_dtype().numpy))
    for k, x in enumerate(given):
        if check_tensor(x, "block_diag", "tensors")._array.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {x._array.ndim} dimensions"
            )
    return apply(BLOCK_DIAG, *promoted("block_diag", *given))


@function(method=False)
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element, or each slice along `dim`, so many times; of numbers alone: each place as often as its number says."""
    x = check_tensor(input, "repeat_interleave", "input")
    if repeats is None:
        return _repeated_places(x, output_size)
    if dim is None:
        x = flatten(x)
    k = dim_of(0 if dim is None else dim, x._array.ndim)
    if not x._array.ndim:
        if isinstance(repeats, NUMBERS):
            dim_of(1, 0)
        x = reshape(x, 1)
    if isinstance(repeats, NUMBERS):
        count = int(repeats)
        if count < 0:
            raise RuntimeError("Repeats must be non-negative")
        shape = x._array.shape
        wide = expand(unsqueeze(x, k + 1), (*shape[: k + 1], count, *shape[k + 1 :]))
        if not math.prod(wide._array.shape):
            return reshape(wide, (*shape[:k], shape[k] * count, *shape[k + 1 :]))
        return flatten(clone(wide, memory_format=contiguous_format), k, k + 1)
    counts = repeats if isinstance(repeats, Tensor) else made(library_of_array(x._array).asarray(repeats))
    size = x._array.shape[k]
    if counts._array.size == 1 and counts._array.ndim <= 1:
        counts = expand(reshape(counts, 1), (size,))
    elif counts._array.ndim == 1 and counts._array.size != size:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts._array.size} and "
            f"input.size({k}) = {size}"
        )
    return index_select(x, k, _repeated_places(counts, output_size))


def _repeat_interleave(self: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element, or each slice along `dim`, so many times."""
    return repeat_interleave(self, repeats, dim, output_size=output_size)


Tensor.repeat_interleave = _repeat_interleave  # type: ignore[attr-defined]


def _repeated_places(repeats: Tensor, output_size: int | None) -> Tensor:
    array = repeats._array
    if array.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if array.dtype not in (np.int64, np.int32):
        raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{dtypes.scalar_name(repeats.dtype)}'")
    check_places(array, 0, 1 << 62, lambda found: RuntimeError("repeats can not be negative"))
    if output_size is not None:
        if not is_batched(array) and array.sum() != output_size:
            raise RuntimeError("allocated size does not match required size")
        return made(np.searchsorted(np.cumsum(array), library_of_array(array).arange(output_size), "right").astype(array.dtype))
    return made(np.repeat(library_of_array(array).arange(array.size, dtype=array.dtype), array))


@at_capture
def _choices(n: int, r: int, with_replacement: bool) -> np.ndarray:
    """All choices of `r` of `n` numbers, one behind the other."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return np.fromiter(itertools.chain.from_iterable(choose(range(n), r)), np.int64)


@function(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, as rows."""
    x = check_tensor(input, "combinations", "input")
    if x._array.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(x._array.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return made(library_of_array(x._array).empty(0, x._array.dtype))
    places = _choices(x._array.size, r, with_replacement)
    return reshape(index_select(x, 0, made(put_beside(places, x._array))), (places.size // r, r))


__all__ = ["block_diag", "diag", "diag_embed", "repeat_interleave"]
