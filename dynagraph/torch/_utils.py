"""What pickled tensors are made again by, under PyTorch's names."""

from __future__ import annotations

import copyreg
import math
from collections import OrderedDict
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.layouts import sparse_coo, sparse_csr
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions import creation, sparse_creation
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.sparse import SparseTensor
from dynagraph.torch.missing import getattr_of

_MOST_DIMENSIONS = 64  # NumPy's


def lie_in(x: Tensor, memory: Storage, offset: int, size: Any, stride: Any, dtype: Any) -> Tensor:
    """Let a tensor be a view of a memory: strides and offset in elements."""
    x._array = memory.at(dtype.numpy, tuple(size), tuple(stride), offset)
    x._storage = memory
    return x


def _placed(memory: Storage, offset: int, size: Any, stride: Any, dtype: Any) -> Tensor:
    """A view of a memory by numbers that a file gives: RuntimeError where they lead out of it."""
    shape, steps, itemsize = tuple(size), tuple(stride), dtype.itemsize
    numbers = (offset, *shape, *steps)
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in numbers):
        raise RuntimeError(f"no tensor has the sizes {shape}, the strides {steps} and the offset {offset}"[:300])
    reach = (offset + sum((n - 1) * s for n, s in zip(shape, steps)) + 1) * itemsize if 0 not in shape else 0
    if reach > memory.nbytes() or math.prod(n for n in shape if n) * itemsize >= 1 << 63:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(steps)}, storage offset {offset}, and itemsize {itemsize} requiring a "
            f"storage size of {reach} are out of bounds for storage of size {memory.nbytes()}"
        )
    return lie_in(wrap(memory.array), memory, offset, shape, steps, dtype)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    return _placed(storage._untyped_storage._memory, storage_offset, size, stride, storage.dtype)


def _rebuild_tensor_v2(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any, metadata: Any = None
) -> Tensor:
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    if metadata:  # of views that PyTorch has without computing them
        made = made.conj() if metadata.get("conj") else made
        made = -made if metadata.get("neg") else made
    made.requires_grad = bool(requires_grad)
    return made


def _rebuild_tensor_v3(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any, dtype: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    made = _placed(storage.untyped()._memory, storage_offset, size, stride, dtype)
    made.requires_grad = bool(requires_grad)
    return made


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    if layout is sparse_coo:
        indices, values, size, *known = data
        coalesced = bool(known and known[0])
        return sparse_creation.sparse_coo_tensor(indices, values, size, is_coalesced=coalesced)
    if layout is sparse_csr:
        starts, columns, values, size = data
        return sparse_creation.sparse_csr_tensor(starts, columns, values, size)
    raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")


def _sparse_for_files(x: Any, protocol: int) -> Any:
    if x.layout is sparse_coo:
        parts: tuple[Any, ...] = (x._indices(), x._values().detach(), x.size(), x.is_coalesced())
    else:
        parts = (x.crow_indices(), x.col_indices(), x.values().detach(), x.size())
    return _rebuild_sparse_tensor, (x.layout, parts)


SparseTensor._reduced_for_files = _sparse_for_files  # type: ignore[attr-defined]


def _rebuild_device_tensor_from_numpy(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    made: Tensor = creation.tensor(data, dtype=dtype, device=device)
    made.requires_grad = requires_grad
    return made


def _rebuild_device_tensor_from_cpu_tensor(data: Tensor, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    made: Tensor = data.to(dtype=dtype, device=device)
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
    own, slots = own or {}, slots or {}
    for name in (*own, *slots):
        if not isinstance(name, str) or name in _INTERNAL or (name.startswith("__") and name.endswith("__")):
            raise RuntimeError(f"{name!r} is no attribute that users set on a tensor")
    vars(obj).update(own)
    for name, value in slots.items():
        setattr(obj, name, value)
    return obj


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that PyTorch has for tensors without elements, where NumPy has any."""
    return tuple(math.prod(max(n, 1) for n in shape[k + 1 :]) for k in range(len(shape)))


def reduced(x: Tensor) -> tuple[Any, ...]:
    """How a tensor is pickled: as a view of its storage, so that what shares memory does so again."""
    array = x._array
    stride = tuple(s // array.itemsize for s in array.strides) if array.size else _contiguous(array.shape)
    place: tuple[Any, ...] = (x.storage_offset(), tuple(array.shape), stride, x.requires_grad, OrderedDict())
    if x.dtype in dtypes.BARE:
        rebuild, args = _rebuild_tensor_v3, (x.untyped_storage(), *place, x.dtype)
    else:
        rebuild, args = _rebuild_tensor_v2, (x._typed_storage(), *place)
    state = _get_obj_state(x)
    if type(x) is Tensor and not state:
        return rebuild, args
    return _rebuild_from_type_v2, (rebuild, type(x), args, state)


def reduced_parameter(x: Parameter) -> tuple[Any, ...]:
    """How a parameter is pickled."""
    state = _get_obj_state(x)
    if state:
        return _rebuild_parameter_with_state, (x.data, x.requires_grad, OrderedDict(), state)
    return _rebuild_parameter, (x.data, x.requires_grad, OrderedDict())


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """All elements in one vector."""
    return cat([x.reshape(-1) for x in tensors]) if tensors else creation.empty(0)


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Views of a vector's parts, of the sizes that tensors have."""
    return tuple(part.view_as(x) for part, x in zip(flat.split([x.numel() for x in tensors]), tensors))


__getattr__ = getattr_of(__name__)
