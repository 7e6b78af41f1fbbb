"""Rows of linear algebra: routines that a library runs."""

from __future__ import annotations

from dynagraph.errors import ShapeError
from dynagraph.ir.ops import Attrs, Library, Metas, define_op
from dynagraph.ir.optable.rules import same_dtype
from dynagraph.ir.shapes import Shape, broadcast_shapes


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


define_op(
    "matmul",
    arity=2,
    dtype=same_dtype("matmul"),
    shape=_matmul_shape,
    eager=lambda xp, a, b: xp.matmul(a, b),
    lowering=Library("matmul"),
    vjp=lambda d, g: (g.call("matmul", d.y.transposed), d.x.transposed.call("matmul", g)),
    doc="NumPy's, for two dimensions or more; the leading ones broadcast",
)
