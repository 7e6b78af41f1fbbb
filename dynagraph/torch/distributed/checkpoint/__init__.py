"""``torch.distributed.checkpoint``: state dicts in many files, written by any number of ranks and read by any other.

The files are those of `dynagraph/torch/serialization/sharded.py`, not PyTorch's ``.distcp``.  A rank that holds a part of a
tensor has a DTensor, as `fully_shard` makes them, or a `Part` in its state dict.  Tensors that all ranks have are written by the
first one.  `state_dict` has the state dicts of models and optimizers by names, whatever wraps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.tensor.sharded import DTensor
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.serialization import loading, saving
from dynagraph.torch.serialization.sharded import Checkpoint as Checkpoint
from dynagraph.torch.serialization.sharded import Part as Part
from dynagraph.torch.serialization.sharded import load_sharded as load_sharded
from dynagraph.torch.serialization.sharded import save_sharded as save_sharded


class CheckpointException(BaseException):
    """PyTorch's, of failures of several ranks; errors here are those of the one rank that has them."""


class FileSystemWriter:
    """Where a checkpoint is written: a folder.  `max_shard_size`: of one file; `rank` of `ranks`: whose part this process
    writes, by default that of this process in `process_group`."""

    def __init__(
        self, path: str | os.PathLike[str], *, max_shard_size: int | str = "5GB", rank: int | None = None, ranks: int | None = None
    ):  # fmt: skip
        self.path, self.max_shard_size, self.rank, self.ranks = path, max_shard_size, rank, ranks


class FileSystemReader:
    """Where a checkpoint is read from: a folder.  `rank`: whose values are read that are no tensors; by default those of the
    same rank, or of the first one where it has not been there."""

    def __init__(self, path: str | os.PathLike[str], *, rank: int | None = None):
        self.path, self.rank = path, rank


def _leaves(state: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any, Any]]:
    """What is in nested dicts and lists: names joined by dots, the value, and what has it by which key."""
    items = enumerate(state) if isinstance(state, list) else state.items()
    for key, value in items:
        path = (*names, str(key))
        if isinstance(value, (dict, list)) and value:
            yield from _leaves(value, path)
        else:
            yield ".".join(path), value, state, key


def _of_rank(value: Any) -> Any:
    """What is written, or read, of a value: of a DTensor this rank's rows."""
    if not isinstance(value, DTensor):
        return value
    begin, _ = value.rows()
    return Part(value.to_local(), (begin, *(0 for _ in value.shape[1:])), tuple(value.shape))


def _other(folder: Any, rank: int) -> str:
    return os.path.join(os.fspath(folder), "others.pt" if rank == 0 else f"others-rank{rank + 1:05d}.pt")


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: Any = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False, use_collectives: bool = True,
) -> None:  # fmt: skip
    """Write a state dict, nested ones too, to the folder `checkpoint_id`: tensors in files with an index, the rest beside them.

    Objects with a method `state_dict` stand for what it gives.
    """
    writer = storage_writer or FileSystemWriter(_given(checkpoint_id))
    is_collective = writer.rank is None and not no_dist and dist.is_initialized()
    rank = dist.get_rank(process_group) if is_collective else writer.rank or 0
    ranks = dist.get_world_size(process_group) if is_collective else writer.ranks or 1
    leaves = {name: _of_rank(value) for name, value, _, _ in _leaves(_state_of(state_dict))}
    tensors = {name: value for name, value in leaves.items() if isinstance(value, (Tensor, Part))}
    others = {name: value for name, value in leaves.items() if name not in tensors}
    if is_collective:
        tensors = {name: value for name, value in tensors.items() if _is_written(value, rank)}
    os.makedirs(writer.path, exist_ok=True)
    saving.save(others, _other(writer.path, rank))
    save_sharded(tensors, writer.path, max_shard_size=writer.max_shard_size, rank=rank, ranks=ranks)
    if is_collective:
        dist.barrier(group=process_group)  # the checkpoint is whole


def _is_written(value: Any, rank: int) -> bool:
    return rank == 0 if isinstance(value, Tensor) else value.tensor.numel() > 0


def load(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_reader: Any = None,
    planner: Any = None, process_group: Any = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Fill a state dict from a checkpoint: tensors, and the tensors of a `Part` each with its box, in place; other values are
    replaced.

    Names that the checkpoint has not are a KeyError; what it has beside those of `state_dict` is not read.
    """
    reader = storage_reader or FileSystemReader(_given(checkpoint_id))
    checkpoint = Checkpoint(reader.path)
    is_collective = reader.rank is None and not no_dist and dist.is_initialized()
    file = _other(reader.path, dist.get_rank(process_group) if is_collective else reader.rank or 0)
    others = loading.load(file if os.path.exists(file) else _other(reader.path, 0), "cpu")
    state = _state_of(state_dict)
    with no_grad():
        for name, given, holder, key in list(_leaves(state)):
            value = _of_rank(given)
            if isinstance(value, Part):
                if tuple(value.shape) != checkpoint.shape(name):
                    raise ValueError(f"{name}: sizes {tuple(value.shape)}, and {checkpoint.shape(name)} in the checkpoint")
                if value.tensor.numel():
                    value.tensor.copy_(checkpoint.read(name, value.offsets, tuple(value.tensor.shape)))
            elif isinstance(value, Tensor):
                if tuple(value.shape) != checkpoint.shape(name):
                    raise ValueError(f"{name}: sizes {tuple(value.shape)}, and {checkpoint.shape(name)} in the checkpoint")
                value.copy_(checkpoint.read(name))
            elif name in others:
                holder[key] = others[name]
            else:
                raise KeyError(f"Missing key in checkpoint state_dict: {name}")
    for key, value in state_dict.items():
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(state[key])
        else:
            state_dict[key] = state[key]


def _given(checkpoint_id: Any) -> Any:
    if checkpoint_id is None:
        raise ValueError("a folder is needed: checkpoint_id, or a storage_writer or storage_reader")
    return checkpoint_id


def _state_of(state_dict: dict[str, Any]) -> dict[str, Any]:
    return {key: value.state_dict() if hasattr(value, "state_dict") else value for key, value in state_dict.items()}


__getattr__ = getattr_of(__name__)
__all__ = ["CheckpointException", "FileSystemReader", "FileSystemWriter", "load", "save"]
