"""``DeviceMesh``: ranks in a grid, with a group for each line along each dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.distributed.groups import (
    ProcessGroup,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    world,
)  # fmt: skip


class DeviceMesh:
    """The ranks in `mesh`, a grid of numbers.  All ranks make the same meshes, in the same order.

    ``mesh["name"]`` is the part along one dimension that this rank is in; ``mesh["a", "b"]`` along several.
    """

    device_type: str
    mesh_dim_names: tuple[str, ...] | None

    def __init__(self, device_type: str, mesh: Any = None, *, mesh_dim_names: tuple[str, ...] | None = None, _groups: Any = None):
        if not is_initialized():
            init_process_group()
        ranks = mesh._array if isinstance(mesh, Tensor) else mesh
        self.ranks = np.arange(get_world_size()) if ranks is None else np.asarray(ranks, dtype=np.int64)
        if self.ranks.size > get_world_size():
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {get_world_size()}, but found {self.ranks.size} ranks!"
            )
        if len(set(self.ranks.ravel().tolist())) != self.ranks.size:
            raise RuntimeError(f"DeviceMesh cannot have duplicate ranks, but found {self.ranks.tolist()}")
        if mesh_dim_names is not None and len(mesh_dim_names) != self.ranks.ndim:
            raise RuntimeError(f"mesh_dim_names {mesh_dim_names} must be as many as the mesh has dimensions: {self.ranks.ndim}")
        self.device_type, self.mesh_dim_names = device_type, None if mesh_dim_names is None else tuple(mesh_dim_names)
        at = np.argwhere(self.ranks == get_rank())
        self._place = tuple(map(int, at[0])) if len(at) else None
        self._groups: list[Any] = self._made_groups() if _groups is None else list(_groups)

    def _made_groups(self) -> list[Any]:
        """For each dimension the group of the ranks that differ from this one in that place alone."""
        if self.ranks.ndim == 1 and self.ranks.tolist() == list(range(get_world_size())):
            return [world()]
        found: list[Any] = []
        for axis in range(self.ranks.ndim):
            own = None
            for line in np.moveaxis(self.ranks, axis, -1).reshape(-1, self.ranks.shape[axis]).tolist():
                made = new_group(line)
                own = made if get_rank() in line else own
            found.append(own)
        return found

    @property
    def mesh(self) -> Tensor:
        """The ranks."""
        return wrap(self.ranks.copy())

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks there are along each dimension."""
        return self.ranks.shape

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return self.ranks.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, along a dimension or in all."""
        return self.ranks.size if mesh_dim is None else self.ranks.shape[mesh_dim]

    def get_rank(self) -> int:
        """This process's rank among all."""
        return get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This rank's place in the mesh; None where it is not in it."""
        return self._place

    def _axis(self, mesh_dim: int | str | None, what: str) -> int:
        if mesh_dim is None:
            if self.ranks.ndim != 1:
                raise RuntimeError(
                    f"the DeviceMesh has {self.ranks.ndim} dimensions: {what}() needs `mesh_dim` where there is more than one"
                )
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}: the dimensions are named {self.mesh_dim_names}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        return range(self.ranks.ndim)[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank's line along a dimension."""
        return self._groups[self._axis(mesh_dim, "get_group")]  # type: ignore[no-any-return]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of all dimensions."""
        return list(self._groups)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along a dimension."""
        axis = self._axis(mesh_dim, "get_local_rank")
        if self._place is None:
            raise RuntimeError(f"rank {get_rank()} is not in the mesh")
        return self._place[axis]

    def __getitem__(self, names: str | Sequence[str]) -> DeviceMesh:
        chosen = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        axes = [self._axis(name, "get_group") for name in chosen]
        if chosen == self.mesh_dim_names:
            return self
        place = self._place or (0,) * self.ranks.ndim
        part = self.ranks[tuple(slice(None) if k in axes else place[k] for k in range(self.ranks.ndim))]
        part = part.transpose([sorted(axes).index(axis) for axis in axes])
        return DeviceMesh(self.device_type, part, mesh_dim_names=chosen, _groups=[self._groups[axis] for axis in axes])

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup], device_type: str, mesh: Any = None, *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:
        """The mesh of a group, or of one for each dimension of `mesh`."""
        if isinstance(group, ProcessGroup):
            return DeviceMesh(device_type, get_process_group_ranks(group), mesh_dim_names=mesh_dim_names, _groups=[group])
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=group)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeviceMesh) and self.device_type == other.device_type and self.shape == other.shape
            and self.mesh_dim_names == other.mesh_dim_names and bool((self.ranks == other.ranks).all())
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.device_type, self.shape, self.mesh_dim_names, self.ranks.tobytes()))

    def __repr__(self) -> str:
        if self.mesh_dim_names is None:
            return f"DeviceMesh({self.shape}, {self.device_type!r}, stride={_strides(self.shape)})"
        sizes = ", ".join(f"{name}={n}" for name, n in zip(self.mesh_dim_names, self.shape))
        return f"DeviceMesh(({sizes}), {self.device_type!r}, stride={_strides(self.shape)})"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def init_device_mesh(
    device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None, backend_override: Any = None
) -> DeviceMesh:
    """The mesh of all ranks in a grid of a shape; the world is made if there is none."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique: {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length: {mesh_shape}, {mesh_dim_names}")
    if not is_initialized():
        init_process_group()
    count = math.prod(mesh_shape)
    if count > get_world_size():
        raise RuntimeError(f"Mesh should not be bigger than default world size {get_world_size()}, but found {count} ranks!")
    return DeviceMesh(device_type, np.arange(count).reshape(mesh_shape), mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
