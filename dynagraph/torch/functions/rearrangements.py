"""Rearrangements and copies: flip, roll, repeat, triangles, resize, detach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.relocation import is_alone, relocate
from dynagraph.torch.core.tensor import Tensor, apply, check_write, storage_of, written
from dynagraph.torch.functions.common import NAMESPACES, as_sequence, dim_of, dims_of, function, integer, sizes_of
from dynagraph.torch.functions.shapes import (
    as_strided,
    clone,
    contiguous_format,
    flatten,
    memory_format,
    reshape,
    squeeze,
    t,
    transpose,
    unsqueeze,
)
from dynagraph.torch.functions.splitting import chunk, split, split_with_sizes


@function(method=False)
def flip(input: Tensor, dims: Any) -> Tensor:
    """A copy in reverse order along dimensions."""
    given = as_sequence(dims)
    axes = dims_of(given, input._array.ndim) if given else ()
    return apply(PRIMITIVES["flip"], input, axes=axes)


Tensor.flip = lambda self, *given, dims=None: flip(self, sizes_of(given if dims is None else (dims,), "flip"))


@function()
def fliplr(input: Tensor) -> Tensor:
    """In reverse order along the second dimension."""
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@function()
def flipud(input: Tensor) -> Tensor:
    """In reverse order along the first dimension."""
    if not input._array.ndim:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@function()
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by 90 degrees so many times in the plane of two dimensions."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input._array.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input._array.ndim}")
    if dims[0] == dims[1]:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = (dim_of(d, input._array.ndim) for d in dims)
    turns = k % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, (a, b))
    return transpose(flip(input, (b,)), a, b) if turns == 1 else flip(transpose(input, a, b), (b,))


@function()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dimensions, those that leave coming in at the other end."""
    given = tuple(integer(n) for n in as_sequence(shifts))
    if dims is None or (isinstance(dims, tuple) and not dims):
        if len(given) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(given)}, dims:0")
        return reshape(roll(flatten(input), given[0], 0), input._array.shape)
    at = as_sequence(dims)
    if len(at) != len(given):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(given)}, dims:{len(at)}")
    return apply(PRIMITIVES["roll"], input, shifts=given, axes=tuple(dim_of(d, input._array.ndim) for d in at))


@function(namespace="")
def repeat(self: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """Copies of the tensor side by side: so many along each dimension."""
    given = sizes_of(counts if repeats is None else (repeats,), "repeat")
    if len(given) < self._array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in given):
        sizes = (1,) * (len(given) - self._array.ndim) + self._array.shape
        shape = [n * m for n, m in zip(given, sizes)]
        raise RuntimeError(f"Trying to create tensor with negative dimension {next(n for n in shape if n < 0)}: {shape}")
    return apply(PRIMITIVES["repeat"], self, repeats=given)


@function(method=False)
def tile(input: Tensor, dims: Any) -> Tensor:
    """Copies of the tensor side by side; missing dimensions come in front."""
    given = tuple(dims)
    return repeat(input, (1,) * (input._array.ndim - len(given)) + given)


Tensor.tile = lambda self, *given, dims=None: tile(self, sizes_of(given if dims is None else (dims,), "tile"))


def _triangle(name: str) -> None:
    def compute(input: Tensor, diagonal: int = 0) -> Tensor:
        if input._array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return apply(PRIMITIVES[name], input, k=diagonal)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangle, zeros elsewhere."
    function(name, inplace=True, out=True)(compute)


_triangle("tril")
_triangle("triu")


def _resize(self: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Another shape in place; its storage grows where that is needed."""
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = sizes_of(sizes if size is None else (size,), "resize_")
    count = math.prod(shape)
    storage = storage_of(self)
    if count * self._array.itemsize > storage.nbytes():
        grown = np.zeros(count, self._array.dtype)
        flat = storage.flat(self._array.dtype)
        grown[: flat.size] = flat
        only = self if is_alone(self, 1) else None
        relocate(storage, grown, only)
    self._array = storage.flat(self._array.dtype)[:count].reshape(shape)
    return self


Tensor.resize_ = _resize  # type: ignore[attr-defined]


def _unsafe(compute: Any) -> None:
    """``torch.unsafe_split`` and its kin: parts that may be written to; here they have memory of their own."""

    def parts(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return tuple(map(clone, compute(input, *args, **kwargs)))

    parts.__name__ = parts.__qualname__ = f"unsafe_{compute.__name__}"
    parts.__doc__ = f"As `{compute.__name__}`, but with memory of their own."
    function(parts.__name__)(parts)


for _compute in (split, split_with_sizes, chunk):
    _unsafe(_compute)


@function(namespace="")
def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions by their strides, the greatest first."""
    strides = self._array.strides
    return tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))


def _geometry_in_place(compute: Any, name: str) -> None:
    """``x.squeeze_()`` and its kin: the tensor itself takes another shape."""

    def changing(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_write(self, overlap=False)
        result = compute(self, *args, **kwargs)
        storage = storage_of(self)
        self._array, self._storage = result._array, storage
        written(self)
        if mode.grad and result._grad_fn is not None:
            self._grad_fn, self._output_nr, self._requires_grad = result._grad_fn, result._output_nr, True
            self._attr_version = storage.version
        return self

    changing.__name__ = changing.__qualname__ = name
    setattr(Tensor, name, changing)


for _compute in (squeeze, unsqueeze, transpose, t, as_strided):
    _geometry_in_place(_compute, f"{_compute.__name__}_")
for _name in ("swapaxes_", "swapdims_"):
    _geometry_in_place(transpose, _name)


def _copy_of(name: str) -> None:
    compute = NAMESPACES["torch"].get(name) or getattr(Tensor, name)

    def copied(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = compute(input, *args, **kwargs)
        if isinstance(found, tuple):
            return tuple(clone(x, memory_format=contiguous_format) for x in found)
        return clone(found, memory_format=contiguous_format)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"As `{name}`, but with memory of its own."
    function(f"{name}_copy", method=name == "narrow", out=name not in ("split", "split_with_sizes", "unbind", "narrow"))(copied)


for _name in (
    "narrow", "view", "permute", "squeeze", "unsqueeze", "expand", "transpose", "t", "select", "diagonal", "split", "unbind",
    "detach", "as_strided", "unfold", "view_as_real", "view_as_complex", "split_with_sizes",
):  # fmt: skip
    _copy_of(_name)


@function(method=False)
def detach(input: Tensor) -> Tensor:
    """The same memory, without history."""
    return input.detach()


NAMESPACES["torch"]["detach_"] = Tensor.detach_


def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
    """Another tensor's shape in place."""
    return _resize(self, the_template._array.shape)


Tensor.resize_as_ = _resize_as
