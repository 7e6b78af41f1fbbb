"""Gradients of interpolation, convolution and of counts with weights."""

from __future__ import annotations

from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.optable.call_gradients import called, gradient_of, refusal
from dynagraph.ir.shapes import Dim, numel, same_dim
from dynagraph.ir.terms import BaseTerm, Differentiated, Term

One = tuple["Term"]
Two = tuple["Term | None", "Term | None"]


# -- interpolation --------------------------------------------------------------------------------------------------------


@gradient_of("interp")
def _interp(
    d: Differentiated, g: Term, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> tuple[Term, Term, Term]:
    """By the slope of the segment that x lies in (at a point the one after it), and by how near its ends are."""
    if period is not None or not all(isinstance(v, BaseTerm) for v in (x, xp, fp)) or same_dim(xp.shape[0], 1):
        raise refusal(d, "there is one of two points or more, all arrays, without period")
    n = xp.shape[0]
    shape, x, xp = x.shape, _flat(x).cast(dtypes.float64), xp.cast(dtypes.float64)
    g, fp = _flat(g), fp.cast(g.dtype)
    position = called("searchsorted", xp, x, shape=x.shape, dtype=dtypes.int64, side="right")
    above = position.call("maximum", 1).call("minimum", n - 1)
    below = above - 1
    start, end, first, last = (_at(v, k) for v in (xp, fp) for k in (below, above))
    width = end - start
    slope = (last - first) / width.cast(g.dtype)
    near = (x - start) / width
    nearness = near.cast(g.dtype)
    is_left, is_right = position.equals(0), x.call("greater", _at(xp, position.full(n - 1, x.shape)))
    outside = is_left.call("logical_or", is_right)
    by_x = g.full(0, ()).where(outside, g * slope.conj).real
    by_start, by_end = by_x * (near - 1), -(by_x * near)
    inner = g.full(0, ()).where(outside, g)
    by_first = inner * (1 - nearness) + (g.full(0, ()) if left is not None else g).where(is_left, 0)
    by_last = inner * nearness + (g.full(0, ()) if right is not None else g).where(is_right, 0)
    return by_x.reshape(shape), _added(by_start, by_end, below, above, n), _added(by_first, by_last, below, above, n)


def _flat(x: Term) -> Term:
    return x.reshape((numel(x.shape),))


def _at(x: Term, places: Term) -> Term:
    return x.call("gather", places, axes=(0,), at=0)


def _added(first: Term, second: Term, below: Term, above: Term, n: Dim) -> Term:
    """Zeros with the first added at the places below, the second at those above."""
    total = first.full(0, (n,))
    for values, places in ((first, below), (second, above)):
        total = total.call("scatter", values, places, axes=(0,), at=0, combine="add")
    return total


# -- sums of products -----------------------------------------------------------------------------------------------------


@gradient_of("convolve")
def _convolve(d: Differentiated, g: Term, a: Any, v: Any, mode: str = "full") -> Two:
    return _by_factors(g, a, v, mode, is_swapped=False)


@gradient_of("correlate")
def _correlate(d: Differentiated, g: Term, a: Any, v: Any, mode: str = "valid") -> Two:
    """The convolution with the conjugate of v, from its end; where v is the longer one, NumPy runs from the other side."""
    a, v = (x if isinstance(x, BaseTerm) else g.number(x) for x in (a, v))
    backwards = _backwards(_flat(v)).conj
    by_a, by_v = _by_factors(g, a, backwards, mode, is_swapped=mode == "same" and bool(numel(a.shape) < numel(v.shape)))
    return by_a, _backwards(by_v).conj.reshape(v.shape)


def _by_factors(g: Term, a: Any, v: Any, mode: str, is_swapped: bool) -> tuple[Term, Term]:
    """Of a convolution: correlations of the gradient by all of its elements, also those that were left out, with the factors."""
    a, v = (x if isinstance(x, BaseTerm) else g.number(x) for x in (a, v))
    shapes = a.shape, v.shape
    a, v = (_flat(x).cast(g.dtype) for x in (a, v))
    n, m = a.shape[0], v.shape[0]
    if mode != "full":
        shorter = n if n < m else m
        start = shorter - 1 if mode == "valid" else shorter // 2 if is_swapped else (shorter - 1) // 2
        g = g.call("pad", widths=((start, n + m - 1 - start - g.shape[0]),))
    by_a = called("correlate", g, v, shape=a.shape, mode="valid")
    by_v = called("correlate", g, a, shape=v.shape, mode="valid")
    return by_a.reshape(shapes[0]), by_v.reshape(shapes[1])


def _backwards(x: Term) -> Term:
    return x.call("slice", starts=(x.shape[0] - 1,), steps=(-1,), shape=x.shape)


# -- counts ---------------------------------------------------------------------------------------------------------------


@gradient_of("bincount")
def _bincount(d: Differentiated, g: Term, x: Term, weights: Any = None, minlength: Any = 0) -> Two:
    return None, _at(g, x.cast(dtypes.int64))


__all__: list[str] = []
