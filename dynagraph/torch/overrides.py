"""``torch.overrides``: the protocol of ``__torch_function__``, for Python functions that ask for it.

Functions of dynagraph.torch do not ask: they take tensors only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the type of an argument has a ``__torch_function__`` of its own."""
    return any(_of(type(a)) is not None for a in relevant_args)


def has_torch_function_unary(a: Any) -> bool:
    """As `has_torch_function`, of one argument."""
    return _of(type(a)) is not None


def has_torch_function_variadic(*args: Any) -> bool:
    """As `has_torch_function`, of arguments one by one."""
    return has_torch_function(args)


def _of(kind: type) -> Any:
    found = getattr(kind, "__torch_function__", None)
    return None if found is None or found is getattr(Tensor, "__torch_function__", None) else found


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Call the ``__torch_function__`` of the arguments, those of subclasses first, until one implements the function."""
    overloaded: list[Any] = []
    for arg in relevant_args:
        if _of(type(arg)) is None or type(arg) in map(type, overloaded):
            continue
        place = next((k for k, other in enumerate(overloaded) if issubclass(type(arg), type(other))), len(overloaded))
        overloaded.insert(place, arg)
    kinds = tuple(map(type, overloaded))
    for arg in overloaded:
        result = arg.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}")


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator: the function first asks the arguments that `dispatcher` names."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return wrap


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or has ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a method of tensors."""
    name = getattr(func, "__name__", "")
    return getattr(Tensor, name, None) is func or name == "__get__"


def resolve_name(f: Any) -> str | None:
    """Where a function is found: ``torch.add``, ``torch.Tensor.add_``; None where it is no function of PyTorch's."""
    for namespace, functions in NAMESPACES.items():
        for name, function in functions.items():
            if function is f:
                return f"torch.{name}" if namespace == "torch" else f"torch.{_PUBLIC.get(namespace, namespace)}.{name}"
    return next((f"torch.Tensor.{name}" for name in dir(Tensor) if getattr(Tensor, name) is f), None)


_PUBLIC = {"functional": "nn.functional"}
__getattr__ = getattr_of(__name__)
__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
    "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip
