"""Doors of our own functions that take maxima and means of windows of NumPy's arrays."""

from __future__ import annotations

from typing import Any

from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.table import numpy_function
from dynagraph.ir.graph import Node
from dynagraph.ir.optable.pooling import (
    adaptive_max_pool,
    adaptive_mean,
    adaptive_mean_back,
    avg_pool,
    avg_pool_back,
    max_pool,
    max_pool_back,
)


@numpy_function(max_pool)
def max_pool_door(b: Builder, x: Any, **about: Any) -> tuple[Node, Node]:
    node = b.as_node(x)
    return b.call("max_pool", node, **about), b.call("max_pool", node, result=1, **about)


@numpy_function(max_pool_back)
def max_pool_back_door(b: Builder, g: Any, places: Any, sizes: Any) -> Node:
    return b.call("max_pool_back", b.as_node(g), b.as_node(places), sizes=sizes)


@numpy_function(adaptive_max_pool)
def adaptive_max_pool_door(b: Builder, x: Any, counts: Any) -> tuple[Node, Node]:
    node = b.as_node(x)
    return b.call("adaptive_max_pool", node, counts=counts), b.call("adaptive_max_pool", node, counts=counts, result=1)


@numpy_function(adaptive_mean)
def adaptive_mean_door(b: Builder, x: Any, axis: Any, count: Any) -> Node:
    return b.call("adaptive_mean", b.as_node(x), axis=axis, count=count)


@numpy_function(adaptive_mean_back)
def adaptive_mean_back_door(b: Builder, g: Any, axis: Any, size: Any) -> Node:
    return b.call("adaptive_mean_back", b.as_node(g), axis=axis, size=size)


@numpy_function(avg_pool)
def avg_pool_door(b: Builder, x: Any, **about: Any) -> Node:
    return b.call("avg_pool", b.as_node(x), **about)


@numpy_function(avg_pool_back)
def avg_pool_back_door(b: Builder, g: Any, **about: Any) -> Node:
    return b.call("avg_pool_back", b.as_node(g), **about)


__all__: list[str] = []
