"""Movement doors: reshaping, joining, splitting, repeating.  Results are views where NumPy's are, else copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import (
    as_dim,
    as_index,
    as_shape,
    is_contiguous,
    is_fortran,
    nonnegative,
    numpy_error,
    one_axis,
    only,
    python_value,
    ravel,
    reshape,
    several_axes,
    take,
)
from dynagraph.doors.numpy.builder import Builder, Unsupported, converted, known_dtype
from dynagraph.doors.numpy.layout import c_order, padded_order
from dynagraph.doors.numpy.table import numpy_function, numpy_method
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, broadcast_shapes, numel

# -- reshape and its kin ----------------------------------------------------------------------------------------------


def _reshape(b: Builder, a: Any, shape: object, order: Any) -> Node:
    x = b.as_node(a)
    sizes = _known_shape(as_shape(shape, "reshape"), x)
    if not _reads_backwards(b, x, order, "reshape"):
        return reshape(b, x, sizes)
    return _reversed(b, reshape(b, _reversed(b, x), sizes[::-1]))


def _reversed(b: Builder, x: Node) -> Node:
    return x if x.ndim < 2 else permute(b, x, range(x.ndim)[::-1])


def _reads_backwards(b: Builder, x: Node, order: Any, who: str) -> bool:
    """Whether ``order=`` takes the elements with the first index changing fastest."""
    if order == "K" and who != "reshape":
        backwards = is_fortran(b, x) and not is_contiguous(b, x)
        only(backwards or is_contiguous(b, x), who, "order", order, "of an array in C or Fortran order")
        return backwards
    only(order in ("C", "F", "A", None), who, "order", order, "one of 'C', 'F' and 'A'")
    return order == "F" or (order == "A" and is_fortran(b, x) and not is_contiguous(b, x))


def _known_shape(shape: Shape, x: Node) -> Shape:
    """The shape with its -1 replaced by the size that is left.  NumPy takes any negative size for -1."""
    unknown = [k for k, d in enumerate(shape) if d < 0]
    if not unknown:
        return shape
    if len(unknown) > 1:
        raise numpy_error("reshape: only one size may be -1")
    known = numel(d for k, d in enumerate(shape) if k != unknown[0])
    if known == 0:
        raise numpy_error(f"reshape: an array of shape {x.shape} does not fit {shape}")
    left = numel(x.shape) // known
    return tuple(left if k == unknown[0] else d for k, d in enumerate(shape))


@numpy_function(np.reshape, returns="same")
def reshape_(b: Builder, a: Any, shape: Any, order: Any) -> Node:
    return _reshape(b, a, shape, order)


@numpy_method("reshape", returns="same")
def _reshape_method(b: Builder, a: Node, *shape: Any, order: Any) -> Node:
    if not shape:
        raise numpy_error("reshape: takes a shape")
    return _reshape(b, a, shape[0] if len(shape) == 1 else shape, order)


@numpy_function(np.ravel, method="ravel", returns="array")
def ravel_(b: Builder, a: Any, order: Any) -> Node:
    x = b.as_node(a)
    if _reads_backwards(b, x, order, "ravel"):
        x = _reversed(b, x)
    return ravel(b, x) if is_contiguous(b, x) else b.call("copy", ravel(b, x))


@numpy_method("view", returns="array")
def view(b: Builder, a: Node, dtype: Any = None, type: Any = None) -> Node:
    if dtype is np.ndarray and type is None:
        dtype = None
    only(type in (None, np.ndarray), "view", "type", type, "arrays only")
    same = dtype is None or known_dtype(dtype, "view") is a.dtype
    only(same, "view", "dtype", dtype, f"only that of the array, {a.dtype}: use astype for values")
    return reshape(b, a, a.shape)


@numpy_method("flatten", returns="array")
def flatten(b: Builder, a: Node, order: Any) -> Node:
    return b.call("copy", ravel(b, _reversed(b, a) if _reads_backwards(b, a, order, "flatten") else a))


@numpy_function(np.expand_dims, returns="array")
def expand_dims(b: Builder, a: Any, axis: Any) -> Node:
    x = b.as_node(a)
    rank = x.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    added = several_axes(axis, rank, "expand_dims")
    sizes = iter(x.shape)
    return reshape(b, x, [1 if k in added else next(sizes) for k in range(rank)])


@numpy_function(np.squeeze, method="squeeze", returns="same")
def squeeze(b: Builder, a: Any, axis: Any) -> Node:
    x = b.as_node(a)
    if axis is None:
        kept = [d for d in x.shape if d != 1]
        return x if len(kept) == x.ndim else reshape(b, x, kept)
    axes = several_axes(axis, x.ndim, "squeeze")
    if any(x.shape[k] != 1 for k in axes):
        raise numpy_error(f"squeeze: shape {x.shape} has sizes other than 1 along axis {axis}")
    return reshape(b, x, [d for k, d in enumerate(x.shape) if k not in axes])


def _at_least(rank: int, place: Callable[[Shape], Shape]) -> Callable[..., Any]:
    def door(b: Builder, *arrays: Any) -> Any:
        results = [_with_rank(b, b.as_node(a), rank, place) for a in arrays]
        return results[0] if len(results) == 1 else tuple(results)

    return door


def _with_rank(b: Builder, x: Node, rank: int, place: Callable[[Shape], Shape]) -> Node:
    """The array itself where it has dimensions enough."""
    return x if x.ndim >= rank else reshape(b, x, place(x.shape))


def _rank_1(shape: Shape) -> Shape:
    return shape or (1,)


def _rank_2(shape: Shape) -> Shape:
    return (1,) * (2 - len(shape)) + shape


def _rank_3(shape: Shape) -> Shape:
    return (*shape, 1) if len(shape) == 2 else (1, *_rank_1(shape), 1)


numpy_function(np.atleast_1d, returns="array")(_at_least(1, _rank_1))
numpy_function(np.atleast_2d, returns="array")(_at_least(2, _rank_2))
numpy_function(np.atleast_3d, returns="array")(_at_least(3, _rank_3))

# -- permutations of axes ---------------------------------------------------------------------------------------------


def permute(b: Builder, x: Node, axes: Sequence[int]) -> Node:
    return b.call("transpose", x, axes=tuple(axes))


def _transpose(b: Builder, x: Node, axes: Any) -> Node:
    if axes is None:
        return permute(b, x, range(x.ndim)[::-1])
    order = several_axes(axes, x.ndim, "transpose")
    if len(order) != x.ndim:
        raise numpy_error(f"transpose: axes {axes} do not match an array of {x.ndim} dimensions")
    return permute(b, x, order)


@numpy_function(np.transpose, np.permute_dims, returns="same")
def transpose(b: Builder, a: Any, axes: Any) -> Node:
    return _transpose(b, b.as_node(a), axes)


@numpy_method("transpose", returns="same")
def _transpose_method(b: Builder, a: Node, *axes: Any) -> Node:
    axes = tuple(map(python_value, axes))
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        return _transpose(b, a, axes[0])
    return _transpose(b, a, axes or None)


@numpy_function(np.matrix_transpose, returns="array")
def matrix_transpose(b: Builder, x: Any) -> Node:
    return swapaxes(b, x, -1, -2)


@numpy_method("swapaxes", returns="same")
def _swapaxes_method(b: Builder, a: Node, axis1: Any, axis2: Any) -> Node:
    return swapaxes(b, a, axis1, axis2)


@numpy_function(np.swapaxes, returns="same")
def swapaxes(b: Builder, a: Any, axis1: Any, axis2: Any) -> Node:
    x = b.as_node(a)
    i, j = one_axis(axis1, x.ndim, "swapaxes"), one_axis(axis2, x.ndim, "swapaxes")
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return permute(b, x, order)


@numpy_function(np.moveaxis, returns="array")
def moveaxis(b: Builder, a: Any, source: Any, destination: Any) -> Node:
    x = b.as_node(a)
    sources, destinations = several_axes(source, x.ndim, "moveaxis"), several_axes(destination, x.ndim, "moveaxis")
    if len(sources) != len(destinations):
        raise numpy_error(f"moveaxis: source {source} and destination {destination} must name as many axes")
    order = [k for k in range(x.ndim) if k not in sources]
    for where, axis in sorted(zip(destinations, sources)):
        order.insert(where, axis)
    return permute(b, x, order)


@numpy_function(np.rollaxis, returns="array")
def rollaxis(b: Builder, a: Any, axis: Any, start: Any) -> Node:
    x = b.as_node(a)
    moved = one_axis(axis, x.ndim, "rollaxis")
    where = as_index(start, "rollaxis")
    where = where + x.ndim if where < 0 else where
    if not 0 <= where <= x.ndim:
        raise numpy_error(f"rollaxis: start {start} is out of bounds for {x.ndim} dimensions")
    order = [k for k in range(x.ndim) if k != moved]
    order.insert(where - 1 if moved < where else where, moved)
    return permute(b, x, order)


# -- broadcasting -----------------------------------------------------------------------------------------------------


@numpy_function(np.broadcast_to, returns="array")
def broadcast_to(b: Builder, array: Any, shape: Any) -> Node:
    return b.call("broadcast_to", b.as_node(array), shape=nonnegative(as_shape(shape, "broadcast_to"), "broadcast_to"))


@numpy_function(np.broadcast_arrays, returns="array")
def broadcast_arrays(b: Builder, *args: Any) -> tuple[Node, ...]:
    nodes = [b.as_node(a) for a in args]
    shape = broadcast_shapes(*(n.shape for n in nodes), who="broadcast_arrays")
    found = tuple(n if n.shape == shape else b.call("broadcast_to", n, shape=shape) for n in nodes)
    b.warning.update(made for made, n in zip(found, nodes) if made is not n)
    return found


# -- reversing, rolling, repeating ------------------------------------------------------------------------------------


def reverse(b: Builder, x: Node, axes: Sequence[int]) -> Node:
    return b.call(
        "slice",
        x,
        shape=x.shape,
        starts=tuple(d - 1 if k in axes and d > 0 else 0 for k, d in enumerate(x.shape)),
        steps=tuple(-1 if k in axes else 1 for k in range(x.ndim)),
    )


@numpy_function(np.flip, returns="same")
def flip(b: Builder, m: Any, axis: Any) -> Node:
    x = b.as_node(m)
    if x.ndim == 0:
        raise Unsupported("UNSUPPORTED_ARGUMENT", "flip: of a 0-d array is not captured")
    return reverse(b, x, range(x.ndim) if axis is None else several_axes(axis, x.ndim, "flip"))


@numpy_function(np.flipud, returns="array")
def flipud(b: Builder, m: Any) -> Node:
    x = b.as_node(m)
    return reverse(b, x, (one_axis(0, x.ndim, "flipud"),))


@numpy_function(np.fliplr, returns="array")
def fliplr(b: Builder, m: Any) -> Node:
    x = b.as_node(m)
    return reverse(b, x, (one_axis(1, x.ndim, "fliplr"),))


@numpy_function(np.rot90, returns="array")
def rot90(b: Builder, m: Any, k: Any, axes: Any) -> Node:
    x = b.as_node(m)
    if len(axes) != 2:
        raise numpy_error("rot90: axes must be two")
    first, second = several_axes(tuple(axes), x.ndim, "rot90")
    turns = as_index(k, "rot90") % 4
    if turns in (0, 2):
        return reverse(b, x, (first, second) if turns else ())
    swapped = swapaxes(b, x if turns == 3 else reverse(b, x, (second,)), first, second)
    return swapped if turns == 1 else reverse(b, swapped, (second,))


@numpy_function(np.roll, returns="array")
def roll(b: Builder, a: Any, shift: Any, axis: Any) -> Node:
    x = b.as_node(a)
    if axis is None:
        only(not isinstance(shift, (tuple, list)), "roll", "shift", shift, "give as many axes")
        moved = b.call("roll", ravel(b, x), shift=as_index(shift, "roll"), axis=0)
        return reshape(b, moved, x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    steps, places = len(shifts), len(axes)
    if steps != places and 1 not in (steps, places):
        raise numpy_error(f"roll: shift {shift} and axis {axis} do not broadcast")
    only(steps > 0 and places > 0, "roll", "axis", axis, "name an axis")
    total = max(steps, places)
    for s, k in zip(shifts * total if steps == 1 else shifts, axes * total if places == 1 else axes):
        x = b.call("roll", x, shift=as_index(s, "roll"), axis=one_axis(k, x.ndim, "roll"))
    return x


@numpy_function(np.repeat, method="repeat", returns="array")
def repeat(b: Builder, a: Any, repeats: Any, axis: Any = None) -> Node:
    x = b.as_node(a)
    if axis is None:
        x, axis = ravel(b, x), 0
    along = one_axis(axis, x.ndim, "repeat")
    counts = python_value(repeats)
    if isinstance(counts, (list, tuple)) and len(counts) == 1:
        (counts,) = counts
    if not isinstance(counts, (list, tuple)):
        return b.call("repeat", x, repeats=as_dim(counts, "repeat"), axis=along)
    places = np.repeat(np.arange(len(counts)), [as_index(c, "repeat") for c in counts])
    if x.shape[along] != len(counts):
        raise numpy_error(f"repeat: {len(counts)} counts for {x.shape[along]} elements")
    taken = b.call("gather", x, b.graph.constant(places), axes=(along,), at=along)
    return b.lay(taken, c_order(taken.ndim))


@numpy_function(np.tile, returns="array")
def tile(b: Builder, A: Any, reps: Any) -> Node:
    x = b.as_node(A)
    counts = nonnegative(as_shape(reps, "tile"), "tile")
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    if all(c == 1 for c in counts):
        x = b.copy(x)
    x = x if x.ndim == rank else reshape(b, x, (1,) * (rank - x.ndim) + x.shape)
    return x if all(c == 1 for c in counts) else b.call("tile", x, reps=counts)


# -- padding ----------------------------------------------------------------------------------------------------------


def _pad_widths(pad_width: Any, rank: int) -> list[tuple[Dim, Dim]]:
    """One number, one pair, or a pair (or a single) for each axis, as NumPy broadcasts them to (rank, 2)."""
    given = pad_width if isinstance(pad_width, (list, tuple)) else (pad_width,)
    rows = [tuple(p) if isinstance(p, (list, tuple)) else None for p in given]
    if all(r is None for r in rows):  # a number, or one pair for all axes
        pair = [as_dim(p, "pad") for p in given]
        if len(pair) > 2:
            raise numpy_error(f"pad: pad_width {pad_width} does not broadcast to a pair for each axis")
        widths = [(pair[0], pair[-1])] * rank
    else:
        full = [tuple(as_dim(p, "pad") for p in (r or ())) for r in rows]
        if any(len(r) not in (1, 2) for r in full) or len(full) not in (1, rank):
            raise numpy_error(f"pad: pad_width {pad_width} does not broadcast to a pair for each of {rank} axes")
        widths = [(r[0], r[-1]) for r in full] * (rank if len(full) == 1 else 1)
    if any(w < 0 for pair in widths for w in pair):
        raise numpy_error(f"pad: widths cannot be negative, got {pad_width}")
    return widths


def _edges(b: Builder, mode: str, x: Node, axis: int, low: Dim, high: Dim) -> tuple[Node, Node]:
    """What stands before and after `x` along the axis."""
    size = x.shape[axis]
    if mode == "edge":
        first, last = take(b, x, axis, 0, 1), take(b, x, axis, size - 1, 1)
        return b.call("repeat", first, repeats=low, axis=axis), b.call("repeat", last, repeats=high, axis=axis)
    limit = size - 1 if mode == "reflect" else size
    only(
        low <= limit and high <= limit,
        "pad",
        "pad_width",
        (low, high),
        f"mode {mode!r} takes at most {limit} along axis {axis}",
    )
    if mode == "wrap":
        return take(b, x, axis, size - low, low), take(b, x, axis, 0, high)
    skip = 1 if mode == "reflect" else 0
    return (
        take(b, x, axis, low - 1 + skip, low, -1) if low != 0 else take(b, x, axis, 0, 0),
        take(b, x, axis, size - 1 - skip, high, -1) if high != 0 else take(b, x, axis, 0, 0),
    )


@numpy_function(np.pad, returns="array")
def pad(b: Builder, array: Any, pad_width: Any, mode: Any, **options: Any) -> Node:
    x = b.as_node(array)
    only(not isinstance(pad_width, dict), "pad", "pad_width", pad_width, "give a pair for each axis")
    only(x.ndim > 0, "pad", "array", x.shape, "it must have dimensions")
    widths = _pad_widths(pad_width, x.ndim)
    if mode == "constant":
        value = options.pop("constant_values", 0)
        only(type(value) in (int, float, bool), "pad", "constant_values", value, "one Python number for all sides")
        only(not options, "pad", next(iter(options), ""), "...", "leave it out")
        return b.call("pad", x, widths=tuple(widths), value=converted(value, x.dtype))
    only(
        mode in ("edge", "reflect", "symmetric", "wrap"),
        "pad",
        "mode",
        mode,
        "the modes are constant, edge, reflect, symmetric, wrap",
    )
    only(not options, "pad", next(iter(options), ""), "...", "leave it out")
    only(all(d > 0 for d in x.shape), "pad", "array", x.shape, "it must have elements")
    order = padded_order(b.layout(x))
    for axis, (low, high) in enumerate(widths):
        before, after = _edges(b, mode, x, axis, low, high)
        x = b.lay(b.call("concatenate", before, x, after, axis=axis), order)
    return x


# -- diagonals --------------------------------------------------------------------------------------------------------


def diagonal_of(b: Builder, x: Node, who: str, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Node:
    """The elements of a diagonal of two axes, along a new last one: a view."""
    if x.ndim < 2:
        raise numpy_error(f"{who}: takes arrays of 2 or more dimensions")
    pair = several_axes((axis1, axis2), x.ndim, who)
    order = (*(k for k in range(x.ndim) if k not in pair), *pair)
    moved = x if order == tuple(range(x.ndim)) else permute(b, x, order)
    rows, columns = moved.shape[-2:]
    shift = as_index(offset, who)
    height, width = (rows, columns - shift) if shift >= 0 else (rows + shift, columns)
    size = height if height < width else width
    if size <= 0:
        size = 0
    starts = (0, shift) if shift >= 0 else (-shift, 0)
    lead = moved.ndim - 2
    shape = (*moved.shape[:-2], size, size)
    part = b.call("slice", moved, starts=(0,) * lead + (starts if size != 0 else (0, 0)), steps=(1,) * moved.ndim, shape=shape)
    return b.call("diagonal", part)


def read_only(b: Builder, x: Node) -> Node:
    """The same view, to which nothing is written."""
    return b.call("broadcast_to", x, shape=x.shape)


@numpy_function(np.diagonal, method="diagonal", returns="array")
def diagonal(b: Builder, a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Node:
    x = b.as_node(a)
    return read_only(b, diagonal_of(b, x, "diagonal", offset, axis1, axis2))


@numpy_function(np.size)
def size(b: Builder, a: Any, axis: Any = None) -> Dim:
    x = b.as_node(a)
    if axis is None:
        return numel(x.shape)
    return numel(x.shape[k] for k in several_axes(axis, x.ndim, "size"))


@numpy_function(np.shape)
def shape(b: Builder, a: Any) -> Shape:
    return b.as_node(a).shape


@numpy_function(np.ndim)
def ndim(b: Builder, a: Any) -> int:
    return b.as_node(a).ndim


__all__ = ["diagonal", "diagonal_of", "moveaxis", "permute", "read_only", "reverse", "swapaxes"]
