"""Views of windows: elements that several places of the view share."""

from __future__ import annotations

from typing import Any

from numpy.lib import stride_tricks

from dynagraph.frontend.numpy_door.arguments import as_shape, numpy_error, several_axes
from dynagraph.frontend.numpy_door.builder import Builder
from dynagraph.frontend.numpy_door.shapes import read_only
from dynagraph.frontend.numpy_door.table import numpy_function
from dynagraph.ir.graph import Node


@numpy_function(stride_tricks.sliding_window_view, returns="array", at_default=("writeable",))
def sliding_window_view(
    b: Builder, x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Node:
    node = b.as_node(x)
    sizes = as_shape(window_shape, "sliding_window_view")
    if axis is None:
        axes = tuple(range(node.ndim))
    else:  # an axis may be named twice
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(several_axes(k, node.ndim, "sliding_window_view")[0] for k in given)
    if len(sizes) != len(axes):
        raise numpy_error(f"sliding_window_view: window_shape {sizes} has not one size for each of the axes {axes}")
    return read_only(b, b.call("windows", node, sizes=sizes, axes=axes))


__all__: list[str] = []
