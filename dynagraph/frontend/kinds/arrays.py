"""Slots of arrays, NumPy scalars, masked arrays and ``array.flags``, by way of the doors."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.doors import cupy as cupy_door
from dynagraph.doors.numpy import ATTRIBUTES, Unsupported, method, operator_door
from dynagraph.doors.numpy.arguments import is_contiguous, is_fortran
from dynagraph.doors.numpy.indexing import ARRAY_ITEM
from dynagraph.frontend.bytecode.decode import CONDITIONAL, Program
from dynagraph.frontend.bytecode.liveness import reachable
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import Recipe, Recipes
from dynagraph.frontend.executor.wrapping import acts_as_array, held_value
from dynagraph.frontend.kinds import array_writes, masks
from dynagraph.frontend.kinds.iterators import Flat, Rows, length_of
from dynagraph.frontend.kinds.lookup import call_special, in_mro, lacks
from dynagraph.frontend.kinds.numbers import complex_answer, is_complex
from dynagraph.frontend.kinds.slots import Slots, binary, has_method, is_not_implemented, slots
from dynagraph.frontend.kinds.values import Array, Const, Flags, Iterator, Masked, Method, Object, Sequence, Value
from dynagraph.ir import dtypes
from dynagraph.python_operators import BINARY


@slots(Array)
class ArraySlots(Slots):
    def type_of(self, frame: Frame, value: Array) -> type:
        return value.node.dtype.numpy.type if value.is_scalar else frame.ex.library.array_type

    def truth(self, frame: Frame, value: Array) -> bool:
        return _truth_of_array(frame, value)

    def rank(self, value: Array, symbol: str, reflected: bool) -> int:
        return 8

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        if is_complex(left) and right.is_scalar and right.node.dtype is dtypes.float64:
            answer = complex_answer(frame.ex, symbol, left, right)
            if answer is not None:
                return answer
        return operator_of_arrays(frame, symbol, left, right)

    def in_place(self, frame: Frame, symbol: str, left: Array, right: Any) -> Any:
        if left.is_scalar:
            return NotImplemented
        library = frame.ex.library
        if symbol == "@" and library is not NUMPY:
            if hasattr(library.array_type, "__imatmul__"):
                refuse("IN_PLACE_WRITE", "@= of an array of CuPy's")
            return binary(frame, symbol, left, right)  # as Python does without the method: the name gets another array
        result = binary(frame, symbol, left, right)
        if symbol == "@":
            array_writes.check_product(left, right, result)
        return array_writes.store_result(frame.ex, left, result, who=f"{symbol}=")

    def unary(self, frame: Frame, name: str, value: Array) -> Value:
        return frame.ex.call_door(operator_door(name), [value])

    def contains(self, frame: Frame, value: Array, item: Any) -> bool:
        frame.ex.call_door(operator_door("contains"), [value, item])  # which declines
        return super().contains(frame, value, item)

    def item(self, frame: Frame, value: Array, key: Any) -> Value:
        if isinstance(key, Object):
            key = Const(frame.ex.index_number(key))
        with_rest = not value.is_scalar and _has_ellipsis(frame.ex, key)
        return frame.ex.call_door(ARRAY_ITEM if with_rest else operator_door("getitem"), [value, key])

    def set_item(self, frame: Frame, value: Array, key: Any, item: Any) -> None:
        array_writes.store_item(frame.ex, value, key, item)

    def iterate(self, frame: Frame, value: Array) -> Iterator:
        return Rows(value, length_of(frame, value))

    def attribute(self, frame: Frame, value: Array, name: str) -> Value:
        return _attribute_of_array(frame, value, name)

    def set_attribute(self, frame: Frame, value: Array, name: str, new: Any) -> None:
        if frame.ex.library is not NUMPY:
            refuse("IN_PLACE_WRITE", f"the attribute .{name} of an array of CuPy's is set")
        if name == "flat" and not value.is_scalar:
            array_writes.store_flat(frame.ex, value, Const(slice(None)), new)
        elif name in ("real", "imag") and value.node.dtype.is_complex and not value.is_scalar:
            array_writes.store_item(frame.ex, cast(Array, self.attribute(frame, value, name)), Const(Ellipsis), new)
        else:
            refuse("IN_PLACE_WRITE", f"the attribute .{name} of an array is set")

    def recipe(self, results: Recipes, value: Array) -> Recipe:
        return results.array(value)


def _truth_of_array(frame: Frame, value: Array) -> bool:
    known = frame.ex.known(value)
    if known is not None and known.size == 1:
        return bool(known)
    try:
        frame.ex.call_door(operator_door("bool"), [value])
    except Unsupported as refusal:
        if refusal.reason != "DATA_DEPENDENT":
            raise
    return refuse("ARRAY_LOOP" if _leaves_loop(frame.program, frame.ip - 1) else "ARRAY_BRANCH")


def _leaves_loop(program: Program, index: int) -> bool:
    """Whether an instruction is, or makes the truth for, a branch of which one arm comes back to it, and the other does not."""
    while program.instructions[index].op in ("TO_BOOL", "NOP"):
        index += 1
    branch = program.instructions[index]
    if branch.op not in CONDITIONAL:
        return False
    # a `while` asks at its beginning and again at its end: two instructions, which stand at one place in the source
    same = (k for k, i in enumerate(program.instructions) if i.op in CONDITIONAL and i.positions == branch.positions)
    twins = {index} if branch.positions is None else set(same)
    comes_back = [not twins.isdisjoint(reachable(program, arm)) for arm in (index + 1, branch.value)]
    return comes_back[0] != comes_back[1]


def operator_of_arrays(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    array, other = (left, right) if isinstance(left, (Array, Masked)) else (right, left)
    if symbol == "*" and isinstance(array, Array) and array.is_scalar and _may_repeat(other):
        refuse("UNSUPPORTED_VALUE", "a sequence repeated by a NumPy scalar, or an error")
    if isinstance(other, Const) and other.value is None and symbol in ("==", "!="):
        refuse("UNSUPPORTED_ARGUMENT", "an array compared with None")
    if isinstance(other, Object) and not (isinstance(other.value, enum.Enum) and isinstance(other.value, int)):
        name = BINARY[symbol].method if other is left else BINARY[symbol].reflected
        kind = other.kind
        declines = in_mro(kind, "__array_ufunc__") is None or other is left
        if declines and isinstance(in_mro(kind, name), type(operator_of_arrays)):
            result = call_special(frame, other, name, left if other is right else right)
            if not is_not_implemented(result):
                return result
        held = held_value(frame.ex, other)
        if held is None or isinstance(array, Masked) or array.is_scalar or acts_as_array(kind):
            refuse("UNSUPPORTED_VALUE", f"{symbol} of an array and a {kind.__name__}")
    return frame.ex.call_door(operator_door(symbol), [left, right])


def _may_repeat(value: Value) -> bool:
    return isinstance(value, Sequence) or (isinstance(value, Const) and isinstance(value.value, (str, bytes, tuple)))


def _has_ellipsis(ex: Executor, key: Any) -> bool:
    parts = key.items if isinstance(key, Sequence) else key.value if isinstance(key, Const) else ()
    parts = [ex.resolve(p) for p in parts] if isinstance(key, Sequence) else parts if isinstance(parts, tuple) else (parts,)
    return any(p is Ellipsis or (isinstance(p, Const) and p.value is Ellipsis) for p in parts)


def _attribute_of_array(frame: Frame, array: Array, name: str) -> Value:
    if frame.ex.library is not NUMPY and not array.is_scalar:
        return _attribute_of_device_array(frame, array, name)
    kind = array.node.dtype.numpy.type if array.is_scalar else np.ndarray
    if not hasattr(kind, name):
        throw(AttributeError(lacks(f"numpy.{kind.__name__}", name)))
    if name == "flags" and not array.is_scalar:
        return Flags(array)
    if name == "strides" and frame.is_own and not array.is_scalar:
        return _strides(frame, array)
    reader = ATTRIBUTES.get(name)
    if name == "flat" and not array.is_scalar:
        return Flat(array, frame.ex.steps)
    if reader is not None:
        found = reader(frame.ex.builder, frame.ex.memories.present(array))
        return frame.ex.from_door(found, "value" if array.is_scalar else "array")
    if has_method(array, name) or method(name) is not None:
        return Method(name, array)
    return refuse("UNSUPPORTED_FUNCTION", f"the array attribute .{name}")


def _strides(frame: Frame, array: Array) -> Value:
    """Whatever they are along axes of one element: nothing in this package depends on these."""
    node = frame.ex.memories.present(array)
    return frame.ex.constant(tuple(s * node.dtype.itemsize for s in frame.ex.builder.layout(node).strides))


def _attribute_of_device_array(frame: Frame, array: Array, name: str) -> Value:
    kind = frame.ex.library.array_type
    if name == "strides" and frame.is_own:
        return _strides(frame, array)
    if not hasattr(kind, name):
        throw(AttributeError(lacks(kind.__name__, name)))
    if name == "flags" and frame.is_own:
        return Flags(array)
    if name in cupy_door.METHODS or (frame.is_package and method(name) is not None):
        return Method(name, array)
    if name not in cupy_door.ATTRIBUTES or (name == "imag" and not array.node.dtype.is_complex):
        refuse("UNSUPPORTED_FUNCTION", f".{name} of an array of CuPy's")
    if name == "T" and array.node.ndim < 2:
        return array  # CuPy makes no view of it
    return frame.ex.from_door(ATTRIBUTES[name](frame.ex.builder, frame.ex.memories.present(array)), "array")


# -- what masks choose --------------------------------------------------------------------------------------------------------


@slots(Masked)
class MaskedSlots(Slots):
    def rank(self, value: Masked, symbol: str, reflected: bool) -> int:
        return 8

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return operator_of_arrays(frame, symbol, left, right)

    def in_place(self, frame: Frame, symbol: str, left: Masked, right: Any) -> Any:
        return masks.in_place(frame.ex, left, binary(frame, symbol, left, right), symbol)

    def unary(self, frame: Frame, name: str, value: Masked) -> Value:
        return frame.ex.call_door(operator_door(name), [value])

    def item(self, frame: Frame, value: Masked, key: Any) -> Value:
        return refuse("DATA_DEPENDENT", "a subscript of what a mask chooses")

    def iterate(self, frame: Frame, value: Masked) -> Iterator:
        return refuse("DATA_DEPENDENT", "iteration over what a mask chooses")

    def attribute(self, frame: Frame, value: Masked, name: str) -> Value:
        if name in ("dtype", "ndim", "itemsize"):
            data = value.data
            ndim = data.ndim - value.mask.ndim + 1
            return Const({"dtype": data.dtype.numpy, "ndim": ndim, "itemsize": data.dtype.itemsize}[name])
        if method(name) is not None:
            return Method(name, value)
        return refuse("DATA_DEPENDENT", f".{name} of what a mask chooses")

    def recipe(self, results: Recipes, value: Masked) -> Recipe:
        function, args = masks.rebuilt(results.ex, value)
        return ("make", function, tuple(results.build(a) for a in args))


# -- flags --------------------------------------------------------------------------------------------------------------------


# of: in C order, in Fortran order, writeable.  Arrays that are not aligned are no inputs.
FLAGS: dict[str, Callable[[bool, bool, bool], bool]] = {
    "c_contiguous": lambda c, f, w: c,
    "f_contiguous": lambda c, f, w: f,
    "contiguous": lambda c, f, w: c,
    "fortran": lambda c, f, w: f,
    "forc": lambda c, f, w: c or f,
    "fnc": lambda c, f, w: f and not c,
    "writeable": lambda c, f, w: w,
    "aligned": lambda c, f, w: True,
    "behaved": lambda c, f, w: w,
    "carray": lambda c, f, w: c and w,
    "farray": lambda c, f, w: f and not c and w,
}
FLAGS_OF_CUPY = ("c_contiguous", "f_contiguous", "forc", "fnc")
LETTERS = {
    "C": "c_contiguous",
    "F": "f_contiguous",
    "W": "writeable",
    "A": "aligned",
    "B": "behaved",
    "CA": "carray",
    "FA": "farray",
}


@slots(Flags)
class FlagsSlots(Slots):
    """``array.flags``: what NumPy says of an array's memory, asked of the layout that it has there."""

    def rank(self, value: Flags, symbol: str, reflected: bool) -> int:
        return 5

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return refuse("UNSUPPORTED_VALUE", f"{symbol} of the flags of an array")

    def attribute(self, frame: Frame, value: Flags, name: str) -> Value:
        if name not in FLAGS or (frame.ex.library is not NUMPY and name not in FLAGS_OF_CUPY):
            return refuse("ATTRIBUTE", f".flags.{name} of an array")
        b, memories = frame.ex.builder, frame.ex.memories
        node = memories.present(value.owner)
        return Const(FLAGS[name](is_contiguous(b, node), is_fortran(b, node), memories.is_writeable(value.owner)))

    def item(self, frame: Frame, value: Flags, key: Any) -> Value:
        named = key.value if isinstance(key, Const) else None
        if type(named) is not str or not (named in LETTERS or named.isupper()):
            return refuse("UNSUPPORTED_VALUE", "a subscript of array.flags that names no flag")
        return self.attribute(frame, value, LETTERS.get(named, named.lower()))

    def parts(self, value: Flags) -> Iterable[Any]:
        return [value.owner]

    def recipe(self, results: Recipes, value: Flags) -> Recipe:
        return ("make", getattr, (results.build(value.owner), ("const", "flags")))
