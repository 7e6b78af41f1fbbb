"""Tracers: what stands for arrays while plain Python code is differentiated.  They do what the arrays do, and tell their tape.

A tracer never becomes a plain array by itself: what would lose its gradient raises GradientError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.doors.numpy.elementwise import UFUNCS
from dynagraph.doors.numpy.elementwise import op as OfOneOp
from dynagraph.errors import GradientError
from dynagraph.frontend.kinds.aliasing import way_to
from dynagraph.frontend.kinds.slots import binary, in_place, load_attribute, store, subscript, unary
from dynagraph.frontend.kinds.values import Const, Method, Taped, Value
from dynagraph.ir.ops import OPS, Op
from dynagraph.location import users_line
from dynagraph.python_operators import BINARY, COMPARISONS, UNARY

_UFUNCS = frozenset(name for name, function in vars(np).items() if isinstance(function, np.ufunc) and function.nin == 1)
_MEMORY = (bytes, bytearray, memoryview, np.flatiter, np.nditer)  # what holds an array's numbers, and is none
_LIKE = (np.zeros_like, np.ones_like, np.empty_like, np.full_like)  # make arrays that values are written to
# ufuncs that are one op, whatever the operands, and have a gradient
_OF_ONE_OP: dict[Any, Op] = {
    ufunc: OPS[row.name] for ufunc, row in UFUNCS.items() if type(row) is OfOneOp and OPS[row.name].vjp is not None
}


@dataclass(frozen=True)
class Operand:
    """In the arguments of a step: one of its operands, by number."""

    at: int


# -- what steps mean ---------------------------------------------------------------------------------------------------------------
# Each is given the notes in which values stand for arrays, what says more of the step, and what it is done with.


def _of_call(notes: Any, function: tuple[Any, str], args: Any, kwargs: Any) -> Value:
    owner, method = function
    return notes.call(Const(owner) if method == "__call__" else Method(method, Const(owner)), args, kwargs)  # type: ignore[no-any-return]


def _of_item(notes: Any, _: None, array: Any, key: Any) -> Value:
    return subscript(notes.frame, notes.to_value(array), notes.to_value(key))


def _of_store(notes: Any, _: None, array: Any, key: Any, item: Any) -> Value:
    store(notes.frame, notes.to_value(array), notes.to_value(key), notes.to_value(item))
    return Const(None)


def _of_attribute(notes: Any, name: str, array: Any) -> Value:
    return load_attribute(notes.frame, notes.to_value(array), name)


def _of_method(notes: Any, name: str, array: Any, args: Any, kwargs: Any) -> Value:
    return notes.call(load_attribute(notes.frame, notes.to_value(array), name), args, kwargs)  # type: ignore[no-any-return]


def _of_operator(notes: Any, symbol: str, left: Any, right: Any) -> Value:
    return binary(notes.frame, symbol, notes.to_value(left), notes.to_value(right))


def _of_operator_in_place(notes: Any, symbol: str, array: Any, other: Any) -> Value:
    return in_place(notes.frame, symbol, notes.to_value(array), notes.to_value(other))


def _of_unary_operator(notes: Any, name: str, array: Any) -> Value:
    return unary(notes.frame, name, notes.to_value(array))


def of_array(notes: Any, _: None, array: Any) -> Value:
    """Of an array of objects, tracers among them."""
    return notes.ex.from_door(notes.node_of(array), "array")  # type: ignore[no-any-return]


_CURE = (
    "use NumPy's functions on it; write it into an array that is made of one: np.zeros_like(x); or take dg.stop_gradient of it"
)


# -- tracers -----------------------------------------------------------------------------------------------------------------------


class Tracer(Taped):
    """An array, or a NumPy scalar, whose gradient is asked for: it does what the array does, and the tape notes it."""

    __slots__ = ("__weakref__", "_array", "node", "tape", "value")

    def __init__(self, tape: Any, node: Any, value: Any, array: Any = None):
        set_tape(self, tape)
        set_node(self, node)
        set_value(self, value)
        set_array(self, array)

    @property
    def array(self) -> Any:
        """What stands for it in the tape's notes."""
        if self._array is None:
            set_array(self, self.tape.notes.array_of(self))
        return self._array

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """To isinstance it is what it stands for."""
        return type(self.value)

    def _lives(self) -> bool:
        return bool(self.tape.open) and bool(self.tape.is_active(self))

    def _plain(self, what: str, cure: str) -> Any:
        """The plain value, for what cannot keep a gradient."""
        if self._lives():
            raise GradientError(f"{users_line()}: {what} of a value that is being differentiated would lose its gradient; {cure}")
        return self.value

    # -- NumPy's protocols ----------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not kwargs and method == "__call__" and ufunc in _OF_ONE_OP:
            made = self.tape.elementwise(_OF_ONE_OP[ufunc], inputs, ufunc)
            if made is not NotImplemented:
                return made
        outs = kwargs.get("out")
        if isinstance(outs, tuple) and len(outs) == 1:
            kwargs["out"] = outs[0]
        elif outs is None:
            kwargs.pop("out", None)
        return _called(ufunc if method == "__call__" else getattr(ufunc, method), ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _called(function, function, "__call__", args, kwargs)

    # -- items ----------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        return self.tape.step(_of_item, None, (self, key), lambda: self.value[plain_of(key)], "this way of indexing")

    def __setitem__(self, key: Any, item: Any) -> None:
        def real() -> None:
            self.value[plain_of(key)] = plain_of(item)

        self._check_own("written")
        self.tape.step(_of_store, None, (self, key, item), real, "this assignment", [self])

    def _check_own(self, what: str) -> None:
        if self.tape.open and way_to(self.array.node)[1].is_op("variable"):
            raise GradientError(
                f"{users_line()}: an argument by which a gradient is taken is {what}; write to a copy of it: x = x.copy()"
            )

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return plain_of(item) in self.value

    # -- attributes -----------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what others ask to make plain arrays of it
            raise AttributeError(f"{type(self.value).__name__!r} object that is being differentiated has no attribute {name!r}")
        if name in _UFUNCS and not hasattr(self.value, name):  # NumPy asks elements of arrays of objects
            return lambda: getattr(np, name)(self)
        real = getattr(self.value, name)
        if isinstance(real, np.flatiter) and self.value.flags.c_contiguous:
            return self.reshape(-1)
        tape = self.tape
        if not tape.open:
            return real
        if callable(real):
            return _TracerMethod(self, name)
        if not isinstance(real, (np.ndarray, np.generic, *_MEMORY)):
            return real
        return tape.step(_of_attribute, name, (self,), lambda: real, f".{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Tracer.__slots__:
            raise GradientError(f"{users_line()}: .{name} of a value that is being differentiated is set; make a new array")
        object.__setattr__(self, name, value)

    # -- as other things ------------------------------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self._plain("float()", _CURE))

    def __complex__(self) -> complex:
        return complex(self._plain("complex()", _CURE))

    def __index__(self) -> int:
        return operator.index(self.value)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.value) if digits is None else np.round(self, digits)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain("a pickle", "take dg.stop_gradient of it").__reduce_ex__(protocol)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"<being differentiated: {self.value!r}>"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, specification: str) -> str:
        return format(self.value, specification)


