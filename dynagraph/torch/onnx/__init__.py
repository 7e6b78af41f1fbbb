"""``torch.onnx``: nothing is exported yet.  What libraries register for an export at their import is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.missing import getattr_of

SYMBOLIC: dict[tuple[str, int], Callable[..., Any]] = {}


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Keep how an operator is written in ONNX."""
    SYMBOLIC[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget how an operator is written in ONNX."""
    SYMBOLIC.pop((symbolic_name, opset_version), None)


__getattr__ = getattr_of(__name__)
__all__ = ["is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]
