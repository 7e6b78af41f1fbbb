"""Gradients of sorts, medians and quantiles: each result element is, or lies between, operand elements, which get the gradient.

The elements that are sorted are rows of a matrix here.  Where some are equal, any order of these is a right one.
"""

from __future__ import annotations

from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.optable.call_gradients import called, gradient_of, refusal
from dynagraph.ir.shapes import Dim, normalize_axis, numel
from dynagraph.ir.terms import BaseTerm, Differentiated, Term, counted

One = tuple["Term"]


# -- rows -----------------------------------------------------------------------------------------------------------------


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    named = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(normalize_axis(k, rank, "axis") for k in named))


def _order(rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return (*(k for k in range(rank) if k not in axes), *axes)


def _as_rows(x: Term, axes: tuple[int, ...]) -> Term:
    """The elements along the axes as rows of a matrix."""
    n = numel(x.shape[k] for k in axes)
    others = numel(d for k, d in enumerate(x.shape) if k not in axes)
    return x.call("transpose", axes=_order(x.ndim, axes)).reshape((others, n))


def _from_rows(rows: Term, like: Term, axes: tuple[int, ...]) -> Term:
    order = _order(like.ndim, axes)
    moved = rows.reshape(tuple(like.shape[k] for k in order))
    return moved.call("transpose", axes=tuple(map(order.index, range(like.ndim))))


def _row_numbers(places: Term) -> Term:
    rows = places.shape[0]
    return counted(places, rows).reshape((rows, 1)).call("broadcast_to", shape=places.shape)


def _taken(x: Term, places: Term) -> Term:
    """From each row what lies at the places in that row."""
    return x.call("gather", _row_numbers(places), places, axes=(0, 1), at=0)


def _put(values: Term, places: Term, n: Dim) -> Term:
    """Rows of n elements: at the places the values, or their sum, and zeros."""
    zeros = values.full(0, (values.shape[0], n))
    return zeros.call("scatter", values, _row_numbers(places), places, axes=(0, 1), at=0, combine="add")


def _sorting(rows: Term) -> Term:
    return called("argsort", rows, shape=rows.shape, dtype=dtypes.int64)


# -- sorts ----------------------------------------------------------------------------------------------------------------


@gradient_of("sort", "sort_complex")
def _sort(d: Differentiated, g: Term, a: Term, axis: Any = -1, *others: Any, **more: Any) -> One:
    axes = _axes(axis, a.ndim)
    rows = g.reshape((1, g.shape[0])) if axis is None else _as_rows(g, axes)
    put = _put(rows, _sorting(_as_rows(a, axes)), rows.shape[1])
    return (_from_rows(put, a, axes),)


@gradient_of("partition")
def _partition(d: Differentiated, g: Term, a: Term, kth: Any, axis: Any = -1, *others: Any, **more: Any) -> One:
    """Which element went where, two sorts tell: that of the operand, and that of the result."""
    axes = _axes(axis, a.ndim)
    rows, out = ((x.reshape((1, x.shape[0])) if axis is None else _as_rows(x, axes)) for x in (g, d.out))
    put = _put(_taken(rows, _sorting(out)), _sorting(_as_rows(a, axes)), rows.shape[1])
    return (_from_rows(put, a, axes),)


# -- quantiles ------------------------------------------------------------------------------------------------------------


@gradient_of("median", "nanmedian")
def _median(d: Differentiated, g: Term, a: Term, axis: Any = None, **more: Any) -> One:
    return (_by_elements(d, g, a, g.number(0.5, dtypes.float64), axis)[0],)


@gradient_of("quantile", "nanquantile", "percentile", "nanpercentile")
def _quantile(
    d: Differentiated, g: Term, a: Term, q: Any, axis: Any = None, *, method: str = "linear", weights: Any = None, **more: Any
) -> tuple[Term, Term]:
    if method != "linear" or weights is not None:
        raise refusal(d, "there is one with method='linear' and without weights")
    percent = d.attrs["call"].function.endswith("percentile")
    share = q.cast(dtypes.float64) if isinstance(q, BaseTerm) else g.number(q, dtypes.float64)
    by_a, by_share = _by_elements(d, g, a, share / 100 if percent else share, axis)
    return by_a, (by_share / 100 if percent else by_share).reshape(share.shape)


def _by_elements(d: Differentiated, g: Term, a: Term, share: Term, axis: Any) -> tuple[Term, Term]:
    """Each quantile lies between two neighbours in the sorted row: gradients by these, and by the shares of the row below."""
    axes = _axes(axis, a.ndim)
    rows = _as_rows(a, axes)
    count, n_shares = rows.shape[0], numel(share.shape)
    last = _last_place(d, rows)
    at = last * share.reshape((1, n_shares))
    below = at.call("floor")
    above = (below + 1).call("minimum", last)
    between = at - below
    by_result = g.reshape((n_shares, count)).transposed
    sorting = _sorting(rows)
    shape = (count, n_shares)
    lower, upper = (_taken(sorting, k.cast(dtypes.int64).call("broadcast_to", shape=shape)) for k in (below, above))
    weight = between.cast(g.dtype)
    by_rows = _put(by_result * (1 - weight), lower, rows.shape[1]) + _put(by_result * weight, upper, rows.shape[1])
    steps = (_taken(rows, upper) - _taken(rows, lower)).cast(g.dtype)
    return _from_rows(by_rows, a, axes), (by_result * steps * last.cast(g.dtype)).sum(0)


def _last_place(d: Differentiated, rows: Term) -> Term:
    """Of the sorted elements of each row, NaN left out by the functions that do so."""
    n = rows.shape[1]
    if not d.attrs["call"].function.startswith("nan"):
        return rows.number(n - 1, dtypes.float64)
    numbers = rows.call("isnan").call("logical_not").cast(dtypes.float64)
    return numbers.call("sum", axis=(1,), keepdims=True) - 1


__all__: list[str] = []
