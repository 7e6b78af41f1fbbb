"""Methods of ufuncs: ``reduce``, ``accumulate`` and ``reduceat``.  The loop's dtype is asked of the ufunc itself.

Sums, products, extremes, truths and bits are reductions of the graph; every other ufunc that is an op of two operands is
a scan, of which a reduction is the last element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dynagraph.doors.numpy.arguments import as_index, flag, numpy_error, one_axis, only, reduced_axes, reshape, take
from dynagraph.doors.numpy.builder import Builder, Unsupported, known_dtype
from dynagraph.doors.numpy.elementwise import UFUNCS, arrays_out, check_exponents, combining_op, mask_of
from dynagraph.doors.numpy.layout import Order, reduced_order, result_among, segments_order
from dynagraph.doors.numpy.table import Door, register_ufunc_method
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Walk, memory_of
from dynagraph.ir.shapes import Dim, same_shape

MAX_SEGMENTS = 256  # of reduceat: each is a reduction of its own
UNSET: Any = np._NoValue

_OF_BOOLS: dict[np.ufunc, str] = {
    np.logical_and: "all", np.logical_or: "any", np.bitwise_and: "all", np.bitwise_or: "any", np.multiply: "all", np.add: "any",
    np.maximum: "max", np.minimum: "min", np.fmax: "max", np.fmin: "min",
}  # fmt: skip
_OF_NUMBERS: dict[np.ufunc, str] = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min"}
_OF_INTEGERS: dict[np.ufunc, str] = {
    np.bitwise_and: "all_bits", np.bitwise_or: "any_bits", np.bitwise_xor: "odd_bits", np.fmax: "max", np.fmin: "min",
}  # fmt: skip
# these have no identity, and yet their operands may come in any order
_REORDERABLE = (np.maximum, np.minimum, np.fmax, np.fmin)
# what changes nothing as the right operand, for ufuncs that have no identity
_NOTHING: dict[np.ufunc, int] = {np.subtract: 0, np.divide: 1, np.left_shift: 0, np.right_shift: 0}


# their vector loops read operands before they store results, so where the result is an operand of the next step they go wrong
_VECTORISED = (np.power, np.arctan2)


def native(ufunc: np.ufunc, dtype: DType) -> str | None:
    """The graph's own reduction."""
    if dtype.is_bool:
        return _OF_BOOLS.get(ufunc)
    return _OF_NUMBERS.get(ufunc) or (_OF_INTEGERS.get(ufunc) if dtype.is_integer else None)


def loop_dtype(ufunc: np.ufunc, x: Node, dtype: Any, out: Node | None) -> DType:
    """The dtype in which a reduction or scan computes: of the operands and of the result."""
    name = ufunc.__name__
    signature = None if dtype is None else (known_dtype(dtype, name).numpy, None, None)
    given = (None if out is None else out.dtype.numpy, x.dtype.numpy, None)
    try:
        options: dict[str, Any] = {} if signature is None else {"signature": signature}
        loop = ufunc.resolve_dtypes(given, casting="unsafe", reduction=True, **options)
    except TypeError as error:
        raise numpy_error(f"{name}: {error}") from error
    if len(set(loop)) != 1:
        raise Unsupported("UNSUPPORTED_DTYPE", f"{name}: its loop of {loop[1]} gives {loop[-1]}")
    result = known_dtype(loop[0], name)
    if out is not None and out.dtype is not result:
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"{name}: computes in {result}, and out= is {out.dtype}; they must be one dtype")
    return result


def written(out: Any, who: str) -> Node | None:
    """The one array that ``out=`` names."""
    return arrays_out(UNSET if out is UNSET else out, 1, who)[0] if out is not UNSET else None


def checked_shape(result: Node, out: Node | None, who: str) -> Node:
    """The result, if the array that takes it is of its shape."""
    if out is not None and not same_shape(result.shape, out.shape):
        raise numpy_error(f"{who}: a result of shape {result.shape} for an array of shape {out.shape}")
    return result


