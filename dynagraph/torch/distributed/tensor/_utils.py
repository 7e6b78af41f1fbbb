"""``torch.distributed.tensor._utils``: which part of a tensor a rank has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.distributed.tensor.sharded import Placement, Shard, rows_of
from dynagraph.torch.missing import getattr_of


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of this rank's part of a tensor, and where in the whole it begins; of no sizes on a rank outside of the mesh."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    sizes, starts = list(global_shape), [0] * len(global_shape)
    for axis, placement in enumerate(placements):
        if isinstance(placement, Shard):
            start, end = rows_of(sizes[placement.dim], mesh.size(axis), coordinate[axis])
            # without rows, a rank begins at the end of the whole
            starts[placement.dim] = starts[placement.dim] + start if end > start else global_shape[placement.dim]
            sizes[placement.dim] = end - start
    return tuple(sizes), tuple(starts)


__getattr__: Any = getattr_of(__name__)
__all__ = ["compute_local_shape_and_global_offset"]
