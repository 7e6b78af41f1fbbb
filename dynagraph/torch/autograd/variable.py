"""``torch.autograd.variable``: what tensors that record were once called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.engine import queue_callback
from dynagraph.torch.core.tensor import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class ImperativeEngine:
    """What runs backward; programs queue functions here that are called when it has ended."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        queue_callback(callback)


class Variable(metaclass=_VariableMeta):
    """Kept for old programs: ``Variable(tensor)`` is a tensor with the same memory."""

    _execution_engine = ImperativeEngine()

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: Any = None) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


__all__ = ["Variable"]
