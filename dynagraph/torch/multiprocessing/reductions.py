"""How tensors are pickled for another process: as views of memory that both have.

Picklers differ in how a `Storage` travels.  `messages.py` puts its descriptor, or its bytes, beside the pickle; for the picklers of
`multiprocessing` itself (arguments of new processes, its own queues and pipes) the descriptor is handed on by `reduction.DupFd`.
Memory of a GPU travels as CUDA's handle, with the descriptor of a claim on it (`dynagraph/cuda/shared_memory.py`).
"""

from __future__ import annotations

import os
import weakref
from multiprocessing import context, reduction
from typing import Any

import numpy as np

from dynagraph._core._dispatch import FileMapping
from dynagraph.cuda import shared_memory
from dynagraph.cuda.devices import on_device
from dynagraph.cuda.shared_memory import Claim
from dynagraph.cuda.state import require_cupy
from dynagraph.torch.core.arrays import is_on_gpu
from dynagraph.torch.core.dtypes import ALL
from dynagraph.torch.core.memory_files import identity, mapping_of
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.parameter import share as share_as
from dynagraph.torch.core.relocation import is_alone, relocate
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, storage_of, wrap
from dynagraph.torch.storage import UntypedStorage, of_memory, share
from dynagraph.torch.utils.hooks import warn_if_has_hooks

_BYTES = np.dtype(np.uint8)
# what has gone out of or come into this process, so that memory that comes (back) is the storage that is here: by file, or key of a
# GPU's memory, and place
_known: weakref.WeakValueDictionary[tuple[Any, ...], Storage] = weakref.WeakValueDictionary()
_NO_LEAF = (
    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing process "
    "boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing (e.g., putting it on the "
    "queue)."
)
_NOT_AGAIN = (
    "a CUDA tensor that was received from another process cannot be sent on: its memory is the other process's.  Send x.clone()"
)


def reduce_tensor(tensor: Tensor) -> Any:
    """A tensor or parameter as a view of its storage, which is moved into memory that processes share."""
    if is_on_gpu(tensor._array):
        if tensor._storage.nbytes():
            _own_memory(tensor._storage, tensor if is_alone(tensor) else None)
    elif isinstance(tensor._array, np.ndarray) and not _has_file(tensor._storage):
        share(tensor._storage, tensor if is_alone(tensor) else None)
    return as_view(tensor)


def as_view(tensor: Tensor) -> Any:
    """A tensor as a view of its storage.  Its gradient stays behind."""
    if tensor._requires_grad or tensor._base is not None:
        if tensor.requires_grad and not tensor.is_leaf:
            raise RuntimeError(_NO_LEAF)
        warn_if_has_hooks(tensor)
    array = tensor._array
    if not isinstance(array, np.ndarray) and not is_on_gpu(array):
        raise RuntimeError("a tensor of a function that is mapped over examples (vmap) does not pass between processes")
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
    if is_on_gpu(memory.array):
        return reduce_storage_cuda(memory, new_claim())
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


# -- memory of GPUs ---------------------------------------------------------------------------------------------------


def _own_memory(memory: Storage, tensor: Tensor | None = None) -> shared_memory.Memory:
    """The allocation that a storage lies in; a storage in CuPy's pool is moved."""
    found = shared_memory.memory_of(memory.array)
    if found is None:
        row = memory.flat(_BYTES)
        device = int(row.device.id)
        found = shared_memory.allocate(row.size, device)
        moved = found.array(0, row.size)
        with on_device(device):
            moved[...] = row
        relocate(memory, moved, tensor)
    elif found.is_received:
        raise RuntimeError(_NOT_AGAIN)
    return found


def new_claim() -> Claim:
    """For a message; what earlier ones held, and nobody has any more, is freed."""
    shared_memory.collect()
    return Claim()


def reduce_storage_cuda(memory: Storage, claim: Claim) -> Any:
    """A storage on a GPU, which is kept as long as somebody has the claim."""
    nbytes = memory.nbytes()
    if not nbytes:
        return rebuild_empty_cuda, (shared_memory.uuid_of(int(memory.array.device.id)),)
    found = _own_memory(memory)
    shared_memory.give(found, claim)
    offset = memory.start() - found.address
    _known[found.key, offset, nbytes] = memory
    return rebuild_storage_cuda, (claim, found.place(), offset, nbytes)


def rebuild_storage_cuda(claim: Claim, place: tuple[bytes, bytes, bytes, int], offset: int, nbytes: int) -> Storage:
    """The storage of what `reduce_storage_cuda` gives."""
    memory = shared_memory.received(place, claim)
    found = _known.get((memory.key, offset, nbytes))
    if found is not None and shared_memory.memory_of(found.array) is memory:  # it has not been moved since
        return found
    made = _known[memory.key, offset, nbytes] = Storage(memory.array(offset, nbytes))
    return made


def rebuild_empty_cuda(uuid: bytes) -> Storage:
    """A storage of no bytes on a GPU."""
    with on_device(shared_memory.device_of(uuid)):
        return Storage(require_cupy().empty(0, _BYTES))


def reduce_claim(claim: Claim) -> Any:
    """For `multiprocessing`'s picklers.  A process that is being started gets the descriptor when all is pickled."""
    starting = context.get_spawning_popen()
    if starting is not None:
        reference = weakref.ref(starting)
        shared_memory.keep_until(lambda: (popen := reference()) is None or hasattr(popen, "pid"), claim)
    return rebuild_claim, (reduction.DupFd(claim.file),)


def rebuild_claim(descriptor: Any) -> Claim:
    """The claim of what `reduce_claim` gives."""
    file = descriptor.detach()
    os.set_inheritable(file, False)  # programs that this process starts do not have the memory
    return Claim(file)


def _reduce_untyped(storage: UntypedStorage) -> Any:
    return of_memory, (storage._memory,)


REDUCERS = {
    Tensor: reduce_tensor, Parameter: reduce_tensor, UntypedStorage: _reduce_untyped, Storage: reduce_storage, Claim: reduce_claim,
}  # fmt: skip


def init_reductions() -> None:
    """Have `multiprocessing`'s own picklers share tensors, too."""
    for kind, function in REDUCERS.items():
        reduction.ForkingPickler.register(kind, function)


__all__ = [
    "REDUCERS", "arrived", "init_reductions", "new_claim", "rebuild_claim", "rebuild_empty", "rebuild_empty_cuda",
    "rebuild_storage_cuda", "rebuild_storage_fd", "rebuild_tensor", "reduce_claim", "reduce_storage", "reduce_storage_cuda",
    "reduce_tensor", "shared",
]  # fmt: skip