# -- reduce -------------------------------------------------------------------------------------------------------------


def reduce_by(
    b: Builder,
    ufunc: np.ufunc,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = UNSET,
    where: Any = True,
) -> Node:
    """``ufunc.reduce(a, axis, dtype, out, keepdims, initial, where)``."""
    name, x, target = ufunc.__name__, b.as_node(a), written(out, ufunc.__name__)
    mask = mask_of(b, where, name)
    given = [b.layout(n) for n in (x, mask) if n is not None]
    loop = loop_dtype(ufunc, x, dtype, target)
    casts, x = x.dtype is not loop, b.cast(x, loop)
    adds_up = ufunc is np.add and loop.is_inexact and b.check_op is None
    _check_real(loop, name, (adds_up or (mask is None and initial is UNSET)) and native(ufunc, loop) is not None)
    axes = reduced_axes(loose_axis(axis, x), x.ndim, name)
    keeps = False if keepdims is UNSET else flag(keepdims, name)
    identity = ufunc.identity
    if len(axes) > 1 and identity is None and ufunc not in _REORDERABLE:
        raise numpy_error(f"{name}: is not reorderable, so at most one axis may be given")
    start = _start(b, initial, loop, name)
    if initial is None:
        begins = native(ufunc, loop) is not None and not (loop.is_float and ufunc is np.add)  # with the first element or not
        only(begins or identity is None, name, "initial", None, "leave it out")
        identity = None
    if mask is not None:
        filled = _masked(b, ufunc, x, mask, start, identity)
        x = x if adds_up and axes else filled
    if start is None and identity is None:
        _check_elements(x, axes, name)
    if target is not None and target.ndim == (x.ndim if keeps else x.ndim - len(axes)):
        given = [*given, result_among(b.layout(target), x.ndim, axes, keeps)]
    if adds_up and axes and not (start is None and mask is None):
        result = b.sum_where(x, mask, start, axes, keeps, given, casts)
    else:
        result = _reduced(b, ufunc, x, axes, keeps, start, partial(b.accumulate, given=given, casts=casts))
    return checked_shape(_laid(b, result, lambda: reduced_order(given, axes, keeps)), target, name)


def _laid(b: Builder, result: Node, order: Callable[[], Order]) -> Node:
    """A result of several steps, as NumPy lays that of its one."""
    made = result if result.ndim == 0 or memory_of(result) is None else b.call("copy", result)
    return made if made.ndim < 2 else b.lay(made, order())


def _check_real(dtype: DType, who: str, is_plain: bool = False) -> None:
    """Complex numbers are reduced by kernels of their own, or not at all."""
    if dtype.is_complex and not is_plain:
        raise Unsupported("UNSUPPORTED_DTYPE", f"{who}: of {dtype} with these arguments is not captured")


def loose_axis(axis: Any, x: Node) -> Any:
    """Ufuncs' reductions, positions and scans let 0-d arrays have the axes 0 and -1."""
    return None if x.ndim == 0 and type(axis) is int and axis in (0, -1) else axis


def _start(b: Builder, initial: Any, dtype: DType, who: str) -> Node | None:
    """``initial=`` as a node."""
    if initial is UNSET or initial is None:
        return None
    start = b.as_node(initial, dtype)
    only(start.ndim == 0, who, "initial", "an array", "it must be a scalar")
    if dtype.is_inexact and who == "add":  # the sum of negative zeros is 0.0, unless it begins with -0.0
        only(start.is_op("constant") and not _has_negative_zero(start.attrs["value"]), who, "initial", initial, "add it to the sum")
    return start


def _has_negative_zero(value: complex) -> bool:
    return any(part == 0 and math.copysign(1.0, part) < 0 for part in (complex(value).real, complex(value).imag))


