"""Views of parts: select, narrow, split, chunk, unbind, diagonal, unfold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.primitives import PRIMITIVES, Primitive, define
from dynagraph.torch.core.tensor import Tensor, view
from dynagraph.torch.functions.common import check_tensor, dim_of, function, integer
from dynagraph.torch.functions.shape_primitives import DIAGONAL, SELECT, SLICE, UNFOLD


@function()
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """The part at one place along a dimension, without it."""
    x = check_tensor(input, "select", "input")
    if not x._array.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    k, n = dim_of(dim, x._array.ndim), int(index)
    length = x._array.shape[k]
    if not -length <= n < length:
        raise IndexError(f"select(): index {n} out of range for tensor of size {list(x._array.shape)} at dimension {k}")
    return view(SELECT, x, dim=k, index=n + length if n < 0 else n)


def slice_along(x: Tensor, dim: int, start: int, length: int, step: int = 1, p: Primitive = SLICE) -> Tensor:
    """`length` elements along a dimension, from `start` on."""
    shape = x._array.shape
    starts = tuple(start if k == dim else 0 for k in range(len(shape)))
    steps = tuple(step if k == dim else 1 for k in range(len(shape)))
    return view(p, x, starts=starts, steps=steps, shape=(*shape[:dim], length, *shape[dim + 1 :]))


@function()
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements along a dimension, from `start` on."""
    x = check_tensor(input, "narrow", "input")
    if not x._array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    k, first = dim_of(dim, x._array.ndim), int(start)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    size = x._array.shape[k]
    if not -size <= first <= size:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{size}, {size}], but got {first})")
    if first < 0:
        first += size
    if first + length > size:
        raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return slice_along(x, k, first, length)


def _pieces(x: Tensor, dim: int, sizes: Sequence[int], name: str = "SplitBackward0") -> tuple[Tensor, ...]:
    """Views of consecutive parts: outputs of one function, which must not be written to."""
    found, start = [], 0
    for k, n in enumerate(sizes):
        piece = slice_along(x, dim, start, n, p=_SPLITS[name])
        piece._view_kind = f"multi {k}"
        found.append(piece)
        start += n
    return tuple(found)


_SPLITS = {
    name: define(name, SLICE.forward, SLICE.vjps, ("",), backward=name, is_view=True)
    for name in ("SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0")
}


@function()
def split(tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> tuple[Tensor, ...]:
    """Views of parts of one size, the last one smaller, or of the sizes given."""
    if split_size_or_sections is None:
        split_size_or_sections = split_size
    if not tensor._array.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    k = dim_of(dim, tensor._array.ndim)
    size = tensor._array.shape[k]
    split_size_or_sections = integer(split_size_or_sections)
    if isinstance(split_size_or_sections, int):
        each = split_size_or_sections
        if each < 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={each}")
        if each == 0 and size:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        count = max((size + each - 1) // each, 1) if each else 1
        sizes = [min(each, size - k * each) if size else 0 for k in range(count)]
        return _pieces(tensor, k, sizes)
    sizes = [int(n) for n in split_size_or_sections]
    if sum(sizes) != size:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {k}), but got "
            f"split_sizes={sizes}"
        )
    return _pieces(tensor, k, sizes, "SplitWithSizesBackward0")


@function()
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of the sizes given."""
    return split(input, list(split_sizes), dim)


@function()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most so many parts of one size."""
    if not input._array.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = integer(chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = input._array.shape[dim_of(dim, input._array.ndim)]
    each = (size + chunks - 1) // chunks
    return split(input, [0] * chunks, dim) if size == 0 else split(input, each, dim)


def _parts_of_split(who: str, *given: Any) -> Any:
    """How to split, which may be given by one of several names."""
    found = [value for value in given if value is not None]
    if len(found) != 1:
        raise TypeError(f"{who}() received an invalid combination of arguments: expected either sections or indices")
    return found[0]


@function()
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None
) -> tuple[Tensor, ...]:
    """Views of parts, as equal as can be, or between the places given."""
    indices_or_sections = _parts_of_split("tensor_split", indices_or_sections, sections, indices)
    if not input._array.ndim:
        raise RuntimeError(f"tensor_split expected at least a 1-dimensional tensor, but got a tensor with {input._array.ndim} dims")
    k = dim_of(dim, input._array.ndim)
    size = input._array.shape[k]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections._array.tolist()
    indices_or_sections = integer(indices_or_sections)
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {n}")
        sizes = [size // n + (1 if j < size % n else 0) for j in range(n)]
        starts = [sum(sizes[:j]) for j in range(n)]
    else:
        cuts = [0, *(min(max(c + size if c < 0 else c, 0), size) for c in indices_or_sections), size]
        starts = cuts[:-1]
        sizes = [max(b - a, 0) for a, b in itertools.pairwise(cuts)]
    return tuple(slice_along(input, k, start, n) for start, n in zip(starts, sizes))


def _split_along(name: str, axis: int, least: int) -> None:
    def compute(
        input: Tensor, indices_or_sections: Any = None, *, sections: Any = None, indices: Any = None
    ) -> tuple[Tensor, ...]:
        indices_or_sections = _parts_of_split(name, indices_or_sections, sections, indices)
        rank = input._array.ndim
        if rank < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {rank} dimensions!"
            )
        k = axis if rank > 1 else 0
        if isinstance(indices_or_sections, int):
            size = input._array.shape[k]
            if indices_or_sections <= 0 or size % indices_or_sections:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {k}, but the size of the dimension {size} is not divisible "
                    f"by the split_size {indices_or_sections}!"
                )
        return tensor_split(input, indices_or_sections, k)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`tensor_split` along dimension {axis}, into parts of one size."
    function(name)(compute)


_split_along("hsplit", 1, 1)
_split_along("vsplit", 0, 2)
_split_along("dsplit", 2, 3)


@function()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts along a dimension, without it: views."""
    if not input._array.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    k = dim_of(dim, input._array.ndim)
    found = []
    for n in range(input._array.shape[k]):
        part = view(_UNBIND, input, "", dim=k, index=n)
        part._view_kind = f"multi {n}"
        found.append(part)
    return tuple(found)


_UNBIND = define("unbind_part", SELECT.forward, SELECT.vjps, ("",), backward="UnbindBackward0", is_view=True)


@function()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last: a view."""
    a, b = dim_of(dim1, input._array.ndim), dim_of(dim2, input._array.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return view(DIAGONAL, input, offset=offset, dim1=a, dim2=b)


@function(namespace="")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` along a dimension, as a last dimension: a view."""
    k = dim_of(dimension, self._array.ndim)
    length = self._array.shape[k] if self._array.ndim else 1
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {k} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return view(UNFOLD, self, dim=k, size=size, step=step)


@function()
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs along a last dimension: a view."""
    if input._array.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return view(PRIMITIVES["view_as_real"], input)


@function()
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs along the last dimension as complex numbers: a view."""
    if input._array.dtype.kind != "f":
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{dtypes.scalar_name(input.dtype)}"
        )
    if not input._array.ndim or input._array.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input._array.strides[-1] != input._array.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return view(PRIMITIVES["view_as_complex"], input)
