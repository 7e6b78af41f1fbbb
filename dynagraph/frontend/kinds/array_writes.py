"""Writes into arrays: item assignment, in-place operators, ``out=``, np.copyto, fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.doors.numpy import Chosen, Door, Unsupported, lookup
from dynagraph.doors.numpy.arguments import is_contiguous, ravel, reshape, take
from dynagraph.doors.numpy.builder import LIMITS
from dynagraph.doors.numpy.elementwise import check_exponents, combining_op, resolve
from dynagraph.doors.numpy.indexing import (
    Index,
    Mask,
    bounded,
    holds_arrays,
    index_of,
    only_mask,
    places_of,
    region,
    slice_range,
)
from dynagraph.doors.numpy.places import along_axis
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.numpy_source import is_numpys
from dynagraph.frontend.executor.state import CaptureState
from dynagraph.frontend.kinds.aliasing import same_place, way_to
from dynagraph.frontend.kinds.masks import chooses_alike
from dynagraph.frontend.kinds.values import Array, Const, Masked, Sequence
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import Dim, numel, same_dim, same_shape

Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def store_item(ex: CaptureState, array: Array, key: Any, value: Any) -> None:
    """``array[key] = value``."""
    if array.is_scalar:
        refuse("WOULD_RAISE", "a NumPy scalar takes no item")
    index, value = ex.to_door(key), ex.resolve(value)
    if holds_arrays(index):
        placed = index_of(ex.builder, ex.memories.present(array), index)
        if placed.arrays:
            store_at(ex, array, placed, value)
            return
        index = placed.basic
    there = ex.memories.rebased(region(ex.builder, ex.memories.present(array), index))
    if isinstance(value, Array) and not value.is_scalar and same_place(there, value.node):
        ex.memories.check(Array(there))
        return  # a[key] += 1 stores what has been written already
    check_scalar(ex, value, there.dtype)
    ex.memories.write(Array(there), _assigned(ex, value, there))


def check_scalar(ex: CaptureState, value: Any, dtype: DType) -> None:
    if isinstance(value, Array) and value.is_scalar:
        ex.builder.check_stored_scalar(value.node, dtype)


def store_at(ex: CaptureState, array: Array, index: Index, value: Any, combine: str = "") -> None:
    """``array[index] = value`` for an index with arrays in it; `combine`: what ``ufunc.at`` does instead of storing."""
    b = ex.builder
    now = ex.memories.present(array)
    if index.masks and not combine:
        _store_chosen(ex, index, value, now)
        return
    places = places_of(b, index)
    if any(p.ndim and not is_contiguous(b, p) for p in places.given):
        refuse("UNSUPPORTED_INDEX", "places in an order of memory that NumPy may walk otherwise")
    view = region(b, now, places.basic)
    wanted = b.call("gather", view, *places.spread, axes=places.axes, at=places.at)  # for its shape; it is dead
    if index.whole and _ndim_of(ex, value) > 1:
        refuse("WOULD_RAISE", "an array of several dimensions is assigned to what a mask chooses")
    if not combine and all(p.ndim == 0 for p in places.given):
        check_scalar(ex, value, view.dtype)
    new = _assigned(ex, value, wanted)
    places = places.inside(b, view)
    changed = b.call("scatter", view, new, *places.spread, axes=places.axes, at=places.at, combine=combine)
    ex.memories.write(Array(ex.memories.rebased(view)), changed)


def _store_chosen(ex: CaptureState, index: Index, value: Any, now: Node) -> None:
    """What a mask chooses is replaced: by the elements that the same mask chooses of another array, or by one for all of them."""
    b = ex.builder
    view, (mask, axis) = region(b, now, index.basic), only_mask(index)
    n = mask.node.ndim
    over = b.call("reshape", mask.node, shape=(1,) * axis + mask.node.shape + (1,) * (view.ndim - axis - n))
    value = ex.resolve(value)
    if isinstance(value, Masked):
        if index.at != axis or not chooses_alike(value, Chosen(view, mask.node, axis)):
            refuse("DATA_DEPENDENT", "what one mask chooses is assigned to what another one chooses")
        new = b.cast(value.data, now.dtype)
    else:
        given = b.as_node(ex.to_door(value), now.dtype)
        if index.whole and given.ndim > 1:
            refuse("WOULD_RAISE", "an array of several dimensions is assigned to what a mask chooses")
        new = _for_each_chosen(ex, given, index.at, axis, n, view.ndim - n + 1)
    if not same_shape(new.shape, view.shape):
        new = b.call("broadcast_to", new, shape=view.shape)
    ex.memories.write(Array(ex.memories.rebased(view)), b.call("where", over, new, view))


def _for_each_chosen(ex: CaptureState, node: Node, at: int, axis: int, n: int, ndim: int) -> Node:
    """A value that is the same for each place of a mask, laid out for all of them: how many there are is not known.

    `ndim`: how many dimensions the elements have that are chosen, which lie apart along the one at `at`.
    """
    while node.ndim > ndim and same_dim(node.shape[0], 1):
        node = ex.builder.call("reshape", node, shape=node.shape[1:])
    shape = (1,) * (ndim - node.ndim) + node.shape
    if len(shape) > ndim or not same_dim(shape[at], 1):
        refuse("DATA_DEPENDENT", "how many elements a mask chooses must be known to assign them one by one")
    rest = shape[:at] + shape[at + 1 :]
    return ex.builder.call("reshape", node, shape=rest[:axis] + (1,) * n + rest[axis:])


def _ndim_of(ex: CaptureState, value: Any) -> int:
    return ex.builder.as_node(ex.to_door(value)).ndim


WRAPPING = (np.add, np.subtract, np.multiply, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
ROUNDED_ONCE = (np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum)


def combine_at(ex: CaptureState, ufunc: np.ufunc, array: Any, key: Any, value: Any) -> None:
    """``ufunc.at(array, key, value)``: places that stand twice in the key take part twice."""
    index = ex.to_door(key)
    if not isinstance(array, Array) or array.is_scalar or not holds_arrays(index):
        refuse("UNSUPPORTED_FUNCTION", f"np.{ufunc.__name__}.at of these arguments")
    dtype, node = array.node.dtype, ex.builder.as_node(ex.to_door(value))  # NumPy makes an array of it first
    name = combining_op(ufunc, dtype)
    if name is None or not _computed_in(dtype, ufunc, array.node, node):
        refuse("UNSUPPORTED_ARGUMENT", f"np.{ufunc.__name__}.at of {dtype} and {node.dtype}")
    if name == "power_int":
        check_exponents(ex.builder, node)
    store_at(ex, array, index_of(ex.builder, ex.memories.present(array), index), Array(ex.builder.cast(node, dtype)), str(name))


def _computed_in(dtype: DType, ufunc: np.ufunc, target: Node, value: Node) -> bool:
    """Whether what is stored is what a loop of the array's own dtype gives."""
    loop = resolve(ufunc, (target, value))
    if all(d is dtype for d in loop):
        return True
    constant = value.attrs["value"] if value.is_op("constant") else None
    if dtype.is_integer and all(d.is_integer for d in loop):
        fits = isinstance(constant, int) and LIMITS[dtype][0] <= constant <= LIMITS[dtype][1]
        return ufunc in WRAPPING or (fits and ufunc in (np.maximum, np.minimum))
    # float64 has more than twice the digits of float32: one operation rounded twice is the operation rounded once
    exact = isinstance(constant, (int, float)) and float(np.float32(constant)) == constant
    return exact and dtype is dtypes.float32 and all(d is dtypes.float64 for d in loop) and ufunc in ROUNDED_ONCE


