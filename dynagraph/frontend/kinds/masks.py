"""Boolean masks: `x[mask]` is kept as the array and the mask, because the number of chosen elements is data.

Elementwise operations are done on the whole array, reductions leave out what is not chosen, and `a[mask] = x[mask]` is a choice for
each element.  Whatever else is asked ends the capture, and NumPy then chooses the elements: that is how such a value leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.doors.numpy import Builder, Door, lookup, method
from dynagraph.doors.numpy.arguments import flag, reduced_axes, reshape
from dynagraph.doors.numpy.builder import LIMITS, Chosen
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.kinds.aliasing import way_to
from dynagraph.frontend.kinds.values import Array, Const, Masked
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Composite, Creation, Elementwise, Gather, Movement, Reduction, Scan
from dynagraph.ir.shapes import Dim, SymInt, numel, same_dim, same_shape

# -- making and comparing them ----------------------------------------------------------------------------------------------


def masked(ex: CaptureState, chosen: Chosen) -> Masked:
    """The value of what a door gave."""
    return Masked(chosen.data, chosen.mask, chosen.at, ex.steps)


PURE = (Elementwise, Movement, Creation, Reduction, Scan, Gather, Composite)  # of the same operands they give the same


def chooses_alike(one: Any, other: Any) -> bool:
    """Whether two of them hold as many elements for sure: those of one mask."""
    return one.at == other.at and one.data.ndim == other.data.ndim and _same_value(one.mask, other.mask)


def _same_value(left: Node, right: Node, depth: int = 32) -> bool:
    """Whether two nodes give the same: one node, or the same operations on the same nodes."""
    if left is right:
        return True
    if depth == 0 or left.kind != "call_function" or right.kind != "call_function" or left.op is not right.op:
        return False
    if not isinstance(left.op.lowering, PURE):
        return False
    alike = len(left.args) == len(right.args) and left.dtype is right.dtype and left.attrs.keys() == right.attrs.keys()
    if not alike or not all(_same_attribute(v, right.attrs[k]) for k, v in left.attrs.items()):
        return False
    return all(_same_value(a, b, depth - 1) for a, b in zip(left.args, right.args))


def _same_attribute(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same_attribute, left, right))
    if isinstance(left, SymInt) or isinstance(right, SymInt):
        return isinstance(left, (int, SymInt)) and isinstance(right, (int, SymInt)) and same_dim(left, right)
    return left is right or (type(left) is type(right) and repr(left) == repr(right))


# -- leaving the capture ----------------------------------------------------------------------------------------------------


def chosen_by(data: np.ndarray, mask: np.ndarray, at: int) -> np.ndarray:
    """What recipes call: NumPy's indexing."""
    chosen: np.ndarray = data[(slice(None),) * at + (mask,)]
    return chosen


def rebuilt(ex: CaptureState, value: Masked) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return chosen_by, (_as_it_was(ex, value.data), _as_it_was(ex, value.mask), Const(value.at))


def _as_it_was(ex: CaptureState, node: Node) -> Array:
    """The array of a node, or a copy where its memory is written to later."""
    written = way_to(node)[1] in ex.memories.of
    return Array(ex.builder.call("copy", node) if written else node)


# -- operations -------------------------------------------------------------------------------------------------------------


