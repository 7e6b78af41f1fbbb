"""``torch.nn.utils.convert_parameters``: parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.joining import cat


def _check_devices(params: list[Tensor]) -> None:
    if len({param.device for param in params}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of tensors, one after the other, as a vector."""
    params = list(parameters)
    _check_devices(params)
    return cat([param.view(-1) for param in params])  # type: ignore[no-any-return]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Have parameters hold the elements of a vector: they become views of it."""
    if not isinstance(vec, Tensor):
        kind: Any = type(vec)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"expected torch.Tensor, but got: {name}")
    params = list(parameters)
    _check_devices(params)
    start = 0
    for param in params:
        param.data = vec[start : start + param.numel()].view_as(param).data
        start += param.numel()


__all__ = ["parameters_to_vector", "vector_to_parameters"]
