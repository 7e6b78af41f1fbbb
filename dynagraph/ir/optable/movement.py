"""Rows of data movement: where each element of the result comes from, and the same as strides where that is possible.

`source` speaks of indices, for lowering; `view` of the operand's memory, for results that are views and for reading
without a copy.  Both prove what they need on symbolic sizes without guarding anything: what cannot be proven is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from itertools import product as all_of
from operator import mul
from typing import Any

import numpy as np

from dynagraph.errors import ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Meta
from dynagraph.ir.intexpr import IntExpr, rejoined
from dynagraph.ir.ops import REQUIRED, VJP, Attrs, Index, Metas, Movement, Piece, Strided, define_op
from dynagraph.ir.shapes import Dim, Shape, contiguous_strides, expr_of, numel, same_dim, same_shape
from dynagraph.ir.terms import Differentiated, Term, flat

ZERO = IntExpr.of(0)
Batched = Callable[[Attrs, Dim], Attrs]


def _unchanged(attrs: Attrs, n: Dim) -> Attrs:
    return {}


def _shape_behind(attrs: Attrs, n: Dim) -> Attrs:
    return {"shape": (n, *attrs["shape"])}


def _axis_behind(attrs: Attrs, n: Dim) -> Attrs:
    return {"axis": attrs["axis"] + 1}


def _axes_behind(attrs: Attrs, n: Dim) -> Attrs:
    return {"axes": tuple(a + 1 for a in attrs["axes"])}


def _whole_axis(attrs: Attrs, n: Dim) -> Attrs:
    return {"starts": (0, *attrs["starts"]), "steps": (1, *attrs["steps"])}


def _operand_dtype(metas: Metas, attrs: Attrs) -> DType:
    return metas[0].dtype


def _rearrange(
    name: str,
    *,
    attrs: dict[str, Any],
    batched: Batched,
    shape: Callable[[Metas, Attrs], Shape],
    eager: Callable[..., Any],
    index: Callable[[Index, Meta, Attrs], Index],
    vjp: VJP,
    view: Callable[..., Strided | None] | None = None,
    **row: Any,
) -> None:
    """A row of one operand, each element of which comes from one place: ``result[i] = x[index(i)]``."""

    def source(position: Index, metas: Metas, attrs: Attrs, out: Meta) -> Sequence[Piece]:
        return [(None, 0, index(position, metas[0], attrs))]

    define_op(
        name,
        arity=1,
        attrs=attrs,
        dtype=_operand_dtype,
        shape=shape,
        eager=eager,
        lowering=Movement(source, view, batched),
        vjp=vjp,
        exact=True,
        **row,
    )


def _check_sizes(who: str, sizes: object) -> Shape:
    if not isinstance(sizes, tuple) or any(d < 0 for d in sizes):
        raise ShapeError(f"{who}: shape must be a tuple of sizes of at least 0, got {sizes!r}")
    return sizes


def _check_axis(who: str, attrs: Attrs, rank: int) -> int:
    axis = attrs["axis"]
    if not isinstance(axis, int) or not 0 <= axis < rank:
        raise ShapeError(f"{who}: axis must be from 0 to {rank - 1}, got {axis!r}; normalise it with normalize_axis")
    return axis


def _replace(shape: Shape, axis: int, dim: Dim) -> Shape:
    return shape[:axis] + (dim,) + shape[axis + 1 :]


def _replace_index(position: Index, axis: int, value: IntExpr) -> Index:
    return position[:axis] + (value,) + position[axis + 1 :]


# -- reshape --------------------------------------------------------------------------------------------------------


def _reshape_shape(metas: Metas, attrs: Attrs) -> Shape:
    given, wanted = metas[0].shape, _check_sizes("reshape", attrs["shape"])
    if numel(given) != numel(wanted):
        raise ShapeError(
            f"reshape: an array of shape {given} has {numel(given)} elements, shape {wanted} takes {numel(wanted)}"
        )
    return wanted


Axes = Sequence[int]


def reshape_groups(old: Shape, new: Shape) -> Iterator[tuple[Axes, Axes]]:
    """The smallest runs of axes of both shapes that hold the same elements.

    (2, 3, 4) -> (6, 2, 2) has the runs (0, 1)/(0,) and (2,)/(1, 2).
    Axes of size 1 are left out.  Ends of runs are where the products of the sizes so far are equal, as expressions.
    """
    old_axes = [k for k, d in enumerate(old) if not same_dim(d, 1)]
    new_axes = [k for k, d in enumerate(new) if not same_dim(d, 1)]
    new_products = list(accumulate((expr_of(new[k]) for k in new_axes), mul))
    old_start = new_start = 0
    for old_end, product in enumerate(accumulate((expr_of(old[k]) for k in old_axes), mul), start=1):
        if product in new_products[new_start:]:
            new_end = new_products.index(product, new_start) + 1
            yield old_axes[old_start:old_end], new_axes[new_start:new_end]
            old_start, new_start = old_end, new_end
    if old_start < len(old_axes) or new_start < len(new_axes):  # the totals are equal, by a guard perhaps
        yield old_axes[old_start:], new_axes[new_start:]


def _reshape_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    """Within each group: to a flat position, and from there to the operand's axes."""
    old, new = operand.shape, attrs["shape"]
    result = [ZERO] * len(old)
    for old_axes, new_axes in reshape_groups(old, new):
        flat = ZERO
        for k in new_axes:
            flat = flat * expr_of(new[k]) + position[k]
        flat = rejoined(flat)
        for nth, k in reversed(list(enumerate(old_axes))):
            size = expr_of(old[k])
            if size == 0 or nth == 0:
                result[k] = flat
            else:
                result[k], flat = flat % size, flat // size
    return tuple(result)