def _assigned(ex: CaptureState, value: Any, target: Node) -> Node:
    """The value as elements of the target: cast to its dtype as an assignment does, broadcast to its shape."""
    if ex.library is not NUMPY and isinstance(value, Sequence):
        refuse("UNSUPPORTED_ARGUMENT", "a list that is stored in an array of CuPy's")
    node = ex.builder.as_node(ex.to_door(value), target.dtype)
    if target.ndim == 0 and node.ndim > 0:
        refuse("WOULD_RAISE", "an array is assigned to a single element")
    return _fitted(ex, node, target)


def _fitted(ex: CaptureState, node: Node, target: Node) -> Node:
    while node.ndim > target.ndim and same_dim(node.shape[0], 1):
        node = ex.builder.call("reshape", node, shape=node.shape[1:])
    return node if same_shape(node.shape, target.shape) else ex.builder.call("broadcast_to", node, shape=target.shape)


def _chosen(ex: CaptureState, mask: Node, value: Node, otherwise: Node) -> Node:
    chosen = ex.builder.call("where", mask, value, otherwise)
    if not same_shape(chosen.shape, otherwise.shape):
        refuse("WOULD_RAISE", f"where= of shape {mask.shape} for an array of shape {otherwise.shape}")
    return chosen


def store_result(ex: CaptureState, array: Array, result: Any, who: str = "out=") -> Array:
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
    ex.memories.write(array, _fitted(ex, ex.builder.cast(node, target.dtype), target))
    return array


def check_product(left: Array, right: Any, result: Any) -> None:
    """``left @= right`` takes a matrix on the right, and spreads nothing."""
    is_matrix = isinstance(right, Array) and right.node.ndim >= 2
    if not (is_matrix and isinstance(result, Array) and same_shape(result.node.shape, left.node.shape)):
        refuse("WOULD_RAISE", "@= with a result of another shape, or without a matrix")


def call_with_out(ex: CaptureState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A NumPy function that writes its results into arrays that are there."""
    if door.takes_out:
        return _call_writing(ex, door, args, kwargs)
    out, *others = _arrays_out(ex, door, args, kwargs)
    if out is None or others:
        return refuse("IN_PLACE_WRITE", f"{door.name}: out= is not an array")
    args, kwargs = _without_out(door, args, kwargs)
    result = ex.call_door(door, args, kwargs)
    if isinstance(result, Array) and result.node.dtype is not out.node.dtype:
        refuse("UNSUPPORTED_ARGUMENT", f"{door.name}: out= of another dtype decides how it is computed")
    if isinstance(result, Array) and not same_shape(result.node.shape, out.node.shape):
        refuse("WOULD_RAISE", f"{door.name}: out= has another shape than the result")
    if door.name.endswith(("dot", "matmul")) and not is_contiguous(ex.builder, ex.memories.present(out)):
        refuse("WOULD_RAISE", f"{door.name}: out= is not in C order")
    return store_result(ex, out, result, door.name)


def _call_writing(ex: CaptureState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """By a door that says what the arrays hold then; results without an array are new ones."""
    outs = _arrays_out(ex, door, args, kwargs)
    places = [way_to(out.node)[1] for out in outs if out is not None]
    if len(set(places)) < len(places):
        refuse("IN_PLACE_WRITE", f"{door.name}: results in one memory")
    for out in outs:
        if out is not None:
            ex.memories.check(out)
    results, kind = ex.open_door(door, args, kwargs)
    several = isinstance(results, tuple)
    values = []
    for out, node in zip(outs, results if several else (results,), strict=True):
        if out is not None:
            ex.memories.write(out, node)
        values.append(ex.from_door(node, kind) if out is None else out)
    return Sequence(tuple, values) if several else values[0]


def _arrays_out(ex: CaptureState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> list[Array | None]:
    """The arrays that take the results; None for a result that is a new one."""
    ufunc, at = _ufunc_of(door), _position_of_out(door)
    if "out" in kwargs:
        given = [kwargs["out"]]
    elif ufunc is not None:
        given = [*args[ufunc.nin :], *[Const(None)] * (ufunc.nin + ufunc.nout - len(args))]
    else:
        given = [] if at is None else args[at : at + 1]
    first = ex.resolve(given[0]) if given else None
    if isinstance(first, Sequence) and first.kind is tuple and _takes_tuple(door, kwargs):
        given = first.items
    outs = [ex.resolve(value) for value in given]
    for k, out in enumerate(outs):
        if isinstance(out, Const) and out.value is None:
            outs[k] = None
        elif not isinstance(out, Array) or out.is_scalar:
            refuse("IN_PLACE_WRITE", f"{door.name}: out= is not an array")
    return outs


def _takes_tuple(door: Door, kwargs: dict[str, Any]) -> bool:
    """Ufuncs and their methods take a tuple by name; functions that hand their argument on to a position do not."""
    return "out" in kwargs and (_ufunc_of(door) is not None or ("." in door.name and not door.name.startswith("ndarray.")))


def _position_of_out(door: Door) -> int | None:
    """Where `out` stands among the arguments; None where it is given by name only."""
    for k, (name, parameter) in enumerate(door.signature.parameters.items()):
        if name == "out" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return k - 1  # the first one is the builder
    return None


def _without_out(door: Door, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    at, ufunc = _position_of_out(door), _ufunc_of(door)
    if ufunc is not None and "out" not in kwargs:
        return args[: ufunc.nin], kwargs
    if "out" in kwargs or at is None:
        return args, {name: value for name, value in kwargs.items() if name != "out"}
    return [*args[:at], Const(None), *args[at + 1 :]], kwargs


def asks_for_array(ex: CaptureState, kwargs: dict[str, Any]) -> bool:
    """Whether NumPy's own code says ``out=...``: the result is an array, also where it is 0-d."""
    out = ex.resolve(kwargs.get("out"))
    return isinstance(out, Const) and out.value is Ellipsis and is_numpys(ex.running_globals())


def as_array(ex: CaptureState, value: Any) -> Any:
    """A NumPy scalar as the 0-d array of it; anything else as it is."""
    return ex.own(Array(ex.builder.call("copy", value.node))) if isinstance(value, Array) and value.is_scalar else value


def has_out(ex: CaptureState, door: Door, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call of a door names an array that takes a result."""
    ufunc, at = _ufunc_of(door), _position_of_out(door)
    given = [kwargs.get("out")] if ufunc is None else [kwargs.get("out"), *args[ufunc.nin :]]
    if ufunc is None and at is not None:
        given += args[at : at + 1]
    return any(_names_array(ex, value) for value in given)


def _names_array(ex: CaptureState, value: Any) -> bool:
    value = ex.resolve(value)
    if isinstance(value, Sequence) and value.kind is tuple:
        return any(_names_array(ex, item) for item in value.items)
    return value is not None and not (isinstance(value, Const) and value.value is None)


def _ufunc_of(door: Door) -> np.ufunc | None:
    found = getattr(np, door.name, None)
    return found if isinstance(found, np.ufunc) and lookup(found) is door else None


def copy_to(ex: CaptureState, target: Any, source: Any, casting: Casting = "same_kind", where: Any = None) -> None:
    """``np.copyto(target, source, casting, where)``."""
    if not isinstance(target, Array) or target.is_scalar:
        refuse("WOULD_RAISE", "copyto: the target is not an array")
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
        raise Unsupported("UNSUPPORTED_ARGUMENT", "copyto: where= that is not an array of bools")
    ex.memories.write(target, _chosen(ex, mask, new, ex.memories.present(target)))


def fill(ex: CaptureState, array: Array, value: Any) -> None:
    """``array.fill(value)``."""
    check_scalar(ex, ex.resolve(value), array.node.dtype)
    ex.memories.write(array, _assigned(ex, value, array.node))


def arranger(function: Any) -> Callable[..., None]:
    """What a method means that arranges an array's elements anew, as `function` does in a copy: ``array.sort()``."""

    def arrange(ex: CaptureState, array: Array, *args: Any, **kwargs: Any) -> None:
        door = lookup(function)
        assert door is not None
        axis = ex.resolve(kwargs.get("axis"))
        if axis is not None and isinstance(axis, Const) and axis.value is None:
            refuse("WOULD_RAISE", f"{door.name}: in place, along no axis")
        ex.memories.write(array, ex.call_door(door, [array, *args], kwargs).node)  # type: ignore[union-attr]

    return arrange


# -- into the elements in C order -----------------------------------------------------------------------------------------------


def _elements(ex: CaptureState, array: Any) -> Node:
    """All elements of an array that is written to, in C order."""
    if not isinstance(array, Array) or array.is_scalar:
        refuse("WOULD_RAISE", "something that is not an array is written")
    return ravel(ex.builder, ex.memories.present(array))


def _write_elements(ex: CaptureState, array: Array, new: Node) -> None:
    ex.memories.write(array, reshape(ex.builder, new, array.node.shape))


def _repeated(ex: CaptureState, value: Any, size: Dim, dtype: DType) -> Node:
    """`size` values: those that are given, again and again."""
    b = ex.builder
    given = ravel(b, b.as_node(ex.to_door(value), dtype))
    n = given.shape[0]
    if n == 0:
        refuse("UNSUPPORTED_ARGUMENT", "no values to write")
    if n == 1:
        return b.call("broadcast_to", given, shape=(size,))
    if n < size:
        given = b.call("tile", given, reps=((size + n - 1) // n,))
    return given if given.shape[0] == size else take(b, given, 0, 0, size)


def _scattered(ex: CaptureState, array: Array, elements: Node, places: Node, value: Any) -> None:
    places = ravel(ex.builder, places)
    new = _repeated(ex, value, places.shape[0], elements.dtype)
    _write_elements(ex, array, ex.builder.call("scatter", elements, new, places, axes=(0,), at=0))


def put(ex: CaptureState, array: Any, indices: Any, values: Any, mode: Any = Const("raise")) -> None:
    """``np.put``: at places of the elements in C order."""
    array, how = ex.resolve(array), ex.to_door(mode)
    elements = _elements(ex, array)
    given = ex.builder.as_node(ex.to_door(indices))
    if not (given.dtype.is_integer or 0 in given.shape) or not np.can_cast(given.dtype.numpy, np.intp, "same_kind"):
        refuse("UNSUPPORTED_ARGUMENT", f"put: at places of {given.dtype}")
    places = bounded(ex.builder, given, elements.shape[0], how, "put")
    if how == "raise":
        ex.builder.check_index(places, elements.shape[0])
    _scattered(ex, array, elements, places, values)


def put_mask(ex: CaptureState, array: Any, mask: Any, values: Any) -> None:
    """``np.putmask``: each chosen element gets the value of its own place."""
    array = ex.resolve(array)
    elements = _elements(ex, array)
    chosen = ravel(ex.builder, ex.builder.as_node(ex.to_door(mask), dtypes.bool_))
    if chosen.shape[0] != elements.shape[0]:
        refuse("WOULD_RAISE", "putmask: mask and data must be the same size")
    new = _repeated(ex, values, elements.shape[0], elements.dtype)
    _write_elements(ex, array, ex.builder.call("where", chosen, new, elements))


def place(ex: CaptureState, array: Any, mask: Any, values: Any) -> None:
    """``np.place``: the chosen elements get the values one after the other."""
    given = ex.builder.as_node(ex.to_door(values))
    if same_dim(numel(given.shape), 1):
        put_mask(ex, array, mask, values)
        return
    known = ex.builder.known(ex.builder.as_node(ex.to_door(mask), dtypes.bool_))
    elements = _elements(ex, ex.resolve(array))
    if known is None or elements.shape[0] != known.size:
        refuse("DATA_DEPENDENT", "place: how many elements a mask chooses must be known to assign them one by one")
    _scattered(ex, ex.resolve(array), elements, ex.graph.constant(np.flatnonzero(known)), values)


def put_along_axis(ex: CaptureState, array: Any, indices: Any, values: Any, axis: Any) -> None:
    """``np.put_along_axis``."""
    array = ex.resolve(array)
    if not isinstance(array, Array) or array.is_scalar or axis is None:
        refuse("UNSUPPORTED_ARGUMENT", "put_along_axis: without an axis, or into something that is not an array")
    shape = array.node.shape
    k = axis if type(axis) is int and -len(shape) <= axis < len(shape) else refuse("WOULD_RAISE", f"put_along_axis: axis {axis!r}")
    places = along_axis(ex.builder, shape, ex.to_door(indices), k % len(shape), "put_along_axis")
    store_at(ex, array, Index(places), values)


def fill_diagonal(ex: CaptureState, array: Any, value: Any, wrap: bool) -> None:
    """``np.fill_diagonal``, by NumPy's formula."""
    array = ex.resolve(array)
    if not isinstance(array, Array):
        refuse("WOULD_RAISE", "fill_diagonal of something that is not an array")
    shape = array.node.shape
    if len(shape) < 2 or (len(shape) > 2 and any(d != shape[0] for d in shape)):
        refuse("WOULD_RAISE", f"fill_diagonal of an array of shape {shape}")
    step: Dim = 1
    for k in range(1, len(shape)):
        step = step + numel(shape[k:])
    stop = None if wrap or len(shape) > 2 else shape[1] * shape[1]
    store_flat(ex, array, Const(slice(None, stop, step)), value)


def store_flat(ex: CaptureState, array: Array, key: Any, value: Any) -> None:
    """``array.flat[key] = value``: values are taken again and again."""
    b = ex.builder
    elements, index = _elements(ex, array), ex.to_door(key)
    if isinstance(index, slice) or index is Ellipsis:
        start, step, size = slice_range(slice(None) if index is Ellipsis else index, elements.shape[0])
        if size == 0:
            refuse("UNSUPPORTED_INDEX", "a slice of .flat that is empty is written")
        new = _repeated(ex, value, size, elements.dtype)
        _write_elements(ex, array, b.call("update_slice", elements, new, starts=(start,), steps=(step,)))
        return
    if isinstance(index, (tuple, bool, np.bool_)) or index is None:
        refuse("UNSUPPORTED_INDEX", "array.flat, indexed by a tuple, a bool or None")
    (places,) = index_of(b, elements, index).entries if holds_arrays(index) else (index,)
    if isinstance(places, Mask) or (isinstance(index, (list, Node)) and b.as_node(index).dtype.is_bool):
        refuse("UNSUPPORTED_INDEX", "array.flat, indexed by a mask")
    places = b.as_node(places, dtypes.int64)
    if places.ndim == 0 and _ndim_of(ex, value):
        refuse("UNSUPPORTED_INDEX", "several values are assigned to one element of .flat")
    b.check_index(places, elements.shape[0])
    _scattered(ex, array, elements, places, value)


# methods of arrays that write into them and give nothing: (executor, array, *args)
WRITING_METHODS: dict[str, Callable[..., None]] = {
    "fill": fill, "sort": arranger(np.sort), "partition": arranger(np.partition), "put": put, "__setitem__": store_item,
}  # fmt: skip


__all__ = [
    "WRITING_METHODS", "as_array", "asks_for_array", "call_with_out", "check_product", "copy_to", "fill_diagonal", "has_out",
    "place", "put", "put_along_axis", "put_mask", "store_flat", "store_item", "store_result",
]  # fmt: skip
