"""``torch._dynamo.utils``: what libraries take from there."""

from typing import Any

from dynagraph.torch.missing import getattr_of


def is_compile_supported(device_type: Any) -> bool:
    """Whether `torch.compile` compiles for a device."""
    return str(device_type).partition(":")[0] in ("cpu", "cuda")


__getattr__ = getattr_of(__name__)
__all__ = ["is_compile_supported"]
