"""Rows of elementwise ops: a scalar expression of the operands at each point.

`eager` is NumPy's own function, so NumPy defines what is right; where C and NumPy differ (NaN, zero divisors, wide
shifts) the scalar functions of `ir/expr.py` carry NumPy's meaning.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr, call, cast, const, define
from dynagraph.ir.graph import Meta, Node
from dynagraph.ir.ops import REQUIRED, VJP, Attrs, Elementwise, Gradient, Metas, define_op
from dynagraph.ir.optable.rules import (
    ANY,
    BITS,
    BOOL,
    COMPLEX,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_NUMERIC,
    broadcast,
    check_kind,
    one_dtype,
    same_dtype,
    to_bool,
    to_complex,
    to_real,
)
from dynagraph.ir.shapes import Shape
from dynagraph.ir.terms import Differentiated, Term, flat
from dynagraph.where import where

Slope = Callable[[Differentiated], Term]
_RESULTS = {same_dtype: "same", to_bool: "bool", to_real: "real", to_complex: "complex"}


def _eager(numpy_name: str) -> Callable[..., Any]:
    return lambda xp, *operands: getattr(xp, numpy_name)(*operands)


def _by_dtype(function: str, unchanged: str, integers: str, bools: str) -> Callable[..., Expr]:
    """The scalar function of each kind of dtype; NumPy's arithmetic of bools is logic."""

    def expr(*operands: Expr) -> Expr:
        dtype = operands[0].dtype
        if dtype.kind in unchanged:
            return operands[0]
        return call((dtype.is_bool and bools) or (dtype.is_integer and integers) or function, *operands)

    return expr


def _row(
    name: str,
    arity: int,
    kinds: str,
    expr: Callable[..., Expr] | str | None = None,
    *,
    result: Any = same_dtype,
    cost: int = 1,
    facts: Mapping[str, Any] = MappingProxyType({}),
    unchanged: str = "",
    integers: str = "",
    bools: str = "",
    eager: Callable[..., Any] | None = None,
    part: int | None = None,
    exact: bool = True,
    slope: Slope | None = None,
    vjp: Gradient | None = None,
    **row: Any,
) -> None:
    """A ufunc of NumPy's, or what is shaped like one, of dtypes of `kinds`.

    `expr`: what it is, or the scalar function that it is; where there is none, the row defines a scalar function of the op's name,
    with this `cost` and the further `facts` (see `ScalarFunction`).  Of dtypes `unchanged` the result is the operand; of `integers`
    and `bools` it may be another scalar function.  `slope`: of the result by its one operand.
    """
    if expr is None:
        define(name, arity, _RESULTS[result], cost, "".join(k for k in kinds if k not in unchanged), **facts)
    function = name if expr is None else expr
    define_op(
        name,
        arity=arity,
        kinds=kinds,
        answers=result is to_bool,
        vjp=vjp if slope is None else lambda d, g: (g * slope(d).conj,),
        dtype=result(name, kinds),
        shape=broadcast(name),
        eager=eager or _eager(name),
        lowering=Elementwise(_by_dtype(function, unchanged, integers, bools) if isinstance(function, str) else function, part),
        cost=FUNCTIONS[function].cost if isinstance(function, str) else cost,
        exact=exact,
        **row,
    )


# -- arithmetic -----------------------------------------------------------------------------------------------------


def _reciprocal(x: Expr) -> Expr:
    if x.dtype.is_complex:
        return call("reciprocal", x)
    if x.dtype.is_float:
        return call("div", const(1, x.dtype), x)
    zero, own = const(0, x.dtype), call("eq", x, const(1, x.dtype))  # of 1 and -1 it is they themselves
    if x.dtype.kind == "i":
        own = call("or", own, call("eq", x, const(-1, x.dtype)))
    by_zero = cast(const(math.inf, dtypes.float64), x.dtype)
    return call("select", call("eq", x, zero), by_zero, call("select", own, x, zero))


def nonnegative(xp: Any, exponents: Any) -> Any:
    """Without what NumPy's power of integers would raise for."""
    if isinstance(exponents, np.generic):  # a scalar among arrays of another library
        xp = np
    return xp.maximum(exponents, exponents.dtype.type(0))


