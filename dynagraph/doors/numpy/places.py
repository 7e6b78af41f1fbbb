"""Doors for functions of positions: take_along_axis, nonzero-like conditions, triangles, flat indices.

Where it is known at capture what a condition chooses, these are places; else it is a `Chosen`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import (
    as_dim,
    as_index,
    as_shape,
    nodes_of,
    numpy_error,
    one_axis,
    only,
    ravel,
    reshape,
)
from dynagraph.doors.numpy.builder import MOST_KNOWN, Builder, Chosen, Unsupported, is_weak, known_dtype
from dynagraph.doors.numpy.elementwise import result_type, strong
from dynagraph.doors.numpy.elementwise_functions import held, where
from dynagraph.doors.numpy.indexing import bounded, inside, take_
from dynagraph.doors.numpy.layout import c_order, f_order
from dynagraph.doors.numpy.table import numpy_function, numpy_method
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, SymInt, broadcast_shapes, numel, same_shape

# -- along an axis ----------------------------------------------------------------------------------------------------


def along_axis(b: Builder, shape: Shape, indices: Any, axis: int, who: str) -> tuple[Node, ...]:
    """The index of the elements that `indices` names along an axis, each in its own row."""
    if not isinstance(indices, Node) or not indices.dtype.is_integer or indices.dtype.is_bool or indices.ndim != len(shape):
        raise numpy_error(f"{who}: indices must be an array of integers of {len(shape)} dimensions")
    return tuple(indices if k == axis else _counted(b, d, k, len(shape), dtypes.int64) for k, d in enumerate(shape))


def _counted(b: Builder, size: Dim, axis: int, rank: int, dtype: DType) -> Node:
    """0, 1, 2... along one axis of `rank`."""
    count = b.call("iota", shape=(size,), start=0, step=1, dtype=dtype)
    return reshape(b, count, tuple(size if k == axis else 1 for k in range(rank)))


@numpy_function(np.take_along_axis, returns="array")
def take_along_axis(b: Builder, arr: Any, indices: Any, axis: Any) -> Node:
    x = b.as_node(arr)
    if axis is None:
        x, axis = ravel(b, x), 0
    k = one_axis(axis, x.ndim, "take_along_axis")
    places = along_axis(b, x.shape, indices, k, "take_along_axis")
    shape = broadcast_shapes(*(p.shape for p in places), who="take_along_axis")
    given = [b.cast(p, dtypes.int64) for p in places]
    given[k] = inside(b, given[k], x.shape[k])
    spread = [p if same_shape(p.shape, shape) else b.call("broadcast_to", p, shape=shape) for p in given]
    return b.call("gather", x, *spread, axes=tuple(range(x.ndim)), at=0)


# -- among choices ----------------------------------------------------------------------------------------------------

MAX_CHOICES = 64


@numpy_function(np.choose, method="choose")
def choose(b: Builder, a: Any, choices: Any, mode: Any = "raise") -> Node:
    index = b.as_node(a)
    if not np.can_cast(index.dtype.numpy, np.intp, "safe"):
        raise numpy_error(f"choose: {index.dtype} is no dtype of indices")
    given = list(choices) if isinstance(choices, (list, tuple)) else nodes_of(b, choices, "choose")
    only(0 < len(given) <= MAX_CHOICES, "choose", "choices", len(given), f"1 to {MAX_CHOICES} choices")
    options = [strong(b, c) for c in given]
    dtype = result_type(options, "choose")
    index = bounded(b, index, len(options), mode, "choose")
    if mode == "raise":
        _check_choice(b, index, len(options))
    nodes = [b.as_node(held(o, dtype), dtype) for o in options]
    result = nodes[-1]
    for k in reversed(range(len(nodes) - 1)):
        result = b.call("where", b.call("equal", index, b.scalar(k, dtypes.int64)), nodes[k], result)
    shape = broadcast_shapes(index.shape, result.shape, who="choose")
    if len(nodes) == 1:
        return b.call("copy", result if same_shape(result.shape, shape) else b.call("broadcast_to", result, shape=shape))
    return b.lay(result, c_order(len(shape)))


def _check_choice(b: Builder, index: Node, n: int) -> None:
    """Here no index counts from the end."""
    below = b.call("less", index, b.scalar(0, dtypes.int64))
    b.bail_out_where(b.call("logical_or", below, b.call("greater_equal", index, b.scalar(n, dtypes.int64))))


@numpy_function(np.select, returns="array")
def select(b: Builder, condlist: Any, choicelist: Any, default: Any) -> Node:
    only(all(isinstance(x, (list, tuple)) for x in (condlist, choicelist)), "select", "condlist", "...", "lists")
    if len(condlist) != len(choicelist) or not condlist:
        raise numpy_error("select: takes as many conditions as choices, and at least one")
    conditions = [b.as_node(c) for c in condlist]
    if not all(c.dtype.is_bool for c in conditions):
        raise numpy_error("select: conditions must be arrays of bools")
    options = [c if is_weak(c) and type(c) is not bool else b.as_node(c) for c in (*choicelist, default)]
    dtype = result_type(options, "select")
    nodes = [b.as_node(held(o, dtype), dtype) for o in options]
    shape = broadcast_shapes(*(n.shape for n in (*conditions, *nodes)), who="select")
    result = nodes[-1]
    for condition, node in zip(reversed(conditions), reversed(nodes[:-1])):
        result = b.call("where", condition, node, result)
    made = result if same_shape(result.shape, shape) else b.call("copy", b.call("broadcast_to", result, shape=shape))
    return b.lay(made, c_order(len(shape)))


# -- by conditions ----------------------------------------------------------------------------------------------------

_SIZE = "the size of the result depends on data; write it with np.where(cond, a, b), or reduce what a mask chooses"


def _nonzero(b: Builder, a: Any, who: str) -> tuple[np.ndarray, ...]:
    """The places where an array that is known is true."""
    node = b.as_node(a, dtypes.bool_)
    known = b.known(node)
    if known is None:
        raise Unsupported("DATA_DEPENDENT", f"{who}: {_SIZE}")
    if known.ndim == 0:
        raise numpy_error(f"{who}: of a 0-d array")
    return np.nonzero(known)


def _array(b: Builder, value: np.ndarray) -> Node:
    """A new array, made of what is known at capture."""
    return b.call("copy", b.graph.constant(np.ascontiguousarray(value)))


@numpy_function(np.nonzero, method="nonzero", returns="array")
def nonzero(b: Builder, a: Any) -> tuple[Node, ...]:
    return tuple(_array(b, places) for places in _nonzero(b, a, "nonzero"))


@numpy_function(np.argwhere, returns="array")
def argwhere(b: Builder, a: Any) -> Node:
    made = _array(b, np.stack(_nonzero(b, a, "argwhere"), axis=-1))
    return b.lay(made, f_order(2))


@numpy_function(np.flatnonzero, returns="array")
def flatnonzero(b: Builder, a: Any) -> Node:
    return _array(b, _nonzero(b, ravel(b, b.as_node(a)), "flatnonzero")[0])


@numpy_function(np.where, returns="array")
def where_(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    """With the condition alone, the places where it is true."""
    return nonzero(b, condition) if x is None and y is None else where(b, condition, x, y)


@numpy_function(np.compress)
def compress(b: Builder, condition: Any, a: Any, axis: Any = None) -> Any:
    mask, x = b.as_node(condition, dtypes.bool_), b.as_node(a)
    if mask.ndim != 1:
        raise numpy_error("compress: the condition must be 1-d")
    if axis is None:
        x, axis = ravel(b, x), 0
    k = one_axis(axis, x.ndim, "compress")
    if b.known(mask) is None and mask.shape[0] == x.shape[k]:
        return Chosen(x, mask, k)
    return take_(b, x, _array(b, _nonzero(b, mask, "compress")[0]), k)


@numpy_method("compress")
def _compress_method(b: Builder, a: Node, condition: Any, axis: Any) -> Any:
    return compress(b, condition, a, axis)


@numpy_function(np.extract, returns="array")
def extract(b: Builder, condition: Any, arr: Any) -> Any:
    mask, x = ravel(b, b.as_node(condition, dtypes.bool_)), ravel(b, b.as_node(arr))
    if b.known(mask) is None and mask.shape[0] == x.shape[0]:
        return Chosen(x, mask, 0)
    return take_(b, x, _array(b, _nonzero(b, mask, "extract")[0]), 0)


# -- indices ----------------------------------------------------------------------------------------------------------


@numpy_function(np.ix_, returns="array")
def ix_(b: Builder, *args: Any) -> tuple[Node, ...]:
    made = []
    for k, given in enumerate(args):
        node = b.as_node(given)
        if not isinstance(given, Node) and 0 in node.shape:
            node = b.cast(node, dtypes.int64)
        if node.ndim != 1:
            raise numpy_error("ix_: takes 1-d sequences")
        node = nonzero(b, node)[0] if node.dtype.is_bool else node
        made.append(reshape(b, node, (1,) * k + node.shape + (1,) * (len(args) - k - 1)))
    return tuple(made)


@numpy_function(np.indices, returns="array")
def indices(b: Builder, dimensions: Any, dtype: Any, sparse: Any) -> Any:
    sizes, wanted = as_shape(dimensions, "indices"), known_dtype(dtype, "indices")
    only(not wanted.is_bool and len(sizes) > 0, "indices", "dtype", wanted, "numbers, and one dimension or more")
    counted = [_counted(b, d, k, len(sizes), wanted) for k, d in enumerate(sizes)]
    if sparse:
        return tuple(counted)
    return b.call("concatenate", *(b.call("broadcast_to", c, shape=(1, *sizes)) for c in counted), axis=0)


@numpy_function(np.diag_indices, returns="array")
def diag_indices(b: Builder, n: Any, ndim: Any = 2) -> tuple[Node, ...]:
    count = b.call("iota", shape=as_shape(n, "diag_indices"), start=0, step=1, dtype=dtypes.int64)
    return (count,) * as_index(ndim, "diag_indices")


@numpy_function(np.diag_indices_from, returns="array")
def diag_indices_from(b: Builder, arr: Any) -> tuple[Node, ...]:
    x = b.as_node(arr)
    if x.ndim < 2 or any(d != x.shape[0] for d in x.shape):
        raise numpy_error("diag_indices_from: takes an array of two equal dimensions or more")
    return diag_indices(b, x.shape[0], x.ndim)


def _triangle(b: Builder, function: Any, n: Any, k: Any, m: Any) -> tuple[Node, ...]:
    rows, columns = (int(as_dim(d, function.__name__)) for d in (n, n if m is None else m))
    only(rows * columns <= MOST_KNOWN, function.__name__, "n", n, "a matrix of this size")
    return tuple(_array(b, places) for places in function(rows, as_index(k, function.__name__), columns))


@numpy_function(np.tril_indices, returns="array")
def tril_indices(b: Builder, n: Any, k: Any = 0, m: Any = None) -> tuple[Node, ...]:
    return _triangle(b, np.tril_indices, n, k, m)


@numpy_function(np.triu_indices, returns="array")
def triu_indices(b: Builder, n: Any, k: Any = 0, m: Any = None) -> tuple[Node, ...]:
    return _triangle(b, np.triu_indices, n, k, m)


def _matrix_shape(b: Builder, arr: Any) -> Shape:
    x = b.as_node(arr)
    if x.ndim != 2:
        raise numpy_error("takes a matrix")
    return x.shape


@numpy_function(np.tril_indices_from, returns="array")
def tril_indices_from(b: Builder, arr: Any, k: Any) -> tuple[Node, ...]:
    rows, columns = _matrix_shape(b, arr)
    return tril_indices(b, rows, k, columns)


@numpy_function(np.triu_indices_from, returns="array")
def triu_indices_from(b: Builder, arr: Any, k: Any) -> tuple[Node, ...]:
    rows, columns = _matrix_shape(b, arr)
    return triu_indices(b, rows, k, columns)


# -- flat numbers -----------------------------------------------------------------------------------------------------


def _integers(b: Builder, given: Any, who: str) -> Node:
    node = b.as_node(given)
    if not isinstance(given, Node) and 0 in node.shape:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: of nothing")
    if not node.dtype.is_integer or node.dtype.is_bool or node.dtype is dtypes.uint64:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: of {node.dtype}; it takes integers")
    return b.cast(node, dtypes.int64)


@numpy_function(np.unravel_index)
def unravel_index(b: Builder, indices: Any, shape: Any, order: Any) -> tuple[Node, ...]:
    only(order in ("C", "F"), "unravel_index", "order", order, "C or F")
    sizes, left = as_shape(shape, "unravel_index"), _integers(b, indices, "unravel_index")
    only(len(sizes) > 0 and all(d > 0 for d in sizes), "unravel_index", "shape", sizes, "dimensions of at least 1")
    _check_range(b, left, numel(sizes))
    found = []
    for size in reversed(sizes) if order == "C" else sizes:
        divisor = b.scalar(size, dtypes.int64)
        found.append(b.call("remainder", left, divisor))
        left = b.call("floor_divide", left, divisor)
    return tuple(reversed(found)) if order == "C" else tuple(found)


def _check_range(b: Builder, index: Node, size: Dim | SymInt) -> None:
    below = b.call("less", index, b.scalar(0, dtypes.int64))
    b.bail_out_where(b.call("logical_or", below, b.call("greater_equal", index, b.scalar(size, dtypes.int64))))


@numpy_function(np.ravel_multi_index)
def ravel_multi_index(b: Builder, multi_index: Any, dims: Any, mode: Any, order: Any) -> Node:
    only(order in ("C", "F"), "ravel_multi_index", "order", order, "C or F")
    sizes = as_shape(dims, "ravel_multi_index")
    given = list(multi_index) if isinstance(multi_index, (tuple, list)) else nodes_of(b, multi_index, "ravel_multi_index")
    parts = [_integers(b, p, "ravel_multi_index") for p in given]
    modes = list(mode) if isinstance(mode, (tuple, list)) else [mode] * len(parts)
    if not len(parts) == len(sizes) == len(modes) or not parts:
        raise numpy_error("ravel_multi_index: takes one array for each dimension")
    total = b.scalar(0, dtypes.int64)
    for part, size, how in sorted_by(order, zip(parts, sizes, modes)):
        only(how in ("raise", "wrap", "clip") and size > 0, "ravel_multi_index", "mode", how, "raise, wrap or clip")
        if how == "raise":
            _check_range(b, part, size)
        inside = bounded(b, part, size, how, "ravel_multi_index")
        total = b.call("add", b.call("multiply", total, b.scalar(size, dtypes.int64)), inside)
    return total


def sorted_by(order: str, parts: Any) -> list[Any]:
    """The dimensions from the slowest to the fastest."""
    return list(parts) if order == "C" else list(parts)[::-1]


__all__ = ["along_axis", "compress", "extract", "nonzero"]
