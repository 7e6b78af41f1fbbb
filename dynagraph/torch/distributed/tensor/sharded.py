"""``DTensor``: a tensor whose rows are divided among ranks, or which all ranks have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor, storage_of
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.functions.norms import vector_norm

_torch = NAMESPACES["torch"]


class Placement:
    """How a tensor lies on the ranks of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether ranks have parts of it, along `dim`."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether all ranks have all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether it is the sum of what ranks have."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Shard(Placement):
    """Parts along a dimension: all ranks but the last ones have as many rows."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """All of it on each rank."""


@dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a summand."""

    reduce_op: str = "sum"


def rows_of(n: int, ranks: int, rank: int) -> tuple[int, int]:
    """Which of n rows a rank has: those from a number on, up to another one."""
    each = -(-n // ranks)
    return min(rank * each, n), min((rank + 1) * each, n)


class DTensor(Tensor):
    """This rank's rows of a tensor: `shape` is that of the whole, arithmetic is with the part.

    Optimizers whose step is one formula for each element (SGD, Adam...) work on the part.
    """

    _is_divided = True
    _whole_shape: Any
    _mesh: Any
    _group: Any

    @property
    def shape(self) -> Size:
        return Size(self._whole_shape)

    def size(self, dim: int | None = None) -> Any:
        """The sizes of the whole, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """How many elements the whole has."""
        return self.shape.numel()

    nelement = numel

    @property
    def device_mesh(self) -> Any:
        return self._mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return (Shard(0),)

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """This rank's part: the same memory."""
        return Tensor.detach(self)

    def rows(self) -> tuple[int, int]:
        """Which rows these are."""
        return rows_of(self.shape[0], dist.get_world_size(self._group), dist.get_rank(self._group))

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """The whole, on each rank; all ranks call it."""
        ranks, shape = dist.get_world_size(self._group), self.shape
        each = -(-shape[0] // ranks)
        with no_grad():
            local = self.to_local()
            own = _torch["zeros"](each, *shape[1:], dtype=self.dtype, device=self.device)
            own[: local.shape[0]] = local
            every = _torch["empty"](each * ranks, *shape[1:], dtype=self.dtype, device=self.device)
            dist.all_gather_into_tensor(every, own, group=self._group)
            return every[: shape[0]].clone()

    def detach(self) -> DTensor:
        return sharded(Tensor.detach(self), self._whole_shape, self._group, self._mesh)

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Take another one's part, or this rank's rows of a whole tensor."""
        if isinstance(source, DTensor):
            source = source.to_local()
        elif tuple(source.shape) == tuple(self.shape):
            begin, end = self.rows()
            source = source[begin:end]
        with no_grad():
            self.to_local().copy_(source)
        return self

    @staticmethod
    def norms_over_ranks(tensors: Sequence[DTensor], order: float) -> list[Tensor]:
        """For each group of ranks the norm of its tensors, as if they were one vector."""
        groups: dict[int, list[DTensor]] = {}
        for tensor in tensors:
            groups.setdefault(id(tensor._group), []).append(tensor)
        norms = []
        for some in groups.values():
            flat = _torch["cat"]([tensor.to_local().reshape(-1) for tensor in some])
            own = flat.new_zeros(1)
            if flat.numel():
                own[0] = vector_norm(flat, order)
            if order == math.inf:
                dist.all_reduce(own, dist.ReduceOp.MAX, group=some[0]._group)
            else:
                powers = own**order
                dist.all_reduce(powers, group=some[0]._group)
                own = powers ** (1.0 / order)
            norms.append(own[0])
        return norms

    @staticmethod
    def greatest_over_ranks(tensors: Sequence[DTensor], value: Tensor) -> Tensor:
        """The greatest of a value that each rank has, over all ranks that have parts of these tensors."""
        greatest = value.reshape(1).clone()
        for group in {id(tensor._group): tensor._group for tensor in tensors}.values():
            dist.all_reduce(greatest, dist.ReduceOp.MAX, group=group)
        return greatest[0]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DTensor(local_tensor={self.to_local()!r}, placements={self.placements})"

    __str__ = __repr__


def sharded(local: Tensor, shape: Any, group: Any, mesh: Any, requires_grad: bool = False) -> DTensor:
    """A DTensor of this rank's part, whose memory it shares."""
    made: Any = object.__new__(DTensor)
    made._array, made._storage = local._array, storage_of(local)
    made._base = made._grad_fn = None
    made._requires_grad = False
    made._whole_shape, made._group, made._mesh = tuple(shape), group, mesh
    if requires_grad:
        made.requires_grad = True
    return made


def distribute_tensor(
    tensor: Tensor, device_mesh: Any = None, placements: Any = None, *, src_data_rank: int | None = 0
) -> DTensor:  # fmt: skip
    """This rank's rows of a tensor that all ranks have."""
    group = None if device_mesh is None else device_mesh.get_group()
    if placements is not None and tuple(placements) != (Shard(0),):
        raise NotImplementedError("distribute_tensor: only Shard(0) on a mesh of one dimension is supported")
    begin, end = rows_of(tensor.shape[0], dist.get_world_size(group), dist.get_rank(group))
    with no_grad():
        part = tensor.detach()[begin:end].clone()
    return sharded(part, tensor.shape, group, device_mesh, tensor.requires_grad)


__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor", "rows_of", "sharded"]
