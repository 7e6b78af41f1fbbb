"""NumPy's functions that are not ops: C objects that its own Python code uses (the converter of array-likes, np.broadcast), np.s_,
functions that write into arrays, np.piecewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from dynagraph.doors.numpy import lookup
from dynagraph.errors import ShapeError
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds import array_writes
from dynagraph.frontend.kinds.array_writes import as_array
from dynagraph.frontend.kinds.slots import items_of, load_attribute, plain, subscript
from dynagraph.frontend.kinds.values import Array, Const, Number, Object, Sequence, Value
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir.ops import memory_of
from dynagraph.ir.shapes import SymInt, broadcast_shapes, numel, same_dim

ARRAY_CONVERTER: Any = _multiarray_umath._array_converter
NONE = Const(None)


@dataclass(eq=False)
class Converter(Object):
    """``_array_converter(*array_likes)``: what they are as arrays, and how a result is given back."""

    arrays: list[Any] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    born: int = 0

    def remade(self) -> tuple[Any, tuple[Value, ...]]:
        return refuse("UNSUPPORTED_RESULT", "a converter of NumPy's")


def _is_python_scalar(value: Any) -> bool:
    return isinstance(value, Const) and type(value.value) in (bool, int, float, SymInt)


def _is_scalar(value: Any) -> bool:
    return _is_python_scalar(value) or (isinstance(value, Array) and value.is_scalar)


@meaning(np.may_share_memory, np.shares_memory)
def _shares_memory(frame: Frame, a: Any, b: Any, max_work: Any = NONE) -> Value:
    """Of arrays that captured code made; whether two of the caller's overlap, no guard says exactly."""
    given = [frame.ex.resolve(v) for v in (a, b)]
    if not all(isinstance(v, Array) and not v.is_scalar for v in given):
        refuse("UNSUPPORTED_ARGUMENT", "np.shares_memory of what is no array")
    (first, one), (second, other) = (memory_of(v.node) or (v.node, None) for v in given)
    if any(same_dim(d, 0) for v in given for d in v.node.shape):
        return Const(False)
    if first is not second:
        if all(n.kind == "placeholder" for n in (first, second)):
            refuse("UNSUPPORTED_ARGUMENT", "np.shares_memory of two arrays of the caller's")
        return Const(False)
    if one is not None and other is not None and same_dim(one.offset, other.offset):  # the first element is one
        return Const(True)
    if not any(strided is None or same_dim(numel(v.node.shape), numel(first.shape)) for v, strided in zip(given, (one, other))):
        refuse("UNSUPPORTED_ARGUMENT", "np.shares_memory of two parts of one array")
    return Const(True)


@meaning(ARRAY_CONVERTER)
def _array_converter(frame: Frame, *array_likes: Any) -> Value:
    given = [frame.ex.resolve(a) for a in array_likes]
    if not all(isinstance(g, (Array, Sequence)) or _is_python_scalar(g) for g in given):
        refuse("UNSUPPORTED_ARGUMENT", "something that is not an array, list or number")
    door = lookup(np.asarray)
    assert door is not None
    arrays = [as_array(frame.ex, frame.ex.call_door(door, [g])) for g in given]
    return Converter(ARRAY_CONVERTER, arrays=arrays, given=given, born=frame.ex.steps)


def _of(frame: Frame, converter: Any) -> Converter:
    found = frame.ex.resolve(converter)
    return found if isinstance(found, Converter) else refuse("UNSUPPORTED_VALUE", "a converter of the caller's")


@meaning(ARRAY_CONVERTER.as_arrays)
def _as_arrays(frame: Frame, converter: Any, *, subok: Any = None, pyscalars: Any = Const("convert_if_no_array")) -> Value:
    own, how = _of(frame, converter), plain(frame, pyscalars)
    kept = how == "preserve" or (how == "convert_if_no_array" and not all(map(_is_python_scalar, own.given)))
    return Sequence(tuple, [g if kept and _is_python_scalar(g) else a for g, a in zip(own.given, own.arrays)])


@meaning(ARRAY_CONVERTER.__getitem__)
def _item(frame: Frame, converter: Any, index: Any) -> Value:
    own, k = _of(frame, converter), plain(frame, index)
    if not -len(own.given) <= k < len(own.given):
        throw(IndexError("tuple index out of range"))
    return _as_arrays(frame, own).items[k]  # type: ignore[union-attr]


@meaning(ARRAY_CONVERTER.__len__)
def _length(frame: Frame, converter: Any) -> Value:
    return Const(len(_of(frame, converter).arrays))


@meaning(ARRAY_CONVERTER.result_type)
def _result_type(frame: Frame, converter: Any, extra_dtype: Any = NONE, ensure_inexact: Any = Const(False)) -> Value:
    own, extra = _of(frame, converter), plain(frame, extra_dtype)
    weak = {bool: True, int: 1, SymInt: 1, float: 1.0}
    kinds = [weak[type(g.value)] if _is_python_scalar(g) else a.node.dtype.numpy for g, a in zip(own.given, own.arrays)]
    found = np.result_type(*kinds, *([] if extra is None else [extra]))
    return Const(np.result_type(found, 1.0) if plain(frame, ensure_inexact) else found)


@meaning(ARRAY_CONVERTER.wrap)
def _wrap(frame: Frame, converter: Any, result: Any, /, to_scalar: Any = NONE) -> Value:
    own, result, asked = _of(frame, converter), frame.ex.resolve(result), plain(frame, to_scalar)
    if not isinstance(result, Array):
        return refuse("UNSUPPORTED_ARGUMENT", "a result that is not an array")
    scalar = all(map(_is_scalar, own.given)) if asked is None else bool(asked)
    if result.node.ndim or result.is_scalar is scalar:
        return result
    return frame.ex.from_door(frame.ex.builder.call("copy", frame.ex.memories.present(result)), "value" if scalar else "array")


