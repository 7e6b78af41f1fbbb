"""Rows of elementwise ops: a scalar expression of the operands at each point.

`eager` is NumPy's own function, so NumPy defines what is right; where C and NumPy differ (NaN, zero divisors, wide
shifts) the scalar functions of `ir/expr.py` carry NumPy's meaning.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, call, cast, const
from dynagraph.ir.graph import Meta, Node
from dynagraph.ir.ops import REQUIRED, VJP, Attrs, Elementwise, Metas, define_op
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


def _eager(numpy_name: str) -> Callable[..., Any]:
    return lambda xp, *operands: getattr(xp, numpy_name)(*operands)


def _scalar(function: str) -> Callable[..., Expr]:
    return lambda *operands: call(function, *operands)


def _row(
    name: str,
    arity: int,
    kinds: str,
    expr: Callable[..., Expr],
    *,
    result: Any = same_dtype,
    exact: bool = True,
    domain: tuple[float, float] = (-3.0, 3.0),
    eager: Callable[..., Any] | None = None,
    part: int | None = None,
    vjp: VJP | None = None,
    doc: str = "",
) -> None:
    define_op(
        name,
        arity=arity,
        vjp=vjp,
        dtype=result(name, kinds),
        shape=broadcast(name),
        eager=eager or _eager(name),
        lowering=Elementwise(expr, part),
        exact=exact,
        domain=domain,
        doc=doc,
    )


# -- arithmetic -----------------------------------------------------------------------------------------------------


def _or_on_bools(bool_function: str, function: str) -> Callable[..., Expr]:
    """NumPy's arithmetic of bools is logic."""
    return lambda a, b: call(bool_function if a.dtype.is_bool else function, a, b)


def _fmax_fmin(bool_function: str, integer_function: str, float_function: str) -> Callable[..., Expr]:
    """Only floats and complex numbers have NaN to ignore."""

    def expr(a: Expr, b: Expr) -> Expr:
        if a.dtype.is_bool:
            return call(bool_function, a, b)
        return call(float_function if a.dtype.is_inexact else integer_function, a, b)

    return expr


def _unless(kinds: str, function: str) -> Callable[[Expr], Expr]:
    """The function; on dtypes of `kinds` it changes nothing."""
    return lambda x: x if x.dtype.kind in kinds else call(function, x)


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


def _power_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    """By the base zero where the exponent is, by the exponent zero where the base is: the other factor may be infinite."""
    by_base = (d.y * d.x.call("power", d.y - 1)).where(d.y.equals(0).call("logical_not"), 0)
    by_exponent = d.out * d.x.number(1).where(d.x.equals(0), d.x).call("log")
    return g * by_base.conj, g * by_exponent.conj


def _extreme_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    """All to the operand that was chosen; halves where both are."""
    share = (g * 0.5).where(d.x.equals(d.y), g)
    return share.where(d.x.equals(d.out), 0), share.where(d.y.equals(d.out), 0)


def _reciprocal_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (-g * d.out.conj * d.out.conj,)


def _divide_vjp(d: Differentiated, g: Term) -> tuple[Term, Term]:
    by_x = g / d.y.conj
    return by_x, -by_x * d.out.conj


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


_row("add", 2, ANY, _or_on_bools("or", "add"), vjp=lambda d, g: (g, g))
_row("subtract", 2, NUMERIC, _scalar("sub"), vjp=lambda d, g: (g, -g))
_row("multiply", 2, ANY, _or_on_bools("and", "mul"), vjp=lambda d, g: (g * d.y.conj, g * d.x.conj))
_row("divide", 2, INEXACT, _scalar("div"), vjp=_divide_vjp)
_row("floor_divide", 2, REAL_NUMERIC, _scalar("floordiv"), vjp=flat)
_row("remainder", 2, REAL_NUMERIC, _scalar("remainder"), vjp=lambda d, g: (g, -g * d.x.call("floor_divide", d.y)))
_row("fmod", 2, REAL_NUMERIC, _scalar("fmod"), vjp=lambda d, g: (g, -g * (d.x / d.y).call("trunc")))
_row("power", 2, INEXACT, _scalar("pow"), exact=False, domain=(0.1, 3.0), vjp=_power_vjp)
_row(
    "power_int",
    2,
    INTEGER,
    _scalar("pow_int"),
    domain=(0.0, 9.0),
    eager=lambda xp, x, exponent: xp.power(x, nonnegative(xp, exponent)),
    doc="products wrap; exponents must not be negative, which graphs check: what is given for these is any number",
)
_row("negative", 1, NUMERIC, _scalar("neg"), vjp=lambda d, g: (-g,))
_row("absolute", 1, ANY, _unless("bu", "abs"), result=to_real, vjp=_absolute_vjp)
_row("sign", 1, NUMERIC, _scalar("sign"), vjp=_sign_vjp)
_row(
    "reciprocal",
    1,
    NUMERIC,
    _reciprocal,
    vjp=_reciprocal_vjp,
    doc="of integers by way of float64; that of 0 is the machine's affair",
)
_row("square", 1, NUMERIC, lambda x: call("mul", x, x), vjp=lambda d, g: (g * d.x.conj * 2,))
_row("maximum", 2, ANY, _or_on_bools("or", "maximum"), vjp=_extreme_vjp)
_row("minimum", 2, ANY, _or_on_bools("and", "minimum"), vjp=_extreme_vjp)
_row("fmax", 2, ANY, _fmax_fmin("or", "maximum", "fmax"), vjp=_extreme_vjp)
_row("fmin", 2, ANY, _fmax_fmin("and", "minimum", "fmin"), vjp=_extreme_vjp)
_row("copysign", 2, FLOAT, _scalar("copysign"), vjp=_copysign_vjp)
_row("nextafter", 2, FLOAT, _scalar("nextafter"))
_row("hypot", 2, FLOAT, _scalar("hypot"), exact=False, vjp=_hypot_vjp)
_row("arctan2", 2, FLOAT, _scalar("arctan2"), exact=False, vjp=_arctan2_vjp)
_row("logaddexp", 2, FLOAT, _scalar("logaddexp"), exact=False, vjp=_shares("exp"))
_row("logaddexp2", 2, FLOAT, _scalar("logaddexp2"), exact=False, vjp=_shares("exp2"))


