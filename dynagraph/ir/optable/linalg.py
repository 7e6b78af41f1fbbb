"""Rows of linear algebra: routines that a library runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dynagraph import products
from dynagraph.errors import ShapeError
from dynagraph.ir.ops import Attrs, Library, Metas, define_op
from dynagraph.ir.optable.rules import same_dtype
from dynagraph.ir.shapes import Shape, broadcast_shapes, numel
from dynagraph.ir.terms import Differentiated, Term

VJP = Callable[[Differentiated, Term], Term]


def _matmul_shape(metas: Metas, attrs: Attrs) -> Shape:
    left, right = metas[0].shape, metas[1].shape
    if len(left) < 2 or len(right) < 2:
        raise ShapeError(
            f"matmul: operands must have 2 dimensions or more, got shapes {left} and {right}; reshape vectors first"
        )
    if left[-1] != right[-2]:
        raise ShapeError(
            f"matmul: shapes {left} and {right} do not fit; "
            f"the last size of the first must equal the second last of the second, {left[-1]} is not {right[-2]}"
        )
    return broadcast_shapes(left[:-2], right[:-2], who="matmul") + (left[-2], right[-1])


def _product(name: str, of: Term, left: Term, right: Term) -> Term:
    """The gradient by an operand; by one that is transposed, as the transpose of what its own gradient is."""
    if of.is_transpose:
        return right.transposed.call(name, left.transposed).transposed
    return left.call(name, right)


def _gradients(name: str) -> tuple[VJP, VJP]:
    """Of ``x @ y``: products by the same routine."""

    def by_left(d: Differentiated, g: Term) -> Term:
        return _product(name, d.x, g, d.y.adjoint)

    def by_right(d: Differentiated, g: Term) -> Term:
        """By a single matrix that many are multiplied with, the sum over these is one product of all their rows."""
        x, rows = d.x, g
        if d.y.ndim == 2 and x.ndim > 2:
            x, rows = (t.reshape((numel(t.shape[:-1]), t.shape[-1])) for t in (x, g))
        return _product(name, d.y, x.adjoint, rows)

    return by_left, by_right


define_op(
    "matmul",
    arity=2,
    dtype=same_dtype("matmul"),
    shape=_matmul_shape,
    eager=lambda xp, a, b: xp.matmul(a, b),
    lowering=Library("matmul"),
    vjp=_gradients("matmul"),
    doc="NumPy's, for two dimensions or more; the leading ones broadcast",
)

define_op(
    "own_matmul",
    arity=2,
    dtype=same_dtype("own_matmul"),
    shape=_matmul_shape,
    eager=lambda xp, a, b: (products.matmul if xp is np else xp.matmul)(a, b),
    lowering=Library("matmul", own=True),
    vjp=_gradients("own_matmul"),
    doc="`matmul` on dynagraph's threads where it is of float32 or float64, on the CPU; its sums have an order of their own",
)
