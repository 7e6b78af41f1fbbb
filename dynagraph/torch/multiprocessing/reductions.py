"""How tensors are pickled for another process: as views of memory that both have.

Picklers differ in how a `Storage` travels.  `messages.py` puts its descriptor, or its bytes, beside the pickle; for the picklers of
`multiprocessing` itself (arguments of new processes, its own queues and pipes) the descriptor is handed on by `reduction.DupFd`.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import reduction
from typing import Any

import numpy as np

from dynagraph._core._dispatch import FileMapping
from dynagraph.torch.core.dtypes import ALL
from dynagraph.torch.core.memory_files import identity, mapping_of
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.parameter import share as share_as
from dynagraph.torch.core.relocation import is_alone
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, storage_of, wrap
from dynagraph.torch.storage import UntypedStorage, of_memory, share
from dynagraph.torch.utils.hooks import warn_if_has_hooks

_BYTES = np.dtype(np.uint8)
# what has gone out of or come into this process, so that memory that comes (back) is the storage that is here: by file and place
_known: weakref.WeakValueDictionary[tuple[int, int, int, int], Storage] = weakref.WeakValueDictionary()
_NO_LEAF = (
    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing process "
    "boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing (e.g., putting it on the "
    "queue)."
)


def reduce_tensor(tensor: Tensor) -> Any:
    """A tensor or parameter as a view of its storage, which is moved into memory that processes share."""
    if isinstance(tensor._array, np.ndarray) and not _has_file(tensor._storage):
        share(tensor._storage, tensor if is_alone(tensor) else None)
    return as_view(tensor)


def as_view(tensor: Tensor) -> Any:
    """A tensor as a view of its storage.  Its gradient stays behind."""
    if tensor._requires_grad or tensor._base is not None:
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(_NO_LEAF)
        warn_if_has_hooks(tensor)
    array = tensor._array
    if not isinstance(array, np.ndarray):
        raise RuntimeError(f"a tensor on {tensor.device} does not pass between processes; .cpu() gives one that does")
    size = array.itemsize
    strides = array.strides if size == 1 else tuple(stride // size for stride in array.strides)
    kind = None if type(tensor) is Tensor else type(tensor)
    place = (tensor.storage_offset(), array.shape, strides, tensor.dtype.name)
    return rebuild_tensor, (storage_of(tensor), place, tensor._requires_grad, kind)


def rebuild_tensor(memory: Storage, place: tuple[Any, ...], requires_grad: bool, kind: type | None) -> Tensor:
    """The tensor of what `reduce_tensor` gives."""
    offset, shape, strides, name = place
    made = wrap(memory.at(_DTYPES[name].numpy, shape, strides, offset))
    made._storage = memory
    if kind is not None:
        return share_as(made, kind, requires_grad)
    if requires_grad:
        made.requires_grad = True
    return made


_DTYPES = {each.name: each for each in ALL}


# -- memory -----------------------------------------------------------------------------------------------------------


def _has_file(memory: Storage) -> bool:
    mapping = mapping_of(memory.array)
    return not memory.nbytes() or (mapping is not None and mapping.file >= 0)


def shared(memory: Storage) -> tuple[FileMapping, int, int]:
    """The mapping that a storage lies in, its place there and how many bytes it has; a storage in other memory is moved.

    The mapping has a descriptor.
    """
    if not _has_file(memory):
        share(memory)
    mapping = mapping_of(memory.array)
    assert mapping is not None
    offset, nbytes = memory.start() - mapping.address, memory.nbytes()
    _known[(*identity(mapping.file), offset, nbytes)] = memory
    return mapping, offset, nbytes


def arrived(file: int, offset: int, nbytes: int) -> Storage:
    """The storage of a descriptor that has come from another process, which this takes."""
    key = (*identity(file), offset, nbytes)
    found = _known.get(key)
    if found is not None:
        mapping = mapping_of(found.array)
        if mapping is not None and mapping.file >= 0 and identity(mapping.file) == key[:2]:  # it has not been moved since
            os.close(file)
            return found
    mapping = FileMapping(file, os.fstat(file).st_size)
    made = _known[key] = Storage(np.frombuffer(mapping, _BYTES, nbytes, offset))
    return made


def reduce_storage(memory: Storage) -> Any:
    """For `multiprocessing`'s picklers."""
    if not memory.nbytes():
        return rebuild_empty, ()
    mapping, offset, nbytes = shared(memory)
    return rebuild_storage_fd, (reduction.DupFd(mapping.file), offset, nbytes)


def rebuild_storage_fd(descriptor: Any, offset: int, nbytes: int) -> Storage:
    """The storage of what `reduce_storage` gives."""
    return arrived(descriptor.detach(), offset, nbytes)


def rebuild_empty() -> Storage:
    """A storage of no bytes."""
    return Storage(np.empty(0, _BYTES))


def _reduce_untyped(storage: UntypedStorage) -> Any:
    return of_memory, (storage._memory,)


REDUCERS = {Tensor: reduce_tensor, Parameter: reduce_tensor, UntypedStorage: _reduce_untyped, Storage: reduce_storage}


def init_reductions() -> None:
    """Have `multiprocessing`'s own picklers share tensors, too."""
    for kind, function in REDUCERS.items():
        reduction.ForkingPickler.register(kind, function)


__all__ = [
    "REDUCERS", "arrived", "init_reductions", "rebuild_empty", "rebuild_storage_fd", "rebuild_tensor", "reduce_storage",
    "reduce_tensor", "shared",
]  # fmt: skip
