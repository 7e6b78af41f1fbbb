"""What writes into arrays mean: item assignment, operators in place, ``out=``, np.copyto, fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dynagraph.frontend.exceptions import refuse
from dynagraph.frontend.memory import same_place
from dynagraph.frontend.numpy_door import Door, Unsupported, lookup
from dynagraph.frontend.numpy_door.arguments import is_contiguous
from dynagraph.frontend.numpy_door.indexing import holds_places, places_of, region
from dynagraph.frontend.values import Array, Const, Sequence
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import same_dim, same_shape

if TYPE_CHECKING:
    from dynagraph.frontend.executor import Executor

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def store_item(ex: Executor, array: Array, key: Any, value: Any) -> None:
    """``array[key] = value``."""
    if array.is_scalar:
        refuse("WOULD_RAISE", "a NumPy scalar takes no item")
    index = ex.to_door(key)
    if _is_mask(index):
        mask = _spread_mask(ex, index, array.node)
        new = _for_each_chosen(ex, ex.builder.as_node(ex.to_door(value), array.node.dtype), array.node.ndim - index.ndim)
        new = _fitted(ex, new, array.node)
        ex.memories.write(array, _chosen(ex, mask, new, ex.memories.present(array)))
        return
    if holds_places(index):
        store_at_places(ex, array, index, value)
        return
    there = ex.memories.rebased(region(ex.builder, ex.memories.present(array), index))
    if isinstance(value, Array) and not value.is_scalar and same_place(there, value.node):
        ex.memories.check(value)
        return  # a[key] += 1 stores what has been written already
    ex.memories.write(Array(there), _assigned(ex, value, there))


def store_at_places(ex: Executor, array: Array, index: Any, value: Any, combine: str = "") -> None:
    """``array[index] = value`` for an index with arrays of integers; `combine`: what ``ufunc.at`` does instead of storing."""
    b = ex.builder
    now = ex.memories.present(array)
    places = places_of(b, now, index)
    if any(p.ndim and not is_contiguous(b, p) for p in places.given):
        refuse("UNSUPPORTED_INDEX", "places in an order of memory that NumPy may walk otherwise")
    view = region(b, now, places.basic)
    wanted = b.call("gather", view, *places.spread, axes=places.axes, at=places.at)  # for its shape; it is dead
    new = _assigned(ex, value, wanted)
    places.check(b, view)
    changed = b.call("scatter", view, new, *places.spread, axes=places.axes, at=places.at, combine=combine)
    ex.memories.write(Array(ex.memories.rebased(view)), changed)


COMBINING = {np.add: "add", np.subtract: "sub", np.multiply: "mul", np.maximum: "maximum", np.minimum: "minimum"}


def combine_at(ex: Executor, ufunc: np.ufunc, array: Any, key: Any, value: Any) -> None:
    """``ufunc.at(array, key, value)``: places that stand twice in the key take part twice."""
    index = ex.to_door(key)
    if ufunc not in COMBINING or not isinstance(array, Array) or array.is_scalar or not holds_places(index):
        refuse("UNSUPPORTED_FUNCTION", f"np.{ufunc.__name__}.at of these arguments")
    given = ex.to_door(value)
    if array.node.dtype.is_bool or (isinstance(given, Node) and given.dtype is not array.node.dtype):
        refuse("UNSUPPORTED_ARGUMENT", f"np.{ufunc.__name__}.at of dtypes that differ")
    store_at_places(ex, array, index, value, COMBINING[ufunc])


def _is_mask(index: Any) -> bool:
    return isinstance(index, Node) and index.dtype is dtypes.bool_ and index.ndim > 0


def _spread_mask(ex: Executor, mask: Node, array: Node) -> Node:
    if mask.ndim > array.ndim or not same_shape(mask.shape, array.shape[: mask.ndim]):
        refuse("WOULD_RAISE", f"a mask of shape {mask.shape} for an array of shape {array.shape}")
    return ex.builder.call("reshape", mask, shape=mask.shape + (1,) * (array.ndim - mask.ndim))


def _for_each_chosen(ex: Executor, node: Node, ndim: int) -> Node:
    """A value that is the same for each place of a mask: how many there are is not known."""
    while node.ndim > ndim and same_dim(node.shape[0], 1):
        node = ex.builder.call("reshape", node, shape=node.shape[1:])
    if node.ndim > ndim:
        refuse("DATA_DEPENDENT", "how many elements a mask chooses must be known to assign them one by one")
    return node


def _assigned(ex: Executor, value: Any, target: Node) -> Node:
    """The value as elements of the target: cast to its dtype as an assignment does, broadcast to its shape."""
    node = ex.builder.as_node(ex.to_door(value), target.dtype)
    if target.ndim == 0 and node.ndim > 0:
        refuse("WOULD_RAISE", "an array is assigned to a single element")
    return _fitted(ex, node, target)


def _fitted(ex: Executor, node: Node, target: Node) -> Node:
    while node.ndim > target.ndim and same_dim(node.shape[0], 1):
        node = ex.builder.call("reshape", node, shape=node.shape[1:])
    return node if same_shape(node.shape, target.shape) else ex.builder.call("broadcast_to", node, shape=target.shape)


def _chosen(ex: Executor, mask: Node, value: Node, otherwise: Node) -> Node:
    chosen = ex.builder.call("where", mask, value, otherwise)
    if not same_shape(chosen.shape, otherwise.shape):
        refuse("WOULD_RAISE", f"where= of shape {mask.shape} for an array of shape {otherwise.shape}")
    return chosen


def store_result(ex: Executor, array: Array, result: Any, where: Node | None = None, who: str = "out=") -> Array:
    """Have an array take what an operation gave, as ``out=`` and operators in place do."""
    if not isinstance(result, Array):
        return refuse("IN_PLACE_WRITE", f"{who} of several results")
    node, target = result.node, array.node
    if not np.can_cast(node.dtype.numpy, target.dtype.numpy, "same_kind"):
        refuse("WOULD_RAISE", f"{who}: {node.dtype} is not cast to {target.dtype} in place")
    if node.ndim > target.ndim:
        refuse("WOULD_RAISE", f"{who}: a result of shape {node.shape} for an array of shape {target.shape}")
    if result is not array and result.source is None and ex.arrays.get(node) is result:
        del ex.arrays[node]  # nobody but the array has it
    new = _fitted(ex, ex.builder.cast(node, target.dtype), target)
    if where is not None:
        new = _chosen(ex, where, new, ex.memories.present(array))
    ex.memories.write(array, new)
    return array


def check_product(left: Array, right: Any, result: Any) -> None:
    """``left @= right`` takes a matrix on the right, and spreads nothing."""
    is_matrix = isinstance(right, Array) and right.node.ndim >= 2
    if not (is_matrix and isinstance(result, Array) and same_shape(result.node.shape, left.node.shape)):
        refuse("WOULD_RAISE", "@= with a result of another shape, or without a matrix")


def call_with_out(ex: Executor, door: Door, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A NumPy function that writes its result into an array that is there."""
    out, rest = _out_of(ex, door, args, kwargs)
    if not isinstance(out, Array) or out.is_scalar:
        return refuse("IN_PLACE_WRITE", f"{door.name}: out= is no array")
    ufunc = _ufunc_of(door)
    where = rest.pop("where", None) if ufunc is not None else None
    mask = None if where is None or (isinstance(where, Const) and where.value is True) else ex.to_door(where)
    if mask is not None and not (isinstance(mask, Node) and mask.dtype is dtypes.bool_):
        refuse("UNSUPPORTED_ARGUMENT", f"{door.name}: where= that is no array of bools")
    result = ex.call_door(door, args[: ufunc.nin] if ufunc is not None else args, rest)
    if ufunc is None and isinstance(result, Array) and result.node.dtype is not out.node.dtype:
        refuse("UNSUPPORTED_ARGUMENT", f"{door.name}: out= of another dtype decides how it is computed")
    whole = ufunc is None or ufunc.signature is not None
    if whole and isinstance(result, Array) and not same_shape(result.node.shape, out.node.shape):
        refuse("WOULD_RAISE", f"{door.name}: out= has another shape than the result")
    if door.name.endswith("dot") and not is_contiguous(ex.builder, ex.memories.present(out)):
        refuse("WOULD_RAISE", f"{door.name}: out= is not in C order")
    return store_result(ex, out, result, mask, door.name)


