"""Ops that only the compiler makes: `legalize` splits long reductions into blocks, so that all cores have work.

The blocks depend on sizes alone, never on the number of threads: results are the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.ops import EXTREMES, REQUIRED, Attrs, Composite, Metas, define_op
from dynagraph.ir.optable.reductions import BIT_REDUCTIONS
from dynagraph.ir.shapes import Shape

_REDUCE = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
    **BIT_REDUCTIONS,
}  # fmt: skip


def _blocked_shape(metas: Metas, attrs: Attrs) -> Shape:
    shape, axis, block = metas[0].shape, attrs["axis"], attrs["block"]
    return shape[:axis] + ((shape[axis] + (block - 1)) // block,) + shape[axis + 1 :]


def _eager(xp: Any, x: Any, *, kind: str, axis: int, block: int) -> Any:
    if kind in EXTREMES:
        of_block = (xp.take(x, range(start, min(start + block, x.shape[axis])), axis) for start in range(0, x.shape[axis], block))
        return xp.stack([getattr(xp, kind)(part, axis) + block * k for k, part in enumerate(of_block)], axis)
    starts = xp.arange(0, x.shape[axis], block)
    return getattr(xp, _REDUCE[kind]).reduceat(x, starts, axis=axis, dtype=x.dtype)


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("block_reduce is lowered, never decomposed")


# lowered by ir/passes/lower.py, which knows it by name: the only op whose last block may be short
block_reduce = define_op(
    "block_reduce",
    arity=1,
    attrs={"kind": REQUIRED, "axis": REQUIRED, "block": REQUIRED},
    dtype=lambda metas, attrs: dtypes.int64 if attrs["kind"] in EXTREMES else metas[0].dtype,
    shape=_blocked_shape,
    eager=_eager,
    lowering=Composite(_never),
    doc="reduce `block` neighbours along one axis at a time; positions (argmax, argmin) count from the axis' beginning",
)
