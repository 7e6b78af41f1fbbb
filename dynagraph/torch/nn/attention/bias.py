"""``torch.nn.attention.bias``: causal masks that are known by their shape, without the memory of one."""

from __future__ import annotations

from dynagraph.torch.functions.causal_bias import CausalBias, CausalVariant
from dynagraph.torch.missing import getattr_of


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of ``is_causal=True``."""
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """The mask in which the last query sees all keys."""
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)


__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]
__getattr__ = getattr_of(__name__)