def _reshape_view(base: Strided, attrs: Attrs, out: Meta) -> Strided | None:
    """NumPy's rule: a group of axes can be split anew only where its axes lie in memory as one."""
    new = attrs["shape"]
    if any(same_dim(d, 0) for d in base.shape) or same_shape(base.shape, new):
        strides = base.strides if same_shape(base.shape, new) else contiguous_strides(new)
        return Strided(new, strides, base.offset)
    strides_of: dict[int, Dim] = {}
    for old_axes, new_axes in reshape_groups(base.shape, new):
        if not old_axes or not new_axes or not _lies_as_one(base, old_axes):
            return None
        step = base.strides[old_axes[-1]]
        for k in reversed(new_axes):
            strides_of[k] = step
            step = step * new[k]
    return Strided(new, _fill_strides(new, strides_of), base.offset)


def _lies_as_one(base: Strided, axes: Axes) -> bool:
    return all(same_dim(base.strides[a], base.strides[b] * base.shape[b]) for a, b in pairwise(axes))


def _fill_strides(shape: Shape, known: dict[int, Dim]) -> Shape:
    """Strides of axes of size 1 are free; these are the ones that NumPy gives."""
    strides: list[Dim] = [1] * len(shape)
    step: Dim = known[max(known)] if known else 1  # axes of size 1 at the end repeat the last stride
    for k in reversed(range(len(shape))):
        strides[k] = known.get(k, step)
        if k in known:
            step = known[k] * shape[k]
    return tuple(strides)


_rearrange(
    "reshape",
    attrs={"shape": REQUIRED},
    batched=_shape_behind,
    shape=_reshape_shape,
    eager=lambda xp, x, shape: xp.reshape(x, shape),
    vjp=lambda d, g: (g.reshape(d.x.shape),),
    index=_reshape_index,
    view=_reshape_view,
)


# -- transpose ------------------------------------------------------------------------------------------------------


def _transpose_shape(metas: Metas, attrs: Attrs) -> Shape:
    axes, shape = attrs["axes"], metas[0].shape
    if not isinstance(axes, tuple) or sorted(axes) != list(range(len(shape))):
        raise ShapeError(f"transpose: axes must be a permutation of {tuple(range(len(shape)))}, got {axes!r}")
    return tuple(shape[a] for a in axes)


def _transpose_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    where = dict(zip(attrs["axes"], position))
    return tuple(where[k] for k in range(operand.ndim))


def _transpose_view(base: Strided, attrs: Attrs, out: Meta) -> Strided:
    axes = attrs["axes"]
    return Strided(tuple(base.shape[a] for a in axes), tuple(base.strides[a] for a in axes), base.offset)


_rearrange(
    "transpose",
    attrs={"axes": REQUIRED},
    batched=lambda attrs, n: {"axes": (0, *_axes_behind(attrs, n)["axes"])},
    shape=_transpose_shape,
    eager=lambda xp, x, axes: xp.transpose(x, axes),
    vjp=lambda d, g: (g.call("transpose", axes=tuple(map(d.attrs["axes"].index, range(g.ndim)))),),
    index=_transpose_index,
    view=_transpose_view,
)


