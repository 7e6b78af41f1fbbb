"""Elementwise doors: NumPy's ufuncs, from one table.  Promotion is asked of the ufunc itself (``resolve_dtypes``).

A row says which op a ufunc is on the dtypes that NumPy chose; the operands are cast to those before.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from dynagraph.frontend.numpy_door.arguments import flag, numpy_error, only, order_named, order_of_new, reshape
from dynagraph.frontend.numpy_door.builder import LIMITS, Builder, Unsupported, WeakFloat, default_dtype, is_weak, known_dtype
from dynagraph.frontend.numpy_door.layout import Order, copy_order, ufunc_order
from dynagraph.frontend.numpy_door.table import (
    Door,
    numpy_function,
    numpy_method,
    register_function,
    register_ufunc_method,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt, same_shape

Result = Union[Node, tuple[Node, ...]]


@dataclass(frozen=True)
class Call:
    """One application of a ufunc: the operands as given, and the dtypes of the loop that NumPy takes."""

    ufunc: np.ufunc
    operands: tuple[Any, ...]
    loop: tuple[DType, ...]  # of the operands, then of the results

    def nodes(self, b: Builder) -> list[Node]:
        return [b.as_node(x, dtype) for x, dtype in zip(self.operands, self.loop)]


Emit = Callable[[Builder, Call], Result]
_MISSING = object()


# -- promotion --------------------------------------------------------------------------------------------------------


def strong(b: Builder, x: object) -> Any:
    """An operand as promotion sees it: Python scalars stay as they are, anything else becomes a node."""
    return x if is_weak(x) else b.as_node(x)


def _for_resolution(x: Any) -> Any:
    if isinstance(x, Node):
        return x.dtype.numpy
    return np.dtype(bool) if type(x) is bool else _weak_type(x)


def _for_result_type(x: Any) -> Any:
    if isinstance(x, Node):
        return x.dtype.numpy
    return False if type(x) is bool else _weak_type(x)(0)


def _weak_type(x: Any) -> type:
    return x.type if isinstance(x, WeakFloat) else type(x) if type(x) in (float, complex) else int


def result_type(operands: Any, who: str) -> DType:
    """``np.result_type`` of nodes and weak scalars."""
    return known_dtype(np.result_type(*map(_for_result_type, operands)), who)


def resolve(
    ufunc: np.ufunc,
    operands: tuple[Any, ...],
    dtype: object = None,
    casting: Any = "same_kind",
    signature: Any = None,
    outs: tuple[Node | None, ...] = (),
    of_cupy: bool = False,
) -> tuple[DType, ...]:
    """The dtypes of the loop that NumPy takes for these operands, and for arrays `outs` that take the results.

    `of_cupy`: bfloat16 promotes as float16 does; to NumPy a Python float makes float32 of it.
    """
    if of_cupy and (loop := _resolve_as_cupy(ufunc, (*operands, *outs), dtype, signature)) is not None:
        return loop
    name = ufunc.__name__
    if ufunc.nin == 1 and type(operands[0]) is int and not LIMITS[dtypes.int64][0] <= operands[0] <= LIMITS[dtypes.uint64][1]:
        raise numpy_error(f"{name}: of {operands[0]}, which is an object to NumPy")
    options: dict[str, Any] = {"casting": casting}
    if dtype is not None:
        if signature is not None:
            raise numpy_error(f"{name}: dtype and signature cannot be given together")
        options["signature"] = (None,) * ufunc.nin + (known_dtype(dtype, name).numpy,) * ufunc.nout
    elif signature is not None:
        options["signature"] = signature
    targets = tuple(None if out is None else out.dtype.numpy for out in outs) or (None,) * ufunc.nout
    given = tuple(map(_for_resolution, operands)) + targets
    try:
        resolved = ufunc.resolve_dtypes(given, **options)
    except TypeError as error:
        raise numpy_error(f"{name}: {error}") from error
    # loops of int64 with uint64 take operands as long long, which is the same here; results keep what they are
    operands_as = tuple(np.dtype(d.str) if d.kind in "iu" else d for d in resolved[: ufunc.nin])
    return tuple(known_dtype(d, f"{name}: operand or result") for d in operands_as + resolved[ufunc.nin :])


def _resolve_as_cupy(ufunc: np.ufunc, given: Sequence[Any], dtype: object, signature: Any) -> tuple[DType, ...] | None:
    """The loop for arrays of bfloat16 and Python numbers; None where there is another array, or a dtype is asked for."""
    nodes = [x for x in given if isinstance(x, Node)]
    if dtype is not None or signature is not None or not nodes or any(n.dtype is not dtypes.bfloat16 for n in nodes):
        return None
    half = dtypes.float16.numpy
    operands = [half if isinstance(x, Node) else _for_resolution(x) for x in given[: ufunc.nin]]
    try:
        resolved = ufunc.resolve_dtypes((*operands, *(None,) * ufunc.nout))
    except TypeError as error:
        raise numpy_error(f"{ufunc.__name__}: {error}") from error
    found = tuple(known_dtype(d, ufunc.__name__) for d in resolved)
    return tuple(dtypes.bfloat16 if d is dtypes.float16 else d for d in found)


# -- the doors --------------------------------------------------------------------------------------------------------


def apply(b: Builder, ufunc: np.ufunc, *operands: Any, dtype: object = None, casting: Any = "same_kind") -> Any:
    """The nodes of a ufunc call."""
    ready = tuple(strong(b, x) for x in operands)
    loop = resolve(ufunc, ready, dtype, casting, of_cupy=b.check_op is not None)
    return laid_as_ufunc(b, UFUNCS[ufunc](b, Call(ufunc, ready, loop)), ready)


def laid_as_ufunc(b: Builder, result: Any, operands: Sequence[Any], order: Order | None = None) -> Any:
    """The results of one run of NumPy's iterator over the operands as given, however many nodes they are here."""
    if isinstance(result, tuple):
        return tuple(laid_as_ufunc(b, r, operands, order) for r in result)
    if result.ndim < 2 or (b.check_op is not None and order is None):
        return result
    return b.lay(result, order or ufunc_order([b.layout(x) for x in operands if isinstance(x, Node)], result.shape))


