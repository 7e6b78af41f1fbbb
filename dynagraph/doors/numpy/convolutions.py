"""Doors of our own functions that convolve NumPy's arrays."""

from __future__ import annotations

from typing import Any

from dynagraph.doors.numpy.arguments import reshape
from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.table import numpy_function
from dynagraph.ir.graph import Node
from dynagraph.ir.optable.convolution import conv, conv_input, conv_weight


def _with_bias(b: Builder, result: Node, bias: Any) -> Node:
    if bias is None:
        return result
    node = b.as_node(bias)
    return b.call("add", result, reshape(b, node, (node.shape[0], *(1,) * (result.ndim - 2))))


@numpy_function(conv)
def conv_door(b: Builder, x: Any, weight: Any, bias: Any = None, **about: Any) -> Node:
    return _with_bias(b, b.call("conv", b.as_node(x), b.as_node(weight), **about), bias)


@numpy_function(conv_input)
def conv_input_door(b: Builder, g: Any, weight: Any, bias: Any = None, **about: Any) -> Node:
    return _with_bias(b, b.call("conv_input", b.as_node(g), b.as_node(weight), **about), bias)


@numpy_function(conv_weight)
def conv_weight_door(b: Builder, x: Any, g: Any, **about: Any) -> Node:
    return b.call("conv_weight", b.as_node(x), b.as_node(g), **about)


__all__: list[str] = []