# -- broadcast_to ---------------------------------------------------------------------------------------------------


def _broadcast_shape(metas: Metas, attrs: Attrs) -> Shape:
    given, wanted = metas[0].shape, _check_sizes("broadcast_to", attrs["shape"])
    added = len(wanted) - len(given)
    if added < 0 or any(have != 1 and have != want for have, want in zip(given, wanted[added:])):
        raise ShapeError(
            f"broadcast_to: an array of shape {given} does not broadcast to {wanted}; "
            "from the right, its sizes must be 1 or equal"
        )
    return wanted


def _broadcast_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    aligned = position[len(position) - operand.ndim :]
    return tuple(ZERO if same_dim(d, 1) else i for d, i in zip(operand.shape, aligned))


def _broadcast_view(base: Strided, attrs: Attrs, out: Meta) -> Strided:
    wanted: Shape = attrs["shape"]
    added = len(wanted) - len(base.shape)
    strides: Iterator[Dim] = (
        0 if same_dim(have, 1) and not same_dim(want, 1) else stride
        for have, want, stride in zip(base.shape, wanted[added:], base.strides)
    )
    return Strided(wanted, (0,) * added + tuple(strides), base.offset)


_rearrange(
    "broadcast_to",
    attrs={"shape": REQUIRED},
    batched=_shape_behind,
    shape=_broadcast_shape,
    eager=lambda xp, x, shape: xp.broadcast_to(x, shape),
    vjp=lambda d, g: (g,),
    index=_broadcast_index,
    view=_broadcast_view,
)


# -- slice ----------------------------------------------------------------------------------------------------------


def _slice_shape(metas: Metas, attrs: Attrs) -> Shape:
    given, wanted = metas[0].shape, _check_sizes("slice", attrs["shape"])
    starts, steps = attrs["starts"], attrs["steps"]
    if not len(starts) == len(steps) == len(wanted) == len(given):
        raise ShapeError(
            f"slice: starts, steps and shape must have one entry for each of {len(given)} axes, "
            f"got {starts!r}, {steps!r} and {wanted!r}"
        )
    for axis, (dim, start, step, size) in enumerate(zip(given, starts, steps, wanted)):
        if step == 0:
            raise ShapeError(f"slice: the step of axis {axis} is 0")
        if (
            not _inside(start, step, size, dim) and size > 0
        ):  # in this order: most sizes pass without a decision on emptiness
            raise ShapeError(f"slice: axis {axis} of size {dim} has no elements {start} + {step}*i for i < {size}")
    return wanted


def _inside(start: Dim, step: Dim, size: Dim, dim: Dim) -> bool:
    last = start + step * (size - 1)
    least, greatest = (start, last) if step > 0 else (last, start)
    return bool(least >= 0) and bool(greatest < dim)


