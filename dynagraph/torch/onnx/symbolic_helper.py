"""``torch.onnx.symbolic_helper``: what functions for an export are decorated with."""

from collections.abc import Callable
from typing import Any

from dynagraph.torch.missing import getattr_of


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives the function back: nothing is exported."""
    return lambda fn: fn


__getattr__ = getattr_of(__name__)
__all__ = ["parse_args"]
