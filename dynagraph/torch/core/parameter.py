"""Parameters and buffers: tensors that modules register when they are set as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, _TensorMeta, storage_of, wrap


def share(data: Tensor, cls: type, requires_grad: bool) -> Any:
    """A leaf of a subclass that shares the memory, and the count of writes, of another tensor."""
    made: Any = object.__new__(cls)
    made._array, made._storage = data._array, storage_of(data)
    made._base = made._grad_fn = None
    made._requires_grad = False
    if data._inference:
        made._inference = True
    if requires_grad:
        if data._array.dtype.kind not in "fcV":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        made.requires_grad = True
    return made


def _empty() -> Tensor:
    return wrap(np.empty(0, dtypes.get_default_dtype().numpy))


class _ParameterMeta(_TensorMeta):
    """Tensors of other subclasses count as parameters where `_is_param` says so."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):  # not by super(), which captures do not follow in a metaclass
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module has among its parameters; operations with it give plain tensors.

    >>> from dynagraph import torch
    >>> torch.nn.Parameter(torch.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = _empty()
        if type(data) is Tensor or isinstance(data, Parameter):
            return share(data, cls, requires_grad)
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an instance "
                f"of the same type, but return type {type(made).__name__} was found instead. To use the type as a Parameter, "
                "please correct the detach() semantics defined by its __torch_dispatch__() implementation."
            )
        made._is_param = True
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__


class _BufferMeta(_TensorMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and (
            type.__instancecheck__(cls, instance) or (cls is Buffer and getattr(instance, "_is_buffer", False))
        )


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module has among its buffers: its state that is no parameter.  It is a plain tensor that is marked."""

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = _empty()
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


# -- of a shape that is not known yet ---------------------------------------------------------------------------------

_ALLOWED = (
    "half", "float", "double", "bfloat16", "cfloat", "cdouble", "char", "short", "int", "long", "cuda", "cpu", "to",
    "is_floating_point", "is_complex", "get_device", "type", "element_size",
)  # fmt: skip


class UninitializedTensorMixin:
    """What parameters and buffers have before `materialize` has given them a shape."""

    __slots__ = ()
    cls_to_become: type
    _inner: Tensor  # of size 0: the dtype and device

    @property
    def _array(self) -> Any:
        raise ValueError(
            "Attempted to use an uninitialized parameter. This error happens when you are using a `LazyModule` or explicitly "
            f"manipulating `torch.nn.parameter.{type(self).__name__}` objects. When using LazyModules Call `forward` with a dummy "
            "batch to initialize the parameters before calling torch functions"
        )

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when "
            "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before "
            "accessing their attributes."
        )

    @property
    def dtype(self) -> dtypes.dtype:
        return self._inner.dtype

    @property
    def device(self) -> devices.device:
        return self._inner.device

    @property
    def data(self) -> Tensor:
        return self._inner

    @data.setter
    def data(self, value: Tensor) -> None:
        self._inner = value.detach()

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self._requires_grad = on

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a parameter, or a tensor, of this shape, with any numbers."""
        where = self.device if device is None else devices.device(device)
        kind = self.dtype if dtype is None else dtype
        array = devices.library_of(where).empty(tuple(shape), kind.numpy)
        del self._inner
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        self._array = array  # type: ignore[misc]
        self._storage = Storage(array)

    def _converted(self, inner: Tensor) -> Any:
        """What a conversion gives: of a parameter, tensors that are set as its `data`."""
        return inner

    def share_memory_(self) -> Any:
        """Refused: there is no memory yet."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
            "calling `module.share_memory()`."
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = _uninitialized(type(self), self._requires_grad, self._inner)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _uninitialized, (type(self), self._requires_grad, self._inner)


def _uninitialized(cls: type, requires_grad: bool, inner: Tensor) -> Any:
    made: Any = object.__new__(cls)
    made._storage = storage_of(inner)
    made._base = made._grad_fn = None
    made._requires_grad, made._inner = requires_grad, inner
    return made


def _delegated(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(self._inner, name)(*args, **kwargs)
        return self._converted(found) if isinstance(found, Tensor) else found

    method.__name__ = name
    return method


for _name in _ALLOWED:
    setattr(UninitializedTensorMixin, _name, _delegated(_name))


def _inner_of(device: Any, dtype: Any) -> Tensor:
    where = devices.get_default_device() if device is None else devices.device(device)
    return wrap(devices.library_of(where).empty(0, (dtype or dtypes.get_default_dtype()).numpy))


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet: `materialize` gives it one."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return _uninitialized(cls, requires_grad, _inner_of(device, dtype))


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet: `materialize` gives it one."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        made = _uninitialized(cls, requires_grad, _inner_of(device, dtype))
        made.persistent, made._is_buffer = persistent, True
        return made

    def _converted(self, inner: Tensor) -> Any:
        return _uninitialized(type(self), self._requires_grad, inner)


def is_lazy(param: Any) -> bool:
    """Whether it is a parameter or buffer whose shape is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


__all__ = [
    "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy", "share",
]  # fmt: skip
