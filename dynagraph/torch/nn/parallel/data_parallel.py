"""A module whose batches are divided among devices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core.devices import device as Device
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.parallel.parallel_apply import parallel_apply
from dynagraph.torch.nn.parallel.replicate import replicate
from dynagraph.torch.nn.parallel.scatter_gather import all_devices, device_of, gather, scatter_kwargs


def _check_place(module: Module, first: Device) -> None:
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        where = tensor.device
        if where.type != first.type or (where.type != "cpu" and where.index != (first.index or 0)):
            raise RuntimeError(
                f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them on device: "
                f"{where}"
            )


class DataParallel(Module):
    """Divides the batch of its inputs among devices, each of which runs a copy of `module`, and joins the results.

    device_ids: GPUs by number, or devices by name, of which the first has the module's parameters; None: all GPUs, or without any
    the module is called as it is.  ``["cpu", "cpu"]`` runs two copies on the CPU.  output_device: where results are joined; None:
    the first.  dim: the dimension of inputs and results that is divided.  Gradients of all copies add up in the parameters.

    >>> from dynagraph import torch
    >>> model = torch.nn.DataParallel(torch.nn.Linear(3, 2), device_ids=["cpu", "cpu"])
    >>> model(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.module = dim, module
        ids = all_devices() if device_ids is None else device_ids
        self.device_ids = list(ids)
        self.output_device = self.device_ids[0] if output_device is None and self.device_ids else output_device
        if self.device_ids:
            self.src_device_obj = device_of(self.device_ids[0])
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_place(self.module, self.src_device_obj)
        positional, named = self.scatter(inputs, kwargs, self.device_ids)
        if not positional and not named:
            positional, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*positional[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(positional)])
        return self.gather(self.parallel_apply(replicas, positional, named), self.output_device)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """A copy of the module for each device."""
        return replicate(module, device_ids, not is_grad_enabled())

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[Any]) -> Any:
        """The arguments of each copy."""
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        """What each copy computes."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """The results as one."""
        return gather(outputs, output_device, dim=self.dim)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Call a module once with its inputs divided among devices: see DataParallel."""
    given = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    ids = all_devices() if device_ids is None else list(device_ids)
    if not ids:
        return module(*given, **(module_kwargs or {}))
    _check_place(module, device_of(ids[0]))
    positional, named = scatter_kwargs(given, module_kwargs, ids, dim)
    if not positional and not named:
        positional, named = ((),), ({},)
    if len(ids) == 1:
        return module(*positional[0], **named[0])
    used = ids[: len(positional)]
    outputs = parallel_apply(replicate(module, used, not is_grad_enabled()), positional, named, used)
    return gather(outputs, ids[0] if output_device is None else output_device, dim)


__all__ = ["DataParallel", "data_parallel"]
