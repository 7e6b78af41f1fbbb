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

from dynagraph.doors.numpy.arguments import flag, numpy_error, only, order_of_new, reshape
from dynagraph.doors.numpy.builder import LIMITS, Builder, Unsupported, WeakFloat, default_dtype, is_weak, known_dtype
from dynagraph.doors.numpy.layout import Order, ufunc_order
from dynagraph.doors.numpy.table import (
    Door,
    register_function,
    register_ufunc_method,
)
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Elementwise, Op
from dynagraph.ir.optable import OPS
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
) -> tuple[DType, ...]:
    """The dtypes of the loop that NumPy takes for these operands, and for arrays `outs` that take the results."""
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


# -- the doors --------------------------------------------------------------------------------------------------------


def apply(b: Builder, ufunc: np.ufunc, *operands: Any, dtype: object = None, casting: Any = "same_kind") -> Any:
    """The nodes of a ufunc call."""
    ready = tuple(strong(b, x) for x in operands)
    loop = resolve(ufunc, ready, dtype, casting)
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
        loop = resolve(ufunc, ready, dtype, casting, signature, outs)
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
            raise Unsupported("IN_PLACE_WRITE", f"{who}: out= is not an array that is followed")
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

    @property
    def cupy(self) -> bool:
        return OPS[self.name].cupy

    @property
    def bfloat16(self) -> bool:
        return "f" in OPS[self.name].kinds


@dataclass(frozen=True)
class composed:
    """Of several ops, or of which it depends on the operands.  `cupy`, `bfloat16`: whether the libraries mean the same by it."""

    emit: Emit
    cupy: bool = False
    bfloat16: bool = False

    def __call__(self, b: Builder, call: Call) -> Result:
        return self.emit(b, call)


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

    @property
    def bfloat16(self) -> bool:
        return True


@dataclass(frozen=True)
class _float_test(op):
    """A question to floating point; integers all answer as zero does."""

    def __call__(self, b: Builder, call: Call) -> Result:
        (x,) = call.nodes(b)
        if x.dtype.kind in OPS[self.name].kinds:
            return b.call(self.name, x)
        return b.call("full", shape=x.shape, value=bool(call.ufunc(x.dtype.numpy.type(0))), dtype=dtypes.bool_)


def _row_of(row: Op) -> op:
    """How a ufunc of the op's name becomes the op."""
    if row.kinds == "b":
        return _logical(row.name)
    return (op if not row.answers else _float_test if row.arity == 1 else _comparison)(row.name)


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
    (a, c), (d, e) = complex_parts(b, x), complex_parts(b, y)
    real = b.call("subtract", b.call("multiply", a, d), b.call("multiply", c, e))
    return b.call("complex", real, b.call("add", b.call("multiply", a, e), b.call("multiply", c, d)))


def complex_parts(b: Builder, x: Node) -> tuple[Node, Node]:
    return b.call("real", x), b.call("imag", x)


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
    loop = resolve(np.power, (base, exponent))
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
    """Have the program bail out for negative exponents of integers, for which NumPy raises."""
    if exponents.dtype.kind == "i":
        b.bail_out_where(b.call("less", exponents, b.scalar(0, exponents.dtype)))


def _frexp(b: Builder, call: Call) -> Result:
    """(mantissa, exponent)."""
    (x,) = call.nodes(b)
    return b.call("frexp_mantissa", x), b.call("frexp_exponent", x)


def _ldexp(b: Builder, call: Call) -> Node:
    x, exponent = call.nodes(b)
    return b.call("ldexp", x, b.cast(exponent, dtypes.int64))


_CLIP: np.ufunc = importlib.import_module("numpy._core.umath").clip  # NumPy shows it through np.clip only
_TO_RADIANS = composed(_times(lambda real: real(np.pi) / real(180)), cupy=True, bfloat16=True)
_TO_DEGREES = composed(_times(lambda real: real(180) / real(np.pi)), cupy=True, bfloat16=True)
UFUNCS: dict[np.ufunc, op | composed] = {
    ufunc: _row_of(row)
    for row in OPS.values()
    if isinstance(row.lowering, Elementwise) and isinstance(ufunc := vars(np).get(row.name), np.ufunc)
} | {
    _CLIP: composed(_between),
    np.divmod: composed(_divmod),
    np.modf: composed(_modf),
    np.power: composed(_power, cupy=True, bfloat16=True),
    np.float_power: composed(_float_power),
    np.positive: composed(_copy, bfloat16=True),
    np.conjugate: composed(_conjugate, cupy=True, bfloat16=True),
    np.fabs: composed(op("absolute"), bfloat16=True),
    np.sign: composed(_sign, cupy=True, bfloat16=True),
    np.deg2rad: _TO_RADIANS,
    np.radians: _TO_RADIANS,
    np.rad2deg: _TO_DEGREES,
    np.degrees: _TO_DEGREES,
    np.frexp: composed(_frexp),
    np.ldexp: composed(_ldexp),
}

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


__all__ = [
    "UFUNCS", "Call", "SymInt", "apply", "arrays_out", "check_exponents", "combining_op", "default_dtype", "fitted", "mask_of",
    "multiply_operator", "power_operator", "product_of_scalars", "resolve", "result_type", "strong",
]  # fmt: skip
