"""Arguments divided among devices, and results put together again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from dynagraph.torch import cuda
from dynagraph.torch.core import devices
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]


def device_of(given: Any) -> devices.device:
    """A device of its name or number; -1 is the CPU."""
    return devices.CPU if isinstance(given, int) and given < 0 else devices.device(given)


def all_devices() -> list[Any]:
    """The GPUs that there are."""
    return list(range(cuda.device_count()))


def is_namedtuple(value: Any) -> bool:
    """Whether a tuple's fields have names."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """For each device its part of the tensors in a nested structure; what is no tensor is given to all."""
    if isinstance(inputs, Tensor):
        parts = _torch["chunk"](inputs, len(target_gpus), dim)
        return tuple(part.to(device_of(where)) for part, where in zip(parts, target_gpus))
    if is_namedtuple(inputs):
        return [type(inputs)(*parts) for parts in zip(*(scatter(part, target_gpus, dim) for part in inputs))]
    if isinstance(inputs, tuple) and inputs:
        return list(zip(*(scatter(part, target_gpus, dim) for part in inputs)))
    if isinstance(inputs, list) and inputs:
        return [list(parts) for parts in zip(*(scatter(part, target_gpus, dim) for part in inputs))]
    if isinstance(inputs, dict) and inputs:
        return [type(inputs)(parts) for parts in zip(*(scatter(item, target_gpus, dim) for item in inputs.items()))]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and keyword arguments for each device, as many of the one as of the other."""
    positional = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    positional += [()] * (len(named) - len(positional))
    named += [{} for _ in range(len(positional) - len(named))]
    return tuple(positional), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The results of all devices, which have the same structure, as one: tensors are joined on a device."""
    first = outputs[0]
    if isinstance(first, Tensor):
        where = device_of(target_device)
        if all(each.ndim == 0 for each in outputs) and dim == 0:
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and return a "
                "vector.",
                stacklevel=2,
            )
            outputs = [each.view(1) for each in outputs]
        return _torch["cat"]([each.to(where) for each in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(each) for each in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([each[key] for each in outputs], target_device, dim)) for key in first)
    joined = [gather(parts, target_device, dim) for parts in zip(*outputs, strict=True)]
    return type(first)._make(joined) if is_namedtuple(first) else type(first)(joined)


__all__ = ["all_devices", "device_of", "gather", "is_namedtuple", "scatter", "scatter_kwargs"]
