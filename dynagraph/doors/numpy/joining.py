"""Joining and splitting arrays: concatenate, stack, split and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import as_dim, as_index, nodes_of, numpy_error, one_axis, only, ravel, reshape, rows_of, take
from dynagraph.doors.numpy.builder import Builder, known_dtype
from dynagraph.doors.numpy.layout import joined_order
from dynagraph.doors.numpy.movement import _rank_1, _rank_2, _rank_3, _with_rank, permute
from dynagraph.doors.numpy.table import numpy_function
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, numel


def join(
    b: Builder,
    nodes: Sequence[Node],
    axis: object,
    dtype: Any = None,
    casting: Any = "same_kind",
    who: str = "concatenate",
) -> Node:
    """``np.concatenate`` of nodes, promoted to one dtype."""
    if not nodes:
        raise numpy_error(f"{who}: needs one array or more")
    if nodes[0].ndim == 0:
        raise numpy_error(f"{who}: 0-d arrays cannot be concatenated")
    common = known_dtype(np.result_type(*(n.dtype.numpy for n in nodes)) if dtype is None else dtype, who)
    if any(not np.can_cast(n.dtype.numpy, common.numpy, casting) for n in nodes):
        raise numpy_error(f"{who}: cannot cast to {common} by the rule {casting!r}")
    joined = b.call("concatenate", *(b.cast(n, common) for n in nodes), axis=one_axis(axis, nodes[0].ndim, who))
    return b.lay(joined, joined_order([b.layout(n) for n in nodes]))


@numpy_function(np.concatenate, np.concat, returns="array")
def concatenate(
    b: Builder, arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Node:
    only(out is None, "concatenate", "out", "...", "assign the result instead")
    nodes = nodes_of(b, arrays, "concatenate")
    if axis is None:
        nodes, axis = [ravel(b, n) for n in nodes], 0
    return join(b, nodes, axis, dtype, casting)


@numpy_function(np.stack, returns="array")
def stack(b: Builder, arrays: Any, axis: Any, dtype: Any, casting: Any) -> Node:
    nodes = nodes_of(b, arrays, "stack")
    if not nodes:
        raise numpy_error("stack: needs one array or more")
    where = one_axis(axis, nodes[0].ndim + 1, "stack")
    if any(n.ndim != nodes[0].ndim for n in nodes):
        raise numpy_error("stack: all arrays must have one shape")
    return join(b, [reshape(b, n, (*n.shape[:where], 1, *n.shape[where:])) for n in nodes], where, dtype, casting, "stack")


@numpy_function(np.vstack, returns="array")
def vstack(b: Builder, tup: Any, dtype: Any, casting: Any) -> Node:
    return join(b, [_with_rank(b, n, 2, _rank_2) for n in nodes_of(b, tup, "vstack")], 0, dtype, casting, "vstack")


@numpy_function(np.hstack, returns="array")
def hstack(b: Builder, tup: Any, dtype: Any, casting: Any) -> Node:
    nodes = [_with_rank(b, n, 1, _rank_1) for n in nodes_of(b, tup, "hstack")]
    return join(b, nodes, 0 if nodes and nodes[0].ndim == 1 else 1, dtype, casting, "hstack")


@numpy_function(np.dstack, returns="array")
def dstack(b: Builder, tup: Any) -> Node:
    return join(b, [_with_rank(b, n, 3, _rank_3) for n in nodes_of(b, tup, "dstack")], 2, who="dstack")


@numpy_function(np.column_stack, returns="array")
def column_stack(b: Builder, tup: Any) -> Node:
    columns = [reshape(b, n, (numel(n.shape), 1)) if n.ndim < 2 else n for n in nodes_of(b, tup, "column_stack")]
    return join(b, columns, 1, who="column_stack")


@numpy_function(np.append, returns="array")
def append(b: Builder, arr: Any, values: Any, axis: Any = None) -> Node:
    nodes = [b.as_node(arr), b.as_node(values)]
    if axis is None:
        nodes, axis = [ravel(b, n) for n in nodes], 0
    return join(b, nodes, axis, who="append")


MAX_PARTS = 4096  # each is a node

# -- splitting --------------------------------------------------------------------------------------------------------


def _pieces(b: Builder, x: Node, bounds: Sequence[Dim], axis: int) -> list[Node]:
    return [take(b, x, axis, low, high - low) for low, high in pairwise(bounds)]


def _bounds_of_indices(indices: Sequence[Any], size: Dim) -> list[tuple[Dim, Dim]]:
    edges: list[Any] = [0, *indices, None]
    return [_clipped(low, high, size) for low, high in pairwise(edges)]


def _clipped(low: Any, high: Any, size: Dim) -> tuple[Dim, Dim]:
    """``x[low:high]`` as Python takes it."""
    first, last = _position(low, size), size if high is None else _position(high, size)
    return first, last if last > first else first


def _position(i: Any, size: Dim) -> Dim:
    where = as_dim(i, "split")
    where = where + size if where < 0 else where
    if where < 0:
        return 0
    return size if where > size else where


def _split(b: Builder, ary: Any, sections: Any, axis: Any, equal: bool, who: str) -> list[Node]:
    x = b.as_node(ary)
    k = one_axis(axis, x.ndim, who)
    size = x.shape[k]
    if isinstance(sections, (list, tuple)):
        return [take(b, x, k, low, high - low) for low, high in _bounds_of_indices(sections, size)]
    count = as_index(sections, who)
    if count <= 0:
        raise numpy_error(f"{who}: the number of sections must be at least 1, got {count}")
    only(count <= MAX_PARTS, who, "sections", count, f"at most {MAX_PARTS} parts")
    each, extra = size // count, size % count
    if equal and extra != 0:
        raise numpy_error(f"{who}: {size} elements do not divide into {count} equal parts")
    bounds: list[Dim] = [0]
    for i in range(count):
        bounds.append(bounds[-1] + each + (1 if i < extra else 0))
    return _pieces(b, x, bounds, k)


@numpy_function(np.split, returns="array")
def split(b: Builder, ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Node]:
    return _split(b, ary, indices_or_sections, axis, True, "split")


@numpy_function(np.array_split, returns="array")
def array_split(b: Builder, ary: Any, indices_or_sections: Any, axis: Any) -> list[Node]:
    return _split(b, ary, indices_or_sections, axis, False, "array_split")


@numpy_function(np.hsplit, returns="array")
def hsplit(b: Builder, ary: Any, indices_or_sections: Any) -> list[Node]:
    x = b.as_node(ary)
    return _split(b, x, indices_or_sections, 0 if x.ndim == 1 else 1, True, "hsplit")


@numpy_function(np.vsplit, returns="array")
def vsplit(b: Builder, ary: Any, indices_or_sections: Any) -> list[Node]:
    x = b.as_node(ary)
    if x.ndim < 2:
        raise numpy_error("vsplit: takes arrays of 2 or more dimensions")
    return _split(b, x, indices_or_sections, 0, True, "vsplit")


@numpy_function(np.dsplit, returns="array")
def dsplit(b: Builder, ary: Any, indices_or_sections: Any) -> list[Node]:
    x = b.as_node(ary)
    if x.ndim < 3:
        raise numpy_error("dsplit: takes arrays of 3 or more dimensions")
    return _split(b, x, indices_or_sections, 2, True, "dsplit")


@numpy_function(np.unstack, returns="array")
def unstack(b: Builder, x: Any, axis: Any) -> tuple[Node, ...]:
    node = b.as_node(x)
    if node.ndim == 0:
        raise numpy_error("unstack: takes arrays of 1 or more dimensions")
    k = one_axis(axis, node.ndim, "unstack")
    only(node.ndim > 1, "unstack", "x", node.shape, "its elements would be 0-d views; index them")
    return tuple(rows_of(b, permute(b, node, (k, *(j for j in range(node.ndim) if j != k))), "unstack"))