def _ufunc_door(ufunc: np.ufunc) -> Callable[..., Any]:
    name = ufunc.__name__

    def call(
        b: Builder,
        *operands: Any,
        out: Any = _MISSING,
        where: Any = True,
        casting: str = "same_kind",
        order: str = "K",
        dtype: Any = None,
        subok: bool = True,
        signature: Any = None,
    ) -> Any:
        """`subok` is for subclasses of ndarray, which never come here."""
        if len(operands) < ufunc.nin:
            raise numpy_error(f"{name}: takes {ufunc.nin} operands, got {len(operands)}")
        operands, written = operands[: ufunc.nin], operands[ufunc.nin :]
        if len(written) > ufunc.nout or (written and out is not _MISSING):
            raise numpy_error(f"{name}: {len(written)} results besides out=")
        only(not written or ufunc not in (np.maximum, np.minimum), name, "out", "given by position", "NumPy warns; name it")
        outs = arrays_out(written + (None,) * (ufunc.nout - len(written)) if written else out, ufunc.nout, name)
        flag(subok, name)
        only(order in ("K", "C", "F", None), name, "order", order, "one of 'K', 'C' and 'F'")
        mask = mask_of(b, where, name)
        if mask is not None and out is _MISSING and not written:
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{name}: NumPy warns of where= without out=")
        ready = tuple(strong(b, x) for x in operands)
        loop = resolve(ufunc, ready, dtype, casting, signature, outs, b.check_op is not None)
        results = UFUNCS[ufunc](b, Call(ufunc, ready, loop))
        given = results if isinstance(results, tuple) else (results,)
        made = tuple(_stored(b, result, target, mask, name) for result, target in zip(given, outs))
        if any(not same_shape(m.shape, made[0].shape) for m in made):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{name}: results of several shapes")
        asked = None if order in ("K", None) else order_of_new(order, made[0].ndim, name)
        for node, target in zip(made, outs):
            if target is None:
                laid_as_ufunc(b, node, (*ready, mask, *outs), asked)
        return made if isinstance(results, tuple) else made[0]

    return call


def arrays_out(out: Any, n: int, who: str) -> tuple[Node | None, ...]:
    """The arrays that ``out=`` names, for each of `n` results one, or None."""
    if out is _MISSING or out is None:
        return (None,) * n
    given = out if isinstance(out, tuple) else (out,)
    if len(given) != n:
        raise numpy_error(f"{who}: out= must name {n} arrays")
    for array in given:
        if array is not None and not isinstance(array, Node):
            raise Unsupported("IN_PLACE_WRITE", f"{who}: out= is no array that is followed")
    return given