_row("gcd", 2, INTEGER, _scalar("gcd"))
_row("lcm", 2, INTEGER, _scalar("lcm"))

FARTHEST = 5000  # an exponent beyond takes every float64 to zero or infinity


def _ldexp_dtype(metas: Metas, attrs: Attrs) -> DType:
    if metas[1].dtype is not dtypes.int64:
        raise DTypeError(f"ldexp: the exponent must be int64, got {metas[1].dtype}; cast it first")
    return check_kind("ldexp", metas[0].dtype, FLOAT)


def _ldexp(x: Expr, exponent: Expr) -> Expr:
    near = call("minimum", call("maximum", exponent, const(-FARTHEST, dtypes.int64)), const(FARTHEST, dtypes.int64))
    return call("ldexp", x, cast(near, x.dtype))


define_op(
    "ldexp",
    arity=2,
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
    _scalar("frexp_mantissa"),
    eager=lambda xp, x: xp.frexp(x)[0],
    vjp=lambda d, g: (g.call("ldexp", -d.x.call("frexp_exponent").cast(dtypes.int64)),),
)
_row(
    "frexp_exponent",
    1,
    FLOAT,
    lambda x: cast(call("frexp_exponent", x), dtypes.int32),
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


_row("bitwise_count", 1, INTEGER, _bit_count, result=_to(dtypes.uint8))


def _heaviside(x: Expr, at_zero: Expr) -> Expr:
    zero, one, nan = (const(v, x.dtype) for v in (0.0, 1.0, math.nan))
    known = call("select", call("lt", x, zero), zero, call("select", call("isnan", x), nan, one))
    return call("select", call("eq", x, zero), at_zero, known)


_row("heaviside", 2, FLOAT, _heaviside, vjp=lambda d, g: (None, g.where(d.x.equals(0), 0)))

# -- parts of complex numbers -----------------------------------------------------------------------------------------

def _imag_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (g.full(0, ()).call("complex", g),)


_row("conjugate", 1, COMPLEX, _scalar("conj"), vjp=lambda d, g: (g.conj,))
_row("real", 1, COMPLEX, _scalar("real"), result=to_real, part=0, vjp=lambda d, g: (g.cast(d.x.dtype),))
_row("imag", 1, COMPLEX, _scalar("imag"), result=to_real, part=1, vjp=_imag_vjp)


def _complex(xp: Any, real: Any, imag: Any) -> Any:
    result = xp.empty(xp.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imag
    return result


_row(
    "complex",
    2,
    FLOAT,
    _scalar("complex"),
    result=to_complex,
    eager=_complex,
    vjp=lambda d, g: (g.real, g.imag),
    doc="of a real and an imaginary part",
)

# -- roots, exponentials, logarithms, trigonometry -------------------------------------------------------------------

_row("sqrt", 1, INEXACT, _scalar("sqrt"), domain=(0.0, 10.0), vjp=_sqrt_vjp)

_TRANSCENDENTAL: dict[str, tuple[float, float]] = {
    "cbrt": (-10.0, 10.0), "exp": (-10.0, 10.0), "exp2": (-10.0, 10.0), "expm1": (-5.0, 5.0),
    "log": (0.01, 10.0), "log2": (0.01, 10.0), "log10": (0.01, 10.0), "log1p": (-0.9, 10.0),
    "sin": (-10.0, 10.0), "cos": (-10.0, 10.0), "tan": (-1.5, 1.5),
    "arcsin": (-1.0, 1.0), "arccos": (-1.0, 1.0), "arctan": (-10.0, 10.0),
    "sinh": (-5.0, 5.0), "cosh": (-5.0, 5.0), "tanh": (-5.0, 5.0),
    "arcsinh": (-10.0, 10.0), "arccosh": (1.0, 10.0), "arctanh": (-0.95, 0.95),
}  # fmt: skip
_SLOPES: dict[str, Callable[[Differentiated], Term]] = {  # d result / d operand
    "cbrt": lambda d: (d.out * d.out * 3).call("reciprocal"),
    "exp": lambda d: d.out,
    "exp2": lambda d: d.out * math.log(2),
    "expm1": lambda d: d.out + 1,
    "log": lambda d: d.x.call("reciprocal"),
    "log2": lambda d: (d.x * math.log(2)).call("reciprocal"),
    "log10": lambda d: (d.x * math.log(10)).call("reciprocal"),
    "log1p": lambda d: (d.x + 1).call("reciprocal"),
    "sin": lambda d: d.x.call("cos"),
    "cos": lambda d: -d.x.call("sin"),
    "tan": lambda d: d.out * d.out + 1,
    "arcsin": lambda d: (1 - d.x * d.x).call("sqrt").call("reciprocal"),
    "arccos": lambda d: -(1 - d.x * d.x).call("sqrt").call("reciprocal"),
    "arctan": lambda d: (d.x * d.x + 1).call("reciprocal"),
    "sinh": lambda d: d.x.call("cosh"),
    "cosh": lambda d: d.x.call("sinh"),
    "tanh": lambda d: 1 - d.out * d.out,
    "arcsinh": lambda d: (d.x * d.x + 1).call("sqrt").call("reciprocal"),
    "arccosh": lambda d: ((d.x - 1).call("sqrt") * (d.x + 1).call("sqrt")).call("reciprocal"),  # of complex numbers not one root
    "arctanh": lambda d: (1 - d.x * d.x).call("reciprocal"),
}


def _by_slope(name: str) -> VJP:
    return lambda d, g: (g * _SLOPES[name](d).conj,)


for _name, _domain in _TRANSCENDENTAL.items():
    _row(_name, 1, FLOAT if _name == "cbrt" else INEXACT, _scalar(_name), exact=False, domain=_domain, vjp=_by_slope(_name))

_erf_of_array = np.vectorize(math.erf, otypes=[np.float64])


def _erf(xp: Any, x: Any) -> Any:
    """NumPy has no erf: Python's, in float64, element by element.  CuPy's stands in a package of its own."""
    if xp is np:
        return _erf_of_array(x).astype(x.dtype)
    return importlib.import_module(f"{xp.__name__}x.scipy.special").erf(x)




def _erf_vjp(d: Differentiated, g: Term) -> tuple[Term]:
    return (g * (-d.x * d.x).call("exp") * (2 / math.sqrt(math.pi)),)


_row("erf", 1, FLOAT, _scalar("erf"), exact=False, eager=_erf, vjp=_erf_vjp)

# -- rounding --------------------------------------------------------------------------------------------------------

for _name in ("floor", "ceil", "trunc"):
    _row(_name, 1, REAL, _unless(BITS, _name), vjp=flat, doc="integers and bools are given back as they are")
_row("rint", 1, INEXACT, _scalar("rint"), vjp=flat)

# -- comparisons and logic -------------------------------------------------------------------------------------------

_COMPARISONS = {
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
_LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}

for _name, _function in _COMPARISONS.items():
    _row(_name, 2, ANY, _scalar(_function), result=to_bool)
for _name, _function in _LOGIC.items():
    _row(_name, 2, BOOL, _scalar(_function), result=to_bool)
_row("logical_not", 1, BOOL, _scalar("not"), result=to_bool)
for _name, _function in _BITWISE.items():
    _row(_name, 2, BITS, _scalar(_function))
_row("invert", 1, BITS, lambda x: call("not" if x.dtype.is_bool else "invert", x))
_row("left_shift", 2, INTEGER, _scalar("shl"), domain=(0.0, 9.0))
_row("right_shift", 2, INTEGER, _scalar("shr"), domain=(0.0, 9.0))
for _name in ("isnan", "isinf", "isfinite"):
    _row(_name, 1, INEXACT, _scalar(_name), result=to_bool)
_row("signbit", 1, FLOAT, _scalar("signbit"), result=to_bool)

# -- select and cast -------------------------------------------------------------------------------------------------


def _where_dtype(metas: Metas, attrs: Attrs) -> DType:
    if not metas[0].dtype.is_bool:
        raise DTypeError(f"where: the condition must be bool, got {metas[0].dtype}; compare it with 0 first")
    return one_dtype("where", metas[1:])


define_op(
    "where",
    arity=3,
    dtype=_where_dtype,
    shape=broadcast("where"),
    eager=lambda xp, condition, a, b: xp.where(condition, a, b),
    lowering=Elementwise(lambda condition, a, b: call("select", condition, a, b)),
    vjp=lambda d, g: (None, g.where(d.x, 0), g.full(0, ()).where(d.x, g)),
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
    exact=True,
    doc="NumPy's astype; floats outside an integer's range give what NumPy gives on the machine",
)
