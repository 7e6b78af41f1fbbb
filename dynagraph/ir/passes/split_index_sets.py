"""Index set splitting: cut loops at the joints of concatenated arrays and the borders of padded and rolled ones.

Comes after `collapse`.  Such values are a `choose` by the position; in an inner loop it is a branch for each element, and the loop
is not vectorised.  Between two cuts it is known what is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise

from dynagraph.driver import deadline
from dynagraph.ir import dtypes, expr
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Axis, Define, Kernel, Loop, Statement, Store, expressions, map_body, substitute

SHORTEST = 64  # turns of a loop for each of its segments
LEAST = 2048  # elements of what is cut: each segment is compiled by itself
MOST = 32  # kernels that are made of one
MOST_LOOPS = 128  # ... and loops within them


def segment(kernel: Kernel) -> list[Kernel]:
    """Needs: a collapsed kernel.  Leaves: one or more that store the same, in order."""
    deadline.check()
    if not any(e.op == "choose" for root in expressions(kernel.body) for e in root.walk()):
        return [kernel]
    kernels = [kernel]
    for k in range(len(kernel.axes)):
        cut = [piece for whole in kernels for piece in _cut(whole, k)]
        kernels = cut if len(cut) <= MOST else kernels
    most = MOST_LOOPS // len(kernels)
    kernels = [replace(k, body=tuple(chain.from_iterable(_segmented(s, _turns(k.axes), most) for s in k.body))) for k in kernels]
    if len(kernels) == 1:
        return kernels
    return [replace(piece, name=f"{kernel.name}_{n}") for n, piece in enumerate(kernels)]


def _turns(axes: Sequence[Axis]) -> int:
    return math.prod(axis.hint for axis in axes)


def _cut(kernel: Kernel, k: int) -> list[Kernel]:
    """The kernel, cut along one of its axes."""
    axis = kernel.axes[k]
    inner = sum(_turns(s.axes) for s in kernel.body if isinstance(s, Loop))
    pieces = _pieces(axis, kernel.body, _turns(kernel.axes) // max(1, axis.hint) * max(1, inner), MOST)
    if len(pieces) == 1:
        return [replace(kernel, body=_known(kernel.body))]
    found = []
    for piece in pieces:
        position = IntExpr.symbol(axis.symbol.name, 0, piece.extent - 1)  # a kernel counts from 0
        (symbol,) = position.symbols()
        body = _known(substitute(kernel.body, {axis.symbol.name: position + piece.start}))
        axes = (*kernel.axes[:k], Axis(symbol, piece.extent, piece.hint), *kernel.axes[k + 1 :])
        found.append(replace(kernel, axes=axes, body=body))
    return found


def _segmented(s: Statement, outside: int, most: int) -> Iterator[Statement]:
    """A loop as loops one after another, `most` at the most."""
    if not isinstance(s, Loop) or not all(isinstance(inner, (Define, Store)) for inner in s.body):
        yield s
        return
    *outer, last = s.axes
    for piece in _pieces(last, s.body, outside * _turns(outer), most):
        narrowed = substitute(s.body, {last.symbol.name: IntExpr({(piece.symbol,): 1})})
        yield Loop((*outer, piece), _known(narrowed))


# -- where to cut -----------------------------------------------------------------------------------------------------------------


def _pieces(axis: Axis, body: Sequence[Statement], others: int, most: int) -> list[Axis]:
    """The axis, or parts of it that follow one another; `others`: how many turns other loops make around and within it."""
    start, extent = axis.start.constant, axis.extent.constant
    if start is None or extent is None or extent * others < LEAST:
        return [axis]
    cuts = sorted({cut for cut in _cuts(axis, body) if start < cut < start + extent})
    if not cuts or len(cuts) >= most or extent < SHORTEST * (len(cuts) + 1):
        return [axis]
    return [_part(axis, low, high) for low, high in pairwise([start, *cuts, start + extent])]


def _part(axis: Axis, low: int, high: int) -> Axis:
    (symbol,) = IntExpr.symbol(axis.symbol.name, low, high - 1).symbols()
    return Axis(symbol, IntExpr.of(high - low), high - low, IntExpr.of(low))


def _cuts(axis: Axis, body: Sequence[Statement]) -> Iterator[int]:
    """The turns at which a choice changes."""
    for root in expressions(body):
        for e in root.walk():
            if e.op == "choose":
                for test in e.args[0].walk():
                    cut = _change(test, axis)
                    if cut is not None:
                        yield cut


def _change(test: Expr, axis: Axis) -> int | None:
    """The first turn with another answer than the one before, of a comparison that depends on no other loop."""
    difference = _difference(test)
    if difference is None:
        return None
    coefficient = difference.coefficient(axis.symbol)
    step = None if coefficient is None else coefficient.constant
    if not step:
        return None
    rest = (difference - IntExpr({(axis.symbol,): step})).constant
    if rest is None:
        return None
    return -(rest // step) if step > 0 else rest // -step + 1


def _difference(test: Expr) -> IntExpr | None:
    """left - right of a comparison of indices."""
    if test.op not in ("lt", "ge") or any(a.op != "index" or a.dtype is not dtypes.int64 for a in test.args):
        return None
    left, right = (a.value for a in test.args)
    assert isinstance(left, IntExpr) and isinstance(right, IntExpr)
    return left - right


# -- what is known ----------------------------------------------------------------------------------------------------------------


def _known(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements without the choices that the ranges of the loop variables decide."""
    made: dict[Expr, Expr] = {}

    def value(root: Expr) -> Expr:
        for e in root.walk():
            if e not in made:
                made[e] = _decided(e, tuple(made[a] for a in e.args))
        return made[root]

    return map_body(body, value)


def _decided(e: Expr, args: tuple[Expr, ...]) -> Expr:
    difference = _difference(e)
    if difference is not None:
        low, high = difference.bounds()
        if high is not None and high < 0:
            return expr.const(e.op == "lt", e.dtype)
        if low is not None and low >= 0:
            return expr.const(e.op == "ge", e.dtype)
    if e.op == "and" and e.dtype.is_bool and any(a.op == "const" for a in args):
        left, right = args
        known, other = (left, right) if left.op == "const" else (right, left)
        return other if known.value else known
    if e.op == "choose" and args[0].op == "const":
        return args[1] if args[0].value else args[2]
    return e if all(a is b for a, b in zip(args, e.args)) else replace(e, args=args, _hash=0)


__all__ = ["segment"]
