"""Pointwise functions of one operand: elementary functions, rounding, parts of complex numbers."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, apply, view
from dynagraph.torch.functions.arithmetic import mul, pow, sub
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, floating, function, in_place, plain_forms, pointwise
from dynagraph.torch.functions.pointwise_primitives import CONJ_PHYSICAL, COPY


def _unary(name: str, p: str, kinds: str = "float", **forms: Any) -> None:
    """A function of one tensor.  `kinds`: "float" has integers as the default dtype first; "keep" leaves these as they are."""
    row = PRIMITIVES[p]

    def compute(input: Tensor) -> Tensor:
        x = check_tensor(input, name, "input")
        kind = x._array.dtype.kind
        if kind not in "fcV":
            if kinds == "float":
                x = cast(x, dtypes.get_default_dtype())
            elif kinds == "keep":
                return apply(COPY, x)
        elif kind == "c" and kinds == "keep":
            raise NotImplementedError(f"{'trunc' if name == 'fix' else name} is not supported for complex inputs")
        return apply(row, x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, element by element."
    function(name, inplace=True, out=True, **forms)(compute)




for _name, _row_name, _aliases in (
    ("exp", "exp", ()), ("exp2", "exp2", ()), ("expm1", "expm1", ()), ("log", "log", ()), ("log2", "log2", ()),
    ("log10", "log10", ()),
    ("log1p", "log1p", ()), ("sin", "sin", ()), ("cos", "cos", ()), ("tan", "tan", ()), ("asin", "arcsin", ("arcsin",)),
    ("acos", "arccos", ("arccos",)), ("atan", "arctan", ("arctan",)), ("sinh", "sinh", ()), ("cosh", "cosh", ()),
    ("tanh", "tanh", ()), ("asinh", "arcsinh", ("arcsinh",)), ("acosh", "arccosh", ("arccosh",)),
    ("atanh", "arctanh", ("arctanh",)),
    ("sqrt", "sqrt", ()), ("rsqrt", "rsqrt", ()), ("sigmoid", "sigmoid", ()), ("reciprocal", "reciprocal", ()),
):  # fmt: skip
    _unary(_name, _row_name, aliases=_aliases)
for _name, _row_name, _aliases in (("floor", "floor", ()), ("ceil", "ceil", ()), ("trunc", "trunc", ("fix",))):
    _unary(_name, _row_name, "keep", aliases=_aliases)
cos, sin, trunc = plain_forms("cos", "sin", "trunc")


@function(inplace=True, out=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest whole number, halves to the even one; with `decimals` to so many places."""
    x = check_tensor(input, "round", "input")
    if x._array.dtype.kind == "c" or (x._array.dtype.kind == "b" and decimals):
        raise NotImplementedError(f"\"round_vml_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    if x._array.dtype.kind not in "fV":
        return apply(COPY, x)
    return apply(PRIMITIVES["round_decimals"], x, decimals=decimals) if decimals else apply(PRIMITIVES["rint"], x)


@function(inplace=True, out=True, aliases=("negative",))
def neg(input: Tensor) -> Tensor:
    """With the other sign."""
    x = check_tensor(input, "neg", "input")
    if x._array.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead."
        )
    return apply(PRIMITIVES["negative"], x)


@function()
def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@function(out=True, aliases=("absolute",))
def abs(input: Tensor) -> Tensor:
    """The absolute value; of complex numbers a real one."""
    return apply(PRIMITIVES["absolute"], check_tensor(input, "abs", "input"))


def _abs_(self: Tensor) -> Tensor:
    """The absolute value, in place."""
    if self._array.dtype.kind == "c":
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return in_place(abs, "abs")(self)


Tensor.abs_ = Tensor.absolute_ = NAMESPACES["torch"]["abs_"] = NAMESPACES["torch"]["absolute_"] = _abs_


@function(inplace=True, out=True)
def sgn(input: Tensor) -> Tensor:
    """The sign; of a complex number its direction."""
    x = check_tensor(input, "sgn", "input")
    return apply(COPY, x) if x._array.dtype.kind == "b" else apply(PRIMITIVES["sgn"], x)


@function(inplace=True, out=True)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    x = check_tensor(input, "sign", "input")
    if x._array.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        )
    return apply(COPY, x) if x._array.dtype.kind == "b" else apply(PRIMITIVES["sgn"], x)


@function(inplace=True, out=True)
def frac(input: Tensor) -> Tensor:
    """What comes behind the point, with the number's sign."""
    return sub(input, trunc(input))


@function(inplace=True, out=True)
def square(input: Tensor) -> Tensor:
    """``input ** 2``."""
    return pow(input, 2)


@function(inplace=True, out=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    return mul(floating(_real(input, "deg2rad")), math.pi / 180)


@function(inplace=True, out=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    return mul(floating(_real(input, "rad2deg")), 180 / math.pi)


def _real(x: Tensor, who: str) -> Tensor:
    if x._array.dtype.kind == "c":
        raise RuntimeError(f"{who} is not supported for complex tensors.")
    return x


@function(inplace=True, out=True)
def nan_to_num(input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """With NaN and infinities replaced: by zero and the dtype's limits, unless others are given."""
    if input._array.dtype.kind not in "fcV":
        return apply(COPY, input)
    if input._array.dtype.kind == "c" and mode.grad and input.requires_grad:
        raise RuntimeError("nan_to_num does not support automatic differentiation for outputs with complex dtype.")
    return apply(PRIMITIVES["nan_to_num"], input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@function()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    return apply(PRIMITIVES["conjugate"], input) if input._array.dtype.kind == "c" else input


@function(out=True, inplace=True)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate in memory of its own; a real tensor itself."""
    return apply(CONJ_PHYSICAL, input) if input._array.dtype.kind == "c" else input


NAMESPACES["torch"]["resolve_conj"] = NAMESPACES["torch"]["resolve_neg"] = lambda input: input
Tensor.resolve_conj = Tensor.resolve_neg = lambda self: self  # type: ignore[attr-defined]
Tensor.is_conj = Tensor.is_neg = lambda self: False  # type: ignore[attr-defined]


@function(out=True)
def angle(input: Tensor) -> Tensor:
    """The angle of a complex number; of a real one 0 or pi."""
    return apply(PRIMITIVES["angle"], floating(input))


@function()
def real(input: Tensor) -> Tensor:
    """The real parts, a view; a real tensor itself."""
    return view(PRIMITIVES["real"], input) if input._array.dtype.kind == "c" else input


@function()
def imag(input: Tensor) -> Tensor:
    """The imaginary parts, a view."""
    if input._array.dtype.kind != "c":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view(PRIMITIVES["imag"], input)


Tensor.real = property(real)  # type: ignore[attr-defined]
Tensor.imag = property(imag)  # type: ignore[attr-defined]


@function("complex", method=False, out=True)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of real and imaginary parts."""
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {dtypes.scalar_name(real.dtype)} but got scalar type {dtypes.scalar_name(imag.dtype)} "
            "for second argument"
        )
    return pointwise(PRIMITIVES["complex"], "complex", real, imag)


@function(method=False, out=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of sizes and angles."""
    return complex_(mul(abs, cos(angle)), mul(abs, sin(angle)))


exp, log, sqrt, rsqrt, reciprocal = plain_forms("exp", "log", "sqrt", "rsqrt", "reciprocal")
tanh, sigmoid, floor = plain_forms("tanh", "sigmoid", "floor")
