"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.primitives import PRIMITIVES, define, from_row
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.common import check_tensor, function, plain_forms, pointwise, promoted, result_type_of

COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _comparison(name: str, ufunc: str) -> None:
    p = from_row(ufunc, (), f"{name.title()}Backward0")

    def compute(input: Any, other: Any) -> Tensor:
        a, b = promoted(name, input, other)
        if (a if isinstance(a, Tensor) else b)._array.dtype.kind == "c" and name not in ("eq", "ne"):
            raise RuntimeError(f"{name} is not supported for complex tensors")
        return pointwise(p, name, a, b)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"Where ``input {name} other`` holds: bools."
    function(name, inplace=True, out=True, aliases=(ufunc,) if name != "eq" else ())(compute)


for _name, _ufunc in COMPARISONS.items():
    _comparison(_name, _ufunc)


def _predicate(name: str, real: Callable[[Any], Any], of_integers: bool | None, **forms: Any) -> None:
    p = define(name, real)

    def compute(input: Tensor) -> Tensor:
        x = check_tensor(input, name, "input")
        if of_integers is not None and x._array.dtype.kind in "iub":
            return made(library_of_array(x._array).full(x._array.shape, of_integers))
        return apply(p, x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: bools, element by element."
    function(name, **forms)(compute)


def _not_complex(x: Any, who: str) -> Any:
    if x.dtype.kind == "c":
        raise RuntimeError(f"{who} does not support complex inputs.")
    return x


_predicate("isnan", np.isnan, False)
_predicate("isinf", np.isinf, False)
_predicate("isfinite", np.isfinite, True)
_predicate("isposinf", lambda x: _not_complex(x, "isposinf") == np.inf, False, out=True)
_predicate("isneginf", lambda x: _not_complex(x, "isneginf") == -np.inf, False, out=True)
_predicate("isreal", lambda x: x.imag == 0 if x.dtype.kind == "c" else library_of_array(x).ones(x.shape, bool), None)
_predicate("signbit", lambda x: np.signbit(x) if x.dtype.kind in "fV" else x < 0, None, out=True)
define("logical_not", np.logical_not)


@function(inplace=True, out=True)
def logical_not(input: Tensor) -> Tensor:
    """Where elements are zero: bools."""
    return apply(PRIMITIVES["logical_not"], check_tensor(input, "logical_not", "input"))


def _logic(name: str) -> None:
    p = define(name, getattr(np, name))

    def compute(input: Tensor, other: Tensor) -> Tensor:
        return pointwise(p, name, check_tensor(input, name, "input"), check_tensor(other, name, "other", 2))

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}`` of what is not zero: bools."
    function(name, inplace=True, out=True)(compute)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _logic(_name)


_KERNELS = {"bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift"}


def _bits(name: str, ufunc: str, **forms: Any) -> None:
    p = define(ufunc if ufunc not in PRIMITIVES else name, getattr(np, ufunc))

    def compute(input: Any, other: Any) -> Tensor:
        a, b = promoted(name, input, other)
        if (a if isinstance(a, Tensor) else b)._array.dtype.kind in "fcV":
            kind = dtypes.scalar_name((a if isinstance(a, Tensor) else b).dtype)
            raise NotImplementedError(f"\"{_KERNELS.get(name, name)}_cpu\" not implemented for '{kind}'")
        return pointwise(p, name, a, b)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``, element by element."
    function(name, inplace=True, out=True, **forms)(compute)


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _bits(_name, _name)
_bits("bitwise_left_shift", "left_shift")
_bits("bitwise_right_shift", "right_shift")
define("invert", np.invert)


@function(inplace=True, out=True)
def bitwise_not(input: Tensor) -> Tensor:
    """The other bits; of bools, the other value."""
    x = check_tensor(input, "bitwise_not", "input")
    if x._array.dtype.kind in "fcV":
        raise NotImplementedError(f"\"bitwise_not_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    return apply(PRIMITIVES["invert"], x)


@function()
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Where ``|input - other| <= atol + rtol * |other|``."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{dtypes.scalar_name(input.dtype)} did not match {dtypes.scalar_name(other.dtype)}")
    return made(np.isclose(input._array, other._array, rtol=rtol, atol=atol, equal_nan=equal_nan))


@function()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


@function()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape and equal elements."""
    check_tensor(input, "equal", "input")
    check_tensor(other, "equal", "other", 2)
    return input._array.shape == other._array.shape and bool((input._array == other._array).all())


@function()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return input._array.shape == other._array.shape


_FREXP = result_type_of("frexp", "mantissa", "exponent")
define(
    "frexp",
    lambda x: np.frexp(x),
    (lambda d, g: None if g[0] is None else g[0].call("ldexp", -d.outs[1]),),
    ("p",),
    backward="FrexpBackward0",
    outputs=2,
    differentiable=(0,),
)


@function(out=True)
def frexp(input: Tensor) -> Any:
    """Mantissas from a half to one, and the exponents of two that belong to them."""
    x = check_tensor(input, "frexp", "input")
    if x._array.dtype.kind not in "fV":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return _FREXP(*apply(PRIMITIVES["frexp"], x))


lt, le, gt, ge, eq, ne = plain_forms("lt", "le", "gt", "ge", "eq", "ne")
isnan, isfinite = plain_forms("isnan", "isfinite")
