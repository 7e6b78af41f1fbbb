"""Basic indexing: integers, slices, None and Ellipsis.  Indexing with arrays is not captured.

An index becomes one `slice` (integers take one element along their axis) and one `reshape` that drops and adds axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.frontend.numpy_door.arguments import as_dim, numpy_error, reshape
from dynagraph.frontend.numpy_door.builder import Builder, Unsupported
from dynagraph.frontend.numpy_door.table import Door, operator
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, SymInt


@operator("getitem")
def getitem(b: Builder, x: Node, key: Any) -> Node:
    """A view of `x`, or a NumPy scalar where integers take every axis."""
    entries = key if isinstance(key, tuple) else (key,)
    if any(e is Ellipsis for e in entries) and _takes_one(entries, x):
        raise Unsupported("UNSUPPORTED_INDEX", "x[..., i] that takes a single element is a 0-d array; leave the Ellipsis out")
    return region(b, x, key)


def _takes_one(key: tuple[Any, ...], x: Node) -> bool:
    return sum(isinstance(e, (int, np.integer, SymInt)) for e in key) == x.ndim and not any(e is None for e in key)


def region(b: Builder, x: Node, key: Any) -> Node:
    """The elements of `x` that a basic index stands for, as a view."""
    entries = key if isinstance(key, tuple) else (key,)
    for entry in entries:
        _check(entry)
    expanded = _expand(entries, x)
    starts: list[Dim] = []
    steps: list[Dim] = []
    sizes: list[Dim] = []
    shape: list[Dim] = []
    for entry in expanded:
        if entry is None:
            shape.append(1)
            continue
        dim = x.shape[len(starts)]
        start, step, size = slice_range(entry, dim) if isinstance(entry, slice) else (_element(entry, dim), 1, 1)
        starts.append(start)
        steps.append(step)
        sizes.append(size)
        if isinstance(entry, slice):
            shape.append(size)
    return _emit(b, x, tuple(starts), tuple(steps), tuple(sizes), tuple(shape))


def _emit(
    b: Builder, x: Node, starts: tuple[Dim, ...], steps: tuple[Dim, ...], sizes: tuple[Dim, ...], shape: tuple[Dim, ...]
) -> Node:
    if len(shape) == len(sizes) == sum(a is c for a, c in zip(shape, sizes)):
        return b.call("slice", x, starts=starts, steps=steps, shape=sizes)
    whole = all(s is d for s, d in zip(sizes, x.shape)) and all(type(s) is int and s == 1 for s in steps)
    return reshape(b, x if whole else b.call("slice", x, starts=starts, steps=steps, shape=sizes), shape)


def _check(entry: object) -> None:
    if isinstance(entry, Node):
        raise Unsupported("UNSUPPORTED_INDEX", f"an index that is an array ({entry.meta}) is not captured; use slices or np.where")
    if isinstance(entry, (bool, np.bool_, list, np.ndarray)):
        raise Unsupported("UNSUPPORTED_INDEX", f"an index of type {type(entry).__name__} is not captured; use integers and slices")
    if not (entry is None or entry is Ellipsis or isinstance(entry, (slice, int, np.integer, SymInt))):
        raise Unsupported("UNSUPPORTED_INDEX", f"an index of type {type(entry).__name__} is not captured; use integers and slices")


def _expand(entries: tuple[Any, ...], x: Node) -> list[Any]:
    """With the Ellipsis (at the end, where there is none) replaced by full slices."""
    places = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(places) > 1:
        raise numpy_error("an index can only have a single Ellipsis")
    used = sum(e is not None and e is not Ellipsis for e in entries)
    if used > x.ndim:
        raise numpy_error(f"too many indices: the array has {x.ndim} dimensions, {used} were indexed")
    where = places[0] if places else len(entries)
    return [*entries[:where], *[slice(None)] * (x.ndim - used), *entries[where + 1 :]]


def _element(index: Any, dim: Dim) -> Dim:
    i = as_dim(index, "index")
    position = i + dim if i < 0 else i
    if position < 0 or position >= dim:
        raise numpy_error(f"index {index} is out of bounds for an axis of size {dim}")
    return position


def slice_range(s: slice, dim: Dim) -> tuple[Dim, Dim, Dim]:
    """Start, step and number of elements of a slice along an axis; sizes and ends may be symbolic.

    >>> slice_range(slice(None, None, -2), 5)
    (4, -2, 3)
    """
    step = 1 if s.step is None else as_dim(s.step, "slice")
    if step == 0:
        raise numpy_error("a slice step cannot be zero")
    if step > 0:
        start, stop = _bound(s.start, 0, dim, 0, dim), _bound(s.stop, dim, dim, 0, dim)
        if not start < stop:
            return 0, 1, 0
        return start, step, stop - start if type(step) is int and step == 1 else (stop - start + step - 1) // step
    start, stop = _bound(s.start, dim - 1, dim, -1, dim - 1), _bound(s.stop, -1, dim, -1, dim - 1)
    if not stop < start:
        return 0, 1, 0
    return start, step, (start - stop - step - 1) // -step


def _bound(value: Any, default: Dim, dim: Dim, low: Dim, high: Dim) -> Dim:
    """One end of a slice: counted from the back where negative, and clamped."""
    if value is None:
        return default
    position = as_dim(value, "slice")
    position = position + dim if position < 0 else position
    if position < low:
        return low
    return high if position > high else position


def array_item(b: Builder, x: Node, key: Any) -> Node:
    """``x[..., i]`` of an array: a view also where it is 0-d."""
    return region(b, x, key)


ARRAY_ITEM = Door("getitem", array_item, "array")

__all__ = ["ARRAY_ITEM", "getitem", "region", "slice_range"]