class _TracerMethod:
    """``tracer.name``, to be called."""

    def __init__(self, tracer: Tracer, name: str):
        self.tracer, self.name = tracer, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer, name = self.tracer, self.name

        def real() -> Any:
            return getattr(tracer.value, name)(*plain_of(args), **plain_of(kwargs))

        return tracer.tape.step(_of_method, name, (tracer, args, kwargs), real, f".{name}()", [tracer, *_arrays_in((args, kwargs))])


set_tape, set_node = Tracer.tape.__set__, Tracer.node.__set__  # type: ignore[attr-defined]
set_value, set_array = Tracer.value.__set__, Tracer._array.__set__  # type: ignore[attr-defined]


def is_tracer(value: Any) -> bool:
    """Whether a value is being differentiated on a tape, whatever class it says that it is of."""
    return type(value) is Tracer


def _called(function: Any, owner: Any, method: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call of a function of NumPy's, or of a method of a ufunc."""
    tape = next((a.tape for a in _arrays_in((args, kwargs)) if type(a) is Tracer and a.tape.open), None)
    if tape is None:
        return function(*plain_of(args), **plain_of(kwargs))
    name = f"np.{getattr(owner, '__name__', owner)}" + ("" if method == "__call__" else f".{method}")
    written = _arrays_in((args, kwargs))
    for out in _arrays_in(kwargs.get("out")):
        if type(out) is Tracer:
            out._check_own("written")
        elif isinstance(out, np.ndarray):
            raise GradientError(
                f"{users_line()}: {name} writes a value that is being differentiated into a plain array; leave out= away"
            )

    def real() -> Any:
        return function(*plain_of(args), **plain_of(kwargs))

    return tape.step(_of_call, (owner, method), (args, kwargs), real, name, written, function in _LIKE)


def _operator(
    symbol: str, real: Callable[[Any, Any], Any], op: Op | None, compares: bool, swapped: bool = False
) -> Callable[[Tracer, Any], Any]:
    what = f"the operator {symbol}"

    def operate(self: Tracer, other: Any) -> Any:
        if not isinstance(other, (np.ndarray, np.generic, int, float, complex, list, tuple)):
            return NotImplemented
        tape = self.tape
        if not tape.open and type(other) is Tracer:
            tape = other.tape
        given = (other, self) if swapped else (self, other)
        if op is not None:
            made = tape.elementwise(op, given, real)
            if made is not NotImplemented:
                return made
        if compares:  # without a gradient
            return real(*plain_of(given))
        return tape.step(_of_operator, symbol, given, lambda: real(*plain_of(given)), what)

    return operate


def _operator_in_place(symbol: str, real: Callable[[Any, Any], Any]) -> Callable[[Tracer, Any], Any]:
    def operate(self: Tracer, other: Any) -> Any:
        if not isinstance(self.value, np.generic):
            self._check_own("written")
        what = f"the operator {symbol}="
        return self.tape.step(_of_operator_in_place, symbol, (self, other), lambda: real(self.value, plain_of(other)), what, [self])

    return operate


def _unary_operator(name: str, real: Callable[[Any], Any], op: Op | None) -> Callable[[Tracer], Any]:
    def operate(self: Tracer) -> Any:
        tape = self.tape
        if op is not None:
            made = tape.elementwise(op, (self,), real)
            if made is not NotImplemented:
                return made
        return tape.step(_of_unary_operator, name, (self,), lambda: real(self.value), f"the operator {name}")

    return operate


for _row in BINARY.values():
    _about = _row.symbol, _row.function, _OF_ONE_OP.get(_row.ufunc), _row.symbol in COMPARISONS
    setattr(Tracer, _row.method, _operator(*_about))
    if not _row.mirrored:
        setattr(Tracer, _row.reflected, _operator(*_about, swapped=True))
    if _row.in_place is not None:
        setattr(Tracer, f"__i{_row.name}__", _operator_in_place(_row.symbol, _row.in_place))
for _row in UNARY.values():
    setattr(Tracer, _row.method, _unary_operator(_row.symbol, _row.function, _OF_ONE_OP.get(_row.ufunc)))


# -- helpers ---------------------------------------------------------------------------------------------------------------------


def plain_of(obj: Any) -> Any:
    """An argument as NumPy takes it: without tracers."""
    kind = type(obj)
    if kind is Tracer:
        return obj.value
    if kind in (tuple, list):
        return kind(plain_of(item) for item in obj)
    if kind is dict:
        return {key: plain_of(item) for key, item in obj.items()}
    if kind is slice:
        return slice(plain_of(obj.start), plain_of(obj.stop), plain_of(obj.step))
    if kind is np.ndarray and obj.dtype.hasobject and any(type(item) is Tracer for item in obj.flat):
        return np.array(plain_of(obj.tolist()))
    return obj


def _arrays_in(obj: Any) -> list[Any]:
    if type(obj) is Tracer or isinstance(obj, np.ndarray):
        return [obj]
    items = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, (tuple, list)) else ()
    return [array for item in items for array in _arrays_in(item)]


def holds_inexact(obj: Any) -> bool:
    """Whether a result holds numbers that a gradient could be lost of."""
    if isinstance(obj, (tuple, list)):
        return any(map(holds_inexact, obj))
    if isinstance(obj, (np.ndarray, np.generic)):
        return obj.dtype.kind in "fcOV"
    return isinstance(obj, (float, complex, *_MEMORY))


def refuse_memory(obj: Any) -> None:
    if isinstance(obj, _MEMORY):
        raise GradientError(f"{users_line()}: no gradient passes through a {type(obj).__name__}; keep to arrays")


def owner_of(array: np.ndarray) -> Any:
    """The object whose memory an array lies in."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array if array.base is None else array.base


__all__ = [
    "Operand", "Tracer", "holds_inexact", "is_tracer", "of_array", "owner_of", "plain_of", "refuse_memory",
]  # fmt: skip
