"""Copies of a module for devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.parallel.scatter_gather import device_of


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """A copy of a module for each device.

    Copies of parameters are computed from the parameters, whose gradients are the sums of theirs; with `detach` they are not.
    The first copy shares the module's memory: what it writes into buffers stays.
    """
    copies = [_Copies(device_of(where), k == 0, detach) for k, where in enumerate(devices)]
    return [each.module(network) for each in copies]


class _Copies:
    """What one device has."""

    def __init__(self, where: Any, is_first: bool, detach: bool):
        self.where, self.is_first, self.detach = where, is_first, detach
        self.made: dict[int, Any] = {}  # by the id of what it is a copy of: what is shared stays shared

    def tensor(self, given: Tensor | None, follows: bool) -> Any:
        """A parameter's or buffer's copy; with `follows` gradients reach the original."""
        if given is None:
            return None
        found = self.made.get(id(given))
        if found is None:
            source = given if follows and not self.detach else given.detach()
            found = self.made[id(given)] = source.view_as(source) if self.is_first else source.to(self.where, copy=True)
        return found

    def module(self, given: Module) -> Any:
        """A module's copy, with those of its submodules."""
        found = self.made.get(id(given))
        if found is not None:
            return found
        replica = self.made[id(given)] = given._replicate_for_data_parallel()
        replica._former_parameters = {}
        for name, child in given._modules.items():
            replica._modules[name] = None if child is None else self.module(child)
        for name, parameter in given._parameters.items():
            copy = self.tensor(parameter, True)
            if copy is None:
                replica._parameters[name] = None
            else:  # a plain attribute: optimizers know the original
                replica._former_parameters[name] = replica.__dict__[name] = copy
        for name, buffer in given._buffers.items():
            replica._buffers[name] = self.tensor(buffer, buffer is not None and buffer.requires_grad)
        return replica


__all__ = ["replicate"]
