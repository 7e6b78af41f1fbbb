"""Operators that programs define: Python functions by device, found as ``torch.ops.namespace.name``."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.torch.autograd.function import Function
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import LIST

ANY_DEVICE = ""


class Operator:
    """An operator: what computes it on each device, its gradient, and what gives its result's shape."""

    def __init__(self, namespace: str, name: str, schema: str | None = None):
        self.namespace, self.__name__ = namespace, name
        self._qualname = self.__qualname__ = f"{namespace}::{name}"
        self._schema = schema
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake: Callable[..., Any] | None = None
        self.vmap: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.has_autograd = False  # a kernel of its own for "Autograd" records what it does
        self._recorded: type[Function] | None = None

    @property
    def default(self) -> Operator:
        """The operator itself: there are no overloads."""
        return self

    def overloads(self) -> list[str]:
        return ["default"]

    def __repr__(self) -> str:
        return f"<operator {self._qualname}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kernel = self.kernel_of((*args, *kwargs.values()))
        requires = any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values()))
        if self.has_autograd or not (mode.grad and requires):
            return kernel(*args, **kwargs)
        given = inspect.signature(kernel).bind(*args, **kwargs)
        given.apply_defaults()
        if given.kwargs:
            raise TypeError(f"{self._qualname}: gradients of operators with arguments by keyword only are not supported")
        if self._recorded is None:
            self._recorded = recorded(self)
        return self._recorded.apply(kernel, *given.args)

    def kernel_of(self, operands: Sequence[Any]) -> Callable[..., Any]:
        """What computes it where the first tensor is."""
        device = next((o.device.type for o in operands if isinstance(o, Tensor)), "cpu")
        found = self.kernels.get(device) or self.kernels.get(ANY_DEVICE)
        if found is None:
            raise NotImplementedError(f"Could not run '{self._qualname}' on {device!r}: it has kernels for {sorted(self.kernels)}")
        return found


def recorded(op: Operator) -> type[Function]:
    """The operator as a function that autograd records."""

    def forward(kernel: Callable[..., Any], *args: Any) -> Any:
        return kernel(*args)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if op.setup_context is not None:
            op.setup_context(ctx, inputs[1:], output)

    def backward(ctx: Any, *grads: Any) -> Any:
        if op.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._qualname} but no autograd formula was registered. Please use register_autograd "
                "to add one."
            )
        found = op.backward(ctx, *grads)
        return (None, *found) if isinstance(found, tuple) else (None, found)

    members = {"forward": forward, "setup_context": setup_context, "backward": backward}
    return type(op.__name__, (Function,), {name: staticmethod(member) for name, member in members.items()})


class Namespace(types.ModuleType):
    """``torch.ops.name``"""

    def __init__(self, name: str):
        super().__init__(f"torch.ops.{name}")
        self.name = name

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"dynagraph.torch has no operator torch.ops.{self.name}.{name}: nothing has defined it; {LIST}")

    def __dir__(self) -> list[str]:
        return sorted(n for n, value in vars(self).items() if isinstance(value, Operator))


NAMESPACES: dict[str, Namespace] = {}


def namespace_of(name: str) -> Namespace:
    """The operators of a namespace; it is made where there is none yet."""
    if name not in NAMESPACES:
        NAMESPACES[name] = Namespace(name)
    return NAMESPACES[name]


def find(qualname: str) -> Operator:
    """The operator of a name, which is made where there is none yet."""
    namespace, colons, name = qualname.partition("::")
    name = name.removesuffix(".default")
    if not colons or not namespace.isidentifier() or not name.replace(".", "_").isidentifier():
        raise ValueError(f"Expected `qualname` to be a string of the form 'namespace::name', but got {qualname!r}")
    there = namespace_of(namespace)
    if name not in vars(there):
        setattr(there, name, Operator(namespace, name))
    return vars(there)[name]


__all__ = ["ANY_DEVICE", "Namespace", "Operator", "find", "namespace_of"]
