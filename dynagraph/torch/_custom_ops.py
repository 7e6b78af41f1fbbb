"""``torch._custom_ops``: the older way to define operators, over `torch.library`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch import library
from dynagraph.torch._operators import find
from dynagraph.torch.missing import getattr_of


def custom_op(qualname: str, func_or_schema: Any = None) -> Any:
    """Declare an operator, by a schema, or by a function whose arguments it has; a decorator where neither is given."""

    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        find(qualname)
        return function

    if func_or_schema is None:
        return declared
    find(qualname)._schema = func_or_schema if isinstance(func_or_schema, str) else None
    return None if isinstance(func_or_schema, str) else func_or_schema


def impl(qualname: str, *, device_types: Any = ("cpu", "cuda"), func: Callable[..., Any] | None = None) -> Any:
    """What computes an operator on some devices; a decorator where no function is given."""
    return library.register_kernel(qualname, device_types, func)


def impl_abstract(qualname: str, *, func: Callable[..., Any] | None = None) -> Any:
    """What gives the shapes of an operator's results; a decorator where no function is given."""
    return library.register_fake(qualname, func)


__getattr__ = getattr_of(__name__)
__all__ = ["custom_op", "impl", "impl_abstract"]
