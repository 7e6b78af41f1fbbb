"""``torch._dynamo``: what steers `torch.compile`."""

from __future__ import annotations

from typing import Any

from dynagraph import api
from dynagraph.markers import graph_break as graph_break
from dynagraph.torch._dynamo import config as config
from dynagraph.torch.compiler import allow_in_graph as allow_in_graph
from dynagraph.torch.compiler import assume_constant_result as assume_constant_result
from dynagraph.torch.compiler import disable as disable
from dynagraph.torch.compiler import is_compiling as is_compiling
from dynagraph.torch.compiler import list_backends as list_backends
from dynagraph.torch.compiler import reset as reset
from dynagraph.torch.compiler import set_stance as set_stance
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of


def mark_dynamic(t: Tensor, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Have programs for this tensor take any size along a dimension, or several."""
    api.mark_dynamic(t._array, index)


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing is to be done: sizes are fixed until they change."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing is to be done: addresses are no part of programs."""


def disallow_in_graph(fn: Any) -> Any:
    """Have compiled functions call a function as plain Python."""
    return [disallow_in_graph(f) for f in fn] if isinstance(fn, (list, tuple)) else api.disable(fn)


__getattr__ = getattr_of(__name__)
__all__ = [
    "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "graph_break", "is_compiling",
    "list_backends", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset", "set_stance",
]  # fmt: skip