def _power_by_base(d: Differentiated, g: Term) -> Term:
    """Zero where the exponent is: the other factor may be infinite."""
    by_base = (d.y * d.x.call("power", d.y - 1)).where(d.y.equals(0).call("logical_not"), 0)
    return g * by_base.conj


def _power_by_exponent(d: Differentiated, g: Term) -> Term:
    """Zero where the base is."""
    by_exponent = d.out * d.x.number(1).where(d.x.equals(0), d.x).call("log")
    return g * by_exponent.conj


def _extreme_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    """All to the operand that was chosen; halves where both are."""
    share = (g * 0.5).where(d.x.equals(d.y), g)
    return share.where(d.x.equals(d.out), 0), share.where(d.y.equals(d.out), 0)


def _reciprocal_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (-g * d.out.conj * d.out.conj,)




def _absolute_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (g.cast(d.x.dtype) * d.x.call("sign"),)


def _sign_vjp(d: Differentiated, g: Term) -> tuple[Term | None]:
    """The direction of a complex number: what moves it along changes nothing.  Zero has none."""
    if not g.dtype.is_complex:
        return (None,)
    across = g - d.out * (d.out.conj * g).real.cast(g.dtype)
    size = d.x.call("absolute")
    return (across / size.number(math.inf).where(size.equals(0), size).cast(g.dtype),)


def or_infinite(x: Term) -> Term:
    """A divisor by which zeros count as infinite: quotients are zero, and so are their derivatives."""
    return x.number(math.inf).where(x.equals(0), x)


def _sqrt_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    twice = d.out.conj * 2
    return (g / (or_infinite(twice) if _is_norm(d.node.args[0]) else twice),)


def _is_norm(squares: Node) -> bool:
    """Whether the root of this is a norm, or a standard deviation: it is made of sums of squares and of what scales these."""
    if squares.kind != "call_function":
        return False
    operands = squares.args
    name = squares.op.name
    if name == "var":
        return True
    if name == "square" or (name == "multiply" and operands[0] is operands[1]):
        return not squares.dtype.is_complex
    if name in ("sum", "mean", "reshape", "cast", "broadcast_to", "divide"):
        return _is_norm(operands[0])
    return name == "add" and all(map(_is_norm, operands))


def _hypot_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    share = g / or_infinite(d.out)
    return share * d.x, share * d.y


def _copysign_vjp(d: Differentiated, g: Term) -> tuple[Term, None]:
    return g * d.x.call("sign") * d.y.number(1).call("copysign", d.y), None


def or_any(logarithm: Term) -> Term:
    """The logarithm that shares are measured by: of no sum at all it is any, for its shares are nothing."""
    return logarithm.number(0).where(logarithm.equals(-math.inf), logarithm)


def _shares(function: str) -> VJP:
    """Of the logarithm of a sum: how much of the sum each operand is; nothing, of a sum of zeros."""

    def vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
        total = or_any(d.out)
        return g * (d.x - total).call(function), g * (d.y - total).call(function)

    return vjp


def _arctan2_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    """The origin has no direction: zero."""
    share = g / or_infinite(d.x * d.x + d.y * d.y)
    return share * d.y, -share * d.x


_EXTREME: dict[str, Any] = {"vjp": _extreme_vjp, "commutative": BITS, "associative": True, "idempotent": True, "finite_slope": True}
_LOGARITHM: dict[str, Any] = {"exact": False, "cost": 25, "associative": True, "identity": -math.inf}
_COMMUTES: dict[str, Any] = {"commutative": ANY, "associative": True}

