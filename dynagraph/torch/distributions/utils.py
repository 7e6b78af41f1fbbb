"""What distributions have in common: broadcasting of parameters, probabilities and their logarithms, properties computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dynagraph.torch as torch

euler_constant = 0.57721566490153286060
Number = (bool, int, float, complex)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Tensors and numbers as tensors of one shape; numbers take the dtype of the first tensor, or the default one."""
    if not all(isinstance(v, (torch.Tensor, *Number)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, torch.Tensor)), None)
    options = {"dtype": torch.get_default_dtype()} if first is None else {"dtype": first.dtype, "device": first.device}
    tensors = [v if isinstance(v, torch.Tensor) else torch.tensor(v, **options) for v in values]
    return tuple(torch.broadcast_tensors(*tensors))


def are_numbers(*values: Any) -> bool:
    """Whether all parameters were given as numbers: then the batch has no dimensions."""
    return all(isinstance(v, Number) for v in values)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return torch.empty(shape, dtype=dtype, device=device).normal_()


def _sum_rightmost(value: Any, dim: int) -> Any:
    """Summed over the last `dim` dimensions."""
    return value.reshape(value.shape[:-dim] + (-1,)).sum(-1) if dim else value


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of logarithms of odds, or along the last dimension of logarithms of probabilities."""
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities that are neither 0 nor 1: at least the dtype's `eps` away."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logarithms of odds, or of probabilities."""
    clamped = clamp_probs(probs)
    return torch.log(clamped) - torch.log1p(-clamped) if is_binary else torch.log(clamped)


class lazy_property:
    """A property that is computed when it is first asked for, and kept in the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]
        self._of_class = _OfClass(wrapped)

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return self._of_class
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _OfClass(lazy_property, property):
    """What a class gives for the name: both kinds of property."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        property.__init__(self, wrapped)


def _below(n: int, diag: int, device: Any) -> Any:
    """The mask of the places in an n x n matrix on and below a diagonal."""
    places = torch.arange(n, device=device)
    return places < places.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """What is on and below a diagonal of matrices, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _below(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Matrices with these elements on and below a diagonal, row by row, and zeros above it."""
    first = 1 + 2 * diag
    n = (-first + (first * first + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part of a square "
            "D x D matrix."
        )
    size = round(n)
    made = vec.new_zeros(vec.shape[:-1] + torch.Size((size, size)))
    made[..., _below(size, diag, vec.device)] = vec
    return made


__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]  # fmt: skip