def _out_of(ex: Executor, door: Door, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    rest = dict(kwargs)
    ufunc = _ufunc_of(door)
    given = ex.resolve(rest.pop("out")) if "out" in rest else args[ufunc.nin] if ufunc is not None else None
    given = ex.resolve(given)
    if isinstance(given, Sequence) and given.kind is tuple and len(given.items) == 1:
        given = ex.resolve(given.items[0])
    return given, rest


def has_out(ex: Executor, door: Door, args: list[Any], kwargs: dict[str, Any]) -> bool:
    out = ex.resolve(kwargs.get("out"))
    if out is not None and not (isinstance(out, Const) and out.value is None):
        return True
    ufunc = _ufunc_of(door)
    return ufunc is not None and ufunc.nout == 1 and len(args) == ufunc.nin + 1


def _ufunc_of(door: Door) -> np.ufunc | None:
    found = getattr(np, door.name, None)
    return found if isinstance(found, np.ufunc) and lookup(found) is door else None


def copy_to(ex: Executor, target: Any, source: Any, casting: Casting = "same_kind", where: Any = None) -> None:
    """``np.copyto(target, source, casting, where)``."""
    if not isinstance(target, Array) or target.is_scalar:
        refuse("WOULD_RAISE", "copyto: the target is no array")
    given = ex.to_door(source)
    node = ex.builder.as_node(given) if isinstance(given, Node) else ex.builder.as_node(given, target.node.dtype)
    if not np.can_cast(node.dtype.numpy, target.node.dtype.numpy, casting):
        refuse("WOULD_RAISE", f"copyto: {node.dtype} is not cast to {target.node.dtype}")
    new = _fitted(ex, ex.builder.cast(node, target.node.dtype), target.node)
    mask = None if where is None else ex.to_door(where)
    if mask is True or mask is None:
        ex.memories.write(target, new)
        return
    if not (isinstance(mask, Node) and mask.dtype is dtypes.bool_):
        raise Unsupported("UNSUPPORTED_ARGUMENT", "copyto: where= that is no array of bools")
    ex.memories.write(target, _chosen(ex, mask, new, ex.memories.present(target)))


def fill(ex: Executor, array: Array, value: Any) -> None:
    """``array.fill(value)``."""
    ex.memories.write(array, _assigned(ex, value, array.node))


def arranger(function: Any) -> Callable[..., None]:
    """What a method means that arranges an array's elements anew, as `function` does in a copy: ``array.sort()``."""

    def arrange(ex: Executor, array: Array, *args: Any, **kwargs: Any) -> None:
        door = lookup(function)
        assert door is not None
        axis = ex.resolve(kwargs.get("axis"))
        if axis is not None and isinstance(axis, Const) and axis.value is None:
            refuse("WOULD_RAISE", f"{door.name}: in place, along no axis")
        ex.memories.write(array, ex.call_door(door, [array, *args], kwargs).node)  # type: ignore[union-attr]

    return arrange


# methods of arrays that write into them and give nothing: (executor, array, *args)
WRITING_METHODS: dict[str, Callable[..., None]] = {
    "fill": fill, "sort": arranger(np.sort), "partition": arranger(np.partition)
}


__all__ = ["WRITING_METHODS", "call_with_out", "check_product", "copy_to", "has_out", "store_item", "store_result"]
