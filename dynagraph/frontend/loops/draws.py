"""Draws of single random numbers in native loops: by the functions in C that NumPy's own methods call, and Python's twister.

NumPy's distributions are exported functions of one of its extension modules; they take a generator's bits.  A native loop that
draws holds the GIL, so that nobody else draws meanwhile; it is not entered while another thread draws without the GIL.  A draw is
native only if our own generators give the same as NumPy's and Python's methods.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.frontend.kinds.values import Const, Function, Method, Object
from dynagraph.frontend.loops.builder import Builder
from dynagraph.frontend.loops.operators import F64, I64, NotNative, as_float, index_of, number, type_of_sample
from dynagraph.frontend.loops.types import FLOAT, Bool, Float, Int, Scalar, Type, Value, int_value
from dynagraph.ir.expr import Expr, call, cast, const

TRIED = 300


@dataclass(frozen=True)
class Draw:
    """`function`: NumPy's, of a generator's bits and floats; "" for the twister.  `defaults`: of the method's arguments.

    `given`: what the function is given for the method's arguments, with what is required of it.
    """

    function: str
    defaults: tuple[float, ...] = ()
    given: Callable[[Builder, list[Expr]], list[Expr]] = lambda b, args: args


def _scaled(b: Builder, args: list[Expr]) -> list[Expr]:
    """The last one is a scale: not negative."""
    if args[-1].op != "const" or not args[-1].value >= 0:  # type: ignore[operator]
        b.require(call("gt", args[-1], const(0.0, F64)))
    return args


def _ranged(b: Builder, args: list[Expr]) -> list[Expr]:
    """The lower end and the width of a range that is not empty."""
    low, high = args
    width = b.temporary(call("sub", high, low))
    b.require(call("and", call("gt", width, const(0.0, F64)), call("lt", width, const(float("inf"), F64))))
    return [low, width]


UNIFORM = Draw("random_standard_uniform")
BETWEEN = Draw("random_uniform", (0.0, 1.0), _ranged)
GENERATOR = {
    "random": UNIFORM,
    "standard_normal": Draw("random_standard_normal"),
    "normal": Draw("random_normal", (0.0, 1.0), _scaled),
    "uniform": BETWEEN,
    "standard_exponential": Draw("random_standard_exponential"),
    "exponential": Draw("random_exponential", (1.0,), _scaled),
}
LEGACY = {"random": UNIFORM, "random_sample": UNIFORM, "rand": UNIFORM, "uniform": BETWEEN}
PYTHON = {"random": Draw("")}
OF_CLASS = {"Generator": (GENERATOR, "integers"), "RandomState": (LEGACY, "randint"), "Random": (PYTHON, "")}
FILL = "random_bounded_uint64_fill"


def drawn(b: Builder, value: Any, args: Sequence[Value], named: dict[str, Value]) -> Value | None:
    """A call of an executor's value, where that draws a number; None where it is something else."""
    owner, name = _owner(value)
    if named or b.on_generator is None or not _is_generator(owner):
        return None
    rows, integers = OF_CLASS[owner.__name__]
    if name == "getrandbits" and owner.__name__ == "Random":
        return _bits(b, value, args) if _is_as_expected(owner, "random") else None
    if name == integers:
        return _integer(b, owner, value, args)
    row = rows.get(name)
    if row is None or len(args) > len(row.defaults) or not all(isinstance(a.type, (Float, Int, Bool, Scalar)) for a in args):
        return None
    if not _is_as_expected(owner, name):
        return None
    given = [_as_double(a) for a in args] + [const(d, F64) for d in row.defaults[len(args) :]]
    if None in given:
        return None
    operands = row.given(b, given)  # type: ignore[arg-type]
    b.effect()
    if not row.function:
        return Value(FLOAT, (b.temporary(Expr("twist", (b.on_generator(value, "twister"),), F64)),))
    bits = b.on_generator(value, "generator")
    return Value(FLOAT, (b.temporary(Expr("draw", (_function(b, row.function), bits, *operands), F64)),))


def _as_double(value: Value) -> Expr | None:
    kind = value.type
    if isinstance(kind, Scalar):
        return None if kind.dtype.is_complex or kind.dtype.is_half else cast(value.only, F64)
    return as_float(value)


def _integer(b: Builder, owner: type, value: Any, args: Sequence[Value]) -> Value | None:
    """``integers(low, high)``: 64 bits, the end is not drawn."""
    if not 1 <= len(args) <= 2 or not _is_as_expected(owner, OF_CLASS[owner.__name__][1]):
        return None
    try:
        low, high = ([Value(Int(), (number(0),)), *(index_of(b, a) for a in args)])[-2:]
    except NotNative:
        return None
    assert b.on_generator is not None
    b.require(call("lt", low.only, high.only))
    b.effect()
    width = b.temporary(call("sub", call("sub", high.only, low.only), number(1)))  # of 64 bits without a sign
    operands = (_function(b, FILL), b.on_generator(value, "generator"), low.only, width, number(_is_masked(owner)))
    return Value(_type_of_integer(owner), (b.temporary(Expr("draw_integer", operands, I64)),))


