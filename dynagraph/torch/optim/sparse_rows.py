"""The rows that a sparse gradient has, each once with its values added up, and what steps of optimizers do with them.

How many rows differ is data: programs have a place for each value that was given instead, and what stands at the places of
repeated rows changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.tensor import made
from dynagraph.torch.functions.common import cast
from dynagraph.torch.functions.sparse import COOTensor, coo


class Rows:
    """The rows of a sparse gradient: `grad` has a value for each, and in captures others that do not count (`_counts`)."""

    def __init__(self, grad: COOTensor):
        once = grad.coalesce()
        self._counts = once._counts
        self.grad = once if self._counts is None else coo(once._all_places, once._all, once._size, True)

    @property
    def values(self) -> Any:
        """The gradient's values, one for each row."""
        return self.grad.values()

    def of(self, tensor: Any) -> Any:
        """The values that a tensor of the parameter's shape has in these rows."""
        return tensor.sparse_mask(self.grad).values()

    def add(self, tensor: Any, changes: Any) -> None:
        """Add changes, one for each row, to a tensor of the parameter's shape, in place."""
        tensor.add_(coo(self.grad.indices(), changes, self.grad._size, True, self._counts))


def number_of(counter: Any) -> Any:
    """The number in a tensor; in captured code a float64 array without dimensions."""
    return counter._array.astype(np.float64) if is_compiling() else counter.item()


def scaled(values: Any, number: Any) -> Any:
    """``values * number``; in captured code the number may be a float64 array without dimensions."""
    if type(number) in (int, float):
        return values * number
    wide = cast(values, dtypes.float32) if is_half(values._array.dtype) else values
    return cast(wide * made(number.astype(wide.dtype.to_real().numpy)), values.dtype)


def add_scaled(tensor: Any, grad: Any, number: Any) -> None:
    """Add a sparse gradient times a number, as `scaled` takes it, to a tensor of its shape, in place."""
    if type(number) in (int, float):
        tensor.add_(grad, alpha=number)
    else:
        tensor.add_(grad._with(scaled(grad._all, number)))


def chosen_afterwards(state: COOTensor) -> None:
    """Have a state hold the values that count alone, when the program has run whose step made it; others are not kept."""
    state.choose()


__all__ = ["Rows", "add_scaled", "chosen_afterwards", "number_of", "scaled"]