_row("add", 2, ANY, "add", bools="or", overflows=True, vjp=(lambda d, g: g, lambda d, g: g), finite_slope=True, **_COMMUTES)
_row("subtract", 2, NUMERIC, "sub", overflows=True, vjp=(lambda d, g: g, lambda d, g: -g), finite_slope=True)
_FACTORS = (lambda d, g: g * d.y.conj, lambda d, g: g * d.x.conj)
_row("multiply", 2, ANY, "mul", bools="and", overflows=True, vjp=_FACTORS, **_COMMUTES)
_row("divide", 2, INEXACT, "div", vjp=(lambda d, g: g / d.y.conj, lambda d, g: -(g / d.y.conj) * d.out.conj))
_row("floor_divide", 2, REAL_NUMERIC, "floordiv", divides=True, vjp=flat)
_row("remainder", 2, REAL_NUMERIC, cost=12, divides=True, vjp=lambda d, g: (g, -g * d.x.call("floor_divide", d.y)))
_row("fmod", 2, REAL_NUMERIC, cost=12, facts={"cuda": "fmod"}, divides=True, vjp=lambda d, g: (g, -g * (d.x / d.y).call("trunc")))
_row("power", 2, INEXACT, "pow", exact=False, domain=(0.1, 3.0), vjp=(_power_by_base, _power_by_exponent))
_row(
    "power_int",
    2,
    INTEGER,
    "pow_int",
    domain=(0.0, 9.0),
    overflows=True,
    eager=lambda xp, x, exponent: xp.power(x, nonnegative(xp, exponent)),
    doc="products wrap; exponents must not be negative, which graphs check: what is given for these is any number",
)
_row("negative", 1, NUMERIC, "neg", overflows=True, vjp=lambda d, g: (-g,), finite_slope=True)
_row("absolute", 1, ANY, "abs", unchanged="bu", overflows=True, result=to_real, vjp=_absolute_vjp)
_row("sign", 1, NUMERIC, cost=2, facts={"keeps_halves": True}, vjp=_sign_vjp)
define("reciprocal", 1, cost=4, domain=COMPLEX)
_row(
    "reciprocal",
    1,
    NUMERIC,
    _reciprocal,
    cost=4,
    divides=True,
    vjp=_reciprocal_vjp,
    doc="of integers by way of float64; that of 0 is the machine's affair",
)
_row("square", 1, NUMERIC, lambda x: call("mul", x, x), overflows=True, vjp=lambda d, g: (g * d.x.conj * 2,))
# NumPy's propagate NaN, and the order of their operands tells which of two zeros of different sign is taken
_row("maximum", 2, ANY, bools="or", facts={"atomic": "max", "keeps_halves": True, "chooses": True}, **_EXTREME)
_row("minimum", 2, ANY, bools="and", facts={"atomic": "min", "keeps_halves": True, "chooses": True}, **_EXTREME)
# only floats and complex numbers have NaN to ignore
_row("fmax", 2, ANY, bools="or", integers="maximum", facts={"keeps_halves": True, "chooses": True}, identity=math.nan, **_EXTREME)
_row("fmin", 2, ANY, bools="and", integers="minimum", facts={"keeps_halves": True, "chooses": True}, identity=math.nan, **_EXTREME)
_row("copysign", 2, FLOAT, facts={"builtin": "copysign", "keeps_halves": True}, vjp=_copysign_vjp)
_row("nextafter", 2, FLOAT, cost=10, facts={"cuda": "nextafter"}, cupy=False)
_row("hypot", 2, FLOAT, cost=10, facts={"cuda": "hypot"}, exact=False, vjp=_hypot_vjp, associative=True, identity=0.0)
_row("arctan2", 2, FLOAT, cost=20, facts={"cuda": "atan2"}, exact=False, vjp=_arctan2_vjp)
_row("logaddexp", 2, FLOAT, vjp=_shares("exp"), **_LOGARITHM)
_row("logaddexp2", 2, FLOAT, vjp=_shares("exp2"), **_LOGARITHM)


_row("gcd", 2, INTEGER, cost=60, associative=True, identity=0, cupy=False)
_row("lcm", 2, INTEGER, cost=70, cupy=False)

FARTHEST = 5000  # an exponent beyond takes every float64 to zero or infinity


def _ldexp_dtype(metas: Metas, attrs: Attrs) -> DType:
    if metas[1].dtype is not dtypes.int64:
        raise DTypeError(f"ldexp: the exponent must be int64, got {metas[1].dtype}; cast it first")
    return check_kind("ldexp", metas[0].dtype, FLOAT)


def _ldexp(x: Expr, exponent: Expr) -> Expr:
    near = call("minimum", call("maximum", exponent, const(-FARTHEST, dtypes.int64)), const(FARTHEST, dtypes.int64))
    return call("ldexp", x, cast(near, x.dtype))