def refuse_state(method: Method) -> None:
    """Attributes of a generator are not read: what is drawn, or seeded, before the program changes them after its guards."""
    owner, code = method.owner, getattr(method.function, "code", None)
    if isinstance(owner, Object) and _is_generator(owner.kind) and code is not None:
        state = set(vars(_example(owner.kind))) if owner.kind.__name__ == "Random" else set()
        if state.intersection(code.co_names):
            raise NotNative(f"a call of {code.co_name}")


@functools.cache
def _example(owner: type) -> Any:
    return owner(1)


MOST_BITS = 62


def _bits(b: Builder, value: Any, args: Sequence[Value]) -> Value | None:
    """``getrandbits(k)`` of Python's twister."""
    if len(args) != 1 or not isinstance(args[0].type, Int):
        return None
    k = args[0].only
    b.require(call("and", call("gt", k, number(0)), call("le", k, number(MOST_BITS))))
    b.effect()
    assert b.on_generator is not None
    return int_value(b.temporary(Expr("twist_bits", (b.on_generator(value, "twister"), k), I64)), 0, 2**MOST_BITS - 1)


def _owner(value: Any) -> tuple[Any, str]:
    """The class of the generator that a method is of, and its name."""
    if isinstance(value, Method) and isinstance(value.owner, Object) and isinstance(value.function, (Const, Function)):
        held = value.function.value if isinstance(value.function, Const) else value.function.object
        name = getattr(held, "__name__", "")
        return value.owner.kind, name if getattr(value.owner.kind, name, None) is held else ""
    held = value.value if isinstance(value, Const) else None
    owner, name = getattr(held, "__self__", None), getattr(held, "__name__", "")
    return type(owner), name if getattr(owner, name, None) == held else ""


def _is_generator(owner: Any) -> bool:
    """Whether a class is one of those, which nobody imports for this."""
    if owner.__module__ == "random":
        return owner is getattr(sys.modules.get("random"), "Random", None)
    return owner.__module__.startswith("numpy.random") and owner in (np.random.Generator, np.random.RandomState)


def _is_masked(owner: type) -> bool:
    """How ints are drawn: by masks, and those that are too large once more."""
    return owner.__name__ == "RandomState"


# -- NumPy's functions -----------------------------------------------------------------------------------------------------


@functools.cache
def _library() -> ctypes.CDLL | None:
    module: Any = getattr(np.random, "_generator", None)
    try:
        return ctypes.CDLL(module.__file__)
    except (OSError, AttributeError):
        return None


@functools.cache
def _address(name: str) -> Const | None:
    """The executor's value of a function's address; the same one each time."""
    try:
        return Const(ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value)
    except AttributeError:
        return None


def _function(b: Builder, name: str) -> Expr:
    found = _address(name)
    assert found is not None
    return b.outside(found).only


@functools.cache
def _type_of_integer(owner: type) -> Type:
    return type_of_sample(getattr(_own(owner), OF_CLASS[owner.__name__][1])(0, 5))


def _own(owner: type) -> Any:
    return owner(np.random.PCG64(1))


@functools.cache
def _is_as_expected(owner: type, name: str) -> bool:
    """Whether draws of a generator of ours are what the function gives for the same bits, and floats."""
    if owner.__name__ == "Random":
        return _is_twister(owner)
    rows, _ = OF_CLASS[owner.__name__]
    row = rows.get(name)
    if _address(FILL if row is None else row.function) is None:
        return False
    plain, other = _own(owner), np.random.PCG64(1)
    bits, function = other.ctypes.bit_generator, getattr(_library(), FILL if row is None else row.function)
    if row is None:
        return all(_same_integer(plain, function, bits, owner, 10**k) for k in range(18))
    function.restype = ctypes.c_double
    given = {(0.0, 1.0): (0.5, 2.0), (1.0,): (2.0,)}.get(row.defaults, ())
    passed = (0.5, 1.5) if row is BETWEEN else given
    for _ in range(TRIED):
        one, two = getattr(plain, name)(*given), function(bits, *map(ctypes.c_double, passed))
        if type(one) is not float or one != two:
            return False
    return True


def _same_integer(plain: Any, function: Any, bits: Any, owner: type, high: int) -> bool:
    held = ctypes.c_uint64()
    for _ in range(10):
        one = getattr(plain, OF_CLASS[owner.__name__][1])(-5, high)
        n, masked = ctypes.c_ssize_t(1), ctypes.c_bool(_is_masked(owner))
        function(bits, ctypes.c_uint64(2**64 - 5), ctypes.c_uint64(high + 4), n, masked, ctypes.byref(held))
        if int(one) != ctypes.c_int64(held.value).value:
            return False
    return True


def _is_twister(owner: type) -> bool:
    """Whether the state of ``random.Random`` lies where it is looked for."""
    one: Any = owner(5)
    one.random()
    *words, index = one.getstate()[1]
    held = (ctypes.c_uint32 * (1 + len(words))).from_address(id(one) + object.__basicsize__)
    return len(words) == 624 and [index, *words] == list(held)


__all__ = ["drawn"]
