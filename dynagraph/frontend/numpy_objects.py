"""Objects written in C that NumPy's own Python code makes and uses: the converter of array-likes, and np.broadcast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

from dynagraph.errors import ShapeError
from dynagraph.frontend.array_writes import as_array
from dynagraph.frontend.builtins_table import meaning
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Frame
from dynagraph.frontend.numpy_door import lookup
from dynagraph.frontend.operations import plain
from dynagraph.frontend.values import Array, Const, Object, Sequence, Value
from dynagraph.ir.shapes import SymInt, broadcast_shapes

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


@meaning(ARRAY_CONVERTER)
def _array_converter(frame: Frame, *array_likes: Any) -> Value:
    given = [frame.ex.resolve(a) for a in array_likes]
    if not all(isinstance(g, (Array, Sequence)) or _is_python_scalar(g) for g in given):
        refuse("UNSUPPORTED_ARGUMENT", "something that is no array, list or number")
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
        return refuse("UNSUPPORTED_ARGUMENT", "a result that is no array")
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
