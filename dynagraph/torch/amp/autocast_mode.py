"""Regions in which functions compute in the dtypes of `core/autocast.py`'s table, and the state of a thread that says so."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dynagraph.cuda.state import state
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.autocast import dtype_of_region, number_of
from dynagraph.torch.core.devices import device as Device
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.tensor import Tensor

_KINDS = ("cpu", "cuda")  # of devices that there is an autocast for
_ABSENT = ("hpu", "ipu", "maia", "mps", "mtia", "privateuseone", "xla", "xpu")  # for which PyTorch has one: it is always off here
_HALVES = (dtypes.bfloat16, dtypes.float16)


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a type of devices: for "cpu" and "cuda"."""
    if device_type in _KINDS:
        return True
    Device(device_type)  # raises an error for what is no type of devices
    return False


# -- the state of a thread --------------------------------------------------------------------------------------------


def _checked(device_type: Any, who: str) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"{who}(): argument 'device_type' (position 1) must be str, not {type(device_type).__name__}")
    if not is_autocast_available(device_type):
        raise RuntimeError(f"unknown device type for autocast: {device_type}")
    return device_type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a type of devices."""
    if device_type in _ABSENT:
        return False
    return mode.autocast_cpu if _checked(device_type, "is_autocast_enabled") == "cpu" else mode.autocast_cuda


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Set whether autocast is on, for a type of devices or, given alone, for GPUs."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    if device_type in _ABSENT and not enabled:
        return
    if _checked(device_type, "set_autocast_enabled") == "cpu":
        mode.autocast_cpu = enabled
    else:
        mode.autocast_cuda = enabled
    mode.autocast = mode.autocast_cpu or mode.autocast_cuda


def get_autocast_dtype(device_type: str) -> DType:
    """What operands become for functions that gain by it."""
    return dtype_of_region(_checked(device_type, "get_autocast_dtype"))


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set what operands become for functions that gain by it."""
    if not isinstance(dtype, DType):
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' (position 2) must be torch.dtype, not {type(dtype).__name__}")
    if _checked(device_type, "set_autocast_dtype") == "cpu":
        mode.autocast_cpu_dtype = number_of(dtype, "cpu")
    else:
        mode.autocast_cuda_dtype = number_of(dtype, "cuda")


def is_autocast_cache_enabled() -> bool:
    """Whether weights are cast once in a region."""
    return mode.autocast_cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether weights are cast once in a region."""
    mode.autocast_cache = enabled


def clear_autocast_cache() -> None:
    """Forget what was cast in this region."""
    if mode.casts is not None:
        mode.casts = {}


def _named(name: str, function: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """A function of a type of devices that its name has."""

    def of_one(*args: Any) -> Any:
        return function(device_type, *args)

    of_one.__name__ = of_one.__qualname__ = name
    of_one.__doc__ = f"``torch.{function.__name__}`` of {device_type!r}."
    return of_one


is_autocast_cpu_enabled = _named("is_autocast_cpu_enabled", is_autocast_enabled, "cpu")
set_autocast_cpu_enabled = _named("set_autocast_cpu_enabled", set_autocast_enabled, "cpu")
get_autocast_cpu_dtype = _named("get_autocast_cpu_dtype", get_autocast_dtype, "cpu")
set_autocast_cpu_dtype = _named("set_autocast_cpu_dtype", set_autocast_dtype, "cpu")
get_autocast_gpu_dtype = _named("get_autocast_gpu_dtype", get_autocast_dtype, "cuda")
set_autocast_gpu_dtype = _named("set_autocast_gpu_dtype", set_autocast_dtype, "cuda")


# -- regions ----------------------------------------------------------------------------------------------------------


class autocast:
    """A region in which functions compute in the dtype that suits each: products in `dtype`, sums of many terms in float32.

    `device_type`: "cpu" or "cuda"; `dtype`: by default bfloat16 on CPUs and float16 on GPUs; `enabled`: False makes a region in
    which nothing is cast; `cache_enabled`: whether weights are cast once.  An instance is a decorator, too.

    >>> from dynagraph import torch
    >>> with torch.autocast("cpu"):
    ...     product = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> product.dtype
    torch.bfloat16
    """

    def __init__(self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = mode.autocast_cache if cache_enabled is None else cache_enabled
        self._enabled = enabled and _can_be_enabled(device_type, self.fast_dtype)

    def __enter__(self) -> autocast:
        self.prev, self.prev_fastdtype = is_autocast_enabled(self.device), get_autocast_dtype(self.device)
        self.prev_cache_enabled = mode.autocast_cache
        self.is_outermost = mode.casts is None
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        mode.autocast_cache = self._cache_enabled
        if self.is_outermost:
            mode.casts = {}
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        if self.is_outermost:
            mode.casts = None
        set_autocast_enabled(self.device, self.prev)
        set_autocast_dtype(self.device, self.prev_fastdtype)
        mode.autocast_cache = self.prev_cache_enabled

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you mean to use autocast as a context "
                "manager? For example:\n    with torch.autocast(device_type=...):\n        output = model(input)"
            )
        return autocast_decorator(self, func)


def regions_now() -> tuple[autocast, autocast]:
    """Contexts that make the regions which are on now, when something is computed again."""
    cache = mode.autocast_cache
    cpu = autocast("cpu", get_autocast_dtype("cpu"), mode.autocast_cpu, cache)
    return cpu, autocast("cuda", get_autocast_dtype("cuda"), mode.autocast_cuda, cache)


def _can_be_enabled(device_type: str, dtype: DType) -> bool:
    """Whether a region can be on; a warning says why not."""
    if device_type == "cuda":
        if state.cupy is None or not state.count:
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=3)
            return False
        return True
    if dtype not in _HALVES:
        name = device_type.upper()
        warnings.warn(
            f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
            f"{name} Autocast only supports dtypes of "
            + ", ".join(map(str, _HALVES)) + " currently.",
            stacklevel=3,
        )  # fmt: skip
        return False
    return True


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, each call of which is a region."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


# -- functions with gradients of their own ----------------------------------------------------------------------------


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """A tensor of floating point that is no float64, or what holds such, in another dtype."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not dtypes.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        cast = (_cast(v, device_type, dtype) for v in value)
        return type(value)(cast) if isinstance(value, (list, tuple)) else cast  # type: ignore[call-arg]
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate the `forward` of an `autograd.Function`: in a region its inputs are cast to `cast_inputs`, and it runs outside."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        context, is_on = args[0], is_autocast_enabled(device_type)
        context._dtype = get_autocast_dtype(device_type)
        context._fwd_used_autocast = is_on and cast_inputs is None
        if cast_inputs is None or not is_on:
            return fwd(*args, **kwargs)
        args, kwargs = _cast(args, device_type, cast_inputs), _cast(kwargs, device_type, cast_inputs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*args, **kwargs)

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of an `autograd.Function`: it runs in a region as its `forward` did."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(device_type=device_type, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd


__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available", "regions_now"]