define("ldexp", 2, cost=10, domain=FLOAT)  # the second is a whole number
define_op(
    "ldexp",
    arity=2,
    kinds=FLOAT,
    cost=10,
    cupy=False,
    dtype=_ldexp_dtype,
    shape=broadcast("ldexp"),
    eager=_eager("ldexp"),
    lowering=Elementwise(_ldexp),
    exact=True,
    vjp=lambda d, g: (g.call("ldexp", d.y), None),
    doc="x * 2**exponent, with one rounding; the exponent is int64",
)


def _to(target: DType) -> Any:
    """The rule of a result of one dtype, whatever the operands are."""

    def of(name: str, kinds: str) -> Callable[[Metas, Attrs], DType]:
        def rule(metas: Metas, attrs: Attrs) -> DType:
            check_kind(name, one_dtype(name, metas), kinds)
            return target

        return rule

    return of


_row(
    "frexp_mantissa",
    1,
    FLOAT,
    cost=10,
    cupy=False,
    eager=lambda xp, x: xp.frexp(x)[0],
    vjp=lambda d, g: (g.call("ldexp", -d.x.call("frexp_exponent").cast(dtypes.int64)),),
)
define("frexp_exponent", 1, cost=10, domain=FLOAT)
_row(
    "frexp_exponent",
    1,
    FLOAT,
    cost=10,
    cupy=False,
    expr=lambda x: cast(call("frexp_exponent", x), dtypes.int32),
    result=_to(dtypes.int32),
    eager=lambda xp, x: xp.frexp(x)[1],
)


def _bit_count(x: Expr) -> Expr:
    """Of the magnitude: pairs, then nibbles, then bytes are summed side by side."""
    x = cast(call("abs", cast(x, dtypes.int64)), dtypes.uint64) if x.dtype.kind == "i" else cast(x, dtypes.uint64)

    def masked(x: Expr, shift: int, mask: int) -> Expr:
        return call("and", call("shr", x, const(shift, x.dtype)), const(mask, x.dtype))

    ones, pairs, nibbles = 0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F
    x = call("sub", x, masked(x, 1, ones))
    x = call("add", masked(x, 0, pairs), masked(x, 2, pairs))
    x = call("and", call("add", x, call("shr", x, const(4, x.dtype))), const(nibbles, x.dtype))
    return cast(call("shr", call("mul", x, const(0x0101010101010101, x.dtype)), const(56, x.dtype)), dtypes.uint8)


_row("bitwise_count", 1, INTEGER, _bit_count, cost=12, result=_to(dtypes.uint8), cupy=False)


def _heaviside(x: Expr, at_zero: Expr) -> Expr:
    zero, one, nan = (const(v, x.dtype) for v in (0.0, 1.0, math.nan))
    known = call("select", call("lt", x, zero), zero, call("select", call("isnan", x), nan, one))
    return call("select", call("eq", x, zero), at_zero, known)


_row("heaviside", 2, FLOAT, _heaviside, vjp=lambda d, g: (None, g.where(d.x.equals(0), 0)))


def _spacing(x: Expr) -> Expr:
    """How far the next number away from zero is, of float16 the next greater one; -0.0 counts as 0.0, but in ml_dtypes."""
    zero, inf, nan = (const(v, x.dtype) for v in (0.0, math.inf, math.nan))
    if x.dtype is not dtypes.bfloat16:
        x = call("select", call("eq", x, zero), zero, x)
    end = inf if x.dtype is dtypes.float16 else call("copysign", inf, x)
    return call("select", call("isinf", x), nan, call("sub", call("nextafter", x, end), x))


_row("spacing", 1, FLOAT, _spacing, cost=12, cupy=False)

# -- parts of complex numbers -----------------------------------------------------------------------------------------

def _imag_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (g.full(0, ()).call("complex", g),)


_row("conjugate", 1, COMPLEX, "conj", vjp=lambda d, g: (g.conj,), finite_slope=True)
_row("real", 1, COMPLEX, cost=0, result=to_real, part=0, vjp=lambda d, g: (g.cast(d.x.dtype),), finite_slope=True)
_row("imag", 1, COMPLEX, cost=0, result=to_real, part=1, vjp=_imag_vjp, finite_slope=True)


def _complex(xp: Any, real: Any, imag: Any) -> Any:
    result = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imag
    return result