def mask_of(b: Builder, where: Any, who: str) -> Node | None:
    """``where=`` as bools; None where it is True everywhere.  NumPy takes lists of anything, but arrays of bools alone."""
    if where is True:
        return None
    if isinstance(where, (Node, np.generic)) and b.as_node(where).dtype is not dtypes.bool_:
        raise numpy_error(f"{who}: where= of {where.dtype}")
    return b.as_node(where, dtypes.bool_)


def _stored(b: Builder, result: Node, target: Node | None, mask: Node | None, who: str) -> Node:
    """What an array holds that takes a result where the mask is true; without one, zeros elsewhere."""
    if target is None:
        return result if mask is None else b.call("where", mask, result, b.scalar(0, result.dtype))
    return fitted(b, result, target, mask, who)


def fitted(b: Builder, result: Node, target: Node, mask: Node | None, who: str) -> Node:
    """What `target` holds after it took the result, cast and broadcast, where the mask is true."""
    new = b.cast(result, target.dtype)
    if mask is not None:
        new = b.call("where", mask, new, target)
    elif not same_shape(new.shape, target.shape):
        new = b.call("broadcast_to", new, shape=target.shape)
    if not same_shape(new.shape, target.shape):
        raise numpy_error(f"{who}: a result of shape {new.shape} for an array of shape {target.shape}")
    return new


def _outer_door(ufunc: np.ufunc, call: Callable[..., Any]) -> Callable[..., Any]:
    def outer(b: Builder, left: Any, right: Any, /, **options: Any) -> Any:
        """Of arrays: NumPy makes arrays of Python scalars first, so they are not weak here."""
        x, y = b.as_node(left), b.as_node(right)
        return call(b, reshape(b, x, x.shape + (1,) * y.ndim), y, **options)

    return outer


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class op:
    """The op of that name on the loop's dtypes."""

    name: str

    def __call__(self, b: Builder, call: Call) -> Result:
        return b.call(self.name, *call.nodes(b))


@dataclass(frozen=True)
class _comparison(op):
    """Python ints that the loop's dtype cannot hold compare by their value, as NumPy has it; so do int64 and uint64."""

    def __call__(self, b: Builder, call: Call) -> Result:
        left, right = call.operands
        if _beyond(left, call.loop[0]) or _beyond(right, call.loop[1]):
            return _compare_beyond(b, self.name, left, right)
        nodes = call.nodes(b)
        if nodes[0].dtype.is_complex and self.name not in ("equal", "not_equal") and all(map(b.is_scalar, _nodes_of(call))):
            raise Unsupported(
                "UNSUPPORTED_DTYPE", f"{self.name}: NumPy compares complex scalars in another way than arrays, beside NaN"
            )
        return b.call(self.name, *nodes) if nodes[0].dtype is nodes[1].dtype else _compare_signs(b, self.name, *nodes)


def _nodes_of(call: Call) -> list[Node]:
    return [x for x in call.operands if isinstance(x, Node)]


def _compare_beyond(b: Builder, name: str, left: Any, right: Any) -> Node:
    """With a Python int beyond the range of the other operand: it compares with all elements as with zero."""
    x = left if isinstance(left, Node) else right
    if not isinstance(x, Node) or not x.dtype.is_integer:  # NumPy's error, or Python's objects
        raise Unsupported("NUMPY_ERROR", f"{name}: {left if right is x else right} does not fit int64")
    result = bool(getattr(np, name)(*(0 if operand is x else np.sign(operand) for operand in (left, right))))
    return b.call("full", shape=x.shape, value=result, dtype=dtypes.bool_)


def _compare_signs(b: Builder, name: str, left: Node, right: Node) -> Node:
    """int64 with uint64: below zero the sign says it, else both are compared as uint64."""
    signed_left = left.dtype.kind == "i"
    signed = left if signed_left else right
    below = b.call("less", signed, b.scalar(0, signed.dtype))
    compared = b.call(name, b.cast(left, dtypes.uint64), b.cast(right, dtypes.uint64))
    if name == "not_equal" or name.startswith("less" if signed_left else "greater"):
        return b.call("logical_or", below, compared)
    return b.call("logical_and", b.call("logical_not", below), compared)


def _beyond(x: Any, dtype: DType) -> bool:
    return type(x) is int and dtype.is_integer and not LIMITS[dtype][0] <= x <= LIMITS[dtype][1]


