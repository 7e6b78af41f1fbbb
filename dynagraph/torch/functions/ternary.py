"""Pointwise functions of three operands: clamp, where, lerp, addcmul, addcdiv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, put_beside
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made, wrap
from dynagraph.torch.functions.arithmetic import add, div, mul, sub
from dynagraph.torch.functions.common import cast, check_tensor, function, pointwise, tensor_of, wrapped_number
from dynagraph.torch.functions.comparisons import lt
from dynagraph.torch.functions.elementary import abs
from dynagraph.torch.functions.numbers_first import weighted_operands
from dynagraph.torch.functions.pointwise_primitives import CLAMP, WHERE


@function(inplace=True, out=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *rest: Any, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    if rest:
        tensor1, tensor2, value = weighted_operands("addcmul", tensor1, tensor2, rest)
    return _rounded_once(_addcmul, input, tensor1, tensor2, value)


def _rounded_once(compute: Callable[..., Tensor], *operands: Any) -> Tensor:
    """A formula of several steps; halves are computed as float32 and rounded at the end."""
    for operand in operands:
        if isinstance(operand, Tensor) and is_half(operand._array.dtype):
            common = dtypes.result_dtype([o for o in operands if isinstance(o, Tensor)])
            if common.itemsize == 2:
                wide = (cast(o, dtypes.float32) if isinstance(o, Tensor) else o for o in operands)
                return cast(compute(*wide), common)
            break
    return compute(*operands)


def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    product = mul(tensor1, tensor2)
    return add(input, product if value == 1 else mul(product, value))


@function(inplace=True, out=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *rest: Any, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    if rest:
        tensor1, tensor2, value = weighted_operands("addcdiv", tensor1, tensor2, rest)
    if all(t._array.dtype.kind in "iub" for t in (tensor1, tensor2)):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division "
            "of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / "
            "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future "
            "addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes."
        )
    return _rounded_once(_addcdiv, input, tensor1, tensor2, value)


def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any) -> Tensor:
    quotient = div(tensor1, tensor2)
    return add(input, quotient if value == 1 else mul(quotient, value))


@function(inplace=True, out=True)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``, from the nearer end."""
    if input.dtype is not end.dtype:
        raise RuntimeError(
            f"expected dtype {_old_name(input.dtype)} for `end` but got dtype {_old_name(end.dtype)}"
        )
    return _rounded_once(_lerp, input, end, weight)


def _lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    difference = sub(end, input)
    if isinstance(weight, Tensor):
        near = add(input, mul(difference, weight))
        far = sub(end, mul(difference, sub(1, weight)))
        return where(lt(abs(weight), 0.5), near, far)
    return add(input, mul(difference, weight)) if -0.5 < weight < 0.5 else sub(end, mul(difference, 1 - weight))


def _old_name(d: dtypes.dtype) -> str:
    return "c10::" + dtypes.scalar_name(d) if d.itemsize == 2 else d.other_name or d.name


@function(inplace=True, out=True, aliases=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Not below `min`, not above `max`: numbers or tensors."""
    x = check_tensor(input, "clamp", "input")
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    bounds = [b for b in (min, max) if b is not None]
    x = cast(x, dtypes.result_dtype((x, *bounds)))
    if x._array.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if not any(isinstance(b, Tensor) for b in bounds):
        low, high = (None if b is None else wrapped_number(b, x._array.dtype) for b in (min, max))
        return apply(CLAMP, x, low=low, high=high)
    if min is not None and max is not None:
        low_t, high_t = (b if isinstance(b, Tensor) else wrap(put_beside(np.asarray(b), x._array)) for b in (min, max))
        return pointwise(CLAMP_BOTH, "clamp", x, cast(low_t, x.dtype), cast(high_t, x.dtype))
    if min is not None:
        return pointwise(CLAMP_MIN, "clamp", x, cast(min, x.dtype))
    return pointwise(CLAMP_MAX, "clamp", x, cast(max, x.dtype))


def _low(d: Any, comparison: str) -> Any:
    return d.x.call(comparison, d.y)


CLAMP_MIN = define(
    "clamp_min", lambda x, low: np.maximum(x, low),
    (lambda d, g: g.where(_low(d, "greater_equal"), 0), lambda d, g: g.where(_low(d, "less"), 0)), ("xy", "xy"),
    backward="ClampMinBackward1",
)  # fmt: skip
CLAMP_MAX = define(
    "clamp_max", lambda x, high: np.minimum(x, high),
    (lambda d, g: g.where(_low(d, "less_equal"), 0), lambda d, g: g.where(_low(d, "greater"), 0)), ("xy", "xy"),
    backward="ClampMaxBackward1",
)  # fmt: skip


def _clamp_both(which: int) -> Callable[[Any, Any], Any]:
    def vjp(d: Any, g: Any) -> Any:
        x, low, high = d.operands
        if which == 0:
            chosen = x.call("greater_equal", low).call("logical_and", x.call("less_equal", high))
        elif which == 1:
            chosen = x.call("less", low).call("logical_and", low.call("less", high))
        else:
            chosen = x.call("greater", high).call("logical_or", high.call("less", low))
        return g.where(chosen, 0)

    return vjp


CLAMP_BOTH = define(
    "clamp_both", lambda x, low, high: np.minimum(np.maximum(x, low), high), tuple(map(_clamp_both, range(3))), ("xyz",) * 3,
    backward="ClampBackward0",
)  # fmt: skip


@function(inplace=True, out=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Not below `min`."""
    return clamp(input, min=min)


@function(inplace=True, out=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Not above `max`."""
    return clamp(input, max=max)


@function(method=False, out=True)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the condition holds, `other` elsewhere; of the condition alone, where it holds: indices."""
    check_tensor(condition, "where", "condition")
    if input is None and other is None:
        return tuple(made(in_c_order(a)) for a in np.nonzero(condition._array))
    if condition._array.dtype.kind != "b" and condition.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {dtypes.scalar_name(condition.dtype)}"
        )
    chosen = cast(condition, dtypes.bool)
    a, b = (tensor_of(o, condition) for o in (input, other))
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        target = dtypes.result_dtype((input, other))
    else:
        target = dtypes.result_dtype((a, b))
    return pointwise(WHERE, "where", chosen, cast(a, target), cast(b, target))


Tensor.where = lambda self, condition, other: where(condition, self, other)  # type: ignore[attr-defined]
