"""Tensors in other hands: pickles and copies, shared memory, DLPack, NumPy's and CuPy's protocols."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch._utils import _get_obj_state, _set_obj_state, lie_in, reduced, reduced_parameter
from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.memory_files import mapping_of
from dynagraph.torch.core.parameter import Parameter, share
from dynagraph.torch.core.relocation import is_alone
from dynagraph.torch.core.storage import Storage, address_of, extent
from dynagraph.torch.core.tensor import Tensor, storage_of, wrap, written
from dynagraph.torch.functions.common import NAMESPACES, function
from dynagraph.torch.storage import LEGACY, TypedStorage, UntypedStorage, copied, of_memory
from dynagraph.torch.storage import share as share_memory

_DLPACK_CUDA = 2

# -- pickles and copies -----------------------------------------------------------------------------------------------


def _reduce_ex(self: Tensor, protocol: Any) -> Any:
    return reduced(self)


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    found = memo.get(id(self))
    if found is not None:
        return found
    if self.grad_fn is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you were "
            "attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    array = self._array
    made = wrap(array)
    strides = tuple(s // array.itemsize for s in array.strides)
    lie_in(made, copied(storage_of(self), memo), self.storage_offset(), array.shape, strides, self.dtype)
    if type(self) is not Tensor:
        made = made.as_subclass(type(self))
    made._requires_grad = self._requires_grad
    if self._inference:
        made._inference = True
    memo[id(self)] = made
    if self._grad is not None:
        made._grad = copy.deepcopy(self._grad, memo)
    return _set_obj_state(made, copy.deepcopy(_get_obj_state(self), memo))


def _setstate(self: Tensor, state: Any) -> None:
    _set_obj_state(self, state)


def _deepcopy_parameter(self: Parameter, memo: dict[int, Any]) -> Any:
    found = memo.get(id(self))
    if found is None:
        found = memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
    return found


Tensor.__reduce_ex__, Tensor.__deepcopy__, Tensor.__setstate__ = _reduce_ex, _deepcopy, _setstate
Parameter.__reduce_ex__ = lambda self, protocol: reduced_parameter(self)
Parameter.__deepcopy__ = _deepcopy_parameter
Tensor._make_subclass = staticmethod(lambda cls, data, requires_grad=False: share(data, cls, requires_grad))

# -- memory -----------------------------------------------------------------------------------------------------------


def _share_memory_(self: Tensor) -> Tensor:
    """Move the tensor's storage, with all tensors that lie in it, into memory that other processes may have."""
    if isinstance(self._array, np.ndarray) and mapping_of(self._storage.array) is None:
        only = self if is_alone(self) else None
        share_memory(storage_of(self), only)
    return self


def _is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    one, other = self._array, tensor._array
    return (
        storage_of(self) is storage_of(tensor) and one.shape == other.shape and one.strides == other.strides
        and address_of(one) == address_of(other)
    )  # fmt: skip


Tensor.share_memory_, Tensor.is_set_to = _share_memory_, _is_set_to
Tensor.is_shared = lambda self: not isinstance(self._array, np.ndarray) or mapping_of(storage_of(self).array) is not None