@dataclass(frozen=True)
class _logical(op):
    """Of truths."""

    def __call__(self, b: Builder, call: Call) -> Result:
        for x in call.operands:
            if _beyond(x, dtypes.int64) and call.loop[0].is_bool:
                raise numpy_error(f"{self.name}: {x} does not fit int64")
        return b.call(self.name, *(b.cast(node, dtypes.bool_) for node in call.nodes(b)))


def _float_test(name: str, elsewhere: bool) -> Emit:
    """A question to floating point; integers all answer the same."""

    def emit(b: Builder, call: Call) -> Node:
        (x,) = call.nodes(b)
        return b.call(name, x) if x.dtype.is_inexact else b.call("full", shape=x.shape, value=elsewhere, dtype=dtypes.bool_)

    return emit


def _times(factor: Callable[[Any], Any]) -> Emit:
    """Multiplication by a constant that NumPy computes in the loop's own precision."""

    def emit(b: Builder, call: Call) -> Node:
        (x,) = call.nodes(b)
        wide = b.cast(x, dtypes.float32) if x.dtype.is_half else x
        return b.cast(b.call("multiply", wide, b.scalar(float(factor(wide.dtype.numpy.type)), wide.dtype)), x.dtype)

    return emit


def _between(b: Builder, call: Call) -> Node:
    """Of zeros with two signs NumPy keeps the element where both bounds are single numbers (of complex ones not), else not."""
    x, low, high = call.nodes(b)
    keeps = x.dtype.is_inexact and x.dtype is not dtypes.float16 and b.check_op is None  # of halves the first operand is taken
    if keeps and low.ndim == high.ndim == 0:
        return b.call("minimum", high, b.call("maximum", low, x))
    return b.call("minimum", b.call("maximum", x, low), high)


def _copy(b: Builder, call: Call) -> Node:
    return b.call("copy", *call.nodes(b))


def _conjugate(b: Builder, call: Call) -> Node:
    (x,) = call.nodes(b)
    return b.call("conjugate" if x.dtype.is_complex else "copy", x)


def _sign(b: Builder, call: Call) -> Node:
    (x,) = call.nodes(b)
    sign = b.call("sign", x)
    if x.dtype is not dtypes.bfloat16 or b.check_op is not None:
        return sign
    return b.call("where", b.call("equal", x, b.scalar(0, x.dtype)), x, sign)  # ml_dtypes keeps that of -0.0


def _divmod(b: Builder, call: Call) -> Result:
    operands = call.nodes(b)
    return b.call("floor_divide", *operands), b.call("remainder", *operands)


def _modf(b: Builder, call: Call) -> Result:
    """(fraction, whole): both have the sign of the operand, and an infinity has the fraction 0."""
    (x,) = call.nodes(b)
    whole = b.call("trunc", x)
    rest = b.call("where", b.call("isinf", x), b.scalar(0.0, x.dtype), b.call("subtract", x, whole))
    return b.call("copysign", rest, x), whole


def _power(b: Builder, call: Call) -> Node:
    exponent, dtype = call.operands[1], call.loop[0]
    if dtype.is_integer:
        if is_weak(exponent) and exponent < 0:
            raise numpy_error(f"power: integers to the negative integer power {exponent}; use a float base")
        nodes = call.nodes(b)
        if not is_weak(exponent):
            check_exponents(b, nodes[1])
        return b.call("power_int", *nodes)
    if dtype.is_complex or dtype.is_half:
        return b.call("power", *call.nodes(b))
    if type(exponent) not in (int, float, bool):
        return _power_of_nodes(b, *call.nodes(b))
    name = _POWERS.get(float(exponent))
    return b.call("power", *call.nodes(b)) if name is None else b.call(name, b.as_node(call.operands[0], dtype))


def _power_of_nodes(b: Builder, base: Node, exponent: Node) -> Node:
    """NumPy takes the square root where one exponent of 0.5 serves all elements: sqrt(-0.0) is -0.0, pow's is 0.0."""
    result = b.call("power", base, exponent)
    if exponent.ndim > 0 or (base.ndim == 0 and b.check_op is not None):  # CuPy has no such ways for single numbers
        return result
    half = b.call("equal", exponent, b.scalar(0.5, exponent.dtype))
    return b.call("where", half, b.call("sqrt", base), result)


