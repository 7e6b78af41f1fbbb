"""``torch._C``: what libraries take from PyTorch's compiled module."""

from __future__ import annotations

import enum
from typing import Any

from dynagraph.torch.core.batching import running
from dynagraph.torch.core.devices import device as device
from dynagraph.torch.core.dtypes import Size as Size
from dynagraph.torch.core.dtypes import dtype as dtype
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of

TensorBase = Tensor


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def _jit_set_profiling_mode(on: bool) -> bool:
    """There is no TorchScript; the value that was set before."""
    return True


_jit_set_profiling_executor = _jit_set_profiling_mode


def _jit_override_can_fuse_on_cpu(on: bool) -> None:
    """There is no TorchScript."""


_jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu
_jit_set_texpr_fuser_enabled = _jit_override_can_fuse_on_cpu
_jit_set_nvfuser_enabled = _jit_override_can_fuse_on_cpu


def _len_torch_function_stack() -> int:
    """0: there are no modes of functions."""
    return 0


def _disabled_torch_function_impl(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What classes name as their ``__torch_function__`` that want none: the function itself."""
    return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass:
    """A context without calls of ``__torch_function__``: functions make none."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


DisableTorchFunction = DisableTorchFunctionSubclass


def _are_functorch_transforms_active() -> bool:
    """Whether `vmap` runs in this thread: the other transforms run functions on tensors as they are."""
    return bool(running.levels)


class DispatchKey(enum.Enum):
    """PyTorch's layers of kernels, by name; here they select nothing."""

    CPU, CUDA, Meta, XPU, MPS, CompositeExplicitAutograd, CompositeImplicitAutograd, Autograd, AutogradCPU, AutogradCUDA = range(10)
    Autocast, AutocastCPU, AutocastCUDA, AutocastXPU, Python, PythonTLSSnapshot, ADInplaceOrView, Functionalize = range(10, 18)


class DispatchKeySet:
    """Several keys."""

    def __init__(self, *keys: DispatchKey):
        self.keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self.keys | other.keys))

    def has(self, key: DispatchKey) -> bool:
        return key in self.keys


class _ExcludeDispatchKeyGuard:
    """A context without kernels of some layers: there are no layers."""

    def __init__(self, keys: DispatchKeySet):
        self.keys = keys

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


__getattr__ = getattr_of(__name__)
