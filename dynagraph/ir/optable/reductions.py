"""Rows of reductions and scans, and the statistics composed of them."""

from __future__ import annotations

from typing import Any

from dynagraph.errors import DTypeError, GraphError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.ops import OPS, REQUIRED, VJP, Attrs, Composite, Elementwise, Metas, Op, Reduction, Scan, Walk, define_op
from dynagraph.ir.optable.elementwise import nonnegative, or_any, or_infinite
from dynagraph.ir.optable.rules import ANY, INEXACT, INTEGER, NUMERIC, DTypeRule, ShapeRule, same_dtype, to_real
from dynagraph.ir.shapes import Dim, Shape, numel, same_dim, same_shape
from dynagraph.ir.terms import Differentiated, Term, counted

Axes = tuple[int, ...]


# -- shapes ---------------------------------------------------------------------------------------------------------


def _check_axes(who: str, axes: object, rank: int) -> Axes:
    if not isinstance(axes, tuple) or list(axes) != sorted(set(axes)) or any(not 0 <= a < rank for a in axes):
        raise ShapeError(
            f"{who}: axis must be a sorted tuple of different axes from 0 to {rank - 1}, got {axes!r}; "
            "normalise it with normalize_axis"
        )
    return axes


def _reduced_shape(who: str) -> ShapeRule:
    def rule(metas: Metas, attrs: Attrs) -> Shape:
        shape, axes = metas[0].shape, _check_axes(who, attrs["axis"], metas[0].ndim)
        if attrs["keepdims"]:
            return tuple(1 if k in axes else d for k, d in enumerate(shape))
        return tuple(d for k, d in enumerate(shape) if k not in axes)

    return rule


def _nonempty_reduced_shape(who: str) -> ShapeRule:
    """Extremes have no identity: of an axis without elements there is none, as NumPy says also where the result is empty."""
    reduced_shape = _reduced_shape(who)

    def rule(metas: Metas, attrs: Attrs) -> Shape:
        result, shape = reduced_shape(metas, attrs), metas[0].shape
        if any(shape[a] == 0 for a in attrs["axis"]):
            raise ShapeError(
                f"{who}: the array of shape {shape} has no elements along axis {attrs['axis']}, "
                "and there is no identity to give instead"
            )
        return result

    return rule


def _position_shape(who: str) -> ShapeRule:
    reduced_shape = _reduced_shape(who)

    def rule(metas: Metas, attrs: Attrs) -> Shape:
        result = reduced_shape(metas, attrs)
        if len(attrs["axis"]) != 1:
            raise ShapeError(
                f"{who}: takes exactly one axis, got {attrs['axis']}; reshape to 1-d to search all elements"
            )
        if metas[0].shape[attrs["axis"][0]] == 0:
            raise ShapeError(f"{who}: the array of shape {metas[0].shape} has no elements along axis {attrs['axis']}")
        return result

    return rule


# -- reductions -----------------------------------------------------------------------------------------------------


def _bool_only(who: str) -> DTypeRule:
    def rule(metas: Metas, attrs: Attrs) -> DType:
        if not metas[0].dtype.is_bool:
            raise DTypeError(f"{who}: takes bool, got {metas[0].dtype}; compare the operand with 0 first")
        return dtypes.bool_

    return rule


def _reduction(
    name: str,
    dtype: DTypeRule,
    shape: ShapeRule,
    eager: Any,
    step: str = "",
    walk: bool = False,
    **row: Any,
) -> None:
    define_op(
        name,
        arity=1,
        attrs={"axis": REQUIRED, "keepdims": False, **({"walk": None} if walk else {})},
        dtype=dtype,
        shape=shape,
        eager=eager,
        lowering=Reduction(name, step),
        **row,
    )


def _accumulate(name: str) -> Any:
    """NumPy would widen small integers; here the graph has said the dtype already."""
    return lambda xp, x, axis, keepdims, walk=None: getattr(xp, name)(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _choose(name: str) -> Any:
    return lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis, keepdims=keepdims)


def _position(name: str) -> Any:
    return lambda xp, x, axis, keepdims: getattr(xp, name)(x, axis=axis[0], keepdims=keepdims)


def _spread(d: Differentiated, reduced: Term) -> Term:
    """What belongs to a result, at each of the elements that it was made of."""
    kept = tuple(1 if k in d.attrs["axis"] else size for k, size in enumerate(d.x.shape))
    return reduced.reshape(kept).call("broadcast_to", shape=d.x.shape)


def _extreme_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    """In equal shares to all elements that are the extreme."""
    chosen = d.x.equals(_spread(d, d.out))
    count = chosen.cast(g.dtype).call("sum", axis=d.attrs["axis"], keepdims=True)
    return ((_spread(d, g) / count).where(chosen, 0),)


def _products_of_others(d: Differentiated) -> Term:
    """For each element the product of those that it is multiplied with, zeros among them."""
    axes = tuple(k for k in range(d.x.ndim) if k not in d.attrs["axis"]) + d.attrs["axis"]
    moved = d.x.call("transpose", axes=axes)
    kept = moved.shape[: moved.ndim - len(d.attrs["axis"])]
    rows = moved.reshape((*kept, numel(moved.shape[len(kept) :])))
    others = _products_before(rows) * _backwards(_products_before(_backwards(rows)))
    return others.reshape(moved.shape).call("transpose", axes=tuple(map(axes.index, range(d.x.ndim))))


def _products_before(x: Term) -> Term:
    """Of the elements in front, along the last axis."""
    axis, size = x.ndim - 1, x.shape[-1]
    if same_dim(size, 0):
        return x
    front = x.part((0,) * x.ndim, (*x.shape[:-1], size - 1))
    shifted = x.full(1, (*x.shape[:-1], 1)).call("concatenate", front, axis=axis)
    return shifted.call("cumprod", axis=axis)


def _backwards(x: Term, axis: int = -1) -> Term:
    at = range(x.ndim)[axis]
    starts = tuple(size - 1 if k == at else 0 for k, size in enumerate(x.shape))
    return x.call("slice", starts=starts, steps=tuple(-1 if k == at else 1 for k in range(x.ndim)), shape=x.shape)


def _sums_behind(x: Term, axis: int) -> Term:
    """Of each element and those after it."""
    return _backwards(_backwards(x, axis).call("cumsum", axis=axis), axis)


def _cumsum_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (_sums_behind(g, d.attrs["axis"]),)


def _cumprod_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (_by_factors(d.x, d.out, g, d.attrs["axis"], True),)


def _by_factors(x: Term, products: Term, g: Term, axis: int, is_first: bool) -> Term:
    """The gradient of running products by their factors.

    In front of the first zero products without an element are quotients, at it those of the others.  After it they are zero, but
    change with that zero: by how much is the gradient of the products without it.  Derivatives of higher order than the second
    leave out what is behind a second zero.
    """
    zero = x.equals(0)
    zeros = zero.cast(dtypes.int64).call("cumsum", axis=axis)
    first = zero.call("logical_and", zeros.equals(1))
    without = x.number(1).where(first, x)
    others = without.call("cumprod", axis=axis)
    in_front = _sums_behind(g * products.conj, axis) / x.number(1).where(zero, x).conj
    at_it = _sums_behind(g * others.conj, axis)
    if not is_first:
        return in_front.where(zeros.equals(0), at_it.where(first, 0))
    slope = _by_factors(without, others, g, axis, False)
    behind = slope.where(slope.call("isfinite"), 0) * x.where(first, 0).call("sum", axis=(axis,), keepdims=True).conj
    return in_front.where(zeros.equals(0), at_it.where(first, behind))


def _running_extreme_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    """To the element that is the extreme at each place; of equal ones the last so far."""
    axis, shape = d.attrs["axis"], d.x.shape
    numbers = [_numbered(g, shape, k) for k in range(len(shape))]
    reached = numbers[axis].where(d.x.equals(d.out), 0).call("maximum_accumulate", axis=axis)
    places = [reached if k == axis else numbers[k] for k in range(len(shape))]
    return (g.full(0, shape).call("scatter", g, *places, axes=tuple(range(len(shape))), at=0, combine="add"),)


def _subtract_accumulate_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    behind = _sums_behind(g, d.attrs["axis"])
    return (behind.where(_numbered(g, d.x.shape, d.attrs["axis"]).equals(0), -behind),)


def _hypot_accumulate_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (_sums_behind(g / or_infinite(d.out), d.attrs["axis"]) * d.x,)


