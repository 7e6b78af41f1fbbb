"""``torch.nn.parallel``: there is one device, so that a module that is divided among devices is the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules.module import Module


def _check_devices(device_ids: Sequence[Any] | None) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise RuntimeError(f"a module cannot be divided among devices here, got device_ids={list(device_ids)}; give one, or none")


class DataParallel(Module):
    """A module whose inputs would be divided among devices: on one device it calls `module`."""

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:  # fmt: skip
        super().__init__()
        _check_devices(device_ids)
        self.dim, self.module = dim, module
        self.device_ids = list(device_ids or ())
        self.output_device = self.device_ids[0] if output_device is None and self.device_ids else output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Call a module with inputs that would be divided among devices."""
    _check_devices(device_ids)
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None, devices: Any = None
) -> list[Any]:
    """Call each module with its inputs, a tuple or one, one after the other."""
    more = kwargs_tup or [{}] * len(modules)
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}"
        )  # fmt: skip
    calls = zip(modules, inputs, more)
    return [module(*(given if isinstance(given, (tuple, list)) else (given,)), **kwargs) for module, given, kwargs in calls]


__all__ = ["DataParallel", "data_parallel", "parallel_apply"]
__getattr__ = getattr_of(__name__)
