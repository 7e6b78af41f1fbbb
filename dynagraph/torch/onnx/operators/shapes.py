"""Operators of ONNX that rearrange, join, cut, choose and store elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch.nn import functional as F
from dynagraph.torch.onnx.operators.registry import ints, number, of_numbers, operator, optional_ints
from dynagraph.torch.onnx.operators.types import dtype_of

# -- shapes -----------------------------------------------------------------------------------------------------------------------


@operator("Shape")
def shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    return tuple(x.shape)[start:end]


@operator("Size")
def size(x: Any) -> Any:
    return math.prod(tuple(x.shape))


@operator("Reshape", host=(1,))
def reshape(x: Any, shape: Any, allowzero: int = 0) -> Any:
    sizes = ints(shape)
    if not allowzero:
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(x: Any, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(tuple(x.shape)[:axis]), -1) if axis else x.reshape(1, -1)


@operator("Squeeze", host=(1,))
def squeeze(x: Any, axes: Any = None, **attributes: Any) -> Any:
    wanted = optional_ints(axes, attributes.get("axes"))
    return x.squeeze() if wanted is None else x.squeeze(tuple(wanted))


@operator("Unsqueeze", host=(1,))
def unsqueeze(x: Any, axes: Any = None, **attributes: Any) -> Any:
    wanted = optional_ints(axes, attributes.get("axes"))
    assert wanted is not None
    rank = x.ndim + len(wanted)
    for axis in sorted(a % rank for a in wanted):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose")
def transpose(x: Any, perm: Sequence[int] | None = None) -> Any:
    return x.permute(tuple(range(x.ndim))[::-1] if perm is None else tuple(perm))


@operator("Expand", host=(1,))
def expand(x: Any, shape: Any) -> Any:
    wanted = ints(shape)
    sizes = [1] * (len(wanted) - x.ndim) + list(x.shape)
    wanted = [1] * (len(sizes) - len(wanted)) + wanted
    return x.expand([n if m == 1 else m for n, m in zip(wanted, sizes)])


@operator("Tile", host=(1,))
def tile(x: Any, repeats: Any) -> Any:
    return x.repeat(ints(repeats))


@operator("Concat")
def concat(*operands: Any, axis: int) -> Any:
    return torch.cat(operands, axis)


@operator("Split", host=(1,))
def split(x: Any, parts: Any = None, axis: int = 0, num_outputs: int | None = None, **attributes: Any) -> Any:
    sizes = optional_ints(parts, attributes.get("split"))
    if sizes is None:
        n = num_outputs if num_outputs is not None else attributes["n_outputs"]
        each = -(-x.shape[axis] // n)
        sizes = [each] * (n - 1) + [x.shape[axis] - each * (n - 1)]
    return tuple(torch.split(x, sizes, axis))


@operator("Slice", host=(1, 2, 3, 4))
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = ints(starts), ints(ends)
    along = range(len(first)) if axes is None else ints(axes)
    by = [1] * len(first) if steps is None else ints(steps)
    for start, end, axis, step in zip(first, last, along, by):
        x = _cut(x, start, end, axis % x.ndim, step)
    return x


def _cut(x: Any, start: int, end: int, axis: int, step: int) -> Any:
    places = (slice(None),) * axis
    if step > 0:
        return x[(*places, slice(start, end, step))]
    n = x.shape[axis]  # backwards, as ONNX clamps: torch takes no negative steps
    start = min(max(start + n if start < 0 else start, 0), n - 1)
    end = max(end + n if end < 0 else end, -1)
    count = max(-((start - end) // step), 0)
    if count == 0:
        return x[(*places, slice(0, 0))]
    lowest = start + (count - 1) * step
    return x[(*places, slice(lowest, start + 1, -step))].flip(axis)


@operator("Pad", host=(1, 3))
def pad(x: Any, pads: Any = None, value: Any = None, axes: Any = None, mode: str = "constant", **attributes: Any) -> Any:
    widths = ints(pads)
    along = list(range(x.ndim)) if axes is None else [a % x.ndim for a in ints(axes)]
    n = len(along)
    pairs = {axis: (widths[k], widths[k + n]) for k, axis in enumerate(along)}
    if mode == "constant":
        fill = 0 if value is None else number(value)
        return F.pad(x, [w for axis in reversed(range(x.ndim)) for w in pairs.get(axis, (0, 0))], value=fill)
    for axis, (before, after) in pairs.items():
        x = _padded(x, axis, before, after, mode)
    return x


def _padded(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """By the elements at places that the mode says."""
    if before < 0 or after < 0:
        n = x.shape[axis]
        x = x.narrow(axis, max(-before, 0), n - max(-before, 0) - max(-after, 0))
        before, after = max(before, 0), max(after, 0)
    if before == 0 and after == 0:
        return x
    n = x.shape[axis]
    places = torch.arange(-before, n + after)
    if mode == "edge":
        places = torch.clamp(places, 0, n - 1)
    elif mode == "wrap":
        places = torch.remainder(places, n)
    else:
        period = max(2 * (n - 1), 1)
        places = torch.remainder(places, period)
        places = torch.where(places >= n, period - places, places)
    return torch.index_select(x, axis, places)


@operator("DepthToSpace")
def depth_to_space(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    if mode == "DCR":
        parts = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // blocksize**2, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def space_to_depth(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    parts = parts.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else parts.permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@operator("CenterCropPad", host=(1,))
def center_crop_pad(x: Any, shape: Any, axes: Sequence[int] | None = None) -> Any:
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, ints(shape)):
        more = wanted - x.shape[axis]
        if more < 0:
            x = x.narrow(axis, -more // 2, wanted)
        elif more > 0:
            widths = [0, 0] * x.ndim
            back = x.ndim - 1 - axis % x.ndim
            widths[2 * back : 2 * back + 2] = [more // 2, more - more // 2]
            x = F.pad(x, widths)
    return x


@operator("ReverseSequence", host=(1,))
def reverse_sequence(x: Any, lengths: Any, batch_axis: int = 1, time_axis: int = 0) -> Any:
    moved = x.movedim((time_axis, batch_axis), (0, 1))
    n = moved.shape[0]
    ends = torch.tensor(ints(lengths))
    places = torch.arange(n).unsqueeze(1)
    within = torch.where(places < ends, ends - 1 - places, places)
    columns = torch.arange(moved.shape[1])
    return moved[within, columns].movedim((0, 1), (time_axis, batch_axis))


# -- creation ---------------------------------------------------------------------------------------------------------------------


@operator("ConstantOfShape", host=(0,))
def constant_of_shape(shape: Any, value: Any = None) -> Any:
    if value is None:
        return torch.zeros(ints(shape))
    return torch.full(ints(shape), value.item(), dtype=value.dtype)


@operator("Range", host=(0, 1, 2))
def range_(start: Any, limit: Any, delta: Any) -> Any:
    dtype = next((v.dtype for v in (start, limit, delta) if isinstance(v, torch.Tensor)), torch.int64)
    first, last, step = number(start), number(limit), number(delta)
    if dtype.is_floating_point:
        count = max(math.ceil((last - first) / step), 0)
        return (first + torch.arange(count, dtype=torch.float64) * step).to(dtype)
    return torch.arange(first, last, step, dtype=dtype) if (last - first) * step > 0 else torch.zeros(0, dtype=dtype)


@operator("EyeLike")
def eye_like(x: Any, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    on_it = torch.arange(columns).unsqueeze(0) - torch.arange(rows).unsqueeze(1) == k
    return on_it.to(x.dtype if dtype is None else dtype_of(dtype))


@operator("OneHot", host=(1,))
def one_hot(indices: Any, depth: Any, values: Any, axis: int = -1) -> Any:
    n = int(number(depth))
    axis = axis % (indices.ndim + 1)
    given = indices.to(torch.int64)
    places = torch.where(given < 0, given + n, given).unsqueeze(axis)
    shape = [1] * places.ndim
    shape[axis] = n
    return torch.where(places == torch.arange(n).reshape(shape), values[1], values[0])


@operator("Trilu", host=(1,))
def trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    diagonal = 0 if k is None else int(number(k))
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


# -- places -----------------------------------------------------------------------------------------------------------------------


def _from_the_front(indices: Any, n: int) -> Any:
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + n, indices)


@operator("Gather", host=(1,))
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    axis = axis % x.ndim
    if type(indices) is int:
        return x.select(axis, indices)
    indices = torch.tensor(indices) if type(indices) is tuple else indices
    flat = _from_the_front(indices, x.shape[axis]).reshape(-1)
    chosen = torch.index_select(x, axis, flat)
    return chosen.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(x: Any, indices: Any, axis: int = 0) -> Any:
    return torch.gather(x, axis, _from_the_front(indices, x.shape[axis]))


@operator("GatherND")
def gather_nd(x: Any, indices: Any, batch_dims: int = 0) -> Any:
    depth = indices.shape[-1]
    places = [_from_the_front(indices.select(-1, k), x.shape[batch_dims + k]) for k in range(depth)]
    rank = indices.ndim - 1
    batch = []
    for axis in range(batch_dims):
        shape = [1] * rank
        shape[axis] = indices.shape[axis]
        batch.append(torch.arange(indices.shape[axis]).reshape(shape))
    return x[(*batch, *places)]


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter")
def scatter_elements(x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> Any:
    places = _from_the_front(indices, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, _REDUCE[reduction], include_self=True)


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, reduction: str = "none") -> Any:
    depth = indices.shape[-1]
    inner = tuple(x.shape)[depth:]
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for k in range(depth):
        flat = flat * x.shape[k] + _from_the_front(indices.select(-1, k), x.shape[k])
    rows = x.reshape(-1, *inner) if inner else x.reshape(-1)
    places, values = flat.reshape(-1), updates.reshape(-1, *inner) if inner else updates.reshape(-1)
    if reduction == "none":
        stored = torch.index_copy(rows, 0, places, values)
    elif reduction == "add":
        stored = torch.index_add(rows, 0, places, values)
    else:
        spread = places.reshape(-1, *(1 for _ in inner)).expand_as(values)
        stored = torch.scatter_reduce(rows, 0, spread, values, _REDUCE[reduction], include_self=True)
    return stored.reshape(x.shape)


@operator("NonZero")
def nonzero(x: Any) -> Any:
    return torch.nonzero(x).t()


@operator("Compress")
def compress(x: Any, condition: Any, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    return torch.index_select(x, axis, torch.nonzero(condition).reshape(-1))


@operator("Unique")
def unique(x: Any, axis: int | None = None, sorted: int = 1) -> Any:
    flat = x.reshape(-1) if axis is None else x.movedim(axis, 0)
    values, inverse, counts = torch.unique(flat, return_inverse=True, return_counts=True, dim=None if axis is None else 0)
    first = torch.full((len(counts),), len(flat), dtype=torch.int64)
    first = torch.scatter_reduce(first, 0, inverse, torch.arange(len(flat)), "amin", include_self=True)
    if not sorted:
        order = torch.argsort(first)
        rank = torch.argsort(order)
        values, counts, first, inverse = values[order], counts[order], first[order], rank[inverse]
    return values if axis is None else values.movedim(0, axis), first, inverse, counts


# -- numbers of the host's --------------------------------------------------------------------------------------------------------


@of_numbers("Shape")
def _shape_of_number(x: Any, **attributes: Any) -> Any:
    return NotImplemented if attributes else () if type(x) is int else (len(x),)


@of_numbers("Gather")
def _gather_number(x: Any, places: Any, axis: int = 0) -> Any:
    if type(x) is int:
        return NotImplemented
    return x[places] if type(places) is int else tuple([x[p] for p in places])


@of_numbers("Concat")
def _concat_numbers(*operands: Any, axis: int = 0) -> Any:
    joined: tuple[int, ...] = ()
    for one in operands:
        if type(one) is int:
            return NotImplemented
        joined = joined + one
    return joined


@of_numbers("Slice")
def _slice_numbers(x: Any, starts: Any, ends: Any, axes: Any = (0,), steps: Any = (1,)) -> Any:
    if type(x) is int or len(ints(starts)) != 1:
        return NotImplemented
    start, end, step = ints(starts)[0], ints(ends)[0], ints(steps)[0]
    return x[start:end:step] if step > 0 else NotImplemented


@of_numbers("Unsqueeze")
def _unsqueeze_number(x: Any, axes: Any = None, **attributes: Any) -> Any:
    return (x,) if type(x) is int else NotImplemented


@of_numbers("Squeeze")
def _squeeze_number(x: Any, axes: Any = None, **attributes: Any) -> Any:
    return x[0] if type(x) is tuple and len(x) == 1 else NotImplemented


@of_numbers("Reshape")
def _reshape_numbers(x: Any, shape: Any, **attributes: Any) -> Any:
    sizes = ints(shape)
    if sizes == [-1]:
        return x if type(x) is tuple else (x,)
    return (x if type(x) is int else x[0]) if not sizes else NotImplemented


@of_numbers("ReduceProd")
def _product(x: Any, axes: Any = None, keepdims: int = 1, **attributes: Any) -> Any:
    if type(x) is int:
        return NotImplemented
    total = math.prod(x)
    return (total,) if keepdims else total


__all__: list[str] = []