def _logarithms_vjp(function: str) -> VJP:
    """Of running sums of exponentials: each element has its share of its own sum, and of those after it.

    The sum of the later gradients, each by how much of its own sum this one is, doubles its reach with each step: no share is
    more than one.
    """

    def vjp(d: Differentiated, g: Term) -> tuple[Term]:
        axis, reach, total = d.attrs["axis"], 1, or_any(d.out)
        size = d.x.shape[axis]
        while reach < size:
            here, there = _front(d.out, axis, reach), _behind(total, axis, reach)
            more = (here - there).call(function) * _behind(g, axis, reach)
            g = g + more.call("pad", widths=tuple((0, reach if k == axis else 0) for k in range(g.ndim)))
            reach *= 2
        return (g * (d.x - total).call(function),)

    return vjp


def _front(x: Term, axis: int, without: int) -> Term:
    """But for so many elements at the end."""
    return x.part((0,) * x.ndim, tuple(size - without if k == axis else size for k, size in enumerate(x.shape)))


def _behind(x: Term, axis: int, without: int) -> Term:
    """But for so many elements in front."""
    starts = tuple(without if k == axis else 0 for k in range(x.ndim))
    return x.part(starts, tuple(size - start for size, start in zip(x.shape, starts)))


def _numbered(beside: Term, shape: Shape, axis: int) -> Term:
    """The position along one axis of each element."""
    lengths = tuple(size if k == axis else 1 for k, size in enumerate(shape))
    return counted(beside, shape[axis]).reshape(lengths).call("broadcast_to", shape=shape)


for _name, _step in {"sum": "add", "prod": "multiply"}.items():
    _reduction(
        _name,
        same_dtype(_name, NUMERIC),
        _reduced_shape(_name),
        _accumulate(_name),
        exact=False,
        step=_step,
        doc="accumulates in the operand's dtype; `walk`: the order, that of an array without gaps where it is not given",
        walk=True,
        vjp={"sum": lambda d, g: (_spread(d, g),), "prod": lambda d, g: (_spread(d, g) * _products_of_others(d).conj,)}[_name],
    )


def _masked_dtype(metas: Metas, attrs: Attrs) -> DType:
    x, mask, start = metas
    if not mask.dtype.is_bool:
        raise DTypeError(f"sum_where: the mask must be bool, got {mask.dtype}; compare it with 0 first")
    return same_dtype("sum_where", INEXACT)((x, start), attrs)


def _masked_shape(metas: Metas, attrs: Attrs) -> Shape:
    x, mask, start = metas
    if not same_shape(x.shape, mask.shape) or start.shape:
        raise ShapeError(
            f"sum_where: takes a mask of the array's shape and a 0-d start, got {mask.shape} and {start.shape} for {x.shape}"
        )
    return _reduced_shape("sum_where")(metas, attrs)


def _masked_vjp(d: Differentiated, g: Term) -> tuple[Term, None, Term]:
    return _spread(d, g).where(d.operands[1], 0), None, g.sum(*range(g.ndim))


def _masked_eager(xp: Any, x: Any, mask: Any, start: Any, axis: Axes, keepdims: bool, walk: Walk | None = None) -> Any:
    return xp.add.reduce(x, axis=axis, dtype=x.dtype, keepdims=keepdims, initial=start[()], where=mask)


define_op(
    "sum_where",
    arity=3,
    cupy=False,
    attrs={"axis": REQUIRED, "keepdims": False, "walk": None},
    dtype=_masked_dtype,
    shape=_masked_shape,
    eager=_masked_eager,
    lowering=Reduction("sum", "add"),
    vjp=_masked_vjp,
    doc="the sum of the elements where the second operand is true, which begins with the third; `walk`: as for sum",
)
for _name in ("max", "min"):
    _shape = _nonempty_reduced_shape(_name)
    _reduction(_name, same_dtype(_name, ANY), _shape, _choose(_name), exact=True, step=f"{_name}imum", vjp=_extreme_vjp)
for _name, _step in {"any": "logical_or", "all": "logical_and"}.items():
    _reduction(_name, _bool_only(_name), _reduced_shape(_name), _choose(_name), exact=True, step=_step)
for _name in ("argmax", "argmin"):
    _reduction(_name, lambda metas, attrs: dtypes.int64, _position_shape(_name), _position(_name), exact=True)