def _slice_eager(xp: Any, x: Any, starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return x[tuple(map(_python_slice, starts, steps, shape)) + (...,)]


def _python_slice(start: int, step: int, size: int) -> slice:
    if size == 0:
        return slice(0, 0)
    stop = start + step * size
    return slice(start, None if stop < 0 else stop, step)


def _slice_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    return tuple(
        expr_of(start) + i * expr_of(step) for i, start, step in zip(position, attrs["starts"], attrs["steps"])
    )


def _slice_view(base: Strided, attrs: Attrs, out: Meta) -> Strided:
    offset = base.offset
    if not any(same_dim(d, 0) for d in out.shape):
        for start, stride in zip(attrs["starts"], base.strides):
            offset = offset + start * stride
    strides = tuple(stride * step for stride, step in zip(base.strides, attrs["steps"]))
    return Strided(attrs["shape"], strides, offset)


_rearrange(
    "slice",
    attrs={"starts": REQUIRED, "steps": REQUIRED, "shape": REQUIRED},
    batched=lambda attrs, n: {**_whole_axis(attrs, n), **_shape_behind(attrs, n)},
    shape=_slice_shape,
    eager=_slice_eager,
    vjp=lambda d, g: (g.full(0, d.x.shape).call("update_slice", g, starts=d.attrs["starts"], steps=d.attrs["steps"]),),
    index=_slice_index,
    view=_slice_view,
    doc="result[i] = x[start + step*i] along each axis; the rank is kept",
)


# -- windows --------------------------------------------------------------------------------------------------------


def _windows_shape(metas: Metas, attrs: Attrs) -> Shape:
    given, sizes, axes = metas[0].shape, attrs["sizes"], attrs["axes"]
    _check_sizes("windows", sizes)
    if len(sizes) != len(axes) or any(not 0 <= k < len(given) for k in axes):
        raise ShapeError(f"windows: axes must be one from 0 to {len(given) - 1} for each of the sizes {sizes}, got {axes!r}")
    places = list(given)
    for size, axis in zip(sizes, axes):
        if not (size >= 1 and size <= places[axis]):
            raise ShapeError(f"windows: {size} elements do not fit into axis {axis} of size {places[axis]}")
        places[axis] = places[axis] - size + 1
    return (*places, *sizes)


def _windows_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    index = list(position[: operand.ndim])
    for axis, within in zip(attrs["axes"], position[operand.ndim :]):
        index[axis] = index[axis] + within
    return tuple(index)


def _windows_view(base: Strided, attrs: Attrs, out: Meta) -> Strided:
    return Strided(out.shape, (*base.strides, *(base.strides[axis] for axis in attrs["axes"])), base.offset)


def _windows_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    """The sum, over the places within a window, of what the elements there gave."""
    sizes, axes, n = d.attrs["sizes"], d.attrs["axes"], d.x.ndim
    places = g.shape[:n]
    total = g.full(0, d.x.shape)
    for within in all_of(*map(range, sizes)):
        one = g.part((0,) * n + within, places + (1,) * len(sizes)).reshape(places)
        offsets = _summed(axes, within)
        starts = tuple(offsets.get(k, 0) for k in range(n))
        total = total + g.full(0, d.x.shape).call("update_slice", one, starts=starts, steps=(1,) * n)
    return (total,)


def _summed(axes: Sequence[int], within: Sequence[int]) -> dict[int, int]:
    """How far each axis has moved: one may be cut into windows twice."""
    return {axis: sum(w for a, w in zip(axes, within) if a == axis) for axis in axes}


def _windows(xp: Any, x: Any, sizes: Any, axes: Any) -> Any:
    """Of CuPy's functions for this only the one that takes strides is in all versions."""
    if xp is np or not axes:
        return np.lib.stride_tricks.sliding_window_view(x, sizes, axes) if axes else x
    shape = list(x.shape)
    for size, axis in zip(sizes, axes):
        shape[axis] -= size - 1
    return xp.lib.stride_tricks.as_strided(x, (*shape, *sizes), (*x.strides, *(x.strides[axis] for axis in axes)))


_rearrange(
    "windows",
    attrs={"sizes": REQUIRED, "axes": REQUIRED},
    batched=_axes_behind,
    shape=_windows_shape,
    eager=_windows,
    vjp=_windows_vjp,
    index=_windows_index,
    view=_windows_view,
    doc="result[i, j] = x[i + j]: for each of the axes one more at the end, along which a window's elements lie",
)


# -- diagonal -------------------------------------------------------------------------------------------------------


def _diagonal_shape(metas: Metas, attrs: Attrs) -> Shape:
    shape = metas[0].shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"diagonal: the last two dimensions must be equal, got {shape}")
    return shape[:-1]


def _diagonal_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    on_it = g.make("eye", shape=d.x.shape[-2:], k=0, dtype=dtypes.bool_)
    return (g.reshape((*g.shape, 1)).where(on_it, 0),)


_rearrange(
    "diagonal",
    attrs={},
    batched=_unchanged,
    shape=_diagonal_shape,
    eager=lambda xp, x: xp.diagonal(x, 0, x.ndim - 2, x.ndim - 1),
    vjp=_diagonal_vjp,
    index=lambda position, operand, attrs: (*position, position[-1]),
    view=lambda base, attrs, out: Strided(out.shape, (*base.strides[:-2], base.strides[-2] + base.strides[-1]), base.offset),
    doc="result[..., i] = x[..., i, i]",
)


# -- roll, repeat, tile, copy ---------------------------------------------------------------------------------------


def _roll_shape(metas: Metas, attrs: Attrs) -> Shape:
    _check_axis("roll", attrs, metas[0].ndim)
    return metas[0].shape


