"""``torch.library``: operators of one's own, which are Python functions, with gradients by `register_autograd`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dynagraph.torch._operators import ANY_DEVICE, Operator, find
from dynagraph.torch.missing import getattr_of

# PyTorch's dispatch keys -> devices
_DEVICES = {"CPU": "cpu", "CUDA": "cuda", "cpu": "cpu", "cuda": "cuda", "default": ANY_DEVICE, "": ANY_DEVICE}
_COMPOSED = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
_NAME = re.compile(r"\s*(?:(\w+)::)?([\w.]+)\s*\(")


class CustomOpDef:
    """An operator that `custom_op` has made of a function: call it, or register more of it."""

    def __init__(self, op: Operator, function: Callable[..., Any]):
        self._opoverload, self._init_fn = op, function
        self._name, self._namespace, self._qualname = op.__name__, op.namespace, op._qualname
        self.__name__, self.__doc__, self.__wrapped__ = op.__name__, function.__doc__, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """What computes it on some devices."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """What gives the shapes of its results."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Its gradient."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Its form over batches."""
        return register_vmap(self, func)


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str], device_types: Any = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Make an operator ``torch.ops.namespace.name`` of a Python function; a decorator where no function is given.

    >>> from dynagraph import torch
    >>> @torch.library.custom_op("mine::twice", mutates_args=())
    ... def twice(x: torch.Tensor) -> torch.Tensor:
    ...     return x * 2
    >>> torch.ops.mine.twice(torch.ones(2))
    tensor([2., 2.])
    """

    def made(function: Callable[..., Any]) -> CustomOpDef:
        op = find(name)
        op._schema = schema
        for device in _devices(device_types):
            op.kernels[device] = function
        return CustomOpDef(op, function)

    return made if fn is None else made(fn)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None) -> Any:
    """What computes an operator on "cpu", "cuda", several, or, with None, everywhere; a decorator where no function is given."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        found = _operator(op)
        for device in _devices(device_types):
            found.kernels[device] = function
        return function

    return put if func is None else put(func)


def register_fake(
    op: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = True
) -> Any:
    """What gives the shapes of an operator's results; kept, and not used, as operators are called as the functions they are."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        _operator(op).fake = function
        return function

    return put if func is None else put(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, lib: Any = None
) -> None:
    """The gradient of an operator: ``backward(ctx, *grads)``; ``setup_context(ctx, inputs, output)`` saves what it reads."""
    found = _operator(op)
    found.backward, found.setup_context = backward, setup_context


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, *, lib: Any = None) -> Any:
    """An operator's form over batches, which is kept; a decorator where no function is given."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        _operator(op).vmap = function
        return function

    return put if func is None else put(func)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Declare an operator, which `impl` gives kernels."""
    find(qualname)._schema = schema


def impl(qualname: str, types: str | Sequence[str], func: Callable[..., Any] | None = None, *, lib: Any = None) -> Any:
    """What computes an operator on some devices; a decorator where no function is given."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        for key in (types,) if isinstance(types, str) else types:
            _put(find(qualname), key, function)
        return function

    return put if func is None else put(func)


class Library:
    """Operators of a namespace: ``define`` declares them, ``impl`` says what computes them."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError("Unsupported kind: ", kind)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare an operator by its schema; gives its name."""
        found = _NAME.match(schema)
        if found is None:
            raise RuntimeError(f"expected a schema such as 'name(Tensor x) -> Tensor', but got {schema!r}")
        name = found[2]
        find(f"{self.ns}::{name}")._schema = schema
        return name

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
        """What computes an operator, for a dispatch key: "CPU", "CUDA", "CompositeExplicitAutograd", "Meta", "Autograd"..."""
        name = op_name if isinstance(op_name, str) else op_name.__name__
        _put(find(name if "::" in name else f"{self.ns}::{name}"), dispatch_key or self.dispatch_key, fn)


def _put(op: Operator, key: str, function: Callable[..., Any]) -> None:
    if key in _DEVICES:
        op.kernels[_DEVICES[key]] = function
    elif key in _COMPOSED:
        op.kernels[ANY_DEVICE] = function
        op.has_autograd = op.has_autograd or key == "CompositeImplicitAutograd"
    elif key == "Meta":
        op.fake = function
    elif key.startswith("Autograd"):
        op.kernels[{"AutogradCPU": "cpu", "AutogradCUDA": "cuda"}.get(key, ANY_DEVICE)] = function
        op.has_autograd = True
    else:
        known = f"CPU, CUDA, Meta, Autograd and {', '.join(_COMPOSED)}"
        raise RuntimeError(f"could not parse dispatch key: {key}; known ones are {known}")


def _devices(device_types: Any) -> list[str]:
    if device_types is None:
        return [ANY_DEVICE]
    given = (device_types,) if isinstance(device_types, str) else device_types
    return [_DEVICES.get(device, device) for device in given]


def _operator(op: Any) -> Operator:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, Operator):
        return op
    if not isinstance(op, str):
        raise ValueError(f"expected the name of an operator, or an operator, but got {type(op)}")
    return find(op)


__getattr__ = getattr_of(__name__)
__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "register_autograd", "register_fake",
    "register_kernel", "register_vmap",
]  # fmt: skip
