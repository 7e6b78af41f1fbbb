"""``torch.Tensor(...)`` and its kin by dtype, ``torch.FloatTensor(...)``: constructors, and types for `isinstance`."""

from __future__ import annotations

import copyreg
import importlib
from typing import Any

import numpy as np

from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core import tensor as core
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import NAMESPACES, function, sizes_of
from dynagraph.torch.functions.conversion import to_device
from dynagraph.torch.functions.creation import _array_of, as_subclass
from dynagraph.torch.storage import TypedStorage, UntypedStorage


def constructed(
    own: DType, where: devices.device, args: tuple[Any, ...], size: Any = None, device: Any = None, any_dtype: bool = False
) -> Tensor:
    """What the constructor of a dtype makes: of sizes any numbers, of a sequence or an array its data, of a tensor an alias."""
    if device is not None and devices.device(device).type != where.type:
        raise RuntimeError(
            f"legacy constructor expects device type: {where.type} but device type: {devices.device(device).type} was passed"
        )
    if size is not None:
        args = (dtypes.Size(size),)
    if len(args) == 1 and not _is_integer(args[0]):
        return _of_one(own, where, args[0], any_dtype)
    for position, value in enumerate(args):
        if not _is_integer(value):
            raise TypeError(
                f"new(): argument 'size' failed to unpack the object at pos {position + 1} with error "
                f'"type must be tuple of ints,but got {type(value).__name__}"'
            )
    return _sized(own, where, sizes_of(args or (0,), "new"))


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _sized(own: DType, where: devices.device, shape: tuple[int, ...]) -> Tensor:
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    return wrap(devices.library_of(where).empty(shape, own.numpy))


def _of_one(own: DType, where: devices.device, data: Any, any_dtype: bool) -> Tensor:
    if isinstance(data, dtypes.Size):
        return _sized(own, where, tuple(data))
    if isinstance(data, Tensor):
        if (data.dtype is not own and not any_dtype) or data.device.type != where.type:
            raise TypeError(f"expected a tensor of {own} on {where.type} (got one of {data.dtype} on {data.device.type})")
        return data.view_as(data) if data.requires_grad else data.detach()
    if isinstance(data, (UntypedStorage, TypedStorage)):
        return wrap(np.empty(0, own.numpy)).set_(data)
    if isinstance(data, str):
        raise TypeError("new(): invalid data type 'str'")
    if not isinstance(data, np.ndarray) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    array = _array_of(data, None)
    if own.numpy.kind in "iu" and array.dtype.kind in "iu" and array.size:
        info = np.iinfo(own.numpy)
        if array.min() < info.min or array.max() > info.max:
            raise RuntimeError(f"value cannot be converted to type {own.name} without overflow")
    return to_device(wrap(array.astype(own.numpy)), where)


def _legacy(cls: type, *args: Any, size: Any = None, device: Any = None, **unknown: Any) -> Tensor:
    """``torch.Tensor(...)``, also of subclasses: in the default dtype."""
    if unknown:
        names = ", ".join(unknown)
        raise TypeError(f"new() received an invalid combination of arguments: there is no {names}")
    made = constructed(dtypes.get_default_dtype(), devices.CPU, args, size, device, True)
    return made if cls is Tensor else as_subclass(made, cls)


def _new(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """As ``torch.Tensor(...)``, with this tensor's dtype and device."""
    return constructed(self.dtype, self.device, args, size, device)


core._legacy = _legacy
Tensor.new = _new


class tensortype(type):
    """The type of ``torch.FloatTensor``: its instances are tensors of the dtype on the device."""

    dtype: DType
    is_cuda: bool
    _legacy_dtype: DType
    is_sparse = False

    def __instancecheck__(cls, instance: Any) -> bool:
        is_kind = isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.is_cuda == cls.is_cuda
        return is_kind and not instance.is_sparse

    def __call__(cls, *args: Any, size: Any = None, device: Any = None) -> Tensor:
        where = devices.device("cuda") if cls.is_cuda else devices.CPU
        if cls.is_cuda:
            try:
                devices.library_of(where)
            except RuntimeError as error:
                raise TypeError(f"type torch.cuda.{cls.__name__} not available: {error}") from None
        return constructed(cls.dtype, where, args, size, device)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _types(module: str, is_cuda: bool) -> dict[str, tensortype]:
    return {
        d.legacy: tensortype(d.legacy, (), {"__module__": module, "dtype": d, "_legacy_dtype": d, "is_cuda": is_cuda})
        for d in dtypes.ALL
    }


TYPES, CUDA_TYPES = _types("torch", False), _types("torch.cuda", True)
NAMESPACES["torch"].update(TYPES)


def _type_named(name: str, is_cuda: bool) -> tensortype:
    return (CUDA_TYPES if is_cuda else TYPES)[name]


copyreg.pickle(tensortype, lambda kind: (_type_named, (kind.__name__, kind.is_cuda)))  # type: ignore[arg-type]


@function(method=False)
def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype, and device, by a type such as ``torch.DoubleTensor``, or its name."""
    if isinstance(t, str):
        module, _, name = t.rpartition(".")
        found = {"torch": TYPES, "torch.cuda": CUDA_TYPES}.get(module, {}).get(name)
        if found is None:
            importlib.import_module(module or name)  # ModuleNotFoundError, as PyTorch's
            raise TypeError(f"invalid type object: {t}")
        t = found
    if not isinstance(t, tensortype):
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    dtypes.set_default_dtype(t.dtype)
    devices.set_default_device("cuda" if t.is_cuda else None)


__all__ = ["CUDA_TYPES", "TYPES", "constructed", "tensortype"]