# -- np.broadcast ---------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Broadcast(Object):
    """``np.broadcast(*arrays)`` made by the captured code, of which only the shape is asked."""

    given: tuple[Any, ...] = ()
    born: int = 0

    def remade(self) -> tuple[Any, tuple[Value, ...]]:
        return np.broadcast, self.given


@meaning(np.broadcast)
def _broadcast(frame: Frame, *args: Any) -> Value:
    door = lookup(np.asarray)
    assert door is not None
    arrays: list[Any] = [frame.ex.call_door(door, [a]) for a in args]
    try:
        shape = broadcast_shapes(*(a.node.shape for a in arrays), who="broadcast")
    except ShapeError as error:
        return refuse("NUMPY_ERROR", str(error))
    size: Any = 1
    for dim in shape:
        size = size * dim
    fields: dict[str, Any] = {"shape": frame.ex.constant(shape), "ndim": Const(len(shape)), "nd": Const(len(shape))}
    fields["size"] = Const(size)
    return Broadcast(np.broadcast, fields=fields, given=tuple(args), born=frame.ex.steps)


__all__ = ["Broadcast", "Converter"]


# -- np.s_ ------------------------------------------------------------------------------------------------------------------------


@meaning(type(np.s_).__getitem__)
def _of_index_expression(frame: Frame, owner: Any, item: Any) -> Value:
    """``np.s_[...]`` and ``np.index_exp[...]``."""
    owner, item = frame.ex.resolve(owner), frame.ex.resolve(item)
    as_tuple = plain(frame, load_attribute(frame, owner, "maketuple"))
    return item if not as_tuple or (isinstance(item, Sequence) and item.kind is tuple) else Sequence(tuple, [item])


# -- writes into arrays -----------------------------------------------------------------------------------------------------------


@meaning(np.copyto)
def _copy_to(frame: Frame, dst: Any, src: Any, casting: Any = Const("same_kind"), where: Any = Const(True)) -> Value:
    array_writes.copy_to(frame.ex, frame.ex.resolve(dst), src, plain(frame, casting), where)
    return Const(None)


@meaning(np.put)
def _put(frame: Frame, a: Any, ind: Any, v: Any, mode: Any = Const("raise")) -> Value:
    array_writes.put(frame.ex, a, ind, v, mode)
    return Const(None)


@meaning(np.putmask)
def _put_mask(frame: Frame, a: Any, /, mask: Any, values: Any) -> Value:
    array_writes.put_mask(frame.ex, a, mask, values)
    return Const(None)


@meaning(np.place)
def _place(frame: Frame, arr: Any, mask: Any, vals: Any) -> Value:
    array_writes.place(frame.ex, arr, mask, vals)
    return Const(None)


@meaning(np.put_along_axis)
def _put_along_axis(frame: Frame, arr: Any, indices: Any, values: Any, axis: Any = Const(-1)) -> Value:
    array_writes.put_along_axis(frame.ex, arr, indices, values, plain(frame, axis))
    return Const(None)


@meaning(np.fill_diagonal)
def _fill_diagonal(frame: Frame, a: Any, val: Any, wrap: Any = Const(False)) -> Value:
    array_writes.fill_diagonal(frame.ex, a, val, bool(plain(frame, wrap)))
    return Const(None)


@meaning(np.piecewise)
def _piecewise(frame: Frame, x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Value:
    """As NumPy does it; the functions are called with what the conditions choose."""
    ex = frame.ex
    x = ex.resolve(x)
    if not isinstance(x, Array) or x.node.ndim == 0:
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: of something that is not an array")
    conditions, functions = _conditions(frame, condlist), items_of(frame, funclist)
    if len(conditions) == len(functions) - 1:
        rest = conditions[0]
        for condition in conditions[1:]:
            rest = call(frame, Const(np.logical_or), [rest, condition], {})
        conditions.append(call(frame, Const(np.logical_not), [rest], {}))
    if len(conditions) != len(functions):
        refuse("WOULD_RAISE", "piecewise: as many functions as conditions, or one more")
    y = call(frame, Const(np.zeros_like), [x], {})
    assert isinstance(y, Array)
    for condition, function in zip(conditions, functions):
        function = frame.ex.resolve(function)
        value, before = function, len(ex.effects)
        if not isinstance(function, (Array, Number)) and not (isinstance(function, Const) and not callable(function.value)):
            value = call(frame, function, [subscript(frame, x, condition), *args], kw)
        if len(ex.effects) != before:
            refuse("SIDE_EFFECT", "piecewise: of a function that has effects, which is called only where elements are chosen")
        array_writes.store_item(ex, y, condition, value)
    return y


def _conditions(frame: Frame, condlist: Any) -> list[Value]:
    """The conditions as arrays of bools: one, or a list of several."""
    condlist = frame.ex.resolve(condlist)
    several = isinstance(condlist, Sequence) and all(isinstance(c, Array) and c.node.ndim for c in items_of(frame, condlist))
    if not several and not (isinstance(condlist, Array) and condlist.node.ndim):
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: conditions that are not arrays")
    given = items_of(frame, condlist) if several else [condlist]
    if not several and condlist.node.ndim > 1:
        refuse("UNSUPPORTED_ARGUMENT", "piecewise: one condition that may be several")
    kind = Const(np.bool_)
    return [call(frame, kind, [c], {}) for c in given]