@function(namespace="")
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Lie in another memory: as a tensor does, or in a storage by an offset, sizes and strides."""
    if source is None:
        source = NAMESPACES["torch"]["empty"](0, dtype=self.dtype, device=self.device)
    if isinstance(source, Tensor):
        if source._array.dtype != self._array.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {dtypes.scalar_name(source.dtype)} to a tensor of type "
                + dtypes.scalar_name(self.dtype)
            )
        memory = storage_of(source)
        if size is None:
            self._array, self._storage = source._array, memory
            written(self)
            return self
    elif isinstance(source, TypedStorage):
        if source.dtype is not self.dtype:
            raise RuntimeError(f"Expected a Storage of type {self.dtype} or an UntypedStorage, but got type {source.dtype}")
        memory = source.untyped()._memory
    elif isinstance(source, UntypedStorage):
        memory = source._memory
    else:
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    itemsize = self.dtype.itemsize
    shape = (memory.nbytes() // itemsize - storage_offset,) if size is None else tuple(size)
    strides = _contiguous(shape) if stride is None or not tuple(stride) else tuple(stride)
    reach = 0 if 0 in shape else storage_offset * itemsize + extent(shape, tuple(s * itemsize for s in strides), itemsize)
    if reach > memory.nbytes():
        of_memory(memory).resize_(reach)
    lie_in(self, memory, storage_offset, shape, strides, self.dtype)
    written(self)
    return self


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for n in shape[:0:-1]:
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides)) if shape else ()


# -- protocols --------------------------------------------------------------------------------------------------------


def _exported(x: Tensor) -> Any:
    if x.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if x._array.dtype.kind == "V":
        raise BufferError("arrays of bfloat16 have no DLPack type in NumPy")
    return x._array


def _dlpack(
    self: Tensor, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A capsule of the tensor's memory, for another library's from_dlpack."""
    array = _exported(self)
    if isinstance(array, np.ndarray):
        if stream is not None:
            raise BufferError(f"stream: a tensor in the host's memory has none, got {stream!r}")
        return array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def _dlpack_device(self: Tensor) -> Any:
    """The kind and number of the device, as DLPack has them."""
    return self._array.__dlpack_device__()


class _Capsule:
    """A capsule as an object with DLPack's methods."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@function(method=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of any object with `__dlpack__`, or of a capsule."""
    if isinstance(ext_tensor, Tensor):
        array: Any = _exported(ext_tensor)
    else:
        if not hasattr(ext_tensor, "__dlpack__"):
            if type(ext_tensor).__name__ != "PyCapsule":
                raise RuntimeError(f"from_dlpack: expected an object with __dlpack__ or a capsule, got {type(ext_tensor).__name__}")
            ext_tensor = _Capsule(ext_tensor)
        kind, number = ext_tensor.__dlpack_device__()
        if int(kind) == _DLPACK_CUDA:
            array = devices.library_of(devices.device("cuda", int(number))).from_dlpack(ext_tensor)
        else:
            array = np.from_dlpack(ext_tensor)
    dtypes.of_numpy(array.dtype)
    result = wrap(array.copy() if copy else array)
    if isinstance(ext_tensor, Tensor) and not copy:
        result._storage = storage_of(ext_tensor)
    if device is not None:
        moved = result.to(device)
        if copy is False and moved is not result:
            raise ValueError(f"from_dlpack: copy=False, but the data is on {result.device} and {device} was asked for")
        return moved
    return result


NAMESPACES["torch"].update(LEGACY)
NAMESPACES["torch"]["to_dlpack"] = lambda tensor: tensor.__dlpack__()
Tensor.__dlpack__, Tensor.__dlpack_device__ = _dlpack, _dlpack_device


def _cuda_array_interface(self: Tensor) -> Any:
    """The memory as CUDA libraries of Python take it; AttributeError in the host's memory."""
    if isinstance(self._array, np.ndarray):
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is required use tensor.cuda() "
            "to copy tensor to device memory."
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use var.detach() to "
            "get Variable that doesn't require grad."
        )
    return self._array.__cuda_array_interface__


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)


def from_file(make: Callable[..., Any] = np.memmap) -> None:
    """Declare ``torch.from_file``."""

    @function("from_file", method=False)
    def compute(
        filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        """A tensor over a file: with `shared` writes reach the file, which is made where it is not there."""
        kind = (dtype or dtypes.get_default_dtype()).numpy
        if shared:
            with open(filename, "ab") as file:
                file.truncate(max(file.tell(), size * kind.itemsize))
        array = np.asarray(make(filename, kind, "r+" if shared else "c", 0, (size,))) if size else np.empty(0, kind)
        result = wrap(array)
        result._storage = Storage(array)
        return result


from_file()

__all__ = ["from_dlpack", "set_"]
