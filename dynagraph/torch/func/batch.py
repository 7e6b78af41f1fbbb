"""``vmap``: a function of one example applied to all of them, at once where NumPy can."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynagraph.torch.autograd import function as functions_of_users
from dynagraph.torch.core.batching import DEPTH, BatchedArray, Level, Unbatchable, levels_of, running
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.spreading import BATCH_IN, BATCH_OUT, spread
from dynagraph.torch.core.tensor import Tensor, apply, storage_of, wrap
from dynagraph.torch.func.rules import register
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

RANDOMNESS = ("error", "different", "same")


_numbers = itertools.count(1)  # never used again: graphs that were recorded keep them


def running_levels() -> dict[int, int]:
    """The levels of the `vmap`s that are running in this thread, with their numbers of examples."""
    return {level.number: level.size for level in running.levels}


class entered:
    """A context in which a level is running."""

    def __init__(self, size: int, randomness: str):
        register()
        self.level = Level(next(_numbers), size, randomness)

    def __enter__(self) -> int:
        self.before = running.levels
        running.levels = (*self.before, self.level)
        DEPTH[0] += 1
        return self.level.number

    def __exit__(self, *_: Any) -> None:
        running.levels = self.before
        DEPTH[0] -= 1


def into(x: Tensor, level: int, dim: int) -> Tensor:
    """The tensor as one of examples, which lie along a dimension."""
    array = x._array
    attrs = {"level": level, "dim": dim, "size": array.shape[dim]}
    if mode.grad and x.requires_grad:
        return apply(BATCH_IN, x, **attrs)
    return wrap(BatchedArray(np.moveaxis(array, dim, 0), level))


def out_of(x: Tensor, level: int, dim: int, size: int) -> Tensor:
    """A tensor of examples as one with a dimension for them."""
    made = apply(BATCH_OUT, x, level=level, dim=dim, size=size)
    if level not in levels_of(x._array):  # the same for all: its own memory for each
        made = apply(_COPY, made)
    return made


_COPY = functions_of_users.PRIMITIVES["copy"]


def _name_of(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def flat_in_dims(in_dims: Any, args: tuple[Any, ...], func: Any) -> tuple[list[Any], list[Any], Any, int]:
    """Arguments and their dimensions of examples as lists, how to build the arguments again, and the number of examples."""
    who = f"vmap({_name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
        raise ValueError(
            f"{who}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
            f"{type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{who}: in_dims is not compatible with the structure of `inputs`. in_dims has structure {tree_flatten(in_dims)[1]} "
            f"but inputs has structure {spec}."
        )
    for k, (leaf, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{who}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"{who}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over non-Tensor "
                "arguments, please use None as the respective in_dim"
            )
        ndim = leaf._array.ndim
        if not -ndim <= dim < ndim:
            raise ValueError(
                f"{who}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {ndim} so expected in_dim "
                f"to satisfy -{ndim} <= in_dim < {ndim}."
            )
        dims[k] = dim % ndim
    sizes = [leaf._array.shape[dim] for leaf, dim in zip(leaves, dims) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension"
        )
    return leaves, dims, spec, sizes[0]


def _outputs(results: Any, out_dims: Any, level: int, size: int, func: Any) -> Any:
    leaves, spec = tree_flatten(results)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({_name_of(func)}, ...): `{_name_of(func)}` must only return Tensors, got type {type(leaf)}. Did you mean "
                "to set out_dims= to None for output?"
            ) if out_dims is not None else ValueError("vmap: outputs must be tensors")
    dims = [out_dims] * len(leaves) if isinstance(out_dims, int) else _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        if isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf():
            dims = [out_dims[0]]
        else:
            raise ValueError(
                f"vmap({_name_of(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
                f"`outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
            )
    found = []
    for leaf, dim in zip(leaves, dims):
        if dim is None:
            if level in levels_of(leaf._array):
                raise ValueError(
                    f"vmap({_name_of(func)}, ...): `{_name_of(func)}` can not return a BatchedTensor when out_dim is None"
                )
            found.append(leaf)
            continue
        ndim = leaf._array.ndim + 1
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
        found.append(out_of(leaf, level, dim % ndim, size))
    return tree_unflatten(found, spec)


def _check_randomness(randomness: str) -> None:
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )


def run_batched(
    func: Callable[..., Any], leaves: list[Any], dims: list[Any], spec: Any, size: int, out_dims: Any, randomness: str, kwargs: Any
) -> Any:
    """Apply a function to all examples."""
    with entered(size, randomness) as level:
        args = [leaf if dim is None else into(leaf, level, dim) for leaf, dim in zip(leaves, dims)]
        try:
            results = func(*tree_unflatten(args, spec), **kwargs)
        except Unbatchable as error:
            raise RuntimeError(str(error)) from error
        for leaf, arg in zip(leaves, args):
            if arg is not leaf and arg._version:  # the memory is the same
                storage_of(leaf).version += arg._version
        return _outputs(results, out_dims, level, size, func)


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that applies `func` to each of many examples, which lie along a dimension of its arguments.

    `in_dims`: that dimension, for all arguments or for each (nested as they are); None for what is the same for all.
    `out_dims`: where it is in the results.  `randomness`: whether random numbers are the same for all examples, different, or an
    error.  `chunk_size`: how many examples at a time.

    >>> from dynagraph import torch
    >>> torch.vmap(torch.dot)(torch.ones(3, 2), torch.ones(3, 2))
    tensor([2., 2., 2.])
    """
    _check_randomness(randomness)
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, dims, spec, size = flat_in_dims(in_dims, args, func)
        if chunk_size is None or chunk_size >= size:
            return run_batched(func, leaves, dims, spec, size, out_dims, randomness, kwargs)
        chunks = []
        for start in range(0, size, chunk_size):
            count = min(chunk_size, size - start)
            part = [leaf if dim is None else leaf.narrow(dim, start, count) for leaf, dim in zip(leaves, dims)]
            chunks.append(run_batched(func, part, dims, spec, count, out_dims, randomness, kwargs))
        return _joined(chunks, out_dims)

    return wrapped


