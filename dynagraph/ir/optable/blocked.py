"""Blocked reductions, which only the compiler makes: `legalize` splits long reductions, so that all cores have work.

The blocks depend on sizes alone, never on the number of threads: results are the same bits everywhere.  Those of floating-point
sums are subtrees of NumPy's pairwise sum.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.ops import EXTREMES, REQUIRED, Attrs, Composite, Metas, define_op, step_of
from dynagraph.ir.shapes import Shape

PAIRWISE_BLOCK = 128  # real numbers that NumPy's pairwise sum adds up in eight accumulators, without dividing them

def _blocked_shape(metas: Metas, attrs: Attrs) -> Shape:
    shape, axis, block, levels = metas[0].shape, attrs["axis"], attrs["block"], attrs["levels"]
    count = 2**levels if levels else (shape[axis] + (block - 1)) // block
    return shape[:axis] + (count,) + shape[axis + 1 :]


def pairwise_half(length: int, is_complex: bool) -> int:
    """Where NumPy's pairwise sum divides so many elements: it counts the real numbers, and each half has whole vectors of eight."""
    numbers = 2 * length if is_complex else length
    half = numbers // 2 - numbers // 2 % 8
    return half // 2 if is_complex else half


def subtrees(length: int, levels: int, is_complex: bool) -> list[int]:
    """The lengths of the parts of a pairwise sum, `levels` below its root; what is too short to be divided is the first of two.

    >>> subtrees(1000, 2, False)
    [248, 248, 248, 256]
    """
    if levels == 0:
        return [length]
    short = length <= PAIRWISE_BLOCK // (1 + is_complex)
    half = length if short else pairwise_half(length, is_complex)
    return subtrees(half, levels - 1, is_complex) + subtrees(length - half, levels - 1, is_complex)


def _eager(xp: Any, x: Any, *, kind: str, axis: int, block: int | None, levels: int, pairwise: bool) -> Any:
    if levels:
        lengths = subtrees(x.shape[axis], levels, x.dtype.kind == "c")
        parts = xp.split(x, list(accumulate(lengths))[:-1], axis)
        return xp.stack([xp.sum(part, axis, dtype=x.dtype) for part in parts], axis)
    assert block is not None
    if kind in EXTREMES:
        of_block = (xp.take(x, range(start, min(start + block, x.shape[axis])), axis) for start in range(0, x.shape[axis], block))
        return xp.stack([getattr(xp, kind)(part, axis) + block * k for k, part in enumerate(of_block)], axis)
    starts = range(0, x.shape[axis], block)
    if pairwise:
        parts = (xp.take(x, range(start, min(start + block, x.shape[axis])), axis) for start in starts)
        return xp.stack([xp.sum(part, axis, dtype=x.dtype) for part in parts], axis)
    starts = xp.asarray(starts)
    return getattr(xp, step_of(kind).name).reduceat(x, starts, axis=axis, dtype=x.dtype)


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("block_reduce is lowered, never decomposed")


# lowered by ir/passes/lower.py, which knows it by name: the only op whose last block may be short
block_reduce = define_op(
    "block_reduce",
    arity=1,
    cupy=False,
    attrs={"kind": REQUIRED, "axis": REQUIRED, "block": None, "levels": 0, "pairwise": False},
    dtype=lambda metas, attrs: dtypes.int64 if attrs["kind"] in EXTREMES else metas[0].dtype,
    shape=_blocked_shape,
    eager=_eager,
    lowering=Composite(_never),
    doc="reduce `block` neighbours along one axis at a time, or the parts of a pairwise sum so many levels below its root; "
    "`pairwise`: in the order of NumPy's sum; "
    "positions (argmax, argmin) count from the axis' beginning",
)
