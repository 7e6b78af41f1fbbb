"""Elementwise ops in ONNX: most have an operator by another name."""

from __future__ import annotations

import math

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.onnx.writer import ROWS, NoOperator, Writer, row

ROWS |= {
    "power": "Pow", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin",
    "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "arcsinh": "Asinh", "arccosh": "Acosh",
    "arctanh": "Atanh", "erf": "Erf", "negative": "Neg", "isnan": "IsNaN", "isinf": "IsInf", "where": "Where", "matmul": "MatMul",
    "own_matmul": "MatMul",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not", "power_int": "Pow", "subtract": "Sub",
    "divide": "Div", "sign": "Sign",
}  # fmt: skip


def _by_kind(name: str, numbers: str, bools: str) -> None:
    """NumPy's arithmetic of bools is logic."""

    @row(name)
    def write(w: Writer, node: Node, *operands: str) -> str:
        return w.op(bools if node.args[0].dtype.is_bool else numbers, *operands)


for _name, _numbers, _bools in (
    ("add", "Add", "Or"), ("multiply", "Mul", "And"), ("maximum", "Max", "Or"), ("minimum", "Min", "And"),
    ("bitwise_and", "BitwiseAnd", "And"), ("bitwise_or", "BitwiseOr", "Or"), ("bitwise_xor", "BitwiseXor", "Xor"),
    ("invert", "BitwiseNot", "Not"),
):  # fmt: skip
    _by_kind(_name, _numbers, _bools)


def _comparison(name: str, operator: str, negated: bool = False) -> None:
    @row(name)
    def write(w: Writer, node: Node, x: str, y: str) -> str:
        if node.args[0].dtype.is_bool and operator != "Equal":
            x, y = w.cast(x, dtypes.int32), w.cast(y, dtypes.int32)
        answer = w.op(operator, x, y)
        return w.op("Not", answer) if negated else answer


for _name, _operator in (
    ("equal", "Equal"), ("less", "Less"), ("less_equal", "LessOrEqual"), ("greater", "Greater"),
    ("greater_equal", "GreaterOrEqual"),
):  # fmt: skip
    _comparison(_name, _operator)
_comparison("not_equal", "Equal", negated=True)


@row("absolute")
def _absolute(w: Writer, node: Node, x: str) -> str:
    return x if node.dtype.kind in "bu" else w.op("Abs", x)


