"""The rows that a sparse gradient has, each once with its values added up, and what steps of optimizers do with them.

How many rows differ is data: programs have a place for each value that was given instead, and what stands at the places of
repeated rows changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.tensor import made, wrap
from dynagraph.torch.functions.common import cast
from dynagraph.torch.functions.sparse import COOTensor, added, coo, coordinates
from dynagraph.torch.functions.ternary import where

_NOTHING = {False: -0.0, True: complex(-0.0, -0.0)}  # x + -0.0 has the bits of x, whatever it is; by whether it is complex


class Rows:
    """The rows of a sparse gradient: `grad` has a value for each.

    `counts` is a mask of the values that count; None where all do, as in all eager steps.
    """

    def __init__(self, grad: COOTensor):
        self.counts: Any = None
        if not is_compiling() or grad.is_coalesced() or grad._nnz() < 2:
            self.grad = grad.coalesce()
        else:
            self._add_up(grad)

    def _add_up(self, grad: COOTensor) -> None:
        """The places in order, each as often as it was given; all values of one are added up at the first of them."""
        given = grad.flat_places()
        flat = np.sort(given)
        counts = library_of_array(flat).ones(flat.shape, bool)
        counts[1:] = flat[1:] != flat[:-1]
        sums = added(grad._held, np.searchsorted(flat, given), len(flat))
        self.grad = coo(wrap(coordinates(flat, grad.sparse_sizes())), sums, grad._size, True)
        self.counts = counts

    @property
    def values(self) -> Any:
        """The gradient's values, one for each row."""
        return self.grad.values()

    def of(self, tensor: Any) -> Any:
        """The values that a tensor of the parameter's shape has in these rows."""
        return tensor.sparse_mask(self.grad).values()

    def add(self, tensor: Any, changes: Any) -> None:
        """Add changes, one for each row, to a tensor of the parameter's shape, in place."""
        if self.counts is not None:
            mask = wrap(self.counts.reshape((-1,) + (1,) * (changes.dim() - 1)))
            changes = where(mask, changes, _NOTHING[changes.is_complex()])
        tensor.add_(coo(self.grad.indices(), changes, self.grad._size, True))


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
        tensor.add_(grad._like(scaled(grad._held, number)))


__all__ = ["Rows", "add_scaled", "number_of", "scaled"]
