"""Indexing: integers, slices, None and Ellipsis; arrays of integers.

A basic index becomes one `slice` (integers take one element along their axis) and one `reshape` that drops and adds axes.  Arrays
of integers then gather from that; whether they are in bounds is a check of the program's.  Masks are not captured: how much they
choose is data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.frontend.numpy_door.arguments import as_dim, numpy_error, ravel, reshape
from dynagraph.frontend.numpy_door.builder import Builder, Unsupported
from dynagraph.frontend.numpy_door.table import Door, numpy_function, operator
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, SymInt, broadcast_shapes, normalize_axis, same_shape


@operator("getitem")
def getitem(b: Builder, x: Node, key: Any) -> Node:
    """A view of `x`, or a NumPy scalar where integers take every axis."""
    entries = key if isinstance(key, tuple) else (key,)
    if holds_places(key):
        return _gather(b, x, key)
    if any(e is Ellipsis for e in entries) and _takes_one(entries, x):
        raise Unsupported("UNSUPPORTED_INDEX", "x[..., i] that takes a single element is a 0-d array; leave the Ellipsis out")
    return region(b, x, key)


def _places(b: Builder, entries: list[Any]) -> Node:
    """A list as the array of integers that NumPy makes of it."""
    node = b.as_node(entries) if entries else b.call("full", shape=(0,), value=0, dtype=dtypes.int64)
    if node.dtype.is_bool:
        raise Unsupported("UNSUPPORTED_INDEX", "a mask that is a list is not captured; use np.where")
    return node


@dataclass(frozen=True)
class Places:
    """An index with arrays of integers: a basic one, and the axes of what it gives that the arrays then index."""

    basic: tuple[Any, ...]
    given: tuple[Node, ...]  # int64, as they come
    spread: tuple[Node, ...]  # of one shape
    axes: tuple[int, ...]
    at: int  # how many of the other dimensions stand before those of the arrays

    def check(self, b: Builder, view: Node) -> None:
        """Have the program refuse places that are out of bounds."""
        for place, axis in zip(self.given, self.axes):
            b.check_index(place, view.shape[axis])


def holds_places(key: Any) -> bool:
    """Whether an index has arrays in it."""
    return any(isinstance(e, (Node, list)) for e in (key if isinstance(key, tuple) else (key,)))


def places_of(b: Builder, x: Node, key: Any) -> Places:
    """What an index with arrays of integers among slices, integers, None and Ellipsis stands for."""
    entries = [_places(b, e) if isinstance(e, list) else e for e in (key if isinstance(key, tuple) else (key,))]
    for entry in entries:
        if isinstance(entry, Node) and not (entry.dtype.is_integer and not entry.dtype.is_bool):
            raise Unsupported("UNSUPPORTED_INDEX", f"an index that is an array ({entry.meta}) is not captured; use np.where")
        if not isinstance(entry, Node):
            _check(entry)
    expanded = _expand(tuple(entries), x)
    arrays = [e for e in expanded if isinstance(e, Node)]
    basic = tuple(slice(None) if isinstance(e, Node) else e for e in expanded)
    dims = [e for e in expanded if e is None or isinstance(e, (slice, Node))]  # those that have an axis of the view
    axes = tuple(k for k, e in enumerate(dims) if isinstance(e, Node))
    shape = broadcast_shapes(*(p.shape for p in arrays), who="indices")
    given = tuple(b.cast(p, dtypes.int64) for p in arrays)
    spread = tuple(p if same_shape(p.shape, shape) else b.call("broadcast_to", p, shape=shape) for p in given)
    return Places(basic, given, spread, axes, _place_of_indices(expanded))


def _gather(b: Builder, x: Node, key: Any) -> Node:
    places = places_of(b, x, key)
    view = region(b, x, places.basic)
    if not places.spread[0].ndim and len(places.axes) < view.ndim:
        raise Unsupported("DATA_DEPENDENT", "a view whose place is the value of an array; index it with a Python integer")
    gathered = b.call("gather", view, *places.spread, axes=places.axes, at=places.at)
    places.check(b, view)
    return gathered


def _place_of_indices(expanded: list[Any]) -> int:
    """How many of the other dimensions stand before those of the arrays: none, where the arrays and integers are not neighbours."""
    chosen = [k for k, e in enumerate(expanded) if not (e is None or isinstance(e, slice))]
    if chosen != list(range(chosen[0], chosen[-1] + 1)):
        return 0
    return chosen[0]


@numpy_function(np.take, method="take")
def _take(b: Builder, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Node:
    """``np.take``: as indexing along one axis, or of the flattened array."""
    if mode != "raise" or out is not None:
        raise Unsupported("UNSUPPORTED_ARGUMENT", "take: mode= and out= are not captured; leave them out")
    x = b.as_node(a)
    if axis is None:
        x, axis = ravel(b, x), 0
    axis = normalize_axis(int(axis), x.ndim, "take")
    places = indices if isinstance(indices, Node) else b.as_node(indices)
    if not np.can_cast(places.dtype.numpy, np.intp, "safe"):
        raise numpy_error(f"take: {places.dtype} is no dtype of indices")
    if places.ndim == 0:
        places = reshape(b, places, (1,))
        taken = _gather(b, x, (*[slice(None)] * axis, places))
        return reshape(b, taken, taken.shape[:axis] + taken.shape[axis + 1 :])
    return _gather(b, x, (*[slice(None)] * axis, places))


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