def _joined(chunks: Sequence[Any], out_dims: Any) -> Any:
    flat = [tree_flatten(chunk) for chunk in chunks]
    spec = flat[0][1]
    count = len(flat[0][0])
    dims = [out_dims] * count if isinstance(out_dims, int) else _broadcast_to_and_flatten(out_dims, spec) or [0] * count
    return tree_unflatten([cat([leaves[k] for leaves, _ in flat], dims[k]) for k in range(count)], spec)


# -- Functions with a `vmap` of their own -----------------------------------------------------------------------------


class VmapInfo(NamedTuple):
    """What a Function's `vmap` is told."""

    batch_size: int
    randomness: str


def _batched_function(cls: Any, args: tuple[Any, ...]) -> Any:
    """Apply a Function by its own `vmap`, where an argument is batched."""
    leaves, spec = tree_flatten(args)
    found = [levels_of(a._array) for a in leaves if isinstance(a, Tensor)]
    number = max((max(levels) for levels in found if levels), default=0)
    level = next((level for level in running.levels if level.number == number), None)
    if level is None:
        return NotImplemented
    plain, dims = [], []
    for leaf in leaves:
        if isinstance(leaf, Tensor) and number in levels_of(leaf._array):
            plain.append(apply(BATCH_OUT, leaf, level=number, dim=0, size=level.size))
            dims.append(0)
        else:
            plain.append(leaf)
            dims.append(None)
    before = running.levels
    running.levels = tuple(other for other in before if other.number < number)
    try:
        results, out_dims = cls.vmap(
            VmapInfo(level.size, level.randomness), tree_unflatten(dims, spec), *tree_unflatten(plain, spec)
        )
    finally:
        running.levels = before
    outs, out_spec = tree_flatten(results)
    where = _broadcast_to_and_flatten(out_dims, out_spec)
    if where is None:
        raise RuntimeError(f"vmap of {cls.__name__}: out_dims {out_dims} do not match the results")
    return tree_unflatten([
        out if dim is None or not isinstance(out, Tensor) else into(out, number, dim % out._array.ndim)
        for out, dim in zip(outs, where)
    ], out_spec)  # fmt: skip


functions_of_users.batching = _batched_function


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What a tensor within `vmap` holds for all examples; other tensors as they are."""
    while isinstance(tensor._array, BatchedArray):
        tensor = wrap(tensor._array.physical)
        if not recurse:
            break
    return tensor


def spread_over_running(x: Tensor) -> Tensor:
    """The tensor, batched at each level that is running: gradients by it are then those of each example."""
    levels = running_levels()
    return spread(x, levels) if levels else x


__all__ = [
    "RANDOMNESS", "VmapInfo", "debug_unwrap", "entered", "flat_in_dims", "into", "out_of", "run_batched", "running_levels",
    "spread_over_running", "vmap",
]  # fmt: skip