def multiply_operator(b: Builder, left: Any, right: Any) -> Any:
    """``left * right``: complex scalars are multiplied by NumPy's scalars, not by np.multiply."""
    if b.check_op is None and all(is_weak(x) or (isinstance(x, Node) and b.is_scalar(x)) for x in (left, right)):
        loop = resolve(np.multiply, (strong(b, left), strong(b, right)))
        if loop[0].is_complex:
            return product_of_scalars(b, b.as_node(left, loop[0]), b.as_node(right, loop[1]))
    return apply(b, np.multiply, left, right)


def product_of_scalars(b: Builder, x: Node, y: Node) -> Node:
    """Of complex numbers each product is rounded, and overflows, by itself; np.multiply may round a sum of two once (FMA)."""
    if not x.dtype.is_complex:
        return b.call("multiply", x, y)
    (a, c), (d, e) = _parts(b, x), _parts(b, y)
    real = b.call("subtract", b.call("multiply", a, d), b.call("multiply", c, e))
    return b.call("complex", real, b.call("add", b.call("multiply", a, e), b.call("multiply", c, d)))


def power_operator(b: Builder, base: Any, exponent: Any) -> Any:
    """``base ** exponent``: of arrays and some Python numbers another function than np.power, on some dtypes; of scalars pow."""
    if all(is_weak(x) or (isinstance(x, Node) and b.is_scalar(x)) for x in (base, exponent)):
        return _power_of_scalars(b, strong(b, base), strong(b, exponent))
    short = _SHORT.get((type(exponent), exponent)) if type(exponent) in (int, float) else None
    if short is not None and isinstance(base, Node) and not b.is_scalar(base) and (short is np.square or base.dtype in _LONG_WAY):
        return apply(b, short, base)
    return apply(b, np.power, base, exponent)


def _power_of_scalars(b: Builder, base: Any, exponent: Any) -> Any:
    """NumPy's scalars have none of the short ways of np.power: pow(-0.0, 0.5) is 0.0, sqrt(-0.0) is -0.0."""
    loop = resolve(np.power, (base, exponent), of_cupy=b.check_op is not None)
    if not loop[0].is_float or loop[0].is_half:
        return apply(b, np.power, base, exponent)
    x, y = b.as_node(base, loop[0]), b.as_node(exponent, loop[1])
    root = b.call("equal", y, b.scalar(0.5, y.dtype))
    found = b.call("logical_or", b.call("equal", x, b.scalar(0.0, x.dtype)), b.call("equal", x, b.scalar(-math.inf, x.dtype)))
    positive = b.call("where", b.call("logical_and", root, found), b.call("absolute", x), x)  # where a root differs from pow
    return b.call("power", positive, y)


_LONG_WAY = (dtypes.float16, dtypes.complex64, dtypes.complex128)  # that np.power goes whatever the exponent
_SHORT = {(int, 2): np.square, (int, -1): np.reciprocal, (float, 0.5): np.sqrt}


# NumPy's power takes these ways for exponents that are constant: other bits than pow's
_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}


def _float_power(b: Builder, call: Call) -> Node:
    """NumPy's float_power takes pow always, and has no short ways: pow(-0.0, 0.5) is 0.0."""
    if type(call.operands[1]) is float and call.operands[1] == 0.5:
        raise Unsupported("UNSUPPORTED_ARGUMENT", "float_power: the exponent 0.5 is not captured; use np.sqrt or np.power")
    return b.call("power", *call.nodes(b))


def check_exponents(b: Builder, exponents: Node) -> None:
    """Have the program refuse negative exponents of integers, for which NumPy raises."""
    if exponents.dtype.kind == "i":
        b.refuse_where(b.call("less", exponents, b.scalar(0, exponents.dtype)))


def _frexp(b: Builder, call: Call) -> Result:
    """(mantissa, exponent)."""
    (x,) = call.nodes(b)
    return b.call("frexp_mantissa", x), b.call("frexp_exponent", x)


def _ldexp(b: Builder, call: Call) -> Node:
    x, exponent = call.nodes(b)
    return b.call("ldexp", x, b.cast(exponent, dtypes.int64))


def _spacing(b: Builder, call: Call) -> Node:
    """How far the next number away from zero is; that of -0.0 is the one of 0.0."""
    (x,) = call.nodes(b)
    only(not x.dtype.is_half, "spacing", "x", x.dtype, "NumPy's halves have another spacing than the next number")
    zero, end = b.scalar(0.0, x.dtype), b.scalar(math.inf, x.dtype)
    x = b.call("where", b.call("equal", x, zero), zero, x)
    return b.call("subtract", b.call("nextafter", x, b.call("copysign", end, x)), x)  # inf - inf is nan


