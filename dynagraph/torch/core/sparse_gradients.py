"""Sparse gradients, where backward hands on arrays: the few operations that they go through stay sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import as_array
from dynagraph.torch.core.primitives import primitive
from dynagraph.torch.core.tensor import Tensor, apply, wrap

_OPERATIONS = {np.multiply: "mul", np.negative: "neg"}


class SparseGradient:
    """A sparse tensor as a gradient: of the table of an embedding, whose places are the rows that were used.

    It is added to others, scaled, and arrives at a leaf; nothing else is computed with it.
    """

    __slots__ = ("tensor",)
    tensor: Any

    def __init__(self, tensor: Any):
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor._size  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.tensor._size)

    @property
    def dtype(self) -> np.dtype:
        return self.tensor._all._array.dtype  # type: ignore[no-any-return]

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def astype(self, dtype: Any) -> SparseGradient:
        """With values of another dtype."""
        return SparseGradient(self.tensor._with(wrap(self.tensor._all._array.astype(dtype))))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **about: Any) -> Any:
        if ufunc is np.add and method == "__call__" and not about:
            return value_of(plus(*map(tensor_of, inputs)))
        name = _OPERATIONS.get(ufunc)
        if name is None or method != "__call__" or about:
            raise _unsupported(ufunc.__name__)
        first, *others = inputs if type(inputs[0]) is SparseGradient else inputs[::-1]
        return value_of(getattr(first.tensor, name)(*map(tensor_of, others)))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise _unsupported("other functions of arrays")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(str(_unsupported(name)))


def _unsupported(what: str) -> RuntimeError:
    return RuntimeError(
        f"the gradient is sparse, and cannot go through {what}: only through sums, negation and products; with sparse=False the "
        "gradient of an embedding is dense"
    )


def tensor_of(grad: Any) -> Any:
    """A gradient as a tensor."""
    if isinstance(grad, Tensor):
        return grad
    return grad.tensor if type(grad) is SparseGradient else wrap(as_array(grad))


def value_of(tensor: Any) -> Any:
    """A tensor as backward hands it on."""
    return SparseGradient(tensor) if tensor.is_sparse else tensor._array


def plus(first: Any, second: Any) -> Any:
    """The sum of two tensors: sparse where both are, with the places of both one after another."""
    if first.is_sparse:
        return first.joined_with(second) if second.is_sparse else second.add(first)
    return first.add(second) if second.is_sparse else apply(primitive("add"), first, second)


__all__ = ["SparseGradient", "plus", "tensor_of", "value_of"]