def _roll_source(position: Index, metas: Metas, attrs: Attrs, out: Meta) -> Sequence[Piece]:
    axis = attrs["axis"]
    i, size = position[axis], expr_of(metas[0].shape[axis])
    shift = ZERO if size == 0 else expr_of(attrs["shift"]) % size
    unmoved = (None, 0, _replace_index(position, axis, i - shift))
    if shift == 0:
        return [unmoved]
    return [(((i, "<", shift),), 0, _replace_index(position, axis, i - shift + size)), unmoved]


define_op(
    "roll",
    arity=1,
    attrs={"shift": REQUIRED, "axis": REQUIRED},
    dtype=_operand_dtype,
    shape=_roll_shape,
    eager=lambda xp, x, shift, axis: xp.roll(x, shift, axis=axis),
    lowering=Movement(_roll_source, batched=_axis_behind),
    vjp=lambda d, g: (g.call("roll", shift=-d.attrs["shift"], axis=d.attrs["axis"]),),
    exact=True,
    doc="result[i] = x[(i - shift) % n] along the axis",
)


def _repeat_shape(metas: Metas, attrs: Attrs) -> Shape:
    axis = _check_axis("repeat", attrs, metas[0].ndim)
    if attrs["repeats"] < 0:
        raise ShapeError(f"repeat: repeats must be at least 0, got {attrs['repeats']}")
    return _replace(metas[0].shape, axis, metas[0].shape[axis] * attrs["repeats"])


def _repeat_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    axis, repeats = attrs["axis"], expr_of(attrs["repeats"])
    return position if repeats == 0 else _replace_index(position, axis, position[axis] // repeats)


def _repeat_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    axis, shape = d.attrs["axis"], d.x.shape
    copies = g.reshape((*shape[: axis + 1], d.attrs["repeats"], *shape[axis + 1 :]))
    return (copies.call("sum", axis=(axis + 1,), keepdims=False),)


_rearrange(
    "repeat",
    attrs={"repeats": REQUIRED, "axis": REQUIRED},
    batched=_axis_behind,
    shape=_repeat_shape,
    eager=lambda xp, x, repeats, axis: xp.repeat(x, repeats, axis=axis),
    vjp=_repeat_vjp,
    index=_repeat_index,
    doc="each element `repeats` times, next to one another",
)


def _tile_shape(metas: Metas, attrs: Attrs) -> Shape:
    reps, shape = attrs["reps"], metas[0].shape
    if not isinstance(reps, tuple) or len(reps) != len(shape) or any(r < 0 for r in reps):
        raise ShapeError(f"tile: reps must be a tuple of {len(shape)} counts of at least 0, got {reps!r}")
    return tuple(d * r for d, r in zip(shape, reps))


def _tile_index(position: Index, operand: Meta, attrs: Attrs) -> Index:
    return tuple(i if same_dim(d, 0) else i % expr_of(d) for i, d in zip(position, operand.shape))


def _tile_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    shape = tuple(n for pair in zip(d.attrs["reps"], d.x.shape) for n in pair)
    return (g.reshape(shape).call("sum", axis=tuple(range(0, 2 * g.ndim, 2)), keepdims=False),)


_rearrange(
    "tile",
    attrs={"reps": REQUIRED},
    batched=lambda attrs, n: {"reps": (1, *attrs["reps"])},
    shape=_tile_shape,
    eager=lambda xp, x, reps: xp.tile(x, reps),
    vjp=_tile_vjp,
    index=_tile_index,
)


# -- the same values --------------------------------------------------------------------------------------------------

# what memory, gradients and common subexpressions look at; (gradient, doc)
_SAME: dict[str, tuple[VJP, str]] = {
    "copy": (lambda d, g: (g,), "the same values in memory of their own"),
    "variable": (
        lambda d, g: (g,),
        "the same values as something of its own, by which gradients are taken; nothing is known of them at capture",
    ),
    "stop_gradient": (flat, "the same values, taken as constants by gradients"),
    "optimization_barrier": (
        lambda d, g: (g,),
        "the same values; what is computed from them is computed again, not taken from where it was computed before",
    ),
}
for _name, (_vjp, _doc) in _SAME.items():
    _rearrange(
        _name,
        attrs={},
        batched=_unchanged,
        shape=lambda metas, attrs: metas[0].shape,
        eager=lambda xp, x: xp.array(x, order="C"),
        vjp=_vjp,
        finite_slope=_vjp is not flat,
        index=lambda position, operand, attrs: position,
        doc=_doc,
    )
