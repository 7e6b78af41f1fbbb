"""Rows whose elements come from one of several operands: update_slice, concatenate, pad."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dynagraph.errors import GraphError, ShapeError
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Meta
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.ops import REQUIRED, Attrs, Condition, Index, Metas, Movement, Piece, define_op
from dynagraph.ir.optable.movement import (
    ZERO,
    _axis_behind,
    _check_axis,
    _operand_dtype,
    _python_slice,
    _replace,
    _replace_index,
    _slice_shape,
    _whole_axis,
)
from dynagraph.ir.optable.rules import one_dtype
from dynagraph.ir.shapes import Dim, Shape, expr_of, same_dim
from dynagraph.ir.terms import Differentiated, Term


def _update_dtype(metas: Metas, attrs: Attrs) -> DType:
    return one_dtype("update_slice", metas)


def _update_shape(metas: Metas, attrs: Attrs) -> Shape:
    whole, part = metas
    _slice_shape((whole,), {**attrs, "shape": part.shape})  # the part must lie inside
    return whole.shape


def _update_source(position: Index, metas: Metas, attrs: Attrs, out: Meta) -> Sequence[Piece]:
    condition: Condition = ()
    inside: list[IntExpr] = []
    for i, size, dim, start, step in zip(position, metas[1].shape, out.shape, attrs["starts"], attrs["steps"]):
        if same_dim(size, dim) and same_dim(step, 1):  # starts at 0: the part lies inside
            inside.append(i)
            continue
        first, forward = (start, step) if step > 0 else (start + step * (size - 1), -step)
        offset = i - expr_of(first)
        if not same_dim(first, 0):
            condition += ((i, ">=", expr_of(first)),)
        condition += ((i, "<", expr_of(first + forward * (size - 1) + 1)),)
        if not same_dim(forward, 1):
            condition += ((offset % expr_of(forward), "<", IntExpr.of(1)),)
            offset = offset // expr_of(forward)
        inside.append(offset if step > 0 else expr_of(size - 1) - offset)
    if any(same_dim(d, 0) for d in metas[1].shape):
        return [(None, 0, position)]
    return [(condition, 1, tuple(inside)), (None, 0, position)] if condition else [(None, 1, tuple(inside))]


def _update_eager(xp: Any, x: Any, part: Any, starts: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    result = xp.array(x, order="C")
    result[tuple(map(_python_slice, starts, steps, part.shape)) + (...,)] = part
    return result


def _update_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    part = g.call("slice", **d.attrs, shape=d.y.shape)
    return g.call("update_slice", g.full(0, d.y.shape), **d.attrs), part


define_op(
    "update_slice",
    arity=2,
    attrs={"starts": REQUIRED, "steps": REQUIRED},
    dtype=_update_dtype,
    shape=_update_shape,
    eager=_update_eager,
    lowering=Movement(_update_source, batched=_whole_axis),
    vjp=_update_vjp,
    exact=True,
    doc="x with result[start + step*i] = part[i] along each axis; backends write into the memory of x where nothing else wants it",
)


# -- concatenate and pad --------------------------------------------------------------------------------------------


def _concatenate_dtype(metas: Metas, attrs: Attrs) -> DType:
    if not metas:
        raise GraphError("concatenate: takes one operand or more, got none")
    return one_dtype("concatenate", metas)


def _concatenate_shape(metas: Metas, attrs: Attrs) -> Shape:
    first = metas[0].shape
    axis = _check_axis("concatenate", attrs, len(first))
    total: Dim = 0
    for meta in metas:
        others = zip(_replace(meta.shape, axis, 0), _replace(first, axis, 0)) if meta.ndim == len(first) else None
        if others is None or any(a != b for a, b in others):
            raise ShapeError(f"concatenate: shapes {first} and {meta.shape} must be equal apart from axis {axis}")
        total = total + meta.shape[axis]
    return _replace(first, axis, total)


def _concatenate_source(position: Index, metas: Metas, attrs: Attrs, out: Meta) -> Sequence[Piece]:
    axis = attrs["axis"]
    i, start = position[axis], ZERO
    pieces: list[Piece] = []
    for operand, meta in enumerate(metas):
        end = start + expr_of(meta.shape[axis])
        condition = None if operand == len(metas) - 1 else ((i, "<", end),)
        pieces.append((condition, operand, _replace_index(position, axis, i - start)))
        start = end
    return pieces


def _concatenate_vjp(d: Differentiated, g: Term) -> list[Term]:
    axis = d.attrs["axis"]
    ends = accumulate((x.shape[axis] for x in d.operands), initial=0)
    return [g.part(tuple(start if k == axis else 0 for k in range(g.ndim)), x.shape) for x, start in zip(d.operands, ends)]


define_op(
    "concatenate",
    arity=None,
    attrs={"axis": REQUIRED},
    dtype=_concatenate_dtype,
    shape=_concatenate_shape,
    eager=lambda xp, *operands, axis: xp.concatenate(operands, axis=axis),
    lowering=Movement(_concatenate_source, batched=_axis_behind),
    vjp=_concatenate_vjp,
    exact=True,
)


def _pad_shape(metas: Metas, attrs: Attrs) -> Shape:
    widths, shape = attrs["widths"], metas[0].shape
    if not isinstance(widths, tuple) or len(widths) != len(shape) or any(w < 0 for pair in widths for w in pair):
        raise ShapeError(
            f"pad: widths must be a pair of sizes of at least 0 for each of {len(shape)} axes, got {widths!r}"
        )
    return tuple(low + d + high for d, (low, high) in zip(shape, widths))


def _pad_source(position: Index, metas: Metas, attrs: Attrs, out: Meta) -> Sequence[Piece]:
    condition: Condition = ()
    inside: list[IntExpr] = []
    for i, dim, (low, high) in zip(position, metas[0].shape, attrs["widths"]):
        inside.append(i - expr_of(low))
        if not same_dim(low, 0):
            condition += ((i, ">=", expr_of(low)),)
        if not same_dim(high, 0):
            condition += ((i, "<", expr_of(low) + expr_of(dim)),)
    if not condition:
        return [(None, 0, tuple(inside))]
    return [(condition, 0, tuple(inside)), (None, None, ())]


def _pad_eager(xp: Any, x: Any, widths: tuple[tuple[int, int], ...], value: bool | int | float) -> Any:
    return xp.pad(x, widths, constant_values=value) if widths else xp.array(x)  # np.pad takes no 0-d array


define_op(
    "pad",
    arity=1,
    cupy=False,
    attrs={"widths": REQUIRED, "value": 0},
    dtype=_operand_dtype,
    shape=_pad_shape,
    eager=_pad_eager,
    lowering=Movement(_pad_source, batched=lambda attrs, n: {"widths": ((0, 0), *attrs["widths"])}),
    vjp=lambda d, g: (g.part(tuple(low for low, _ in d.attrs["widths"]), d.x.shape),),
    exact=True,
)
