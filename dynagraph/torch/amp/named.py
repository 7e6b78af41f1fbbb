"""The classes and functions of `torch.amp` for one type of devices: what `torch.cuda.amp` and `torch.cpu.amp` have."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from dynagraph.torch.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from dynagraph.torch.amp.grad_scaler import GradScaler
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import dtype as DType


def _warn(kind: str, name: str, instead: str) -> None:
    warnings.warn(f"`torch.{kind}.amp.{name}(args...)` is deprecated. Please use `{instead}` instead.", FutureWarning, stacklevel=3)


def autocast_of(kind: str, default: DType) -> type[autocast]:
    """`autocast` for a type of devices."""

    class OfKind(autocast):
        def __init__(self, enabled: bool = True, dtype: DType = default, cache_enabled: bool = True):
            _warn(kind, "autocast", f"torch.amp.autocast('{kind}', args...)")
            super().__init__(kind, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    return _called(OfKind, "autocast", kind)


def scaler_of(kind: str) -> type[GradScaler]:
    """`GradScaler` for a type of devices."""

    class OfKind(GradScaler):
        def __init__(
            self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
            growth_interval: int = 2000, enabled: bool = True,
        ) -> None:  # fmt: skip
            _warn(kind, "GradScaler", f"torch.amp.GradScaler('{kind}', args...)")
            super().__init__(kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    return _called(OfKind, "GradScaler", kind)


def _called(cls: Any, name: str, kind: str) -> Any:
    cls.__name__ = cls.__qualname__ = name
    cls.__doc__ = f"``torch.amp.{name}({kind!r}, ...)``."
    cls.__module__ = f"dynagraph.torch.{kind}.amp"
    return cls


def decorators_of(kind: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`custom_fwd` and `custom_bwd` for a type of devices."""

    def forward(fwd: Any = None, *, cast_inputs: DType | None = None) -> Any:
        _warn(kind, "custom_fwd", f"torch.amp.custom_fwd(args..., device_type='{kind}')")
        return custom_fwd(fwd, device_type=kind, cast_inputs=cast_inputs)

    def backward(bwd: Any) -> Any:
        _warn(kind, "custom_bwd", f"torch.amp.custom_bwd(args..., device_type='{kind}')")
        return custom_bwd(bwd, device_type=kind)

    functools.update_wrapper(forward, custom_fwd, assigned=("__doc__", "__name__", "__qualname__"), updated=())
    functools.update_wrapper(backward, custom_bwd, assigned=("__doc__", "__name__", "__qualname__"), updated=())
    return forward, backward


DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}

__all__ = ["DEFAULTS", "autocast_of", "decorators_of", "scaler_of"]
