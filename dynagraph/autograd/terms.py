"""Terms that compute at once: what the gradients of `ir/optable` are written with, over arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

import dynagraph.ir.optable  # noqa: F401  (fills the table)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import OPS, REQUIRED
from dynagraph.ir.terms import BaseTerm
from dynagraph.markers import at_capture

if TYPE_CHECKING:
    from dynagraph.autograd.nodes import Node, Record

_IR = {d.numpy: d for d in dtypes.KNOWN if d is not dtypes.bfloat16}
Value = Union["Node", np.ndarray]


def defaults_of(name: str) -> dict[str, Any]:
    """The attributes of a row that have a default."""
    return {attr: value for attr, value in OPS[name].attrs.items() if value is not REQUIRED}


def _forward_of(name: str) -> Callable[..., Any]:
    """What a row does to NumPy's arrays."""
    ufunc = getattr(np, name, None)
    return ufunc if isinstance(ufunc, np.ufunc) else functools.partial(OPS[name].eager, np, **defaults_of(name))


FORWARD = {name: _forward_of(name) for name in OPS}


@at_capture
def ir_dtype(given: np.dtype) -> Any:
    """The IR's dtype of NumPy's; None where it has none that is computed with as it is."""
    return _IR.get(given)


class ArrayTerm(BaseTerm):
    """An array; what operators make of it are arrays."""

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return self.array.ndim  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        return ir_dtype(self.array.dtype)  # type: ignore[no-any-return]

    # The operators that nearly all gradients are made of, without the way through `call`: Python's numbers take the array's dtype.
    def __add__(self, other: Any) -> Any:
        return self.__class__(np.add(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __sub__(self, other: Any) -> Any:
        return self.__class__(np.subtract(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __rsub__(self, other: Any) -> Any:
        return self.__class__(np.subtract(other, self.array))

    def __mul__(self, other: Any) -> Any:
        return self.__class__(np.multiply(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __truediv__(self, other: Any) -> Any:
        return self.__class__(np.divide(self.array, other.array if isinstance(other, ArrayTerm) else other))

    def __neg__(self) -> Any:
        return self.__class__(np.negative(self.array))


class Marked(BaseTerm):
    """A term that knows whether it was set to zero where a condition does not hold.

    `mark`: the condition, and whether it holds or not where the term is not zero; `ZERO` of a constant zero; else None.
    """

    __slots__ = ()
    mark: Any

    def of(self, value: Any) -> Any:
        """A term of another value, of this kind."""
        raise NotImplementedError

    @property
    def value(self) -> Any:
        """What the term is of: an array, or a node."""
        raise NotImplementedError

    def full(self, value: float, shape: Any) -> Any:
        made = super().full(value, shape)
        if value == 0:
            made.mark = ZERO
        return made

    def where(self, condition: Any, otherwise: Any) -> Any:
        made = super().where(condition, otherwise)
        if type(otherwise) is int and otherwise == 0:
            made.mark = (condition.value, True)
        elif self.mark is ZERO:
            made.mark = (condition.value, False)
        return made


ZERO = ("zero",)


class ValueTerm(Marked, ArrayTerm):
    """An array, as the gradients of rows see it."""

    __slots__ = ("mark",)

    def __init__(self, array: Any):
        self.array, self.mark = array, None

    def of(self, value: Any) -> ValueTerm:
        return ValueTerm(value)

    @property
    def value(self) -> Any:
        return self.array

    def call(self, op: str, *others: Any, **attrs: Any) -> ValueTerm:
        operands = [o.array if isinstance(o, ArrayTerm) else self.number(o).array for o in others]
        return ValueTerm(np.asarray(FORWARD[op](self.array, *operands, **attrs)))

    def make(self, op: str, **attrs: Any) -> ValueTerm:
        return ValueTerm(np.asarray(OPS[op].eager(np, **attrs)))


class RecordedTerm(Marked):
    """An array or a node; what operators make of it is recorded, where it depends on what gradients are still asked by."""

    __slots__ = ("_value", "mark", "record")

    def __init__(self, value: Value, record: Record):
        self._value, self.record, self.mark = value, record, None

    def of(self, value: Value) -> RecordedTerm:
        return RecordedTerm(value, self.record)

    @property
    def value(self) -> Value:
        return self._value

    @property
    def array(self) -> np.ndarray:
        value = self._value
        return value if type(value) is np.ndarray else value.array  # type: ignore[union-attr]

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    @property
    def ndim(self) -> int:
        return len(self._value.shape)

    @property
    def dtype(self) -> DType:
        value = self._value
        return _IR[value.dtype] if type(value) is np.ndarray else value.dtype  # type: ignore[index, return-value]

    def call(self, op: str, *others: Any, **attrs: Any) -> RecordedTerm:
        operands: Sequence[Value] = [(o if isinstance(o, RecordedTerm) else self.number(o)).value for o in others]
        return self.of(self.record.applied(OPS[op], (self._value, *operands), attrs))

    def make(self, op: str, **attrs: Any) -> RecordedTerm:
        return self.of(np.asarray(OPS[op].eager(np, **attrs)))


__all__ = ["FORWARD", "ZERO", "ArrayTerm", "RecordedTerm", "Value", "ValueTerm", "defaults_of", "ir_dtype"]
