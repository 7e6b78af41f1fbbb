"""Creation doors: arrays of constants, ranges and grids, conversions between dtypes, copies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import (
    as_dim,
    as_index,
    as_shape,
    flag,
    nonnegative,
    numpy_error,
    only,
    order_named,
    order_of_new,
    ravel,
    reshape,
)
from dynagraph.doors.numpy.builder import LIMITS, Builder, Unsupported, WeakFloat, default_dtype, is_weak, known_dtype
from dynagraph.doors.numpy.elementwise import apply, result_type, strong
from dynagraph.doors.numpy.elementwise_functions import where
from dynagraph.doors.numpy.layout import copy_order, is_packed
from dynagraph.doors.numpy.movement import diagonal, diagonal_of, moveaxis
from dynagraph.doors.numpy.reductions import sum_
from dynagraph.doors.numpy.table import Door, numpy_function, numpy_method, register_function
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, Shape, SymInt, broadcast_shapes, numel

LARGEST = 2**40  # elements: memory for more may not be there, which NumPy says even where nobody uses the array


# -- filled arrays ----------------------------------------------------------------------------------------------------


def _full(b: Builder, shape: Any, value: Any, dtype: DType | None, who: str, order: Any = "C") -> Node:
    made = _filled(b, shape, value, dtype, who)
    return b.lay_as_asked(made, order_of_new(order, made.ndim, who))


def _filled(b: Builder, shape: Any, value: Any, dtype: DType | None, who: str) -> Node:
    sizes = nonnegative(as_shape(shape, who), who)
    count = numel(sizes)
    only(not isinstance(count, int) or count <= LARGEST, who, "shape", sizes, "smaller arrays only")
    if is_weak(value):
        only(not isinstance(value, WeakFloat), who, "fill_value", value, "a number that does not change")
        chosen = dtype or default_dtype(value)
        return b.call("full", shape=sizes, value=b.scalar(value, chosen).attrs["value"], dtype=chosen)
    node = b.as_node(value, dtype)
    return b.call("copy", b.call("broadcast_to", node, shape=sizes))


@numpy_function(np.zeros, returns="array")
def zeros(b: Builder, shape: Any, dtype: Any, order: Any) -> Node:
    return _full(b, shape, 0, known_dtype(dtype, "zeros"), "zeros", order)


@numpy_function(np.ones, returns="array")
def ones(b: Builder, shape: Any, dtype: Any, order: Any) -> Node:
    return _full(b, shape, 1, known_dtype(dtype, "ones"), "ones", order)


@numpy_function(np.full, returns="array")
def full(b: Builder, shape: Any, fill_value: Any, dtype: Any, order: Any) -> Node:
    return _full(b, shape, fill_value, None if dtype is None else known_dtype(dtype, "full"), "full", order)


def _full_like(b: Builder, a: Any, value: Any, dtype: Any, order: Any, shape: Any, who: str) -> Node:
    x = b.as_node(a)
    chosen = x.dtype if dtype is None else known_dtype(dtype, who)
    made = _filled(b, x.shape if shape is None else shape, value, chosen, who)
    if made.ndim == x.ndim:
        return b.lay_as_asked(made, order_named(b, order, x, who))
    return b.lay_as_asked(made, order_of_new("F" if order == "F" else "C", made.ndim, who))


@numpy_function(np.zeros_like, returns="array")
def zeros_like(b: Builder, a: Any, dtype: Any, order: Any, shape: Any) -> Node:
    return _full_like(b, a, 0, dtype, order, shape, "zeros_like")


@numpy_function(np.ones_like, returns="array")
def ones_like(b: Builder, a: Any, dtype: Any, order: Any, shape: Any) -> Node:
    return _full_like(b, a, 1, dtype, order, shape, "ones_like")


@numpy_function(np.full_like, returns="array")
def full_like(b: Builder, a: Any, fill_value: Any, dtype: Any, order: Any, shape: Any) -> Node:
    return _full_like(b, a, fill_value, dtype, order, shape, "full_like")


@numpy_function(np.empty, returns="array")
def empty(b: Builder, shape: Any, dtype: Any, order: Any) -> Node:
    """What an empty array holds is not defined: zeros are as good, and are not stored where all of it is written."""
    return _full(b, shape, 0, known_dtype(dtype, "empty"), "empty", order)


@numpy_function(np.empty_like, returns="array")
def empty_like(b: Builder, prototype: Any, dtype: Any, order: Any, shape: Any) -> Node:
    return _full_like(b, prototype, 0, dtype, order, shape, "empty_like")


# -- ranges -----------------------------------------------------------------------------------------------------------


def _number(value: Any, who: str) -> int | float | SymInt:
    if isinstance(value, Node):
        raise Unsupported("DATA_DEPENDENT", f"{who}: the result depends on the value of an array; use Python numbers and shapes")
    if isinstance(value, np.generic):
        known_dtype(value.dtype, who)
        only(
            value.dtype in (np.dtype("int64"), np.dtype("float64")),
            who,
            "start, stop or step",
            value,
            "use Python numbers",
        )
        value = value.item()
    only(type(value) in (int, float, SymInt), who, "start, stop or step", value, "use Python numbers")
    if type(value) is int and not LIMITS[dtypes.int64][0] <= value <= LIMITS[dtypes.int64][1]:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: {value} does not fit int64")
    return value


def _ceil_division(span: Dim, step: Dim) -> Dim:
    if step < 0:
        span, step = -span, -step
    return (span + step - 1) // step if span > 0 else 0


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None) -> None:
    """What np.arange takes; its signature tells of less."""


@numpy_function(np.arange, returns="array", like=_arange)
def arange(b: Builder, start: Any, stop: Any, step: Any, dtype: Any) -> Node:
    first, last = (0, _number(start, "arange")) if stop is None else (_number(start, "arange"), _number(stop, "arange"))
    by = 1 if step is None else _number(step, "arange")
    if by == 0:
        raise numpy_error("arange: step cannot be zero")
    if isinstance(first, float) or isinstance(last, float) or isinstance(by, float):
        chosen = dtypes.float64 if dtype is None else known_dtype(dtype, "arange")
        only(chosen.is_float, "arange", "dtype", chosen, "a float dtype, for floats")
        return _float_range(b, as_float(first), as_float(last), as_float(by), chosen)
    chosen = dtypes.int64 if dtype is None else known_dtype(dtype, "arange")
    only(not chosen.is_bool, "arange", "dtype", chosen, "numbers")
    size = _ceil_division(last - first, by)
    _check_range(first, by, size, chosen)
    return b.call("iota", shape=(size,), start=first, step=by, dtype=chosen)


def as_float(value: int | float | SymInt) -> float:
    return float(int(value)) if isinstance(value, SymInt) else float(value)


def _float_range(b: Builder, first: float, last: float, step: float, dtype: DType) -> Node:
    size = max(0, math.ceil((last - first) / step))
    return b.call("iota", shape=(size,), start=first, step=step, dtype=dtype)


def _check_range(first: Dim, step: Dim, size: Dim, dtype: DType) -> None:
    if dtype.is_integer and dtype is not dtypes.int64:
        low, high = LIMITS[dtype][0], min(LIMITS[dtype][1], LIMITS[dtypes.int64][1])  # as int64 they are computed
        for value in (first, first + step * (size - 1)):
            only(size == 0 or low <= value <= high, "arange", "dtype", dtype, f"it holds {low} to {high}")


@numpy_function(np.linspace)
def linspace(b: Builder, start: Any, stop: Any, num: Any, endpoint: Any, retstep: Any, dtype: Any, axis: Any) -> Any:
    chosen = None if dtype is None else known_dtype(dtype, "linspace")
    only(chosen is None or not chosen.is_bool, "linspace", "dtype", chosen, "numbers")
    (size,) = nonnegative((as_dim(num, "linspace"),), "linspace")
    last_too, with_step, along = flag(endpoint, "linspace"), flag(retstep, "linspace"), as_index(axis, "linspace")
    if _is_known(start) and _is_known(stop) and not with_step and along in (0, -1):
        first, last = as_float(_number(start, "linspace")), as_float(_number(stop, "linspace"))
        return b.call("linspace", shape=(size,), start=first, stop=last, endpoint=last_too, dtype=chosen or dtypes.float64)
    only(b.check_op is None, "linspace", "start, stop", (start, stop), "finite Python numbers, with CuPy")
    made, step = _between(b, strong(b, start), strong(b, stop), size, last_too)
    made = made if along == 0 else moveaxis(b, made, 0, along)
    if chosen is not None and chosen.is_integer:
        made = apply(b, np.floor, made)
    if chosen is not None:
        made = converted_copy(b, made, chosen, False)
    return (made, step) if with_step else made


def _is_known(value: Any) -> bool:
    """Whether it is a finite number that is known at capture, of a dtype that says nothing of the result's."""
    return type(value) in (bool, int, float, SymInt, np.float64, np.int64) and math.isfinite(as_float(value))