_CLIP: np.ufunc = importlib.import_module("numpy._core.umath").clip  # NumPy shows it through np.clip only
UFUNCS: dict[np.ufunc, Emit] = {
    _CLIP: _between,
    np.add: op("add"),
    np.subtract: op("subtract"),
    np.multiply: op("multiply"),
    np.divide: op("divide"),  # np.true_divide is the same object
    np.floor_divide: op("floor_divide"),
    np.remainder: op("remainder"),  # np.mod too
    np.fmod: op("fmod"),
    np.divmod: _divmod,
    np.modf: _modf,
    np.power: _power,
    np.float_power: _float_power,
    np.negative: op("negative"),
    np.positive: _copy,
    np.conjugate: _conjugate,
    np.absolute: op("absolute"),
    np.fabs: op("absolute"),
    np.sign: _sign,
    np.reciprocal: op("reciprocal"),
    np.square: op("square"),
    np.heaviside: op("heaviside"),
    np.deg2rad: _times(lambda real: real(np.pi) / real(180)),
    np.radians: _times(lambda real: real(np.pi) / real(180)),
    np.rad2deg: _times(lambda real: real(180) / real(np.pi)),
    np.degrees: _times(lambda real: real(180) / real(np.pi)),
    np.isnan: _float_test("isnan", elsewhere=False),
    np.isinf: _float_test("isinf", elsewhere=False),
    np.isfinite: _float_test("isfinite", elsewhere=True),
    np.invert: op("invert"),
    np.frexp: _frexp,
    np.ldexp: _ldexp,
    np.spacing: _spacing,
    np.bitwise_count: op("bitwise_count"),
}
for _name in [
    "sqrt",
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "arctan2",
    "hypot",
    "copysign",
    "nextafter",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "gcd",
    "lcm",
]:
    UFUNCS[getattr(np, _name)] = op(_name)
for _name in ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]:
    UFUNCS[getattr(np, _name)] = _comparison(_name)
for _name in ["logical_and", "logical_or", "logical_xor", "logical_not"]:
    UFUNCS[getattr(np, _name)] = _logical(_name)

_DOORS: dict[np.ufunc, Callable[..., Any]] = {_ufunc: _ufunc_door(_ufunc) for _ufunc in UFUNCS}
for _ufunc, _call in _DOORS.items():
    register_function(_ufunc, Door(_ufunc.__name__, _call, takes_out=True))
    if _ufunc.nin == 2:
        register_ufunc_method(_ufunc, "outer", Door(f"{_ufunc.__name__}.outer", _outer_door(_ufunc, _call), takes_out=True))


def combining_op(ufunc: np.ufunc, dtype: DType) -> str | None:
    """The op that combines two operands of the loop's dtype, where the ufunc is nothing but an op."""
    if ufunc is np.power:
        return "power_int" if dtype.is_integer else "power"
    emit = UFUNCS.get(ufunc)
    return emit.name if isinstance(emit, op) and ufunc.nin == 2 else None


# -- functions that are no ufuncs -------------------------------------------------------------------------------------


def where(b: Builder, condition: Any, x: Any, y: Any) -> Node:
    """``np.where`` with all three arguments."""
    if x is None or y is None:
        raise numpy_error("where: takes both x and y, or neither")
    choices = strong(b, x), strong(b, y)
    dtype = result_type(choices, "where")
    chosen = b.call("where", b.as_node(condition, dtypes.bool_), *(b.as_node(held(c, dtype), dtype) for c in choices))
    return laid_as_ufunc(b, chosen, (condition, *choices))


def held(x: Any, dtype: DType) -> Any:
    """Python ints beyond the dtype's range wrap around in NumPy 2.4 and are an error in 2.5."""
    if type(x) is int and dtype.is_integer:
        low, high = LIMITS[dtype]
        only(low <= x <= high, "where", "choice", x, f"{dtype} holds {low} to {high}")
    return x


