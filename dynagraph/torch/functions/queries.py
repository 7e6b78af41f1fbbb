"""Small functions by which code asks what it has, or is written for symbolic sizes and traced control flow: plain Python here."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.devices import device, get_default_device
from dynagraph.torch.core.grad_mode import mode as _mode
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, function

TORCH = NAMESPACES["torch"]

# -- of tensors -------------------------------------------------------------------------------------------------------


@function(method=False)
def is_inference(input: Tensor) -> bool:
    """Whether a tensor was made in `inference_mode`."""
    return check_tensor(input, "is_inference", "input").is_inference()


@function(method=False)
def is_conj(input: Tensor) -> bool:
    """False: conjugates are computed at once."""
    check_tensor(input, "is_conj", "input")
    return False


@function(method=False)
def is_neg(input: Tensor) -> bool:
    """False: negatives are computed at once."""
    check_tensor(input, "is_neg", "input")
    return False


@function(method=False)
def is_distributed(input: Tensor) -> bool:
    """False: tensors are of one process."""
    check_tensor(input, "is_distributed", "input")
    return False


@function(method=False)
def get_device(input: Tensor) -> int:
    """The number of a tensor's GPU; -1 on the CPU."""
    where = check_tensor(input, "get_device", "input").device
    return -1 if where.index is None else where.index


for _name in ("zero", "fill", "resize_as", "as_strided"):
    if hasattr(Tensor, f"{_name}_"):
        TORCH.setdefault(f"{_name}_", getattr(Tensor, f"{_name}_"))
for _name in ("chunk", "split", "split_with_sizes"):
    TORCH.setdefault(f"unsafe_{_name}", TORCH[_name])

# -- of the process ---------------------------------------------------------------------------------------------------


@function(method=False)
def is_vulkan_available() -> bool:
    """False: Vulkan is not used."""
    return False


@function(method=False)
def is_anomaly_enabled() -> bool:
    """Whether `autograd.detect_anomaly` is on."""
    return _mode.anomaly


@function(method=False)
def is_anomaly_check_nan_enabled() -> bool:
    """Whether `autograd.detect_anomaly` looks for NaNs."""
    return _mode.check_nan


@function(method=False)
def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """As `autograd.set_detect_anomaly`."""
    _mode.anomaly, _mode.check_nan = mode, check_nan


@function(method=False)
def get_device_module(device: Any = None) -> Any:
    """``torch.cpu`` or ``torch.cuda``, of a device."""
    return importlib.import_module(f"dynagraph.torch.{_type_of(device)}")


def _type_of(given: Any) -> str:
    return (get_default_device() if given is None else device(given)).type


# -- sizes that may be symbolic ---------------------------------------------------------------------------------------


class SymInt:
    """For `isinstance`: sizes are ints."""


class SymFloat:
    """For `isinstance`: numbers are floats."""


class SymBool:
    """For `isinstance`: conditions are bools."""


TORCH.update(SymInt=SymInt, SymFloat=SymFloat, SymBool=SymBool)


@function(method=False)
def sym_int(a: Any) -> int:
    """A number without its fraction."""
    return math.trunc(a)


@function(method=False)
def sym_float(a: Any) -> float:
    """A number as a float."""
    return float(a)


@function(method=False)
def sym_not(a: Any) -> bool:
    """``not a``"""
    return not a


@function(method=False)
def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float where one of them is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


@function(method=False)
def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float where one of them is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


@function(method=False)
def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of numbers."""
    return sum(args)


@function(method=False)
def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)


@function(method=False)
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """``t if b else f``"""
    return t if b else f


@function(method=False)
def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    """RuntimeError where a tensor of one element is zero."""
    if not input:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


@function(method=False)
def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes as a tensor of int64."""
    return wrap(np.array(self.shape, np.int64))


# -- control flow -----------------------------------------------------------------------------------------------------


@function(method=False)
def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """``true_fn(*operands) if pred else false_fn(*operands)``"""
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    return true_fn(*operands) if pred else false_fn(*operands)


@function(method=False)
def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """What ``body_fn`` makes of values, again and again while ``cond_fn`` of them holds."""
    values = tuple(carried_inputs)
    while cond_fn(*values):
        made = body_fn(*values)
        values = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    return values


__all__ = ["SymBool", "SymFloat", "SymInt", "cond", "while_loop"]