def _bits_eager(step: str) -> Any:
    return lambda xp, x, axis, keepdims: getattr(xp, step).reduce(x, axis=axis, keepdims=keepdims)


for _name, _step in {"all_bits": "bitwise_and", "any_bits": "bitwise_or", "odd_bits": "bitwise_xor"}.items():
    _rule, _shape = same_dtype(_name, INTEGER), _reduced_shape(_name)
    _reduction(_name, _rule, _shape, _bits_eager(_step), exact=True, step=_step, cupy=False)


# -- scans ----------------------------------------------------------------------------------------------------------


def _scan_shape(who: str) -> ShapeRule:
    def rule(metas: Metas, attrs: Attrs) -> Shape:
        axis, rank = attrs["axis"], metas[0].ndim
        if not isinstance(axis, int) or not 0 <= axis < rank:
            raise ShapeError(
                f"{who}: axis must be from 0 to {rank - 1}, got {axis!r}; normalise it with normalize_axis"
            )
        return metas[0].shape

    return rule


def _scan(name: str, kind: str, dtype: DTypeRule, eager: Any, **row: Any) -> None:
    define_op(
        name,
        arity=1,
        attrs={"axis": REQUIRED},
        dtype=dtype,
        shape=_scan_shape(name),
        eager=eager,
        lowering=Scan(kind),
        doc="accumulates in the operand's dtype, one after the other; the first element is copied as it is",
        **row,
    )


def _cumulative(name: str) -> Any:
    return lambda xp, x, axis: getattr(xp, name)(x, axis=axis, dtype=x.dtype)


_scan("cumsum", "sum", same_dtype("cumsum", NUMERIC), _cumulative("cumsum"), exact=True, vjp=_cumsum_vjp)
_scan("cumprod", "prod", same_dtype("cumprod", NUMERIC), _cumulative("cumprod"), exact=True, vjp=_cumprod_vjp)


def _accumulate_dtype(name: str) -> DTypeRule:
    """What the op of two operands takes, where its result is of the same dtype."""

    def rule(metas: Metas, attrs: Attrs) -> DType:
        (operand,) = metas
        result = OPS[name].dtype((operand, operand), {})
        if result is not operand.dtype:
            raise DTypeError(f"{name}: gives {result} for {operand.dtype}, which is not what it takes")
        return result

    return rule


def _accumulate_eager(name: str) -> Any:
    return lambda xp, x, axis: getattr(xp, name).accumulate(x, axis=axis, dtype=x.dtype)


def _accumulate_power(xp: Any, x: Any, axis: int) -> Any:
    operands = xp.concatenate([x.take([0], axis), nonnegative(xp, x.take(range(1, x.shape[axis]), axis))], axis) if x.size else x
    return xp.power.accumulate(operands, axis=axis, dtype=x.dtype)


_SCAN_VJPS: dict[str, VJP] = {
    "add": _cumsum_vjp, "multiply": _cumprod_vjp, **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _running_extreme_vjp),
    "subtract": _subtract_accumulate_vjp, "hypot": _hypot_accumulate_vjp,
    "logaddexp": _logarithms_vjp("exp"), "logaddexp2": _logarithms_vjp("exp2"),
}  # fmt: skip
_binary = [op.name for op in OPS.values() if isinstance(op.lowering, Elementwise) and op.arity == 2 and op.name != "ldexp"]
for _name in _binary:
    _rule, _run = _accumulate_dtype(_name), _accumulate_power if _name == "power_int" else _accumulate_eager(_name)
    _row = {"exact": OPS[_name].exact, "domain": OPS[_name].domain, "divides": OPS[_name].divides, "cupy": False}
    _scan(f"{_name}_accumulate", _name, _rule, _run, vjp=_SCAN_VJPS.get(_name), **_row)


# -- statistics -----------------------------------------------------------------------------------------------------

EXACT_COUNT = {dtypes.float32: 2**24}  # counts up to here are exact


def _count(shape: Shape, axes: Axes) -> Dim:
    return numel(shape[a] for a in axes)


