"""`make_tensor`: tensors of random values to test with."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES, sizes_of


def make_tensor(
    *shape: Any, dtype: DType, device: Any = "cpu", low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor of uniform values between `low` and `high`: by default from -9 to 9, from 0 to 9 of uint8, and both bools.

    noncontiguous: its elements lie two places apart.  exclude_zero: zeros become the smallest positive value.
    """
    sizes = sizes_of(shape, "make_tensor")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and "
            f"{memory_format=}"
        )
    doubled = noncontiguous and math.prod(sizes) > 1
    result = _values((*sizes[:-1], 2 * sizes[-1]) if doubled else sizes, dtype, low, high)
    if doubled:
        result = result[..., ::2]
    if exclude_zero:
        result[result == 0] = dtypes.finfo(dtype).tiny if dtype.is_floating_point or dtype.is_complex else 1
    result = result.to(device)
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    return result.requires_grad_(requires_grad)


def _values(sizes: tuple[int, ...], dtype: DType, low: float | None, high: float | None) -> Tensor:
    torch = NAMESPACES["torch"]
    if dtype is dtypes.bool:
        first, last = _range(low, high, 0, 2, 0, 2)
        return torch["randint"](int(first), int(last), sizes).to(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        limits = dtypes.finfo(dtype)
        first, last = _range(low, high, -9, 9, limits.min, limits.max)
        parts = [torch["rand"](sizes, dtype=dtypes.float64) * (last - first) + first for _ in range(1 + dtype.is_complex)]
        return (torch["complex"](*parts) if dtype.is_complex else parts[0]).to(dtype)
    whole = dtypes.iinfo(dtype)
    first, last = _range(low, high, -9 if dtype.is_signed else 0, 10, whole.min, whole.max)
    return torch["randint"](math.ceil(first), math.ceil(last), sizes, dtype=dtypes.int64).to(dtype)


def _range(low: Any, high: Any, default_low: float, default_high: float, least: float, most: float) -> tuple[float, float]:
    first, last = default_low if low is None else low, default_high if high is None else high
    if any(isinstance(value, float) and math.isnan(value) for value in (first, last)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if first >= last:
        raise ValueError(f"`low` must be less than `high`, but got {first} >= {last}")
    first, last = max(first, least), min(last, most)
    if first >= last:
        raise ValueError(f"the values between {low} and {high} are none of the dtype's")
    return first, last


__all__ = ["make_tensor"]