@numpy_function(np.clip, takes_out=True)
def clip(
    b: Builder,
    a: Any,
    a_min: Any = _MISSING,
    a_max: Any = _MISSING,
    out: Any = None,
    *,
    min: Any = _MISSING,
    max: Any = _MISSING,
    **ufunc_arguments: Any,
) -> Node:
    if a_min is _MISSING and a_max is _MISSING:
        a_min, a_max = (None if m is _MISSING else m for m in (min, max))
    elif min is not _MISSING or max is not _MISSING:
        raise numpy_error("clip: a_min and a_max cannot be given together with min and max")
    if a_min is _MISSING or a_max is _MISSING:
        raise numpy_error("clip: a_min and a_max must be given together")
    return _clip(b, a, a_min, a_max, {"out": out, **ufunc_arguments})


@numpy_method("clip", takes_out=True)
def _clip_method(b: Builder, a: Any, min: Any = None, max: Any = None, out: Any = None, **ufunc_arguments: Any) -> Node:
    return _clip(b, a, min, max, {"out": out, **ufunc_arguments})


def _clip(b: Builder, a: Any, low: Any, high: Any, options: dict[str, Any]) -> Node:
    """Bounds that are Python ints beyond the dtype's range bound nothing, or too much: NumPy drops the former."""
    x = b.as_node(a)
    if x.dtype.is_integer:
        least, greatest = LIMITS[x.dtype]
        low = None if type(low) is int and low <= least else low
        high = None if type(high) is int and high >= greatest else high
    bounds = tuple(bound for bound in (low, high) if bound is not None)
    ufunc = np.positive if not bounds else _CLIP if len(bounds) == 2 else np.minimum if low is None else np.maximum
    return _DOORS[ufunc](b, x, *bounds, **options)  # type: ignore[no-any-return]


@numpy_function(np.round, np.around, method="round", takes_out=True)
def round_(b: Builder, a: Any, decimals: Any = 0, out: Any = None) -> Node:
    """NumPy scales by a power of ten; integers to negative decimals in float64, which it does not store in integers."""
    x, (target,) = b.as_node(a), arrays_out(out, 1, "round")
    result = _rounded(b, x, int(decimals))
    if target is None:
        return result
    scaled = x.dtype.is_integer and int(decimals) < 0
    only(target.dtype is x.dtype and not scaled, "round", "out", target.dtype, "it must have the dtype in which NumPy rounds")
    if not same_shape(result.shape, target.shape):
        raise numpy_error(f"round: a result of shape {result.shape} for an array of shape {target.shape}")
    return result


def _rounded(b: Builder, x: Node, digits: int) -> Node:
    if x.dtype.is_bool:
        raise Unsupported("UNSUPPORTED_DTYPE", f"round: {x.dtype} is not captured; cast to float64 first")
    if x.dtype.is_integer and digits >= 0:
        return b.copy(x)
    if x.dtype.is_complex:
        return b.lay(b.call("complex", *(_rounded(b, part, digits) for part in _parts(b, x))), copy_order(b.layout(x)))
    if digits == 0:
        return b.call("rint", x)
    y = b.cast(x, dtypes.float64) if x.dtype.is_integer else x
    scale = b.scalar(10.0 ** abs(digits), y.dtype)
    there, back = ("multiply", "divide") if digits > 0 else ("divide", "multiply")
    made = b.cast(b.call(back, b.call("rint", b.call(there, y, scale)), scale), x.dtype)
    return b.lay(made, order_named(b, "A", x, "round"))


@numpy_function(np.fix, at_default=("out",))
def fix(b: Builder, x: Any, out: Any = None) -> Node:
    return apply(b, np.trunc, x)


@numpy_function(np.isposinf, at_default=("out",))
def isposinf(b: Builder, x: Any, out: Any = None) -> Node:
    return _is_infinite(b, b.as_node(x), math.inf)


@numpy_function(np.isneginf, at_default=("out",))
def isneginf(b: Builder, x: Any, out: Any = None) -> Node:
    return _is_infinite(b, b.as_node(x), -math.inf)


def _is_infinite(b: Builder, x: Node, which: float) -> Node:
    if x.dtype.is_complex:
        raise numpy_error("isposinf, isneginf: take no complex numbers")
    if not x.dtype.is_float:
        return laid_as_ufunc(b, b.call("full", shape=x.shape, value=False, dtype=dtypes.bool_), (x,))
    return b.call("equal", x, b.scalar(which, x.dtype))