def call_door(ex: CaptureState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a NumPy function gives for these."""
    first = next(a for a in (*args, *kwargs.values()) if isinstance(a, Masked))
    reduce = _REDUCTIONS.get(door)
    if reduce is not None and args and args[0] is first:
        return _reduced(ex, door, reduce, first, args[1:], kwargs)
    result = door(ex.builder, *(_whole(ex, first, a) for a in args), **{k: _whole(ex, first, v) for k, v in kwargs.items()})
    given = {a.data for a in (*args, *kwargs.values()) if isinstance(a, Masked)}
    if not isinstance(result, Node) or result in given or not _is_elementwise(ex, result, given, first):
        return refuse("DATA_DEPENDENT", f"{door.name} of what a mask chooses: how many elements that are is data")
    return Masked(result, first.mask, first.at, ex.steps)


def _whole(ex: CaptureState, first: Masked, value: Any) -> Any:
    """An operand for all elements of the array, chosen or not."""
    if isinstance(value, Masked):
        if not chooses_alike(first, value):
            refuse("DATA_DEPENDENT", "an operation on what two masks choose")
        return value.data
    given = ex.to_door(value)
    if isinstance(given, Node) and given.ndim > first.data.ndim - first.mask.ndim - first.at:
        refuse("DATA_DEPENDENT", "an operation on what a mask chooses and on another array")
    return given


def _is_elementwise(ex: CaptureState, result: Node, given: set[Node], first: Masked) -> bool:
    """Whether each element of a result depends on those in its place alone."""
    lead = first.at + first.mask.ndim
    if result.ndim != first.data.ndim or not same_shape(result.shape[:lead], first.data.shape[:lead]):
        return False
    waiting, seen = [result], set(given)
    while waiting:
        node = waiting.pop()
        if node in seen or (node.ndim == 0 and not _depends(node, given)):
            continue
        seen.add(node)
        if _depends(node, given) and not (isinstance(node.op.lowering, Elementwise) or node.is_op("copy")):
            return False
        if not _depends(node, given) and node.ndim > first.data.ndim - lead:
            return False
        waiting += node.args if _depends(node, given) else ()
    return _depends(result, given)


def _depends(node: Node, given: set[Node]) -> bool:
    waiting, seen = [node], set()
    while waiting:
        n = waiting.pop()
        if n in given:
            return True
        if n not in seen and n.kind == "call_function":
            seen.add(n)
            waiting += n.args
    return False


def in_place(ex: CaptureState, value: Masked, result: Any, symbol: str) -> Masked:
    """``x[mask] += ...``: what was chosen is an array of its own, which all who hold it see changed."""
    if not isinstance(result, Masked) or result.data.ndim != value.data.ndim:
        return refuse("DATA_DEPENDENT", f"{symbol}= on what a mask chooses")
    if not same_shape(result.data.shape, value.data.shape):
        refuse("WOULD_RAISE", f"{symbol}= with a result of another shape")
    if not np.can_cast(result.data.dtype.numpy, value.data.dtype.numpy, "same_kind"):
        refuse("WOULD_RAISE", f"{symbol}=: {result.data.dtype} is not cast to {value.data.dtype} in place")
    ex.memories.check_effects()
    value.data = ex.builder.cast(result.data, value.data.dtype)
    return value


# -- reductions -------------------------------------------------------------------------------------------------------------

Reduce = Callable[["_Task"], Node]


class _Task:
    """A reduction over the elements that a mask chooses."""

    def __init__(self, ex: CaptureState, door: Door, value: Masked, axes: tuple[int, ...], options: dict[str, Any]):
        self.b: Builder = ex.builder
        self.door, self.data, self.axes, self.options = door, value.data, axes, options
        rest = value.data.ndim - value.at - value.mask.ndim
        self.chosen = value.mask
        self.mask = reshape(self.b, value.mask, (1,) * value.at + value.mask.shape + (1,) * rest)
        over = range(value.at, value.at + value.mask.ndim)
        self.others: Dim = numel(d for k, d in enumerate(value.data.shape) if k in axes and k not in over)

    def reduce(self, node: Node, otherwise: bool | int | float, **options: Any) -> Node:
        """The door's reduction, with `otherwise` in the place of what is not chosen."""
        filled = self.b.call("where", self.mask, node, self.b.scalar(otherwise, node.dtype))
        return self.door(self.b, filled, axis=self.axes, **options)

    def sum(self, node: Node, keepdims: bool = False) -> Node:
        filled = self.b.call("where", self.mask, node, self.b.scalar(0, node.dtype))
        return self.b.call("sum", filled, axis=self.axes, keepdims=keepdims)

    def bail_out_if_empty(self) -> None:
        """NumPy raises or warns where nothing is chosen."""
        axes = tuple(range(self.chosen.ndim))
        self.b.bail_out_where(self.b.call("logical_not", self.b.call("any", self.chosen, axis=axes, keepdims=False)))

    def count(self) -> Node:
        """How many elements there are in each sum, as float64."""
        ones = self.b.cast(self.chosen, dtypes.int64)
        count = self.b.call("sum", ones, axis=tuple(range(ones.ndim)), keepdims=False)
        return self.b.cast(self.b.call("multiply", count, self.b.scalar(self.others, dtypes.int64)), dtypes.float64)

    def divided(self, total: Node, by: Node) -> Node:
        """In float64, rounded to the dtype of the result, as NumPy does it."""
        return self.b.cast(self.b.call("divide", self.b.cast(total, dtypes.float64), by), total.dtype)

    def floats(self) -> Node:
        _check_order_is_free(self.data.dtype, dtypes.float16)
        return self.data if self.data.dtype.is_float else self.b.cast(self.data, dtypes.float64)


def _sum(task: _Task) -> Node:
    return task.reduce(task.data, 0, **task.options)


def _check_order_is_free(dtype: DType, *others: DType) -> None:
    """Refuse where elements in between, though neutral, may change the result, or where NumPy goes by another dtype."""
    if dtype.is_complex or dtype in others:
        refuse("UNSUPPORTED_DTYPE", f"of what a mask chooses of {dtype}; use np.where and the whole array")


def _prod(task: _Task) -> Node:
    _check_order_is_free(task.data.dtype)
    return task.reduce(task.data, 1, **task.options)


def _extreme(least: bool) -> Reduce:
    def reduce(task: _Task) -> Node:
        _without(task, "dtype")
        _check_order_is_free(task.data.dtype)
        task.bail_out_if_empty()
        return task.reduce(task.data, _limit(task.data.dtype, least))

    return reduce


def _limit(dtype: DType, least: bool) -> bool | int | float:
    if dtype.is_float:
        return -np.inf if least else np.inf
    return (not least) if dtype.is_bool else LIMITS[dtype][0 if least else 1]


def _truth(otherwise: bool) -> Reduce:
    def reduce(task: _Task) -> Node:
        _without(task, "dtype")
        return task.reduce(task.b.cast(task.data, dtypes.bool_), otherwise)

    return reduce


def _mean(task: _Task) -> Node:
    _without(task, "dtype")
    task.bail_out_if_empty()
    return task.divided(task.sum(task.floats()), task.count())


def _variance(task: _Task) -> Node:
    _without(task, "dtype")
    ddof = task.options.get("ddof", 0)
    if type(ddof) is not int or ddof < 0:
        refuse("UNSUPPORTED_ARGUMENT", f"ddof={ddof!r}")
    b, x, count = task.b, task.floats(), task.count()
    b.bail_out_where(b.call("less_equal", count, b.scalar(ddof, dtypes.float64)))
    deviation = b.call("subtract", x, task.divided(task.sum(x, keepdims=True), count))
    left = b.call("subtract", count, b.scalar(ddof, dtypes.float64))
    return task.divided(task.sum(b.call("square", deviation)), left)


def _spread(task: _Task) -> Node:
    return task.b.call("sqrt", _variance(task))


def _without(task: _Task, name: str) -> None:
    if task.options.get(name) is not None:
        refuse("UNSUPPORTED_ARGUMENT", f"{task.door.name}: {name}= of what a mask chooses")


def _known_doors(name: str, reduce: Reduce) -> dict[Door, Reduce]:
    return {door: reduce for door in (lookup(getattr(np, name)), method(name)) if door is not None}


_REDUCTIONS: dict[Door, Reduce] = {
    **_known_doors("sum", _sum),
    **_known_doors("prod", _prod),
    **_known_doors("max", _extreme(least=True)),
    **_known_doors("min", _extreme(least=False)),
    **_known_doors("any", _truth(False)),
    **_known_doors("all", _truth(True)),
    **_known_doors("mean", _mean),
    **_known_doors("var", _variance),
    **_known_doors("std", _spread),
    **_known_doors("count_nonzero", _sum),
}
_UNDERSTOOD = {"axis", "dtype", "keepdims", "ddof"}


def _reduced(ex: CaptureState, door: Door, reduce: Reduce, value: Masked, args: list[Any], kwargs: dict[str, Any]) -> Any:
    given = {k: ex.to_door(v) for k, v in kwargs.items()}
    bound = door.signature.bind(ex.builder, value, *map(ex.to_door, args), **given).arguments
    options = {k: v for k, v in list(bound.items())[2:] if v is not door.signature.parameters[k].default}
    if not options.keys() <= _UNDERSTOOD or flag(options.get("keepdims", False), door.name):
        refuse("UNSUPPORTED_ARGUMENT", f"{door.name} of what a mask chooses, with {', '.join(options)}")
    n = value.mask.ndim
    axes = reduced_axes(options.pop("axis", None), value.data.ndim - n + 1, door.name)
    whole = tuple(k for a in axes for k in _axes_of(value, a))
    if value.at in axes:
        node = reduce(_Task(ex, door, value, whole, options))
        return ex.from_door(node, "value")
    node = door(ex.builder, value.data, axis=whole, **options)
    return Masked(node, value.mask, value.at - sum(a < value.at for a in axes), ex.steps)


def _axes_of(value: Masked, axis: int) -> tuple[int, ...]:
    """The axes of the array that are one of what is chosen."""
    n = value.mask.ndim
    if axis == value.at:
        return tuple(range(axis, axis + n))
    return (axis,) if axis < value.at else (axis + n - 1,)


__all__ = ["call_door", "chooses_alike", "in_place", "masked", "rebuilt"]