_row(
    "complex",
    2,
    FLOAT,
    cost=0,
    result=to_complex,
    cupy=False,
    finite_slope=True,
    eager=_complex,
    vjp=lambda d, g: (g.real, g.imag),
    doc="of a real and an imaginary part",
)

# -- roots, exponentials, logarithms, trigonometry -------------------------------------------------------------------

_row("sqrt", 1, INEXACT, cost=4, facts={"builtin": "sqrt"}, domain=(0.0, 10.0), vjp=_sqrt_vjp)


def _transcendental(
    name: str, domain: tuple[float, float], cost: int, slope: Slope, kinds: str = INEXACT, cuda: str = "", **row: Any
) -> None:
    """Of one operand, not rounded correctly.  CUDA has them all, some by another name."""
    _row(name, 1, kinds, cost=cost, facts={"cuda": cuda or name}, exact=False, domain=domain, slope=slope, **row)


_transcendental("cbrt", (-10.0, 10.0), 15, lambda d: (d.out * d.out * 3).call("reciprocal"), kinds=FLOAT)
_transcendental("exp", (-10.0, 10.0), 10, lambda d: d.out)
_transcendental("exp2", (-10.0, 10.0), 10, lambda d: d.out * math.log(2))
_transcendental("expm1", (-5.0, 5.0), 14, lambda d: d.out + 1)
_transcendental("log", (0.01, 10.0), 12, lambda d: d.x.call("reciprocal"))
_transcendental("log2", (0.01, 10.0), 14, lambda d: (d.x * math.log(2)).call("reciprocal"))
_transcendental("log10", (0.01, 10.0), 14, lambda d: (d.x * math.log(10)).call("reciprocal"))
_transcendental("log1p", (-0.9, 10.0), 14, lambda d: (d.x + 1).call("reciprocal"))
_transcendental("sin", (-10.0, 10.0), 14, lambda d: d.x.call("cos"))
_transcendental("cos", (-10.0, 10.0), 14, lambda d: -d.x.call("sin"))
_transcendental("tan", (-1.5, 1.5), 22, lambda d: d.out * d.out + 1)
_transcendental("arcsin", (-1.0, 1.0), 20, lambda d: (1 - d.x * d.x).call("sqrt").call("reciprocal"), cuda="asin")
_transcendental("arccos", (-1.0, 1.0), 20, lambda d: -(1 - d.x * d.x).call("sqrt").call("reciprocal"), cuda="acos")
_transcendental("arctan", (-10.0, 10.0), 18, lambda d: (d.x * d.x + 1).call("reciprocal"), cuda="atan")
_transcendental("sinh", (-5.0, 5.0), 16, lambda d: d.x.call("cosh"))
_transcendental("cosh", (-5.0, 5.0), 16, lambda d: d.x.call("sinh"))
_transcendental("tanh", (-5.0, 5.0), 14, lambda d: 1 - d.out * d.out)
_transcendental("arcsinh", (-10.0, 10.0), 22, lambda d: (d.x * d.x + 1).call("sqrt").call("reciprocal"), cuda="asinh")
_transcendental(
    "arccosh", (1.0, 10.0), 22, lambda d: ((d.x - 1).call("sqrt") * (d.x + 1).call("sqrt")).call("reciprocal"), cuda="acosh",
)
_transcendental("arctanh", (-0.95, 0.95), 20, lambda d: (1 - d.x * d.x).call("reciprocal"), cuda="atanh")

_erf_of_array = np.vectorize(math.erf, otypes=[np.float64])


def _erf(xp: Any, x: Any) -> Any:
    """NumPy has no erf: Python's, in float64, element by element.  CuPy's stands in a package of its own."""
    if xp is np:
        return _erf_of_array(x).astype(x.dtype)
    return importlib.import_module(f"{xp.__name__}x.scipy.special").erf(x)


_transcendental(
    "erf", (-3.0, 3.0), 20, lambda d: (-d.x * d.x).call("exp") * (2 / math.sqrt(math.pi)), kinds=FLOAT, eager=_erf, cupy=False
)

# -- rounding --------------------------------------------------------------------------------------------------------

for _name in ("floor", "ceil", "trunc"):
    _row(
        _name,
        1,
        REAL,
        unchanged=BITS,
        facts={"builtin": _name, "keeps_halves": True},
        vjp=flat,
        rounds=True,
        doc="integers and bools are given back as they are",
    )