def divide_by_count(graph: Graph, total: Node, count: Dim, ddof: int | float = 0) -> Node:
    """``total / max(count - ddof, 0)`` as NumPy does it: in float64, rounded to the result's dtype.

    A float32 quotient of operands exact in float32 is the same, for float64 has more than twice its digits.
    """
    exact = total.dtype in (dtypes.float64, dtypes.complex128) or (
        isinstance(count, int) and isinstance(ddof, int) and count - ddof <= EXACT_COUNT.get(total.dtype, -1)
    )
    dtype = total.dtype if exact else dtypes.complex128 if total.dtype.is_complex else dtypes.float64
    divisor = _degrees_of_freedom(graph, count, ddof, dtype)
    if exact:
        return graph.call(OPS["divide"], total, divisor)
    quotient = graph.call(OPS["divide"], graph.call(OPS["cast"], total, dtype=dtype), divisor)
    return graph.call(OPS["cast"], quotient, dtype=total.dtype)


def _degrees_of_freedom(graph: Graph, count: Dim, ddof: int | float, dtype: DType) -> Node:
    """Never negative, so that NumPy's division by it gives inf or nan.  Nothing is decided about a symbolic count."""
    if isinstance(count, int):
        return graph.call(OPS["constant"], value=max(count - ddof, 0), dtype=dtype)
    known = graph.call(OPS["constant"], value=count, dtype=dtype)
    if ddof == 0:
        return known
    left = graph.call(OPS["subtract"], known, graph.call(OPS["constant"], value=ddof, dtype=dtype))
    return graph.call(OPS["maximum"], left, graph.call(OPS["constant"], value=0, dtype=dtype))


def _mean(graph: Graph, x: Node, *, axis: Axes, keepdims: bool, walk: Walk | None) -> Node:
    if x.dtype.is_half:  # NumPy's mean, but not its variance, takes float32 on the way
        wide = _plain_mean(graph, graph.call(OPS["cast"], x, dtype=dtypes.float32), axis=axis, keepdims=keepdims, walk=walk)
        return graph.call(OPS["cast"], wide, dtype=x.dtype)
    return _plain_mean(graph, x, axis=axis, keepdims=keepdims, walk=walk)


def _plain_mean(graph: Graph, x: Node, *, axis: Axes, keepdims: bool, walk: Walk | None = None) -> Node:
    total = graph.call(OPS["sum"], x, axis=axis, keepdims=keepdims, walk=walk)
    return divide_by_count(graph, total, _count(x.shape, axis))


def _var(graph: Graph, x: Node, *, axis: Axes, keepdims: bool, ddof: int | float) -> Node:
    deviation = graph.call(OPS["subtract"], x, _plain_mean(graph, x, axis=axis, keepdims=True))
    if x.dtype.is_complex:
        parts = (graph.call(OPS["square"], graph.call(OPS[part], deviation)) for part in ("real", "imag"))
        squares = graph.call(OPS["add"], *parts)
    else:
        squares = graph.call(OPS["square"], deviation)
    total = graph.call(OPS["sum"], squares, axis=axis, keepdims=keepdims)
    return divide_by_count(graph, total, _count(x.shape, axis), ddof)


def _std(graph: Graph, x: Node, **attrs: Any) -> Node:
    return graph.call(OPS["sqrt"], _var(graph, x, **attrs))


def _spread_shape(who: str) -> ShapeRule:
    reduced_shape = _reduced_shape(who)

    def rule(metas: tuple[Meta, ...], attrs: Attrs) -> Shape:
        if not isinstance(attrs["ddof"], (int, float)):
            raise GraphError(f"{who}: ddof must be a number, got {attrs['ddof']!r}")
        return reduced_shape(metas, attrs)

    return rule


def _define_mean() -> Op:
    return define_op(
        "mean",
        arity=1,
        attrs={"axis": REQUIRED, "keepdims": False, "walk": None},
        dtype=same_dtype("mean", INEXACT),
        shape=_reduced_shape("mean"),
        eager=lambda xp, x, axis, keepdims, walk=None: xp.mean(x, axis=axis, keepdims=keepdims),
        lowering=Composite(_mean),
    )


def _define_spread(name: str, decompose: Any) -> Op:
    return define_op(
        name,
        arity=1,
        attrs={"axis": REQUIRED, "keepdims": False, "ddof": 0},
        dtype=to_real(name, INEXACT),
        shape=_spread_shape(name),
        eager=lambda xp, x, axis, keepdims, ddof: getattr(xp, name)(x, axis=axis, keepdims=keepdims, ddof=ddof),
        lowering=Composite(decompose),
    )


_define_mean()
_define_spread("var", _var)
_define_spread("std", _std)
