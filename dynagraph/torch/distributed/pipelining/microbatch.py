"""A batch in parts, and their results as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.utils import _pytree as pytree

_torch = NAMESPACES["torch"]


class TensorChunkSpec:
    """The dimension in which a tensor is divided."""

    def __init__(self, split_dim: int):
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """Those of dimensions."""
        return tuple(TensorChunkSpec(dim) for dim in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """Those of dimensions."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


def _is_spec(value: Any) -> bool:
    return value is None or isinstance(value, TensorChunkSpec)


def _chunks_of(value: Any, spec: Any, chunks: int) -> list[Any]:
    """A leaf's part for each micro-batch: what is no tensor, or has None as its spec, is given to all."""
    if not isinstance(value, Tensor) or not isinstance(spec, TensorChunkSpec):
        return [value] * chunks
    size = value.size(spec.split_dim)
    if size < chunks:
        raise RuntimeError(f"a tensor of {size} rows cannot be divided into {chunks} micro-batches")
    return list(_torch["tensor_split"](value, chunks, spec.split_dim))


def _split(values: Any, specs: Any, chunks: int) -> list[Any]:
    flat, structure = pytree.tree_flatten(values)
    if specs is None:
        flat_specs: list[Any] = [TensorChunkSpec(0)] * len(flat)
    else:
        flat_specs = pytree.tree_flatten(specs, is_leaf=_is_spec)[0]
        if len(flat_specs) != len(flat):
            raise ValueError(f"{len(flat)} values have {len(flat_specs)} chunk specs")
    parts = [_chunks_of(value, spec, chunks) for value, spec in zip(flat, flat_specs)]
    return [pytree.tree_unflatten([part[k] for part in parts], structure) for k in range(chunks)]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...], kwargs: dict[str, Any] | None, chunks: int, args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each micro-batch: tensors are divided in dimension 0, or in that of their TensorChunkSpec."""
    return _split(tuple(args), args_chunk_spec, chunks), _split(kwargs or {}, kwargs_chunk_spec, chunks)


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any) -> Any:
    """The results of all micro-batches as one: tensors are joined, of other values the first is taken."""
    structure = pytree.tree_flatten(chunks[0])[1]
    columns = list(zip(*(pytree.tree_flatten(chunk)[0] for chunk in chunks)))
    flat_specs: list[Any] = (
        [TensorChunkSpec(0)] * len(columns) if chunk_spec is None else pytree.tree_flatten(chunk_spec, is_leaf=_is_spec)[0]
    )
    joined = []
    for column, spec in zip(columns, flat_specs):
        is_divided = isinstance(column[0], Tensor) and isinstance(spec, TensorChunkSpec)
        joined.append(_torch["cat"](list(column), spec.split_dim) if is_divided else column[0])
    return pytree.tree_unflatten(joined, structure)


__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]
