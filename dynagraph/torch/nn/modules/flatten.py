"""Dimensions merged, and split."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.module import Module


class Flatten(Module):
    """The dimensions from `start_dim` to `end_dim` as one: by default (N, ...) to (N, the others' product)."""

    __constants__ = ["start_dim", "end_dim"]  # noqa: RUF012

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The dimension `dim` as several, of the sizes `unflattened_size`; one of them may be -1.

    >>> from dynagraph import torch
    >>> torch.nn.Unflatten(1, (2, 5, 5))(torch.ones(2, 50)).shape
    torch.Size([2, 2, 5, 5])
    """

    __constants__ = ["dim", "unflattened_size"]  # noqa: RUF012

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self._require_tuple_int(unflattened_size)
        self.dim, self.unflattened_size = dim, unflattened_size

    def _require_tuple_int(self, input: Any) -> None:
        if not isinstance(input, (tuple, list)):
            raise TypeError(f"unflattened_size must be a tuple of ints, but found type {type(input).__name__}")
        for k, size in enumerate(input):
            if not isinstance(size, int):
                kind = type(size).__name__
                raise TypeError(f"unflattened_size must be tuple of ints, but found element of type {kind} at pos {k}")

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


__all__ = ["Flatten", "Unflatten"]
