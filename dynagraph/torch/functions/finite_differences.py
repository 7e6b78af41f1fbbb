"""`torch.gradient`: derivatives of sampled functions by second-order finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.arithmetic import add, div, mul, sub
from dynagraph.torch.functions.common import NUMBERS, check_tensor, dims_of, function
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.shapes import reshape
from dynagraph.torch.functions.splitting import narrow


def _scaled(weight: Any, x: Tensor) -> Tensor:
    return mul(x, weight)


def _combined(terms: Sequence[tuple[Any, Tensor]]) -> Tensor:
    """The sum of weights times tensors."""
    total = _scaled(*terms[0])
    for term in terms[1:]:
        total = add(total, _scaled(*term))
    return total


def _equal_steps(x: Tensor, k: int, step: Any, edge_order: int) -> Tensor:
    n = x._array.shape[k]
    part = lambda start, count: narrow(x, k, start, count)  # noqa: E731
    inner = div(sub(part(2, n - 2), part(0, n - 2)), 2 * step)
    if edge_order == 1:
        first, last = div(sub(part(1, 1), part(0, 1)), step), div(sub(part(n - 1, 1), part(n - 2, 1)), step)
    else:
        first = div(_combined([(-1.5, part(0, 1)), (2.0, part(1, 1)), (-0.5, part(2, 1))]), step)
        last = div(_combined([(0.5, part(n - 3, 1)), (-2.0, part(n - 2, 1)), (1.5, part(n - 1, 1))]), step)
    return cat([first, inner, last], k)


def _given_places(x: Tensor, k: int, places: Tensor, edge_order: int) -> Tensor:
    """At coordinates that are given: weights of three neighbours by the two distances between them."""
    n, rank = x._array.shape[k], x._array.ndim
    part = lambda start, count: narrow(x, k, start, count)  # noqa: E731
    steps = sub(narrow(places, 0, 1, n - 1), narrow(places, 0, 0, n - 1))
    left, right = narrow(steps, 0, 0, n - 2), narrow(steps, 0, 1, n - 2)

    def along(weight: Tensor) -> Tensor:
        return reshape(weight, (1,) * k + (weight._array.size,) + (1,) * (rank - k - 1))

    both = add(left, right)
    inner = _combined(
        [
            (along(div(mul(right, -1), mul(left, both))), part(0, n - 2)),
            (along(div(sub(right, left), mul(left, right))), part(1, n - 2)),
            (along(div(left, mul(right, both))), part(2, n - 2)),
        ]
    )
    near, far = narrow(steps, 0, 0, 1), narrow(steps, 0, n - 2, 1)
    if edge_order == 1:
        first = div(sub(part(1, 1), part(0, 1)), along(near))
        last = div(sub(part(n - 1, 1), part(n - 2, 1)), along(far))
    else:
        first = _combined(list(zip(map(along, _edge_weights(near, narrow(steps, 0, 1, 1), -1)), map(part, (0, 1, 2), (1, 1, 1)))))
        weights = _edge_weights(far, narrow(steps, 0, n - 3, 1), 1)
        last = _combined(list(zip(map(along, weights), map(part, (n - 1, n - 2, n - 3), (1, 1, 1)))))
    return cat([first, inner, last], k)


def _edge_weights(near: Tensor, next_: Tensor, sign: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the element at an edge, its neighbour and the next one."""
    both = add(near, next_)
    return (
        mul(div(add(mul(near, 2), next_), mul(near, both)), sign),
        mul(div(both, mul(near, next_)), -sign),
        mul(div(near, mul(next_, both)), sign),
    )


@function(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivative along each of `dim` of a function that is sampled at equal distances, or at coordinates that are given."""
    x = check_tensor(input, "gradient", "input")
    if x.dtype is dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    spacing = 1 if spacing is None else spacing
    if not isinstance(spacing, (*NUMBERS, list, tuple)):
        raise TypeError(
            f"gradient() received an invalid combination of arguments - got (Tensor, spacing={type(spacing).__name__}), but "
            "expected a Number, or a sequence of Numbers or of Tensors"
        )
    axes = _axes(x, dim)
    steps = [spacing] * len(axes) if isinstance(spacing, NUMBERS) else list(spacing)
    if len(steps) != len(axes):
        if dim is None:
            raise RuntimeError(
                "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
                f"{x._array.ndim}', since dim argument was not given, but got a list of length {len(steps)}"
            )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same "
            f"length, but got a spacing argument of length {len(steps)} and a dim argument of length {len(axes)}."
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    for k in axes:
        if x._array.shape[k] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    for k, step in zip(axes, steps):
        if isinstance(step, Tensor) and step._array.shape != (x._array.shape[k],):
            raise RuntimeError(
                f"torch.gradient expected a coordinate for each of the {x._array.shape[k]} elements along dimension {k}, but got a "
                f"tensor of shape {list(step._array.shape)}"
            )
    return tuple(
        _given_places(x, k, step, edge_order) if isinstance(step, Tensor) else _equal_steps(x, k, step, edge_order)
        for k, step in zip(axes, steps)
    )


def _axes(x: Tensor, dim: Any) -> list[int]:
    """Dimensions counted from the front, in the order in which they were given."""
    if dim is None:
        return list(range(x._array.ndim))
    given = [dim] if isinstance(dim, (int, np.integer)) else list(dim)
    dims_of(given, x._array.ndim)
    return [d % x._array.ndim for d in given]


__all__ = ["gradient"]
