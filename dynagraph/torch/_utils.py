"""What pickled tensors are made again by, under PyTorch's names."""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from typing import Any

from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.missing import getattr_of


def lie_in(x: Tensor, memory: Storage, offset: int, size: Any, stride: Any, dtype: Any) -> Tensor:
    """Let a tensor be a view of a memory: strides and offset in elements."""
    x._array = memory.at(dtype.numpy, tuple(size), tuple(stride), offset)
    x._storage = memory
    return x


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    memory = storage._untyped_storage._memory
    return lie_in(wrap(memory.array), memory, storage_offset, size, stride, storage.dtype)


def _rebuild_tensor_v2(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any, metadata: Any = None
) -> Tensor:
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    made.requires_grad = requires_grad
    return made


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Parameter:
    made = Parameter(data, requires_grad)
    return _set_obj_state(made, state)


def _rebuild_from_type_v2(func: Any, new_type: type, args: Any, state: Any) -> Any:
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if type(made).__setstate__ is not Tensor.__setstate__:
        made.__setstate__(state)
        return made
    return _set_obj_state(made, state)


_INTERNAL = frozenset(n for n in vars(Tensor) if not n.startswith("__"))


def _get_obj_state(obj: Any) -> Any:
    """What users have set on a tensor: its attributes, and those in slots of its class."""
    state = {k: v for k, v in vars(obj).items() if k not in _INTERNAL}
    names = [n for n in copyreg._slotnames(type(obj)) if n not in _INTERNAL and hasattr(obj, n)]  # type: ignore[attr-defined]
    return (state, {n: getattr(obj, n) for n in names}) if names else state


def _set_obj_state(obj: Any, state: Any) -> Any:
    own, slots = state if isinstance(state, tuple) else (state, None)
    vars(obj).update(own or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def reduced(x: Tensor) -> tuple[Any, ...]:
    """How a tensor is pickled: as a view of its storage, so that what shares memory does so again."""
    array = x._array
    stride = tuple(s // array.itemsize for s in array.strides)
    offset, storage = x.storage_offset(), x._typed_storage()
    args: tuple[Any, ...] = (storage, offset, tuple(array.shape), stride, x.requires_grad, OrderedDict())
    state = _get_obj_state(x)
    if type(x) is Tensor and not state:
        return _rebuild_tensor_v2, args
    return _rebuild_from_type_v2, (_rebuild_tensor_v2, type(x), args, state)


def reduced_parameter(x: Parameter) -> tuple[Any, ...]:
    """How a parameter is pickled."""
    state = _get_obj_state(x)
    if state:
        return _rebuild_parameter_with_state, (x.data, x.requires_grad, OrderedDict(), state)
    return _rebuild_parameter, (x.data, x.requires_grad, OrderedDict())


__getattr__ = getattr_of(__name__)