def _masked(b: Builder, ufunc: np.ufunc, x: Node, mask: Node, start: Node | None, identity: Any) -> Node:
    """With what changes nothing where the mask is false."""
    name = ufunc.__name__
    if start is None and identity is None:
        raise numpy_error(f"{name}: has no identity, so where= needs initial=")
    if ufunc in _REORDERABLE:
        assert start is not None
        instead = start
    else:
        nothing = identity if identity is not None else ufunc.identity if ufunc.identity is not None else _NOTHING.get(ufunc)
        only(nothing is not None, name, "where", "a mask", "there is no operand that changes nothing")
        instead = b.as_node(_identity(nothing, x.dtype), x.dtype)
    chosen = b.call("where", mask, x, instead)
    if not same_shape(chosen.shape, x.shape):
        raise numpy_error(f"{name}: where= of shape {mask.shape} for an array of shape {x.shape}")
    return chosen


def _identity(value: Any, dtype: DType) -> Any:
    return value if dtype.is_inexact else int(np.asarray(value).astype(dtype.numpy))


def _check_elements(x: Node, axes: tuple[int, ...], who: str) -> None:
    if any(x.shape[k] == 0 for k in axes):
        raise numpy_error(f"{who}: the array of shape {x.shape} has no elements along axis {axes}, and there is no identity")


Accumulate = Callable[[str, Node, tuple[int, ...], bool], Node]


def _reduced(
    b: Builder, ufunc: np.ufunc, x: Node, axes: tuple[int, ...], keepdims: bool, start: Node | None, accumulate: Accumulate
) -> Node:
    dtype = x.dtype
    name = native(ufunc, dtype)
    if name is None and ufunc in (np.fmax, np.fmin) and dtype.is_float:
        result = _without_nan(b, ufunc, x, axes, keepdims)
    elif name is None and ufunc in (np.logical_xor, np.bitwise_xor, np.not_equal) and dtype.is_bool and axes:
        result = _parity(b, x, axes, keepdims)
    elif name is None:
        return _by_scan(b, ufunc, x, axes, keepdims, start)
    else:
        if name in ("max", "min") and any(x.shape[k] == 0 for k in axes):
            return _of_nothing(b, x, axes, keepdims, start)
        accumulates = name in ("sum", "prod")
        result = accumulate(name, x, axes, keepdims) if accumulates else b.call(name, x, axis=axes, keepdims=keepdims)
    combine = combining_op(ufunc, dtype)
    assert combine is not None
    return result if start is None else b.call(combine, start, result)


def _of_nothing(b: Builder, x: Node, axes: tuple[int, ...], keepdims: bool, start: Node | None) -> Node:
    """The extreme of no elements is what it begins with; without that there are no results."""
    value = b.scalar(0, x.dtype) if start is None else start
    return b.call("broadcast_to", value, shape=reduced_shape(x.shape, axes, keepdims))


