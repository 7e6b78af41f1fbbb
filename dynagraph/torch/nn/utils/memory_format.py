"""Weights of convolutions in another order of memory."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from dynagraph.torch.nn.modules.module import Module


def _convert(module: Module, kinds: tuple[type, ...], memory_format: Any) -> Any:
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Store the weights of all `Conv2d` and `ConvTranspose2d` in a module in this order."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Store the weights of all `Conv3d` and `ConvTranspose3d` in a module in this order."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)


__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]
