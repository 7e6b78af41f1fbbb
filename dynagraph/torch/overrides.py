"""``torch.overrides``: the protocol of ``__torch_function__``, which functions ask for (see `core/overriding.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.overriding import Overridable, ask, methods, name_of, overrides, overriding
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the type of an argument has a ``__torch_function__`` of its own, and is asked just now."""
    return not mode.unasked and any(overrides(type(a)) for a in relevant_args)


def has_torch_function_unary(a: Any) -> bool:
    """As `has_torch_function`, of one argument."""
    return has_torch_function((a,))


def has_torch_function_variadic(*args: Any) -> bool:
    """As `has_torch_function`, of arguments one by one."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Call the ``__torch_function__`` of the arguments, those of subclasses first, until one implements the function."""
    asked = overriding(relevant_args)
    if not asked:
        raise TypeError(f"no implementation found for '{name_of(public_api)}': no argument has a __torch_function__")
    return ask(public_api, asked, args, kwargs)


def get_default_nowrap_functions() -> set[Any]:
    """What gives plain tensors of subclasses: the getter of `grad`."""
    return {vars(Tensor)["grad"].__get__}


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
            if function is f or (isinstance(f, Overridable) and f.function is function):
                return f"torch.{name}" if namespace == "torch" else f"torch.{_PUBLIC.get(namespace, namespace)}.{name}"
    return next((f"torch.Tensor.{name}" for name in dir(Tensor) if getattr(Tensor, name) is f), None)


_PUBLIC = {"functional": "nn.functional"}
methods()  # who asks for this module writes classes that functions ask
__getattr__ = getattr_of(__name__)
__all__ = [
    "get_default_nowrap_functions", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip
