"""Indexing: integers, slices, None and Ellipsis; arrays of integers.

A basic index becomes one `slice` (integers take one element along their axis) and one `reshape` that drops and adds axes.  Arrays
of integers then gather from that; whether they are in bounds is a check of the program's.  Masks that are known at capture are
the places that they choose; how much others choose is data (frontend/kinds/masks.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import as_dim, as_index, numpy_error, ravel, reshape
from dynagraph.doors.numpy.builder import Builder, Chosen, Unsupported, WeakFloat
from dynagraph.doors.numpy.layout import c_order
from dynagraph.doors.numpy.table import Door, numpy_function, operator
from dynagraph.errors import ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, SymInt, broadcast_shapes, normalize_axis, same_shape

MOST_ENTRIES = 32  # of an index tuple; NumPy's own limits lie beyond


@operator("getitem")
def getitem(b: Builder, x: Node, key: Any) -> Node | Chosen:
    """A view of `x`, or a NumPy scalar where integers take every axis; a gather where there are arrays in the index."""
    if holds_arrays(key):
        return _gather(b, x, key, False)
    if any(e is Ellipsis for e in _entries(key)) and _takes_one(_entries(key), x):
        raise Unsupported("UNSUPPORTED_INDEX", "x[..., i] that takes a single element is a 0-d array; leave the Ellipsis out")
    return region(b, x, key)


@dataclass(frozen=True)
class Switch:
    """A bool as an index: a new axis, of one element or of none."""

    on: bool


@dataclass(frozen=True)
class Mask:
    """An array of bools as an index; `value` where it is known at capture."""

    node: Node
    value: np.ndarray | None


@dataclass(frozen=True)
class Index:
    """An index, entry by entry: None, slices, integers, arrays of integers (nodes), Switches, and Masks that are not known.

    An Ellipsis is one that stands for no dimension: it keeps its neighbours apart all the same.
    """

    entries: tuple[Any, ...]
    whole: bool = False  # whether it is one mask, for all dimensions

    @property
    def basic(self) -> tuple[Any, ...]:
        """The index of the view that the arrays then index."""
        basic: list[Any] = []
        for e in self.entries:
            if isinstance(e, Mask):
                basic += [slice(None)] * e.node.ndim
            elif e is not Ellipsis:
                basic.append(slice(None) if isinstance(e, Node) else None if isinstance(e, Switch) else e)
        return tuple(basic)

    @property
    def masks(self) -> list[Mask]:
        return [e for e in self.entries if isinstance(e, Mask)]

    @property
    def at(self) -> int:
        """How many of the other dimensions stand before those of the arrays: none, where these and integers are not neighbours."""
        chosen = [k for k, e in enumerate(self.entries) if not (e is None or e is Ellipsis or isinstance(e, slice))]
        before = [e for e in self.entries[: chosen[0]] if e is not Ellipsis]
        return len(before) if chosen == list(range(chosen[0], chosen[-1] + 1)) else 0

    @property
    def arrays(self) -> list[tuple[Any, int]]:
        """The entries that are arrays, or masks, each with the first axis of the view that it indexes."""
        found: list[tuple[Any, int]] = []
        axis = 0
        for e in self.entries:
            if isinstance(e, (Mask, Node, Switch)):
                found.append((e, axis))
            axis += e.node.ndim if isinstance(e, Mask) else e is None or isinstance(e, (slice, Node, Switch))
        return found


def index_of(b: Builder, x: Node, key: Any) -> Index:
    """An index as NumPy reads it; masks that are known are the places that they choose."""
    given = tuple(_entry(b, e) for e in _entries(key))
    entries = _expand(given, x)
    if len(entries) < len(given):
        entries.insert(next(k for k, e in enumerate(given) if e is Ellipsis), Ellipsis)
    placed: list[Any] = []
    axis = 0
    for e in entries:
        if isinstance(e, Mask):
            dims = x.shape[axis : axis + e.node.ndim]
            if any(have != want for have, want in zip(e.node.shape, dims)):
                raise numpy_error(f"a mask of shape {e.node.shape} for the dimensions {dims} of the array")
            axis += e.node.ndim
            placed += [e] if e.value is None else [b.graph.constant(p) for p in np.nonzero(e.value)]
            continue
        axis += _n_axes(e)
        placed.append(e)
    whole = len(_entries(key)) == 1 and len(entries) == 1 and isinstance(entries[0], Mask)
    return Index(tuple(placed), whole and entries[0].node.ndim == x.ndim)


def _entries(key: Any) -> tuple[Any, ...]:
    entries = key if isinstance(key, tuple) else (key,)
    if len(entries) > MOST_ENTRIES:
        raise Unsupported("UNSUPPORTED_INDEX", f"an index of more than {MOST_ENTRIES} parts: NumPy takes so many, or raises")
    return entries


def _entry(b: Builder, e: Any) -> Any:
    if isinstance(e, range):
        return b.as_node(e)
    if isinstance(e, (list, tuple)):
        node = b.as_node(e) if e else b.call("full", shape=(0,), value=0, dtype=dtypes.int64)
        return _array_entry(b, b.cast(node, dtypes.int64) if 0 in node.shape and not node.dtype.is_bool else node)
    if isinstance(e, Node):
        return _array_entry(b, e)
    if isinstance(e, (bool, np.bool_)):
        return Switch(bool(e))
    _check(e)
    return e


def _array_entry(b: Builder, node: Node) -> Any:
    if node.dtype.is_bool:
        value = b.known(node)
        if node.ndim > 0:
            return Mask(node, value)
        if value is None:
            raise Unsupported("DATA_DEPENDENT", "an index that is a bool taken from an array; use np.where")
        return Switch(bool(value))
    if not node.dtype.is_integer:
        raise numpy_error("arrays used as indices must be of integer (or boolean) type")
    known = b.known(node) if b.is_scalar(node) else None
    return node if known is None else int(known)


@dataclass(frozen=True)
class Places:
    """An index with arrays of integers: a basic one, and the axes of what it gives that the arrays then index."""

    basic: tuple[Any, ...]
    given: tuple[Node, ...]  # int64, as they come
    spread: tuple[Node, ...]  # of one shape
    axes: tuple[int, ...]
    at: int  # how many of the other dimensions stand before those of the arrays

    def inside(self, b: Builder, view: Node) -> Places:
        """The same places; the program bails out if they are out of bounds; CuPy takes them modulo the size."""
        if b.check_op is None:
            for place, axis in zip(self.given, self.axes):
                b.check_index(place, view.shape[axis])
            return self
        return replace(self, spread=tuple(inside(b, p, view.shape[axis]) for p, axis in zip(self.spread, self.axes)))


def holds_arrays(key: Any) -> bool:
    """Whether an index has arrays in it, or what stands for them."""
    return any(isinstance(e, (Node, list, tuple, range, bool, np.bool_)) for e in _entries(key))


def places_of(b: Builder, index: Index) -> Places:
    """What an index with arrays of integers among slices, integers, None and Ellipsis stands for."""
    if index.masks:
        raise Unsupported("DATA_DEPENDENT", "how many elements a mask chooses is data; use np.where, or reduce what it chooses")
    axes = tuple(axis for _, axis in index.arrays)
    nodes = [_switched(b, e.on) if isinstance(e, Switch) else e for e, _ in index.arrays]
    try:
        shape = broadcast_shapes(*(p.shape for p in nodes), who="indices")
    except ShapeError as error:
        raise numpy_error(str(error)) from None
    if b.check_op is not None:
        for node in nodes:
            _check_of_cupy(b, node)
    given = tuple(b.cast(p, dtypes.int64) for p in nodes)
    for node, place in zip(nodes, given):
        if node.dtype is dtypes.uint64 and node.ndim == 0 and b.check_op is None:  # from 2**63 on OverflowError; of arrays negative
            b.bail_out_where(b.call("less", place, b.scalar(0, dtypes.int64)))
    spread = tuple(p if same_shape(p.shape, shape) else b.call("broadcast_to", p, shape=shape) for p in given)
    return Places(index.basic, given, spread, axes, index.at)


def _chosen(view: Node, index: Index) -> Chosen:
    mask, at = only_mask(index)
    if at != index.at:
        raise Unsupported("DATA_DEPENDENT", "a mask and an integer apart: how many elements a mask chooses is data")
    return Chosen(view, mask.node, at)


def only_mask(index: Index) -> tuple[Mask, int]:
    """The mask of an index that has no other arrays, and its first axis in the view."""
    if len(index.arrays) > 1:
        raise Unsupported("DATA_DEPENDENT", "a mask among other arrays: how many elements a mask chooses is data")
    return index.arrays[0]


def _switched(b: Builder, on: bool) -> Node:
    """The places of a bool along its new axis."""
    return b.call("full", shape=(int(on),), value=0, dtype=dtypes.int64)


def _gather(b: Builder, x: Node, key: Any, is_array: bool) -> Node | Chosen:
    """What an index with arrays gives; `is_array`: where it takes a single element, that is a 0-d array."""
    index = index_of(b, x, key)
    view = region(b, x, index.basic)
    if not index.arrays:
        return view
    if index.masks:
        return _chosen(view, index)
    places = places_of(b, index)
    if (is_array or len(places.axes) < view.ndim) and all(isinstance(e, Node) and b.is_scalar(e) for e, _ in index.arrays):
        raise Unsupported("DATA_DEPENDENT", "a view whose place is the value of an array; index it with a Python integer")
    return b.call("gather", view, *places.inside(b, view).spread, axes=places.axes, at=places.at)


def _check_of_cupy(b: Builder, places: Node) -> None:
    if places.dtype not in (dtypes.int32, dtypes.int64) and b.known(places) is None:
        raise Unsupported("UNSUPPORTED_INDEX", f"CuPy: places of {places.dtype}, in which the size may overflow; make them int64")


def inside(b: Builder, places: Node, size: Dim) -> Node:
    """Places, of int64, along an axis: the program bails out if they are out of bounds; CuPy takes them modulo the size."""
    if b.check_op is None:
        b.check_index(places, size)
        return places
    if b.is_within(places, size):
        return places
    if size == 0:
        raise Unsupported("UNSUPPORTED_INDEX", "CuPy: places along an axis without elements")
    return bounded(b, places, size, "wrap", "index")


MODES = ("raise", "wrap", "clip")


def bounded(b: Builder, places: Node, size: Dim, mode: Any, who: str) -> Node:
    """Places by ``mode=``: as they are (and still to be checked), taken modulo the size, or the nearest that is there."""
    if mode not in MODES:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: mode={mode!r}; the modes are raise, wrap and clip")
    places = b.cast(places, dtypes.int64)
    if mode == "raise":
        return places
    if size == 0 and not any(d == 0 for d in places.shape):
        raise numpy_error(f"{who}: there is nothing to take from")
    if mode == "wrap":
        return places if size == 0 else b.call("remainder", places, b.scalar(size, dtypes.int64))
    inside = b.call("minimum", places, b.scalar(size - 1, dtypes.int64))
    return b.call("maximum", inside, b.scalar(0, dtypes.int64))


@numpy_function(np.take, method="take")
def take_(b: Builder, a: Any, indices: Any, axis: Any = None, mode: Any = "raise") -> Node:
    """``np.take``: as indexing along one axis, or of the flattened array."""
    x = b.as_node(a)
    if axis is None:
        x, axis = ravel(b, x), 0
    axis = normalize_axis(as_index(axis, "take"), x.ndim, "take")
    places = b.as_node(indices)
    if not isinstance(indices, Node) and 0 in places.shape:
        places = b.cast(places, dtypes.int64)
    if not np.can_cast(places.dtype.numpy, np.intp, "same_kind"):
        raise numpy_error(f"take: {places.dtype} is no dtype of indices")
    if b.check_op is not None:
        _check_of_cupy(b, places)
    places = bounded(b, places, x.shape[axis], mode, "take")
    if mode == "raise" or b.check_op is not None:
        places = inside(b, places, x.shape[axis])
    taken = b.call("gather", x, places, axes=(axis,), at=axis)
    return b.lay(taken, c_order(taken.ndim))


def _takes_one(key: tuple[Any, ...], x: Node) -> bool:
    return sum(isinstance(e, (int, np.integer, SymInt)) for e in key) == x.ndim and not any(e is None for e in key)


def region(b: Builder, x: Node, key: Any) -> Node:
    """The elements of `x` that a basic index stands for, as a view."""
    for entry in _entries(key):
        _check(entry)
    expanded = _expand(_entries(key), x)
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
    if isinstance(entry, (str, bytes, float, WeakFloat)):
        raise numpy_error(f"an index of type {type(entry).__name__}")
    if not (entry is None or entry is Ellipsis or isinstance(entry, (slice, int, np.integer, SymInt))):
        raise Unsupported("UNSUPPORTED_INDEX", f"an index of type {type(entry).__name__} is not captured; use integers and slices")


def _expand(entries: tuple[Any, ...], x: Node) -> list[Any]:
    """With the Ellipsis (at the end, where there is none) replaced by full slices."""
    places = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(places) > 1:
        raise numpy_error("an index can only have a single Ellipsis")
    used = sum(map(_n_axes, entries))
    if used > x.ndim:
        raise numpy_error(f"too many indices: the array has {x.ndim} dimensions, {used} were indexed")
    where = places[0] if places else len(entries)
    return [*entries[:where], *[slice(None)] * (x.ndim - used), *entries[where + 1 :]]


def _n_axes(entry: Any) -> int:
    """How many axes of the array an entry of an index takes."""
    if isinstance(entry, Mask):
        return entry.node.ndim
    return 0 if entry is None or entry is Ellipsis or isinstance(entry, Switch) else 1


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
    start, stop, step = slice_indices(s, dim)
    if step > 0:
        if not start < stop:
            return 0, 1, 0
        return start, step, stop - start if type(step) is int and step == 1 else (stop - start + step - 1) // step
    if not stop < start:
        return 0, 1, 0
    return start, step, (start - stop - step - 1) // -step


def slice_indices(s: slice, dim: Dim) -> tuple[Dim, Dim, Dim]:
    """``s.indices(dim)``, whose numbers may be symbolic."""
    step = 1 if s.step is None else as_dim(s.step, "slice")
    if step == 0:
        raise numpy_error("a slice step cannot be zero")
    if step > 0:
        return _bound(s.start, 0, dim, 0, dim), _bound(s.stop, dim, dim, 0, dim), step
    return _bound(s.start, dim - 1, dim, -1, dim - 1), _bound(s.stop, -1, dim, -1, dim - 1), step


def _bound(value: Any, default: Dim, dim: Dim, low: Dim, high: Dim) -> Dim:
    """One end of a slice: counted from the back where negative, and clamped."""
    if value is None:
        return default
    position = as_dim(value, "slice")
    position = position + dim if position < 0 else position
    if position < low:
        return low
    return high if position > high else position


def array_item(b: Builder, x: Node, key: Any) -> Node | Chosen:
    """``x[..., i]`` of an array: a view also where it is 0-d."""
    return _gather(b, x, key, True) if holds_arrays(key) else region(b, x, key)


ARRAY_ITEM = Door("getitem", array_item, "array")

__all__ = [
    "ARRAY_ITEM", "Index", "Mask", "bounded", "getitem", "holds_arrays", "index_of", "inside",
    "only_mask", "places_of", "region", "slice_indices", "slice_range", "take_",
]  # fmt: skip
