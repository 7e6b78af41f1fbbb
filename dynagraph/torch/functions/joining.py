"""Joining tensors: cat, stack and their kin."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import dim_of, function, promoted
from dynagraph.torch.functions.shape_primitives import CAT, STACK
from dynagraph.torch.functions.shapes import reshape, unsqueeze


def _joined(tensors: Any, who: str) -> tuple[Tensor, ...]:
    """Tensors to be joined, in one dtype."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{who}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    given = tuple(tensors)
    if not given:
        if who == "stack":
            raise RuntimeError("stack expects a non-empty TensorList")
        raise ValueError(f"torch.{who}(): expected a non-empty list of Tensors")
    for k, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {type(x).__name__}")
    first = given[0]._array.dtype
    return given if all(x._array.dtype is first for x in given) else promoted(who, *given)


@function(method=False, out=True, aliases=("concat", "concatenate"))
def cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors one behind the other along a dimension."""
    given = _joined(tensors, "cat")
    dim = dim if axis is None else axis
    kept = [x for x in given if x._array.shape != (0,)]  # these fit anything
    if not kept:
        return apply(CAT, *given, dim=0)
    rank = kept[0]._array.ndim
    for n, x in enumerate(given):
        if not x._array.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {n}) cannot be concatenated")
    k = dim_of(dim, rank)
    shape = kept[0]._array.shape
    for n, x in enumerate(kept[1:], 1):
        if x._array.ndim != rank:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {rank} and {x._array.ndim}")
        for j in range(rank):
            if j != k and x._array.shape[j] != shape[j]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {k}. Expected size {shape[j]} but got size "
                    f"{x._array.shape[j]} for tensor number {n} in the list."
                )
    return apply(CAT, *given, dim=k)


@function(method=False, out=True)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension."""
    given = _joined(tensors, "stack")
    shape = given[0]._array.shape
    for k, x in enumerate(given[1:], 1):
        if x._array.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(x._array.shape)} at "
                f"entry {k}"
            )
    return apply(STACK, *given, dim=dim_of(dim, len(shape) + 1))


def _at_least(n: int) -> Any:
    def compute(*tensors: Any) -> Any:
        given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        found = tuple(_padded(x, n) for x in given)
        return found[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else found

    compute.__name__ = f"atleast_{n}d"
    compute.__doc__ = f"With at least {n} dimensions."
    return compute


def _padded(x: Tensor, n: int) -> Tensor:
    ndim = x._array.ndim
    if ndim >= n:
        return x
    shape = {(0, 1): (1,), (0, 2): (1, 1), (1, 2): (1, -1), (0, 3): (1, 1, 1), (1, 3): (1, -1, 1)}.get((ndim, n))
    return reshape(x, shape) if shape else unsqueeze(x, -1)


atleast_1d, atleast_2d, atleast_3d = (function(f"atleast_{n}d", method=False)(_at_least(n)) for n in (1, 2, 3))


@function(method=False, out=True, aliases=("row_stack",))
def vstack(tensors: Any) -> Tensor:
    """Tensors below one another."""
    return cat(atleast_2d(list(tensors)), 0)


@function(method=False, out=True)
def hstack(tensors: Any) -> Tensor:
    """Tensors beside one another."""
    given = atleast_1d(list(tensors))
    return cat(given, 0 if given[0]._array.ndim == 1 else 1)


@function(method=False, out=True)
def dstack(tensors: Any) -> Tensor:
    """Tensors behind one another, along the third dimension."""
    return cat(atleast_3d(list(tensors)), 2)


@function(method=False, out=True)
def column_stack(tensors: Any) -> Tensor:
    """Vectors as columns."""
    return hstack([reshape(x, -1, 1) if x._array.ndim <= 1 else x for x in tensors])