def _between(b: Builder, start: Any, stop: Any, size: Dim, endpoint: bool) -> tuple[Node, Any]:
    """``np.linspace`` along a new first axis, step by step as NumPy computes it, and the distance of two elements."""
    gaps = size - 1 if endpoint else size
    dtype = known_dtype(np.result_type(result_type((start, stop), "linspace").numpy, 0.0), "linspace")
    delta = apply(b, np.subtract, stop, start, dtype=dtype.numpy)
    ones = (1,) * delta.ndim
    real = dtype.real
    counted = b.cast(reshape(b, b.call("iota", shape=(size,), start=0, step=1, dtype=real), (size, *ones)), dtype)
    if gaps > 0:
        step = apply(b, np.divide, delta, gaps)
        none = apply(b, np.equal, step, 0)
        # where the quotient of a denormal number is zero, NumPy divides first
        none = b.call("any", none, axis=tuple(range(none.ndim)), keepdims=False) if none.ndim else none
        by_step = apply(b, np.multiply, counted, step)
        divided_first = apply(b, np.multiply, apply(b, np.divide, counted, gaps), delta)
        made = _laid_like(b, b.call("where", none, divided_first, by_step), by_step)
    else:
        step, made = math.nan, apply(b, np.multiply, counted, delta)
    made = _laid_like(b, apply(b, np.add, made, start, dtype=dtype.numpy), made)
    if endpoint and size > 1:
        at_end = apply(b, np.equal, counted, size - 1)
        made = _laid_like(b, b.call("where", at_end, b.as_node(stop, dtype), made), made)
    return made, step


