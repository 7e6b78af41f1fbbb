"""Storages: the memory that a tensor and its views share, and the count of writes to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import strided


class Storage:
    """The memory of one array.  `version` counts the writes in place: what was saved for a gradient must not have changed."""

    __slots__ = ("__weakref__", "array", "version")
    __dynagraph_counters__ = ("version",)  # captured code needs not know how many writes there were

    def __init__(self, array: Any):
        self.array = array
        self.version = 0

    def start(self) -> int:
        """The address of its first byte."""
        return address_of(self.array)

    def flat(self, dtype: np.dtype) -> Any:
        """All of its memory as one row of elements, which shares it."""
        array = self.array
        if not array.flags.c_contiguous:
            array = array.transpose(sorted(range(array.ndim), key=lambda k: -array.strides[k]))
        if not array.flags.c_contiguous:  # made of an array with gaps: the row covers these too
            length = extent(array.shape, array.strides, array.itemsize) // array.itemsize
            first = array[(slice(0, 1),) * array.ndim].reshape(-1)
            return strided(first, (length,), (array.itemsize,)).view(dtype)
        return array.reshape(-1).view(dtype)

    def nbytes(self) -> int:
        return extent(self.array.shape, self.array.strides, self.array.itemsize)

    def at(self, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
        """A view of the memory: strides and offset in elements.  The caller has checked that it is within."""
        size = dtype.itemsize
        flat = self.flat(dtype)
        if isinstance(flat, np.ndarray):
            if 0 in shape:
                return np.ndarray(shape, dtype)
            return np.ndarray(shape, dtype, flat, offset * size, tuple(s * size for s in strides))
        return strided(flat[offset:], shape, tuple(s * size for s in strides))


def address_of(array: Any) -> int:
    """Where an array's first element is."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """How many bytes from the first element to behind the last; strides in bytes."""
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides)) + itemsize


__all__ = ["Storage", "address_of", "extent"]
