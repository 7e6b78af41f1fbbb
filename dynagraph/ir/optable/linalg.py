"""Rows of linear algebra: routines that a library runs."""

from __future__ import annotations

from dynagraph.errors import ShapeError
from dynagraph.ir.ops import Attrs, Library, Metas, define_op
from dynagraph.ir.optable.rules import same_dtype
from dynagraph.ir.shapes import Shape, broadcast_shapes, numel
from dynagraph.ir.terms import Differentiated, Term


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


def _matmul_by_left(d: Differentiated, g: Term) -> Term:
    return _product(d.x, g, d.y.adjoint)


def _matmul_by_right(d: Differentiated, g: Term) -> Term:
    """By a single matrix that many are multiplied with, the sum over these is one product of all their rows."""
    x, rows = d.x, g
    if d.y.ndim == 2 and x.ndim > 2:
        x, rows = (t.reshape((numel(t.shape[:-1]), t.shape[-1])) for t in (x, g))
    return _product(d.y, x.adjoint, rows)


def _product(of: Term, left: Term, right: Term) -> Term:
    """The gradient by an operand; by one that is transposed, as the transpose of what its own gradient is."""
    if of.is_transpose:
        return (right.transposed @ left.transposed).transposed
    return left @ right


define_op(
    "matmul",
    arity=2,
    dtype=same_dtype("matmul"),
    shape=_matmul_shape,
    eager=lambda xp, a, b: xp.matmul(a, b),
    lowering=Library("matmul"),
    vjp=(_matmul_by_left, _matmul_by_right),
    doc="NumPy's, for two dimensions or more; the leading ones broadcast",
)
