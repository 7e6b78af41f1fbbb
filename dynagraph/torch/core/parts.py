"""Views as parts of their base: what the gradient of a base is by a view that was written to, and the reverse.

A geometry says where a view lies: `shape`, `strides` and `offset` of the view, and the strides `base` of its base, in elements.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.core.arrays import library_of_array, ufunc_at
from dynagraph.torch.core.storage import Storage, address_of


def geometry_of(array: Any, base: Any) -> dict[str, Any]:
    """Where a view's array lies in its base's, as keyword arguments."""
    size = array.itemsize
    offset = (address_of(array) - address_of(base)) // size if array.size else 0
    strides, base_strides = (tuple(s // size for s in a.strides) for a in (array, base))
    return {"shape": array.shape, "strides": strides, "offset": offset, "base": base_strides}


@at_capture
def place_of(base_shape: Any, base: Any, shape: Any, strides: Any, offset: int) -> tuple[Any, Any] | None:
    """A view as an index and an order of axes: ``base[index].transpose(axes).reshape(shape)``; None where slices do not say it."""
    axes = sorted((k for k, n in enumerate(base_shape) if n > 1), key=lambda k: -base[k])
    if 0 in base_shape or 0 in shape or any(base[a] < base[b] * base_shape[b] for a, b in itertools.pairwise(axes)):
        return None
    if axes and base[axes[-1]] < 1:
        return None
    starts, rest = [0] * len(base_shape), offset
    for k in axes:
        starts[k], rest = divmod(rest, base[k])
    index: list[Any] = list(starts)
    order: list[int] = []
    for n, stride in zip(shape, strides):
        if n == 1:
            continue
        axis = next((k for k in axes if stride >= base[k] and stride % base[k] == 0), None)
        if axis is None or axis in order:
            return None
        step = stride // base[axis]
        if starts[axis] + (n - 1) * step >= base_shape[axis]:
            return None
        index[axis] = slice(starts[axis], starts[axis] + (n - 1) * step + 1, step)
        order.append(axis)
    if rest or any(start >= n for start, n in zip(starts, base_shape)):
        return None
    kept = sorted(order)
    return tuple(index), tuple(kept.index(k) for k in order)


def _row(library: Any, shape: Any, dtype: np.dtype, attrs: Any) -> Any:
    """Zeros for all of the memory that a base, whose shape is given, and a view of it reach."""
    at_base = sum((n - 1) * s for n, s in zip(shape, attrs["base"])) + 1 if 0 not in shape else 0
    view_shape, strides = attrs["shape"], attrs["strides"]
    at_view = attrs["offset"] + sum((n - 1) * s for n, s in zip(view_shape, strides)) + 1 if 0 not in view_shape else 0
    return library.zeros(max(at_base, at_view), dtype)


def _parts_of(row: Any, shape: Any, attrs: Any) -> tuple[Any, Any]:
    """In a row of memory: the base, and the view."""
    memory = Storage(row)
    return (
        memory.at(row.dtype, shape, attrs["base"], 0),
        memory.at(row.dtype, attrs["shape"], attrs["strides"], attrs["offset"]),
    )


def as_strided(x: Any, shape: Any, strides: Any, offset: int, base: Any) -> Any:
    """The view itself."""
    return Storage(x).at(x.dtype, shape, strides, offset)


def put_part(g: Any, base_shape: Any, shape: Any, strides: Any, offset: int, base: Any) -> Any:
    """Zeros of the base's shape with `g` in the view's place: the gradient by the base of a view."""
    place = place_of(base_shape, base, shape, strides, offset)
    if place is not None:
        index, axes = place
        found = library_of_array(g).zeros(base_shape, g.dtype)
        back = tuple(map(axes.index, range(len(axes))))
        found[index] = g.reshape(tuple(n for n in shape if n != 1)).transpose(back)
        return found
    attrs = {"shape": shape, "strides": strides, "offset": offset, "base": base}
    row = _row(library_of_array(g), base_shape, g.dtype, attrs)
    whole, part = _parts_of(row, base_shape, attrs)
    if overlaps(shape, strides):
        places = _parts_of(library_of_array(g).arange(row.size), base_shape, attrs)[1]
        ufunc_at(np.add, row, places.reshape(-1), g.reshape(-1))
    else:
        part[...] = g
    return whole.copy()


def overlaps(shape: Any, strides: Any) -> bool:
    """Whether elements may share memory: not where each stride is more than the reach of the smaller ones."""
    reach = 0
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def zero_part(g: Any, shape: Any, strides: Any, offset: int, base: Any) -> Any:
    """The gradient of a base with zeros where the view lies."""
    place = place_of(g.shape, base, shape, strides, offset)
    if place is not None:
        found = g.copy()
        found[place[0]] = 0
        return found
    attrs = {"shape": shape, "strides": strides, "offset": offset, "base": base}
    whole, part = _parts_of(_row(library_of_array(g), g.shape, g.dtype, attrs), g.shape, attrs)
    whole[...] = g
    part[...] = 0
    return whole.copy()


def take_part(g: Any, shape: Any, strides: Any, offset: int, base: Any) -> Any:
    """What of the gradient of a base belongs to a view."""
    place = place_of(g.shape, base, shape, strides, offset)
    if place is not None:
        return g[place[0]].transpose(place[1]).reshape(shape).copy()
    attrs = {"shape": shape, "strides": strides, "offset": offset, "base": base}
    whole, part = _parts_of(_row(library_of_array(g), g.shape, g.dtype, attrs), g.shape, attrs)
    whole[...] = g
    return part.copy()


__all__ = ["as_strided", "geometry_of", "overlaps", "place_of", "put_part", "take_part", "zero_part"]
