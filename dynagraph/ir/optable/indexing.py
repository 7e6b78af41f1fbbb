"""Rows of indexing by arrays: elements at places that the graph computes."""

from __future__ import annotations

from typing import Any

from dynagraph.errors import DTypeError, GradientError, GraphError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import OPS, REQUIRED, Attrs, Elementwise, Gather, Metas, Scatter, define_op
from dynagraph.ir.optable.elementwise import nonnegative
from dynagraph.ir.optable.rules import one_dtype
from dynagraph.ir.shapes import Shape, numel, same_shape
from dynagraph.ir.terms import Differentiated, Term, counted


def _gather_dtype(metas: Metas, attrs: Attrs) -> DType:
    for meta in metas[1:]:
        if meta.dtype is not dtypes.int64:
            raise DTypeError(f"gather: places must be int64, got {meta.dtype}")
    return metas[0].dtype


def _gather_shape(metas: Metas, attrs: Attrs) -> Shape:
    axes, at, rank = attrs["axes"], attrs["at"], metas[0].ndim
    if not isinstance(axes, tuple) or len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes) or not axes:
        raise ShapeError(f"gather: axes must be different ones from 0 to {rank - 1}, got {axes!r}")
    places = metas[1:]
    if len(places) != len(axes) or any(not same_shape(p.shape, places[0].shape) for p in places):
        raise ShapeError(f"gather: needs places of one shape for each of the axes {axes}, got {[p.shape for p in places]}")
    rest = kept_shape(metas[0].shape, axes)
    if not 0 <= at <= len(rest):
        raise ShapeError(f"gather: at must be from 0 to {len(rest)}, got {at!r}")
    return rest[:at] + places[0].shape + rest[at:]


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The dimensions that are not indexed."""
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def _gather_eager(xp: Any, x: Any, *places: Any, axes: tuple[int, ...], at: int) -> Any:
    inside = tuple(xp.clip(xp.where(p < 0, p + x.shape[a], p), 0, max(x.shape[a] - 1, 0)) for p, a in zip(places, axes))
    if any(x.shape[a] == 0 for a in axes):  # whatever is asked for is not there
        return xp.zeros(_gather_eager_shape(x.shape, places[0].shape, axes, at), x.dtype)
    front = xp.moveaxis(x, axes, tuple(range(len(axes))))[inside]
    n = places[0].ndim
    return xp.moveaxis(front, tuple(range(n)), tuple(range(at, at + n)))


def _gather_eager_shape(shape: Any, places: Any, axes: tuple[int, ...], at: int) -> Any:
    rest = kept_shape(shape, axes)
    return rest[:at] + tuple(places) + rest[at:]


def _gather_vjp(d: Differentiated, g: Term) -> list[Term | None]:
    x, *places = d.operands
    added = g.full(0, x.shape).call("scatter", g, *places, **d.attrs, combine="add")
    return [added, *(None for _ in places)]


define_op(
    "gather",
    arity=None,
    attrs={"axes": REQUIRED, "at": REQUIRED},
    dtype=_gather_dtype,
    shape=_gather_shape,
    eager=_gather_eager,
    lowering=Gather(),
    vjp=_gather_vjp,
    exact=True,
    doc="x[i0, i1...] for int64 arrays i of one shape, one for each of `axes`; their dimensions come after `at` of the others",
)


# -- scatter --------------------------------------------------------------------------------------------------------



def _scatter_dtype(metas: Metas, attrs: Attrs) -> DType:
    dtype = one_dtype("scatter", metas[:2])
    _check_combine(attrs["combine"], metas[:2], dtype)
    return _gather_dtype((metas[0], *metas[2:]), attrs)


def _check_combine(name: str, metas: Metas, dtype: DType) -> None:
    """What combines gives what it takes."""
    if name == "":
        return
    op = OPS.get(name)
    if op is None or not isinstance(op.lowering, Elementwise) or op.arity != 2:
        raise GraphError(f"scatter: combine must be an elementwise op of two operands or '', got {name!r}")
    if op.dtype(metas, {}) is not dtype:
        raise DTypeError(f"scatter: {name} of {dtype} gives {op.dtype(metas, {})}, which cannot be stored")


def _scatter_shape(metas: Metas, attrs: Attrs) -> Shape:
    wanted = _gather_shape((metas[0], *metas[2:]), attrs)
    if not same_shape(metas[1].shape, wanted):
        raise ShapeError(f"scatter: the values must have the shape {wanted} of the places, got {metas[1].shape}")
    return metas[0].shape


def _scatter_eager(xp: Any, x: Any, values: Any, *places: Any, axes: tuple[int, ...], at: int, combine: str) -> Any:
    result = xp.array(x, order="C")
    if values.size == 0 or any(x.shape[a] == 0 for a in axes):
        return result
    inside = tuple(xp.clip(xp.where(p < 0, p + x.shape[a], p), 0, max(x.shape[a] - 1, 0)) for p, a in zip(places, axes))
    n = places[0].ndim
    front, given = xp.moveaxis(result, axes, range(len(axes))), xp.moveaxis(values, range(at, at + n), range(n))
    if combine:
        if combine == "power_int":
            xp.power.at(front, inside, nonnegative(xp, given))
        else:
            getattr(xp, combine).at(front, inside, given)
    else:
        front[inside] = given
    return result


def _scatter_vjp(d: Differentiated, g: Term) -> list[Term | None]:
    """Of values that are stored at one place only the last is the result's: which that is, the places tell when they run."""
    _, values, *places = d.operands
    where = {name: d.attrs[name] for name in ("axes", "at")}
    nothing: list[Term | None] = [None] * len(places)
    if d.attrs["combine"] == "add":
        return [g, g.call("gather", *places, **where), *nothing]
    if d.attrs["combine"] == "subtract":
        return [g, -g.call("gather", *places, **where), *nothing]
    if d.attrs["combine"] in ("maximum", "minimum", "fmax", "fmin"):
        return [*_extreme_vjp(d, g, places, where), *nothing]
    if d.attrs["combine"]:
        raise GradientError(
            f"{d.node.location or d.node.name}: no gradient passes through scatter with {d.attrs['combine']}; "
            "add, subtract, take extremes or store instead"
        )
    numbers = _numbered(g, values.shape)
    last = numbers.full(-1, g.shape).call("scatter", numbers, *places, **where, combine="").call("gather", *places, **where)
    stayed = last.equals(numbers)
    kept = g.call("scatter", g.full(0, values.shape), *places, **where, combine="")
    return [kept, g.call("gather", *places, **where).where(stayed, 0), *nothing]


def _extreme_vjp(d: Differentiated, g: Term, places: list[Term], where: dict[str, Any]) -> tuple[Term, Term]:
    """In equal shares to what is the extreme at its place: what was there, and values that came."""
    stayed, came = d.x.equals(d.out), d.y.equals(d.out.call("gather", *places, **where))
    count = stayed.cast(g.dtype).call("scatter", came.cast(g.dtype), *places, **where, combine="add")
    share = g / count
    return share.where(stayed, 0), share.call("gather", *places, **where).where(came, 0)


def _numbered(g: Term, shape: Shape) -> Term:
    """0, 1, 2... in C order."""
    return counted(g, numel(shape)).reshape(shape)


define_op(
    "scatter",
    arity=None,
    attrs={"axes": REQUIRED, "at": REQUIRED, "combine": ""},
    dtype=_scatter_dtype,
    shape=_scatter_shape,
    eager=_scatter_eager,
    lowering=Scatter(),
    vjp=_scatter_vjp,
    exact=True,
    doc="x with x[i0, i1...] = values, places as in gather; or combined with what is there; backends write into the memory of x",
)
