"""New memory for a storage: `resize_` and `share_memory_`.  All tensors that lie in the storage follow."""

from __future__ import annotations

import gc
import sys
from typing import Any

from dynagraph.torch.core.storage import Storage, address_of, extent
from dynagraph.torch.core.tensor import Tensor, wrap

_OUTSIDE = "_outside"  # in the `__dict__` of tensors that reach behind the end of their storage: their first byte in it


def _references(tensor: Tensor) -> int:
    return sys.getrefcount(tensor._storage)


_ALONE = _references(wrap(None))  # of a storage that nobody has but its tensor


def tensors_in(memory: Storage) -> list[Tensor]:
    """The tensors that lie in a memory: a storage does not know them, the garbage collector does."""
    return [t for t in gc.get_referrers(memory) if isinstance(t, Tensor) and t._storage is memory]


def is_alone(tensor: Tensor, others: int = 0) -> bool:
    """Whether no other tensor lies in a tensor's storage, which so many other objects refer to."""
    return _references(tensor) <= _ALONE + others


def relocate(memory: Storage, array: Any, tensor: Tensor | None = None) -> None:
    """Give a storage another array.  `tensor`: the only one that lies in it, where that is known.

    Tensors that reach behind the end of the new memory keep the old one until there is enough.
    """
    tensors = tensors_in(memory) if tensor is None else [tensor]
    start = memory.start() if memory.nbytes() else 0
    places = []
    for each in tensors:
        place = each.__dict__.pop(_OUTSIDE, None)
        places.append(address_of(each._array) - start if place is None and each._array.size else place or 0)
    memory.array = array
    end = memory.nbytes()
    for each, place in zip(tensors, places):
        own = each._array
        size = own.itemsize
        if place + extent(own.shape, own.strides, size) <= end:
            each._array = memory.at(own.dtype, own.shape, tuple(s // size for s in own.strides), place // size)
        else:
            each.__dict__[_OUTSIDE] = place


__all__ = ["is_alone", "relocate", "tensors_in"]
