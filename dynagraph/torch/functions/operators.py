"""Python's operators on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.primitives import Primitive
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.arithmetic import add, div, floor_divide, mul, pow, remainder, sub
from dynagraph.torch.functions.common import NAMESPACES, NUMBERS, check_broadcast
from dynagraph.torch.functions.comparisons import COMPARISONS, bitwise_not
from dynagraph.torch.functions.elementary import abs, neg, positive, reciprocal
from dynagraph.torch.functions.pointwise_primitives import ADD, DIV, MUL, SUB


def _operator(compute: Callable[..., Any], p: Primitive | None, kinds: str) -> Callable[..., Any]:
    """An operator: at once, where both are tensors of one dtype of `kinds`, or the other is a float beside floats."""

    def binary(self: Tensor, other: Any) -> Any:
        if type(other) is Tensor:
            given = self._array.dtype
            if given is other._array.dtype and given.kind in kinds:
                try:
                    return apply(p, self, other)  # type: ignore[arg-type]
                except ValueError:
                    check_broadcast(self, other)
                    raise
                except TypeError:  # of other devices
                    return compute(self, other)
        elif type(other) is float and self._array.dtype.kind == "f" and self._array.dtype.itemsize > 2:
            return apply(p, self, other)  # type: ignore[arg-type]
        elif not isinstance(other, (Tensor, *NUMBERS)):
            return NotImplemented
        return compute(self, other)

    return binary


def _plain(compute: Callable[..., Any]) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return compute(self, other) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


def _number_over(x: Tensor, number: Any) -> Tensor:
    """``number / x``, as PyTorch computes it."""
    return mul(reciprocal(x), number)


def _reversed(compute: Callable[..., Any]) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return compute(other, self) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


def _changing(name: str) -> Callable[..., Any]:
    def binary(self: Tensor, other: Any) -> Any:
        return getattr(self, name)(other) if isinstance(other, (Tensor, *NUMBERS)) else NotImplemented

    return binary


_torch = NAMESPACES["torch"]
for _name, _compute, _fast, _kinds in (
    ("add", add, ADD, "fciu"), ("sub", sub, SUB, "fciu"), ("mul", mul, MUL, "fciu"), ("truediv", div, DIV, "fc"),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _operator(_compute, _fast, _kinds))
for _name, _compute in (("floordiv", floor_divide), ("mod", remainder), ("pow", pow)):
    setattr(Tensor, f"__{_name}__", _plain(_compute))
for _name, _compute in (
    ("add", add), ("sub", sub), ("mul", mul), ("truediv", div), ("floordiv", floor_divide), ("mod", remainder), ("pow", pow),
):  # fmt: skip
    setattr(Tensor, f"__r{_name}__", _reversed(_compute))
Tensor.__rtruediv__ = _plain(_number_over)  # type: ignore[attr-defined]
for _name, _changing_name in (
    ("add", "add_"), ("sub", "sub_"), ("mul", "mul_"), ("truediv", "div_"), ("floordiv", "floor_divide_"), ("mod", "remainder_"),
    ("pow", "pow_"), ("and", "bitwise_and_"), ("or", "bitwise_or_"), ("xor", "bitwise_xor_"), ("lshift", "bitwise_left_shift_"),
    ("rshift", "bitwise_right_shift_"),
):  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _changing(_changing_name))
for _name, _method in (
    ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"),
    ("rshift", "bitwise_right_shift"),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _plain(_torch[_method].__wrapped__))
    setattr(Tensor, f"__r{_name}__", _reversed(_torch[_method].__wrapped__))
for _name in COMPARISONS:
    setattr(Tensor, f"__{_name}__", _plain(_torch[_name].__wrapped__))
Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
Tensor.__neg__ = neg  # type: ignore[attr-defined]
Tensor.__pos__ = positive  # type: ignore[attr-defined]
Tensor.__abs__ = abs  # type: ignore[attr-defined]
Tensor.__invert__ = bitwise_not  # type: ignore[attr-defined]