def reduced_shape(shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[Dim, ...]:
    return tuple(1 if k in axes else d for k, d in enumerate(shape) if keepdims or k not in axes)


def _without_nan(b: Builder, ufunc: np.ufunc, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """fmax and fmin: NaN where there is nothing else."""
    if any(x.shape[k] == 0 for k in axes):
        return _of_nothing(b, x, axes, keepdims, b.scalar(np.nan, x.dtype))
    missing, lowest = b.call("isnan", x), -np.inf if ufunc is np.fmax else np.inf
    rest = b.call("where", missing, b.scalar(float(lowest), x.dtype), x)
    found = b.call("max" if ufunc is np.fmax else "min", rest, axis=axes, keepdims=keepdims)
    return b.call("where", b.call("all", missing, axis=axes, keepdims=keepdims), b.scalar(np.nan, x.dtype), found)


def _parity(b: Builder, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """Whether an odd number is true."""
    odd = b.call("odd_bits", b.cast(x, dtypes.uint8), axis=axes, keepdims=keepdims)
    return b.cast(odd, dtypes.bool_)


def _by_scan(b: Builder, ufunc: np.ufunc, x: Node, axes: tuple[int, ...], keepdims: bool, start: Node | None) -> Node:
    """The last elements of scans, one axis after the other."""
    name, shape = ufunc.__name__, reduced_shape(x.shape, axes, keepdims)
    _check_steps(ufunc, x.dtype)
    combine = _combining(ufunc, x.dtype)
    if start is None and ufunc.identity is not None:
        start = b.as_node(_identity(ufunc.identity, x.dtype), x.dtype)
    if len(axes) != 1:  # their order is free, so what it begins with may come last
        for axis in axes:
            x = _by_scan(b, ufunc, x, (axis,), True, None)
        return reshape(b, x if start is None else b.call(combine, start, x), shape)
    (axis,) = axes
    if start is not None:
        first = b.call("broadcast_to", start, shape=tuple(1 if k == axis else d for k, d in enumerate(x.shape)))
        x = b.call("concatenate", first, x, axis=axis)
    elif x.shape[axis] == 0:
        return b.call("broadcast_to", b.scalar(0, x.dtype), shape=shape)
    return reshape(b, take(b, scanned(b, ufunc, x, axis, name), axis, x.shape[axis] - 1, 1), shape)


def _check_steps(ufunc: np.ufunc, dtype: DType) -> None:
    if ufunc in _VECTORISED and dtype.is_float:
        raise Unsupported("UNSUPPORTED_FUNCTION", f"np.{ufunc.__name__}.reduce of {dtype}: NumPy's result depends on the processor")


def _combining(ufunc: np.ufunc, dtype: DType) -> str:
    name = combining_op(ufunc, dtype)
    if name is None:
        raise Unsupported("UNSUPPORTED_FUNCTION", f"np.{ufunc.__name__}.reduce and .accumulate are not captured")
    return name


# -- accumulate ---------------------------------------------------------------------------------------------------------


def accumulate_by(b: Builder, ufunc: np.ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Node:
    """``ufunc.accumulate(a, axis, dtype, out)``."""
    name, x, target = ufunc.__name__, b.as_node(a), written(out, ufunc.__name__)
    x = b.cast(x, loop_dtype(ufunc, x, dtype, target))
    _check_real(x.dtype, ufunc.__name__, ufunc in (np.add, np.multiply))
    if isinstance(axis, tuple) and len(axis) == 1:
        (axis,) = axis
    if axis is None and x.ndim == 1:
        axis = 0
    if x.ndim == 0 or axis is None:
        raise numpy_error(f"{name}.accumulate: takes an array and one axis")
    return checked_shape(scanned(b, ufunc, x, one_axis(axis, x.ndim, name), name), target, name)


def scanned(b: Builder, ufunc: np.ufunc, x: Node, axis: int, who: str) -> Node:
    """The scan along an axis, in the dtype of the array."""
    name = _combining(ufunc, x.dtype)
    if name == "power_int":
        check_exponents(b, take(b, x, axis, 1, x.shape[axis] - 1) if x.shape[axis] != 0 else x)
    scan = {"add": "cumsum", "multiply": "cumprod"}.get(name) if not x.dtype.is_bool else None
    return b.call(scan or f"{name}_accumulate", x, axis=axis)


# -- reduceat -----------------------------------------------------------------------------------------------------------


def reduceat_by(b: Builder, ufunc: np.ufunc, a: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Node:
    """``ufunc.reduceat(a, indices, axis, dtype, out)`` for indices that are known: each segment is a reduction of its own."""
    name, x, target = ufunc.__name__, b.as_node(a), written(out, ufunc.__name__)
    given = b.layout(x)
    x = b.cast(x, loop_dtype(ufunc, x, dtype, target))
    _check_real(x.dtype, ufunc.__name__)
    if isinstance(axis, tuple) and len(axis) == 1:
        (axis,) = axis
    if x.ndim == 0 or axis is None:
        raise numpy_error(f"{name}.reduceat: takes an array and one axis")
    axis = one_axis(axis, x.ndim, name)
    starts = _positions(b, indices, name)
    length = as_index(x.shape[axis], name)
    if any(not 0 <= i < length for i in starts):
        raise numpy_error(f"{name}.reduceat: an index is out of bounds of {length} elements")
    if not starts:
        return checked_shape(take(b, x, axis, 0, 0), target, name)
    ends = [*starts[1:], length]
    parts = [_segment(b, ufunc, take(b, x, axis, i, max(j - i, 1)), axis) for i, j in zip(starts, ends)]
    result = b.call("concatenate", *parts, axis=axis)
    return checked_shape(_laid(b, result, lambda: segments_order(given, axis)), target, name)


def _positions(b: Builder, indices: Any, who: str) -> list[int]:
    if isinstance(indices, Node):
        known = b.known(indices)
        if known is None or indices.ndim != 1 or not indices.dtype.is_integer:
            raise Unsupported("DATA_DEPENDENT", f"{who}.reduceat: indices that are data are not known at capture; give a list")
        indices = known.tolist()
    only(isinstance(indices, (list, tuple)), who, "indices", indices, "give a list of ints")
    only(len(indices) <= MAX_SEGMENTS, who, "indices", len(indices), f"at most {MAX_SEGMENTS} segments are captured")
    return [as_index(i, who) for i in indices]


def _segment(b: Builder, ufunc: np.ufunc, x: Node, axis: int) -> Node:
    """Reduced without an identity: it begins with the first element."""
    if x.shape[axis] == 1:
        return x
    if native(ufunc, x.dtype) is None and ufunc not in _REORDERABLE:
        _check_steps(ufunc, x.dtype)
        return take(b, scanned(b, ufunc, x, axis, ufunc.__name__), axis, x.shape[axis] - 1, 1)
    if not (ufunc is np.add and x.dtype.is_float):
        return _reduced(b, ufunc, x, (axis,), True, None, b.accumulate)
    result = _sum_behind_first(b, x, axis)
    negative = b.call("all", b.call("signbit", x), axis=(axis,), keepdims=True)  # -0.0 is the sum of negative zeros here
    zero = b.call("equal", result, b.scalar(0.0, x.dtype))
    return b.call("where", b.call("logical_and", negative, zero), b.scalar(-0.0, x.dtype), result)


def _sum_behind_first(b: Builder, x: Node, axis: int) -> Node:
    """Along the axis, wherever it lies: the first element, and what the others give pairwise.  Halves are rounded once."""
    wide = b.cast(x, dtypes.float32) if x.dtype.is_half else x
    rest = b.call("sum", take(b, wide, axis, 1, x.shape[axis] - 1), axis=(axis,), keepdims=True, walk=Walk(1))
    return b.cast(b.call("add", take(b, wide, axis, 0, 1), rest), x.dtype)


# -- the doors ------------------------------------------------------------------------------------------------------------


def _reduce_door(ufunc: np.ufunc) -> Callable[..., Node]:
    def door(
        b: Builder,
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = UNSET,
        where: Any = True,
    ) -> Node:
        return reduce_by(b, ufunc, array, axis, dtype, out, keepdims, initial, where)

    return door


def _accumulate_door(ufunc: np.ufunc) -> Callable[..., Node]:
    def door(b: Builder, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Node:
        return accumulate_by(b, ufunc, array, axis, dtype, out)

    return door


def _reduceat_door(ufunc: np.ufunc) -> Callable[..., Node]:
    def door(b: Builder, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Node:
        return reduceat_by(b, ufunc, array, indices, axis, dtype, out)

    return door


for _ufunc in UFUNCS:
    if _ufunc.nin == 2 and _ufunc.nout == 1:
        for _name, _door in {"reduce": _reduce_door, "accumulate": _accumulate_door, "reduceat": _reduceat_door}.items():
            register_ufunc_method(_ufunc, _name, Door(f"{_ufunc.__name__}.{_name}", _door(_ufunc), takes_out=True))

__all__ = ["UNSET", "accumulate_by", "loose_axis", "reduce_by"]
