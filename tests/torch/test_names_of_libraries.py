"""Names outside of PyTorch's public ones that popular libraries take."""

from __future__ import annotations

import types
from typing import Any

import pytest

import dynagraph.torch as torch
from dynagraph.torch.distributed import _composable, _tensor, constants
from dynagraph.torch.distributed import tensor as divided
from dynagraph.torch.distributed._composable import fsdp as _  # noqa: F401  (loads the module)
from dynagraph.torch.distributed.tensor import Replicate, Shard, placement_types
from dynagraph.torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from dynagraph.torch.futures import Future
from dynagraph.torch.utils._foreach_utils import _group_tensors_by_device_and_dtype


def test_lists_are_divided_by_device_and_dtype() -> None:
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.float64), torch.zeros(1)]
    groups: Any = _group_tensors_by_device_and_dtype([tensors, [None, "state", None]], with_indices=True)
    (singles, places), (doubles, others) = (groups[torch.device("cpu"), dtype] for dtype in (torch.float32, torch.float64))
    assert singles[0][0] is tensors[0] and singles[0][1] is tensors[2] and singles[1] == [None, None] and places == [0, 2]
    assert doubles[0][0] is tensors[1] and doubles[1] == ["state"] and others == [1]
    assert _group_tensors_by_device_and_dtype([tensors])[torch.device("cpu"), torch.float32][1] == []


def test_vmap_is_seen_as_a_transform() -> None:
    seen: list[bool] = []

    def double(x: Any) -> Any:
        seen.append(torch._C._are_functorch_transforms_active())
        return x * 2

    torch.vmap(double)(torch.ones(3))
    assert seen[0] and not torch._C._are_functorch_transforms_active()


def test_other_names_of_the_same_things() -> None:
    assert torch.Future is Future
    assert _tensor.DTensor is divided.DTensor and placement_types.Shard is Shard
    assert constants.default_pg_timeout == torch.distributed.default_pg_timeout
    assert _composable.fully_shard is _composable.fsdp.fully_shard is torch.distributed.fsdp.fully_shard
    assert _composable.fsdp.CPUOffloadPolicy is torch.distributed.fsdp.CPUOffloadPolicy


def test_strided_shards_are_described_only() -> None:
    strided = placement_types._StridedShard(dim=1, split_factor=2)
    assert repr(strided) == "_StridedShard(dim=1, sf=2)" and str(strided) == "_S(1, 2)"
    assert strided == placement_types._StridedShard(1, split_factor=2) != Shard(1) and not strided.is_shard()
    with pytest.raises(TypeError, match="positional argument"):
        placement_types._StridedShard(1, 2)  # type: ignore[misc]
    with pytest.raises(NotImplementedError, match=r"only Shard\(0\)"):
        divided.distribute_tensor(torch.ones(4), placements=[strided])


# as PyTorch 2.13 answers on a mesh of four
@pytest.mark.parametrize("rank, shape, offset", [(0, (3, 4), (0, 0)), (2, (3, 4), (6, 0)), (3, (1, 4), (9, 0)), (None, (0,), ())])
def test_parts_of_rows(rank: int | None, shape: tuple[int, ...], offset: tuple[int, ...]) -> None:
    mesh = types.SimpleNamespace(get_coordinate=lambda: None if rank is None else (rank,), size=lambda axis: 4)
    assert compute_local_shape_and_global_offset((10, 4), mesh, [Shard(0)]) == (shape, offset)
    whole = ((10, 4), (0, 0)) if rank is not None else ((0,), ())
    assert compute_local_shape_and_global_offset((10, 4), mesh, [Replicate()]) == whole
