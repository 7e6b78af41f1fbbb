"""Sliding windows: views with elements that overlap."""

from __future__ import annotations

from typing import Any

from numpy.lib import stride_tricks

from dynagraph.doors.numpy.arguments import as_shape, numpy_error, several_axes
from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.movement import read_only
from dynagraph.doors.numpy.table import numpy_function
from dynagraph.ir.graph import Node


@numpy_function(stride_tricks.sliding_window_view, returns="array")
def sliding_window_view(b: Builder, x: Any, window_shape: Any, axis: Any, writeable: Any) -> Node:
    node = b.as_node(x)
    sizes = as_shape(window_shape, "sliding_window_view")
    if axis is None:
        axes = tuple(range(node.ndim))
    else:  # an axis may be named twice
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(several_axes(k, node.ndim, "sliding_window_view")[0] for k in given)
    if len(sizes) != len(axes):
        raise numpy_error(f"sliding_window_view: window_shape {sizes} has not one size for each of the axes {axes}")
    made = b.call("windows", node, sizes=sizes, axes=axes)
    return made if writeable else read_only(b, made)


__all__: list[str] = []