@row("cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    if node.dtype.is_complex or node.args[0].dtype.is_complex:
        raise NoOperator(f"cast of {node.args[0].dtype} to {node.dtype}")
    return w.cast(x, node.dtype)


@row("square")
def _square(w: Writer, node: Node, x: str) -> str:
    return w.op("Mul", x, x)


@row("reciprocal")
def _reciprocal(w: Writer, node: Node, x: str) -> str:
    if not node.dtype.is_float:
        raise NoOperator(f"reciprocal of {node.dtype}")
    return w.op("Reciprocal", x)


def _rounding(name: str, operator: str) -> None:
    """Integers are whole as they are."""

    @row(name)
    def write(w: Writer, node: Node, x: str) -> str:
        return w.op(operator, x) if node.dtype.is_float else x


for _name, _operator in (("floor", "Floor"), ("ceil", "Ceil"), ("rint", "Round")):
    _rounding(_name, _operator)


@row("trunc")
def _trunc(w: Writer, node: Node, x: str) -> str:
    if not node.dtype.is_float:
        return x
    return w.op("Where", w.op("Less", x, w.scalar(0, node.dtype)), w.op("Ceil", x), w.op("Floor", x))


@row("remainder")
def _remainder(w: Writer, node: Node, x: str, y: str) -> str:
    """With the sign of the divisor: that of integers ONNX has itself."""
    if not node.dtype.is_float:
        return w.op("Mod", x, y)
    zero, rest = w.scalar(0, node.dtype), w.op("Mod", x, y, fmod=1)
    other_sign = w.op("Xor", w.op("Less", rest, zero), w.op("Less", y, zero))
    wrong = w.op("And", w.op("Not", w.op("Equal", rest, zero)), other_sign)
    return w.op("Where", wrong, w.op("Add", rest, y), rest)


@row("fmod")
def _fmod(w: Writer, node: Node, x: str, y: str) -> str:
    return w.op("Mod", x, y, fmod=1)


@row("floor_divide")
def _floor_divide(w: Writer, node: Node, x: str, y: str) -> str:
    """Div truncates integers: without the remainder there is nothing to truncate."""
    whole = w.op("Div", w.op("Sub", x, _remainder(w, node, x, y)), y)
    return w.op("Round", whole) if node.dtype.is_float else whole


def _number_ignoring(name: str, operator: str) -> None:
    """NaN only where both are."""

    @row(name)
    def write(w: Writer, node: Node, x: str, y: str) -> str:
        if node.dtype.is_bool:
            return w.op("Or" if operator == "Max" else "And", x, y)
        if not node.dtype.is_float:
            return w.op(operator, x, y)
        return w.op("Where", w.op("IsNaN", x), y, w.op("Where", w.op("IsNaN", y), x, w.op(operator, x, y)))


_number_ignoring("fmax", "Max")
_number_ignoring("fmin", "Min")


@row("isfinite")
def _isfinite(w: Writer, node: Node, x: str) -> str:
    return w.op("Not", w.op("Or", w.op("IsNaN", x), w.op("IsInf", x)))


@row("signbit")
def _signbit(w: Writer, node: Node, x: str) -> str:
    """A negative zero is told by its reciprocal."""
    zero = w.scalar(0, node.args[0].dtype)
    return w.op("Or", w.op("Less", x, zero), w.op("Less", w.op("Reciprocal", x), zero))


@row("copysign")
def _copysign(w: Writer, node: Node, x: str, y: str) -> str:
    zero, size = w.scalar(0, node.dtype), w.op("Abs", x)
    negative = w.op("Or", w.op("Less", y, zero), w.op("Less", w.op("Reciprocal", y), zero))
    return w.op("Where", negative, w.op("Neg", size), size)


@row("hypot")
def _hypot(w: Writer, node: Node, x: str, y: str) -> str:
    return w.op("Sqrt", w.op("Add", w.op("Mul", x, x), w.op("Mul", y, y)))


@row("arctan2")
def _arctan2(w: Writer, node: Node, y: str, x: str) -> str:
    """The angle of x > 0, turned by half a turn towards y where x is not."""
    zero = w.scalar(0, node.dtype)
    angle = w.op("Atan", w.op("Div", y, x))
    half_turn = w.op("Where", w.op("Less", y, zero), w.scalar(-math.pi, node.dtype), w.scalar(math.pi, node.dtype))
    turned = w.op("Where", w.op("Less", x, zero), w.op("Add", angle, half_turn), angle)
    upright = w.op("Div", half_turn, w.scalar(2, node.dtype))
    there = w.op("Where", w.op("Equal", x, zero), upright, turned)
    at_origin = w.op("Where", w.op("Less", w.op("Reciprocal", x), zero), half_turn, y)
    return w.op("Where", w.op("And", w.op("Equal", x, zero), w.op("Equal", y, zero)), at_origin, there)


def _logarithm_of_sum(w: Writer, dtype: DType, x: str, y: str, base: float) -> str:
    most, apart = w.op("Max", x, y), w.op("Neg", w.op("Abs", w.op("Sub", x, y)))
    factor = w.scalar(math.log(base), dtype)
    more = w.op("Log", w.op("Add", w.scalar(1, dtype), w.op("Exp", w.op("Mul", apart, factor))))
    total = w.op("Add", most, w.op("Div", more, factor))
    return w.op("Where", w.op("Equal", x, y), w.op("Add", x, w.scalar(math.log(2) / math.log(base), dtype)), total)  # infinities


@row("logaddexp")
def _logaddexp(w: Writer, node: Node, x: str, y: str) -> str:
    return _logarithm_of_sum(w, node.dtype, x, y, math.e)


@row("logaddexp2")
def _logaddexp2(w: Writer, node: Node, x: str, y: str) -> str:
    return _logarithm_of_sum(w, node.dtype, x, y, 2.0)


@row("exp2")
def _exp2(w: Writer, node: Node, x: str) -> str:
    return w.op("Pow", w.scalar(2, node.dtype), x)


@row("expm1")
def _expm1(w: Writer, node: Node, x: str) -> str:
    """By the hyperbolic tangent, which is exact near zero: 2t / (1 - t) of half of x; of large x plainly."""
    half = w.op("Tanh", w.op("Mul", x, w.scalar(0.5, node.dtype)))
    one = w.scalar(1, node.dtype)
    near = w.op("Div", w.op("Mul", half, w.scalar(2, node.dtype)), w.op("Sub", one, half))
    is_near = w.op("Less", w.op("Abs", x), one)
    return w.op("Where", is_near, near, w.op("Sub", w.op("Exp", x), one))


@row("log1p")
def _log1p(w: Writer, node: Node, x: str) -> str:
    """log(u) * x / (u - 1) of u = 1 + x takes out what the sum has rounded away."""
    one = w.scalar(1, node.dtype)
    total = w.op("Add", x, one)
    lost = w.op("Sub", total, one)
    plain = w.op("Log", total)
    exact = w.op("Mul", plain, w.op("Div", x, lost))
    is_plain = w.op("Or", w.op("Equal", lost, x), w.op("IsInf", total))
    return w.op("Where", w.op("Equal", lost, w.scalar(0, node.dtype)), x, w.op("Where", is_plain, plain, exact))


def _log_by(name: str, base: float) -> None:
    @row(name)
    def write(w: Writer, node: Node, x: str) -> str:
        return w.op("Div", w.op("Log", x), w.scalar(math.log(base), node.dtype))


_log_by("log2", 2.0)
_log_by("log10", 10.0)


@row("cbrt")
def _cbrt(w: Writer, node: Node, x: str) -> str:
    return w.op("Mul", w.op("Sign", x), w.op("Pow", w.op("Abs", x), w.scalar(1 / 3, node.dtype)))


@row("ldexp")
def _ldexp(w: Writer, node: Node, x: str, exponent: str) -> str:
    return w.op("Mul", x, w.op("Pow", w.scalar(2, node.dtype), w.cast(exponent, node.dtype)))


@row("heaviside")
def _heaviside(w: Writer, node: Node, x: str, at_zero: str) -> str:
    zero = w.scalar(0, node.dtype)
    step = w.op("Where", w.op("IsNaN", x), x, w.cast(w.op("Greater", x, zero), node.dtype))
    return w.op("Where", w.op("Equal", x, zero), at_zero, step)


@row("left_shift")
def _left_shift(w: Writer, node: Node, x: str, count: str) -> str:
    if node.dtype.kind == "u":
        return w.op("BitShift", x, count, direction="LEFT")
    return w.op("Mul", x, w.op("Pow", w.scalar(2, node.dtype), count))


@row("right_shift")
def _right_shift(w: Writer, node: Node, x: str, count: str) -> str:
    if node.dtype.kind == "u":
        return w.op("BitShift", x, count, direction="RIGHT")
    return _floor_divide(w, node, x, w.op("Pow", w.scalar(2, node.dtype), count))


@row("copy", "variable", "stop_gradient", "optimization_barrier")
def _same(w: Writer, node: Node, x: str) -> str:
    return x


__all__: list[str] = []