def _laid_like(b: Builder, made: Node, like: Node) -> Node:
    return b.lay(made, copy_order(b.layout(like)))


# -- matrices ---------------------------------------------------------------------------------------------------------


@numpy_function(np.eye, returns="array")
def eye(b: Builder, N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C") -> Node:
    shape = nonnegative(as_shape((N, N if M is None else M), "eye"), "eye")
    made = b.call("eye", shape=shape, k=as_dim(k, "eye"), dtype=known_dtype(dtype, "eye"))
    return b.lay(made, order_of_new(order, 2, "eye"))


@numpy_function(np.identity, returns="array")
def identity(b: Builder, n: Any, dtype: Any) -> Node:
    return eye(b, n, dtype=dtype)


def _triangle(b: Builder, shape: Shape, k: Any) -> Node:
    """True on and below the k-th diagonal."""
    rows, columns = shape
    shift = as_dim(k, "tri")
    down = b.call("iota", shape=(rows,), start=0, step=1, dtype=dtypes.int64)
    across = b.call("iota", shape=(columns,), start=-shift, step=1, dtype=dtypes.int64)
    return b.call("greater_equal", reshape(b, down, (rows, 1)), across)


@numpy_function(np.tri, returns="array")
def tri(b: Builder, N: Any, M: Any, k: Any, dtype: Any) -> Node:
    shape = nonnegative(as_shape((N, N if M is None else M), "tri"), "tri")
    return b.cast(_triangle(b, shape, k), known_dtype(dtype, "tri"))


def _matrix_size(x: Node, who: str) -> Shape:
    if x.ndim == 0:
        raise numpy_error(f"{who}: takes arrays of 1 or more dimensions")
    return x.shape[-2:] if x.ndim > 1 else x.shape * 2


@numpy_function(np.tril, returns="array")
def tril(b: Builder, m: Any, k: Any) -> Node:
    x = b.as_node(m)
    return where(b, _triangle(b, _matrix_size(x, "tril"), k), x, b.scalar(0, x.dtype))


@numpy_function(np.triu, returns="array")
def triu(b: Builder, m: Any, k: Any) -> Node:
    x = b.as_node(m)
    return where(b, _triangle(b, _matrix_size(x, "triu"), as_dim(k, "triu") - 1), b.scalar(0, x.dtype), x)


@numpy_function(np.diag, returns="array")
def diag(b: Builder, v: Any, k: Any) -> Node:
    x = b.as_node(v)
    if x.ndim == 1:
        return _on_diagonal(b, x, as_index(k, "diag"))
    if x.ndim != 2:
        raise numpy_error(f"diag: takes arrays of 1 or 2 dimensions, got {x.ndim}")
    return diagonal(b, x, k)


def _on_diagonal(b: Builder, x: Node, k: int) -> Node:
    """The matrix that has `x` on its k-th diagonal: as a column with k rows more, or as a row with -k columns more."""
    size = x.shape[0] + abs(k)
    longer = b.call("pad", x, widths=((0, abs(k)),)) if k else x
    across = reshape(b, longer, (size, 1)) if k > 0 else longer
    on = b.call("eye", shape=(size, size), k=k, dtype=dtypes.bool_)
    return b.call("where", on, across, b.scalar(0, x.dtype))


@numpy_function(np.diagflat, returns="array")
def diagflat(b: Builder, v: Any, k: Any) -> Node:
    return _on_diagonal(b, ravel(b, b.as_node(v)), as_index(k, "diagflat"))


@numpy_function(np.trace, method="trace")
def trace(b: Builder, a: Any, offset: Any, axis1: Any, axis2: Any, dtype: Any) -> Node:
    return sum_(b, diagonal_of(b, b.as_node(a), "trace", offset, axis1, axis2), axis=-1, dtype=dtype)


@numpy_function(np.meshgrid, returns="array")
def meshgrid(b: Builder, *xi: Any, copy: Any, sparse: Any, indexing: Any) -> tuple[Node, ...]:
    if indexing not in ("xy", "ij"):
        raise numpy_error(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    nodes = [b.as_node(x) for x in xi]
    rank = len(nodes)
    places = list(range(rank))
    if indexing == "xy" and rank > 1:
        places[:2] = [1, 0]
    grids = [_along(b, n, place, rank) for n, place in zip(nodes, places)]
    if not flag(sparse, "meshgrid"):
        shape = broadcast_shapes(*(g.shape for g in grids))
        grids = [b.call("broadcast_to", g, shape=shape) for g in grids]
    return tuple(b.call("copy", g) for g in grids) if flag(copy, "meshgrid") else tuple(grids)


def _along(b: Builder, x: Node, axis: int, rank: int) -> Node:
    """All elements of `x` along one axis of `rank`."""
    return reshape(b, x, tuple(numel(x.shape) if k == axis else 1 for k in range(rank)))


# -- conversions and copies -------------------------------------------------------------------------------------------


def converted_copy(b: Builder, x: Node, dtype: DType, copy: bool, order: Any = "K", who: str = "astype") -> Node:
    """As ``astype``: the array itself only where no copy is asked for, and it has the dtype and lies in the order."""
    wanted = order_named(b, order, x, who)
    if x.dtype is not dtype:
        return b.lay_as_asked(b.cast(x, dtype), wanted)
    stays = order in ("K", "A", None) or is_packed(b.layout(x), wanted)
    return x if stays and not copy else b.lay_as_asked(b.call("copy", x), wanted)


@numpy_method("astype", returns="same")
def astype(b: Builder, a: Node, dtype: Any, order: Any = "K", casting: Any = "unsafe", copy: Any = True) -> Node:
    wanted = known_dtype(dtype, "astype")
    if not np.can_cast(a.dtype.numpy, wanted.numpy, casting):
        raise numpy_error(f"astype: cannot cast {a.dtype} to {wanted} by the rule {casting!r}")
    return converted_copy(b, a, wanted, flag(copy, "astype"), order)


@numpy_function(np.astype, returns="same")
def _astype_function(b: Builder, x: Any, dtype: Any, copy: Any) -> Node:
    if not isinstance(x, Node) or b.is_scalar(x):
        raise numpy_error("astype: takes an array")
    return astype(b, x, dtype, copy=copy)


def _scalar_type_door(dtype: DType) -> Callable[..., Node]:
    def door(b: Builder, x: Any = 0, /) -> Node:
        """``np.float32(x)``: an array of that dtype is given back itself."""
        only(not isinstance(x, str), dtype.name, "x", x, "a number or an array")
        if isinstance(x, Node) and x.ndim:
            return converted_copy(b, x, dtype, copy=False)
        node = b.as_node(x, dtype)
        return b.call("copy", node) if node is x and not b.is_scalar(node) else node

    return door


for _dtype in dtypes.ALL:
    register_function(_dtype.numpy.type, Door(_dtype.name, _scalar_type_door(_dtype)))


def _array(b: Builder, a: Any, dtype: Any, copy: Any, ndmin: Any, who: str, order: Any = "K") -> Node:
    wanted = None if dtype is None else known_dtype(dtype, who)
    if isinstance(a, Node):
        x = converted_copy(b, a, wanted or a.dtype, copy or b.is_scalar(a), order, who)
    else:
        x = b.as_node(a, wanted)
        x = b.lay(x, order_named(b, order, x, who))
    missing = int(ndmin) - x.ndim
    return reshape(b, x, (1,) * missing + x.shape) if missing > 0 else x


@numpy_function(np.array, returns="array")
def array(b: Builder, object: Any, dtype: Any = None, *, copy: Any = True, order: Any = "K", ndmin: Any = 0) -> Node:
    only(copy is None or isinstance(copy, bool), "array", "copy", copy, "True, False or None")
    x = _array(b, object, dtype, copy, ndmin, "array", order)
    only(copy is not False or x is object, "array", "copy", copy, "where nothing must be copied")
    return x


@numpy_function(np.asarray, returns="array")
def asarray(b: Builder, a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None) -> Node:
    only(copy in (None, True), "asarray", "copy", copy, "None or True")
    return _array(b, a, dtype, copy, 0, "asarray", order)


@numpy_function(np.asanyarray, returns="array")
def asanyarray(b: Builder, a: Any, dtype: Any, order: Any, copy: Any) -> Node:
    return asarray(b, a, dtype, order, copy=copy)


@numpy_function(np.ascontiguousarray, returns="array")
def ascontiguousarray(b: Builder, a: Any, dtype: Any) -> Node:
    return _array(b, a, dtype, None, 1, "ascontiguousarray", "C")


@numpy_function(np.asfortranarray, returns="array")
def asfortranarray(b: Builder, a: Any, dtype: Any) -> Node:
    return _array(b, a, dtype, None, 1, "asfortranarray", "F")


@numpy_function(np.copy, returns="array")
def copy_(b: Builder, a: Any, order: Any) -> Node:
    return _array(b, a, None, True, 0, "copy", order)


@numpy_method("copy", returns="same")
def _copy_method(b: Builder, a: Node, order: Any) -> Node:
    return b.lay_as_asked(b.call("copy", a), order_named(b, order or "C", a, "copy"))


__all__ = ["converted_copy"]