_row("rint", 1, INEXACT, facts={"builtin": "rint", "keeps_halves": True}, vjp=flat, rounds=True)

# -- comparisons and logic -------------------------------------------------------------------------------------------

_row("equal", 2, ANY, "eq", result=to_bool, commutative=ANY)
_row("not_equal", 2, ANY, "ne", result=to_bool, commutative=ANY)
_row("less", 2, ANY, "lt", result=to_bool)
_row("less_equal", 2, ANY, "le", result=to_bool)
_row("greater", 2, ANY, "gt", result=to_bool)
_row("greater_equal", 2, ANY, "ge", result=to_bool)
_NEUTRAL: dict[str, tuple[Any, ...]] = {"and": (True, -1), "or": (False, 0), "xor": (False, 0)}
_ABSORBING: dict[str, tuple[Any, ...]] = {"and": (False, 0), "or": (True, -1), "xor": ()}
for _function in _NEUTRAL:
    _logic: dict[str, Any] = {**_COMMUTES, "idempotent": _function != "xor"}
    _neutral, _absorbing = _NEUTRAL[_function], _ABSORBING[_function]
    _row(f"bitwise_{_function}", 2, BITS, _function, neutral=_neutral, absorbing=_absorbing, **_logic)
    _row(f"logical_{_function}", 2, BOOL, _function, result=to_bool, neutral=_neutral[:1], absorbing=_absorbing[:1], **_logic)
_row("logical_not", 1, BOOL, "not", result=to_bool)
define("invert", 1, domain=BITS)  # ~ of integers
_row("invert", 1, BITS, "invert", bools="not")
_row("left_shift", 2, INTEGER, "shl", domain=(0.0, 9.0), neutral=(0,))
_row("right_shift", 2, INTEGER, "shr", domain=(0.0, 9.0), neutral=(0,))
for _name in ("isnan", "isinf", "isfinite"):
    _row(_name, 1, INEXACT, result=to_bool)
_row("signbit", 1, FLOAT, result=to_bool)

# -- select and cast -------------------------------------------------------------------------------------------------


def _where_dtype(metas: Metas, attrs: Attrs) -> DType:
    if not metas[0].dtype.is_bool:
        raise DTypeError(f"where: the condition must be bool, got {metas[0].dtype}; compare it with 0 first")
    return one_dtype("where", metas[1:])


def _where(xp: Any, condition: Any, a: Any, b: Any) -> Any:
    """Of two arrays of one dtype, and of that dtype: CuPy has no loop for bfloat16, and gives float32."""
    chosen = (where if xp is np else xp.where)(condition, a, b)
    return chosen if chosen.dtype == a.dtype or a.dtype != b.dtype else chosen.astype(a.dtype)


define_op(
    "where",
    arity=3,
    dtype=_where_dtype,
    shape=broadcast("where"),
    eager=_where,
    lowering=Elementwise(lambda condition, a, b: call("select", condition, a, b)),
    vjp=lambda d, g: (None, g.where(d.x, 0), g.full(0, ()).where(d.x, g)),
    finite_slope=True,
    exact=True,
)


def _cast_dtype(metas: Metas, attrs: Attrs) -> DType:
    target = attrs["dtype"]
    if not isinstance(target, DType):
        raise DTypeError(
            f"cast: dtype must be one of the IR's ({', '.join(d.name for d in dtypes.KNOWN)}), got {target!r}"
        )
    if metas[0].dtype.is_complex and not (target.is_complex or target.is_bool):
        raise DTypeError(f"cast: of complex numbers to {target}: take the real part")
    return target


def _same_shape(metas: tuple[Meta, ...], attrs: Attrs) -> Shape:
    return metas[0].shape


define_op(
    "cast",
    arity=1,
    attrs={"dtype": REQUIRED},
    dtype=_cast_dtype,
    shape=_same_shape,
    eager=lambda xp, x, dtype: x.astype(dtype.numpy),
    lowering=Elementwise(lambda x, dtype: cast(x, dtype)),
    vjp=lambda d, g: (g,),
    finite_slope=True,
    exact=True,
    doc="NumPy's astype; floats outside an integer's range give what NumPy gives on the machine",
)
