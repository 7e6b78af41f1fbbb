"""State of the process that PyTorch lets programs set: threads, determinism, precision; and what asks for names and types."""

from __future__ import annotations

import os
import types
from typing import Any

from dynagraph import config
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import function
from dynagraph.torch.storage import TypedStorage, UntypedStorage


class _Settings:
    deterministic = False
    warn_only = False
    fill_uninitialized = True
    matmul_precision = "highest"
    warn_always = False


_settings = _Settings()
_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


# -- threads ----------------------------------------------------------------------------------------------------------


@function(method=False)
def get_num_threads() -> int:
    """How many threads a compiled call may use (`dg.config.threads`); NumPy's matrix products have their own number."""
    if config.threads is not None:
        return config.threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@function(method=False)
def set_num_threads(num: int) -> None:
    """Set how many threads a compiled call may use."""
    config.threads = _count(num, "set_num_threads")


@function(method=False)
def get_num_interop_threads() -> int:
    """Operations run one after the other, in the thread that calls them."""
    return 1


@function(method=False)
def set_num_interop_threads(num: int) -> None:
    """Accepted; operations run in the thread that calls them."""
    _count(num, "set_num_interop_threads")


def _count(num: Any, who: str) -> int:
    if not isinstance(num, int) or isinstance(num, bool):
        raise RuntimeError(f"{who} expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError(f"{who} expects a positive integer")
    return num


# -- determinism, precision -------------------------------------------------------------------------------------------


@function(method=False)
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether operations without a deterministic algorithm are refused; on the CPU there are none."""
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(value).__name__}")
    _settings.deterministic, _settings.warn_only = mode, warn_only


@function(method=False)
def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` set."""
    return _settings.deterministic


@function(method=False)
def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What `use_deterministic_algorithms` set."""
    return _settings.warn_only


@function(method=False)
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """As `use_deterministic_algorithms`: "default" or 0, "warn" or 1, "error" or 2."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    level = _DEBUG_MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        expected = "`default`, `warn`, `error`" if isinstance(debug_mode, str) else "0, 1, 2"
        raise RuntimeError(f"invalid value of debug_mode, expected one of {expected}, but got {debug_mode}")
    _settings.deterministic, _settings.warn_only = level > 0, level == 1


@function(method=False)
def get_deterministic_debug_mode() -> int:
    """0: default, 1: warn, 2: error."""
    return 0 if not _settings.deterministic else 1 if _settings.warn_only else 2


@function(method=False)
def set_float32_matmul_precision(precision: str) -> None:
    """How exact products of float32 matrices must be at least; they are always computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"invalid precision {precision!r}: expected 'highest', 'high' or 'medium'")
    _settings.matmul_precision = precision


@function(method=False)
def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` set."""
    return _settings.matmul_precision


@function(method=False)
def set_flush_denormal(mode: bool) -> bool:
    """Denormal numbers are computed with as they are: False, which says that flushing could not be set, where it is asked for."""
    if not isinstance(mode, bool):
        raise TypeError(f"set_flush_denormal(): argument 'mode' must be bool, not {type(mode).__name__}")
    return not mode


@function(method=False)
def set_warn_always(b: bool) -> None:
    """Python's filters decide how often a warning is shown; the value is kept for `is_warn_always_enabled`."""
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _settings.warn_always = b


@function(method=False)
def is_warn_always_enabled() -> bool:
    """What `set_warn_always` set."""
    return _settings.warn_always


@function(method=False)
def compiled_with_cxx11_abi() -> bool:
    """True, as of PyTorch's builds."""
    return True


@function(method=False)
def _assert(condition: Any, message: str) -> None:
    """An assertion that is a call: AssertionError where a condition does not hold."""
    assert condition, message


# -- names and types --------------------------------------------------------------------------------------------------


@function(method=False)
def is_storage(obj: Any) -> bool:
    """Whether an object is a tensor's storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


@function(method=False)
def typename(obj: Any) -> str:
    """The name of a type, with its module: ``torch.FloatTensor`` of a tensor."""
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None) or ""
    if isinstance(named, types.BuiltinFunctionType) or module in ("", "builtins"):
        return named.__qualname__
    if module.startswith("dynagraph.torch.functions."):
        return f"torch.{named.__qualname__}"
    return f"{module.removeprefix('dynagraph.')}.{named.__qualname__}"


__all__ = [
    "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled", "is_storage", "is_warn_always_enabled", "set_deterministic_debug_mode",
    "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_num_threads", "set_warn_always",
    "typename", "use_deterministic_algorithms",
]  # fmt: skip
