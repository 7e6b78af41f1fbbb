"""Primitives between tensors and tensors of examples: into `vmap` and out of it, with their gradients.

Where an operation of a batched operand has one that is the same for all examples, the gradient by this is the sum over them: its
edge goes by way of a node of `batch_spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import batching, batching_rules
from dynagraph.torch.core.arrays import ufunc_reduce
from dynagraph.torch.core.batching import BatchedArray, examples, levels_of
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply, record


def _batch_in(x: Any, level: int, dim: int) -> Any:
    return BatchedArray(np.moveaxis(x, dim, 0), level)


def _batch_out(x: Any, level: int, dim: int, size: int) -> Any:
    physical = examples(x, level, size)
    return np.moveaxis(physical, 0, dim) if dim else physical


def _spread(x: Any, levels: tuple[tuple[int, int], ...]) -> Any:
    """Batched at further levels, too; without a copy."""
    for level, size in sorted(levels):
        x = _spread_one(x, level, size)
    return x


def _spread_one(x: Any, level: int, size: int) -> Any:
    if not isinstance(x, BatchedArray) or x.level < level:
        return BatchedArray(examples(x, level, size), level)
    if x.level == level:
        return x
    return BatchedArray(_spread_one(x.physical, level, size), x.level)


def _sum(g: Any, levels: tuple[tuple[int, int], ...]) -> Any:
    """The sum over the examples of some levels."""
    for level, size in sorted(levels, reverse=True):
        g = _sum_one(g, level, size)
    return g


def _sum_one(g: Any, level: int, size: int) -> Any:
    if not isinstance(g, BatchedArray) or g.level < level:
        return g * g.dtype.type(size)
    if g.level == level:
        return ufunc_reduce(np.add, g.physical, axis=0)
    return BatchedArray(_sum_one(g.physical, level, size), g.level)


def _back_in(d: Any, g: Any) -> Any:
    level, dim = d.attrs["level"], d.attrs["dim"]
    return g.call("batch_out", level=level, dim=dim, size=d.attrs["size"])


BATCH_IN = define(
    "batch_in", lambda x, level, dim, size: _batch_in(x, level, dim), (_back_in,), ("",), backward="BatchInBackward"
)  # fmt: skip
BATCH_OUT = define(
    "batch_out", _batch_out, (lambda d, g: g.call("batch_in", **d.attrs),), ("",), backward="BatchOutBackward"
)  # fmt: skip
BATCH_SPREAD = define(
    "batch_spread", _spread, (lambda d, g: g.call("batch_sum", **d.attrs),), ("",), backward="BatchSpreadBackward"
)  # fmt: skip
BATCH_SUM = define("batch_sum", _sum, (lambda d, g: g.call("batch_spread", **d.attrs),), ("",), backward="BatchSumBackward")


def _spread_edges(p: Primitive, operands: Sequence[Any], edges: list[Any], out: Any) -> list[Any]:
    """The edges of an operation's node: those to operands that are batched at fewer levels than the result sum over examples."""
    if p is BATCH_IN or p is BATCH_SPREAD or p is BATCH_SUM or p is BATCH_OUT:
        return edges
    levels = levels_of(out)
    found = list(edges)
    for k, edge in enumerate(edges):
        if edge is None:
            continue
        own = levels_of(operands[k]._array)
        missing = tuple((level, size) for level, size in levels.items() if level not in own)
        if missing:
            spreaded = _spread(operands[k]._array, missing)
            node = record(BATCH_SPREAD, (operands[k],), {"levels": missing}, (spreaded,))
            found[k] = (node, 0)
    return found


batching.spread_edges = _spread_edges


def spread(x: Tensor, levels: dict[int, int]) -> Tensor:
    """The tensor, batched at all of the levels."""
    own = levels_of(x._array)
    missing = tuple((level, size) for level, size in levels.items() if level not in own)
    return apply(BATCH_SPREAD, x, levels=missing) if missing else x


__all__ = ["BATCH_IN", "BATCH_OUT", "BATCH_SPREAD", "BATCH_SUM", "batching_rules", "spread"]