@numpy_function(np.nan_to_num)
def nan_to_num(b: Builder, x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Node:
    node = b.as_node(x)
    only(copy is True, "nan_to_num", "copy", copy, "it would write into the operand")
    if node.dtype.is_complex:
        return b.call("complex", *(nan_to_num(b, part, True, nan, posinf, neginf) for part in _parts(b, node)))
    if not node.dtype.is_float:
        return b.copy(node)
    greatest = float(np.finfo(node.dtype.numpy).max)
    result = node
    for found, value in (
        (b.call("isnan", node), nan),
        (_is_infinite(b, node, math.inf), greatest if posinf is None else posinf),
        (_is_infinite(b, node, -math.inf), -greatest if neginf is None else neginf),
    ):
        result = b.call("where", found, b.as_node(value, node.dtype), result)
    return b.lay(result, copy_order(b.layout(node)))


@numpy_function(np.isclose)
def isclose(builder: Builder, /, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Node:
    x = strong(builder, a)
    return _isclose(builder, x, float(b) if type(b) in (int, bool) else strong(builder, b), rtol, atol, equal_nan)


def _isclose(b: Builder, x: Any, y: Any, rtol: Any, atol: Any, equal_nan: Any) -> Node:
    """NumPy's formula, in its order: |x - y| <= atol + rtol*|y| where y is finite, or x == y."""
    if isinstance(y, Node):
        y = b.cast(y, result_type((y, 1.0), "isclose"))
    limit = apply(b, np.add, atol, apply(b, np.multiply, rtol, apply(b, np.absolute, y)))
    near = apply(b, np.less_equal, apply(b, np.absolute, apply(b, np.subtract, x, y)), limit)
    result = b.call("logical_or", b.call("logical_and", near, apply(b, np.isfinite, y)), apply(b, np.equal, x, y))
    if flag(equal_nan, "isclose"):
        result = b.call("logical_or", result, b.call("logical_and", apply(b, np.isnan, x), apply(b, np.isnan, y)))
    return result


@numpy_function(np.allclose, np.array_equal, np.array_equiv)
def _python_bool(b: Builder, *args: Any, **kwargs: Any) -> Node:
    raise Unsupported("DATA_DEPENDENT", "the result is a Python bool that depends on data; use np.isclose, == and np.all")


@numpy_function(np.sinc)
def sinc(b: Builder, x: Any) -> Node:
    node = b.as_node(x)
    node = node if node.dtype.is_inexact else b.cast(node, dtypes.float64)
    tiny = b.scalar(float(np.finfo(node.dtype.numpy).eps), node.dtype)
    y = b.call(
        "multiply",
        b.scalar(math.pi, node.dtype),
        b.call("where", b.call("equal", node, b.scalar(0.0, node.dtype)), tiny, node),
    )
    return b.call("divide", b.call("sin", y), y)


@numpy_function(np.angle)
def angle(b: Builder, z: Any, deg: Any = False) -> Node:
    """Of real numbers: 0, or pi for negative ones."""
    x = b.as_node(z)
    real, imag = _parts(b, x) if x.dtype.is_complex else (x, 0)
    found = apply(b, np.arctan2, imag, real)
    return apply(b, np.multiply, found, 180 / math.pi) if flag(deg, "angle") else found


@numpy_function(np.real_if_close, returns="array")
def real_if_close(b: Builder, a: Any, tol: Any = 100) -> Node:
    """Real numbers are given back as they are; of complex ones the result's dtype depends on the values."""
    x = b.as_node(a)
    if not x.dtype.is_complex:
        return x
    value = b.observed(x)
    if value is None:
        raise Unsupported("DATA_DEPENDENT", "real_if_close: whether complex numbers are close to real ones depends on the data")
    return b.call("real", x) if np.isrealobj(np.real_if_close(value, tol)) else x


@numpy_method("conj", "conjugate", returns="same")
def _conjugate_method(b: Builder, a: Node, /) -> Node:
    """Of real numbers the array itself; of complex ones in an array without dimensions NumPy gives a scalar."""
    if not a.dtype.is_complex:
        return a
    only(a.ndim > 0 or b.is_scalar(a), "conj", "array", "without dimensions", "np.conj")
    return b.call("conjugate", a)


def _parts(b: Builder, x: Node) -> tuple[Node, Node]:
    return b.call("real", x), b.call("imag", x)


__all__ = [
    "UFUNCS", "Call", "SymInt", "apply", "arrays_out", "check_exponents", "combining_op", "default_dtype", "fitted", "held",
    "mask_of", "multiply_operator", "power_operator", "product_of_scalars", "resolve", "result_type", "strong",
]  # fmt: skip
