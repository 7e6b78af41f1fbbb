"""Elementwise operators of ONNX, activations among them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from dynagraph import torch
from dynagraph.torch.nn import functional as F
from dynagraph.torch.onnx.operators.registry import OPERATORS, Operator, of_numbers, operator
from dynagraph.torch.onnx.operators.types import dtype_of

SAME: dict[str, Callable[..., Any]] = {  # the same function by another name
    "Abs": torch.abs, "Neg": torch.neg, "Sqrt": torch.sqrt, "Exp": torch.exp, "Log": torch.log, "Sin": torch.sin, "Cos": torch.cos,
    "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh,
    "Tanh": torch.tanh, "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh, "Erf": torch.erf, "Sign": torch.sign,
    "Reciprocal": torch.reciprocal, "IsNaN": torch.isnan, "Not": torch.logical_not, "Relu": torch.relu, "Sigmoid": torch.sigmoid,
    "Softplus": F.softplus, "Softsign": F.softsign, "BitwiseNot": torch.bitwise_not, "Mish": F.mish, "HardSwish": F.hardswish,
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "And": torch.logical_and, "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq, "Less": torch.lt, "LessOrEqual": torch.le, "Greater": torch.gt, "GreaterOrEqual": torch.ge,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor, "Where": torch.where,
    "MatMul": torch.matmul, "Det": torch.det, "Ceil": torch.ceil, "Floor": torch.floor, "Round": torch.round,
}  # fmt: skip
for _name, _function in SAME.items():
    OPERATORS[_name] = Operator(_function, ())


@operator("Identity", host=None)
def identity(x: Any) -> Any:
    return x


@operator("Div")
def div(x: Any, y: Any) -> Any:
    """Quotients of integers are truncated."""
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@operator("Mod")
def mod(x: Any, y: Any, fmod: int = 0) -> Any:
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@operator("Pow")
def power(x: Any, y: Any) -> Any:
    """Of the type of the base."""
    if x.dtype == y.dtype:
        return torch.pow(x, y)
    if x.is_floating_point():
        return torch.pow(x, y.to(x.dtype) if not y.is_floating_point() else y).to(x.dtype)
    return torch.pow(x.to(y.dtype), y).to(x.dtype) if y.is_floating_point() else torch.pow(x, y.to(x.dtype))


@operator("BitShift")
def bit_shift(x: Any, count: Any, direction: str = "LEFT") -> Any:
    return torch.bitwise_left_shift(x, count) if direction == "LEFT" else torch.bitwise_right_shift(x, count)


@operator("IsInf")
def isinf(x: Any, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    if detect_negative and detect_positive:
        return torch.isinf(x)
    wanted = -math.inf if detect_negative else math.inf
    return x == wanted if detect_negative or detect_positive else torch.zeros_like(x, dtype=torch.bool)


def _folded(name: str, function: Callable[..., Any]) -> None:
    @operator(name)
    def folded(*operands: Any) -> Any:
        return functools.reduce(function, operands)


for _name, _function in (("Max", torch.maximum), ("Min", torch.minimum), ("Sum", torch.add)):
    _folded(_name, _function)


@operator("Mean")
def mean_of(*operands: Any) -> Any:
    return functools.reduce(torch.add, operands) / len(operands)


@operator("Cast")
def cast(x: Any, to: int = 1, saturate: int = 1, round_mode: str = "up") -> Any:
    return x.to(dtype_of(to))


@operator("CastLike")
def cast_like(x: Any, like: Any, saturate: int = 1, round_mode: str = "up") -> Any:
    return x.to(like.dtype)


@operator("Clip")
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


# -- activations ------------------------------------------------------------------------------------------------------------------


@operator("Elu")
def elu(x: Any, alpha: float = 1.0) -> Any:
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Any, alpha: float = 1.0) -> Any:
    return F.celu(x, alpha)


@operator("Selu")
def selu(x: Any, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Any:
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(torch.minimum(x, torch.zeros_like(x))) - 1))


@operator("LeakyRelu")
def leaky_relu(x: Any, alpha: float = 0.01) -> Any:
    return F.leaky_relu(x, alpha)


@operator("PRelu")
def prelu(x: Any, slope: Any) -> Any:
    return torch.where(x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Any, alpha: float = 1.0) -> Any:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("HardSigmoid")
def hard_sigmoid(x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return torch.clamp(alpha * x + beta, 0, 1)


@operator("Gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def swish(x: Any, alpha: float = 1.0) -> Any:
    return x * torch.sigmoid(alpha * x)


@operator("Shrink")
def shrink(x: Any, bias: float = 0.0, lambd: float = 0.5) -> Any:
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero))


# -- numbers of the host's --------------------------------------------------------------------------------------------------------


def _each(name: str, function: Callable[[int, int], Any]) -> None:
    @of_numbers(name)
    def compute(x: Any, y: Any, **attributes: Any) -> Any:
        if attributes:
            return NotImplemented
        if type(x) is int and type(y) is int:
            return function(x, y)
        n = len(y if type(x) is int else x)
        left, right = ((v,) * n if type(v) is int else v for v in (x, y))
        if len(left) == 1:
            left = left * len(right)
        if len(right) == 1:
            right = right * len(left)
        return tuple([function(a, b) for a, b in zip(left, right)])


def _truncated(x: int, y: int) -> int:
    return x // y if (x >= 0) == (y > 0) else -(-x // y)


for _name, _each_function in (
    ("Add", lambda a, b: a + b), ("Sub", lambda a, b: a - b), ("Mul", lambda a, b: a * b), ("Div", _truncated),
    ("Mod", lambda a, b: a % b), ("Max", lambda a, b: max(a, b)), ("Min", lambda a, b: min(a, b)),
):  # fmt: skip
    _each(_name, _each_function)


@of_numbers("Neg")
def _negative(x: Any) -> Any:
    return -x if type(x) is int else tuple([-v for v in x])


@of_numbers("Cast")
def _cast_number(x: Any, to: int = 1, **attributes: Any) -> Any:
    return x if to == 7 else NotImplemented


__all__: list[str] = []
