"""Summation order: the order in which NumPy's reductions take the elements, by their place in memory.

The iterator sorts the axes by their strides (`layout.iteration_order`), and walks neighbouring ones as one where their strides
allow it.  Where the innermost axis is reduced, its elements are added up pairwise, and so are those of further reduced axes if
several rows fit into its buffer; what the other axes give is added up in turn.  Strides are not negated.

This is the iterator of NumPy 2.3 and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from dynagraph.doors.numpy.layout import Order, iteration_order, lies_in_c_order, steps_of
from dynagraph.ir.ops import Strided, Walk
from dynagraph.ir.shapes import Dim, Shape, numel, same_dim

BUFFER = 8192  # elements of the iterator's buffer: np.getbufsize()


def walk_of(operands: Sequence[Strided], axes: Sequence[int], casts: bool) -> tuple[Order, Walk] | None:
    """The reduced axes as NumPy goes through them, the outermost first, and the walk; None: that of an array without gaps.

    `operands`: the array, and what goes with it through the iterator: a mask, and a given result, of which only the axes that are
    kept have strides.  `casts`: whether the array has another dtype than the sum.
    """
    if not casts and all(map(lies_in_c_order, operands)):
        return None
    return memory_walk(operands, axes, casts)


def memory_walk(operands: Sequence[Strided], axes: Sequence[int], casts: bool) -> tuple[Order, Walk]:
    """As `walk_of`, also of arrays without gaps."""
    x, rank = operands[0], len(operands[0].shape)
    steps = [steps_of(o, rank) for o in operands]
    order = [k for k in iteration_order(steps, rank) if x.shape[k] != 1]
    runs = _runs(x.shape, steps, list(takewhile(lambda k: k in axes, reversed(order))))
    sizes = [numel(x.shape[k] for k in run) for run in runs]
    count, chunk = _together(sizes, casts)
    ones = [k for k in axes if x.shape[k] == 1]
    together = sum(map(len, runs[:count]))
    return (*ones, *(k for k in order if k in axes)), Walk(together, chunk)


def _runs(shape: Shape, steps: Sequence[Shape], inner: Sequence[int]) -> list[list[int]]:
    """The axes, the innermost first, in runs that have one stride."""
    runs: list[list[int]] = []
    for axis in inner:
        if runs and all(_continues(s[runs[-1][-1]] * shape[runs[-1][-1]], s[axis]) for s in steps):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _continues(end: Dim, stride: Dim) -> bool:
    return same_dim(end, stride) or end == stride


def _together(sizes: Sequence[Dim], casts: bool) -> tuple[int, int | None]:
    """How many runs are walked as one, and how many of their elements at a time where they are copied into the buffer.

    The first is copied if it is cast, or if more than one of it fits.
    """
    if not sizes:
        return 0, None
    if len(sizes) == 1 or (sizes[0] >= BUFFER if casts else 2 * sizes[0] > BUFFER):
        return 1, BUFFER if casts else None
    count = 1
    core: Dim = 1
    size = sizes[0]
    while count < len(sizes) and size < BUFFER:
        core, size, count = size, size * sizes[count], count + 1
    return count, _whole_chunks(core, size)


def _whole_chunks(core: Dim, size: Dim) -> int | None:
    return None if size <= BUFFER else BUFFER - BUFFER % int(core)

