"""``torch.nn.utils.clip_grad``: gradients that are not too large."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import any_wrong
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.creation import tensor
from dynagraph.torch.functions.joining import stack
from dynagraph.torch.functions.norms import vector_norm

Tensors = Tensor | Iterable[Tensor]


def _without_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    return no_grad()(function)


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads_of(parameters: Tensors) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def _check_foreach(tensors: list[Tensor], foreach: bool | None) -> None:
    if foreach:
        for each in tensors:
            if each.is_sparse:
                raise RuntimeError(f"foreach=True was passed, but can't use the foreach API on {each.device.type} tensors")


@_without_grad
def _get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of tensors as if they were one vector."""
    given, norm_type = _listed(tensors), float(norm_type)
    if not given:
        return tensor(0.0)
    _check_foreach(given, foreach)
    device = given[0].device
    divided: list[Any] = [each for each in given if each._is_divided]
    norms = [vector_norm(each, norm_type).to(device) for each in given if not each._is_divided]
    if divided:
        norms += divided[0].norms_over_ranks(divided, norm_type)
    total = vector_norm(stack(norms), norm_type)
    if error_if_nonfinite and any_wrong(~np.isfinite(total._array)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. To "
            "disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@_without_grad
def _clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale gradients whose norm is known down to a norm; those that have less are multiplied by 1."""
    grads = _grads_of(parameters)
    if not grads:
        return
    _check_foreach(grads, foreach)
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)


@_without_grad
def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Scale the gradients of parameters, as one vector, down to a norm, and give the norm that they had."""
    given = _listed(parameters)
    if isinstance(parameters, types.GeneratorType) and not given:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total: Tensor = _get_total_norm(_grads_of(given), norm_type, error_if_nonfinite, foreach)
    _clip_grads_with_norm_(given, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The earlier name of `clip_grad_norm_`."""
    text = "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`."
    warnings.warn(text, FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@_without_grad
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Bring each element of the gradients between -`clip_value` and `clip_value`."""
    grads, most = _grads_of(parameters), float(clip_value)
    _check_foreach(grads, foreach)
    for grad in grads:
        grad.clamp_(min=-most, max=most)


__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]
