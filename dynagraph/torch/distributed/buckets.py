"""Gradients of many parameters in few flat tensors, so that few messages carry them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor, is_dense, wrap
from dynagraph.torch.distributed.common_memory import Room
from dynagraph.torch.distributed.effects import WHOLES
from dynagraph.torch.distributed.objects import all_gather_object
from dynagraph.torch.distributed.transfers import member
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]
FIRST_BYTES = 1 << 20  # of the bucket whose gradients come first: its message leaves early
MIB = 1 << 20
_ALIGNMENT = 64  # bytes
_LITTLE = 1 / 16  # of the smallest limit of buckets
_numbers = itertools.count(1)


class Bucket:
    """The gradients of some parameters in one tensor.

    `numbers`: which parameters; `flat`: all gradients; `views`: the part of each, in its parameter's shape and order in memory;
    `pending`: how many are still to come; `work`: what waits for the sum over ranks.
    """

    __slots__ = ("flat", "numbers", "parameters", "pending", "place", "views", "work")

    def __init__(self, numbers: Sequence[int], parameters: Sequence[Tensor], memory: Any = None):
        """`memory`: a flat array for all gradients; without it the bucket has memory of its own."""
        self.numbers, self.parameters = list(numbers), [parameters[k] for k in numbers]
        first = self.parameters[0]
        count = sum(p.numel() for p in self.parameters)
        self.flat: Tensor = _torch["zeros"](count, dtype=first.dtype, device=first.device) if memory is None else wrap(memory)
        self.views: list[Tensor] = parts_of(self.flat, self.parameters)
        self.pending, self.work = len(self.numbers), None
        self.place = f"bucket {next(_numbers)}"  # the name of its memory in programs
        if isinstance(self.flat._array, np.ndarray):
            WHOLES[self.place] = self.flat._array


def parts_of(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a flat tensor that tensors fill one after the other, each with its tensor's shape and order in memory."""
    parts, start = [], 0
    with no_grad():
        for tensor in like:
            stop = start + tensor.numel()
            part = flat[start:stop]
            if tensor.is_contiguous() or not _fills(tensor):
                parts.append(part.view(tensor.shape))
            else:
                parts.append(part.as_strided(tensor.shape, tensor.stride()))
            start = stop
    return parts


def _fills(tensor: Tensor) -> bool:
    """Whether the elements fill a piece of memory: dimensions in another order, but no gaps."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if step != expected:
            return False
        expected *= size
    return is_dense(tensor._array)


def cut(parameters: Sequence[Tensor], order: Sequence[int], limits: Sequence[float]) -> list[list[int]]:
    """Parameters in buckets, in an order: each bucket of one dtype and device is closed when it has reached its limit in bytes.

    The first bucket of a dtype and device has the first limit, the next ones the next, the last limit serves all that follow.
    What is left of a dtype in the end, if it is little, is added to the bucket before: a bias whose weight has just come is no
    message of its own.  Buckets are in the order of their first parameters.
    """
    open_ones: dict[Any, tuple[list[int], int]] = {}
    closed: dict[Any, int] = {}
    before: dict[Any, list[int]] = {}  # the bucket that was closed last
    found: list[tuple[int, list[int]]] = []
    for place, k in enumerate(order):
        parameter = parameters[k]
        key = parameter.dtype, str(parameter.device)
        members, size = open_ones.get(key, ([], 0))
        if not members:
            found.append((place, members))
        members.append(k)
        size += parameter.numel() * parameter.element_size()
        if size >= limits[min(closed.get(key, 0), len(limits) - 1)]:
            closed[key] = closed.get(key, 0) + 1
            before[key] = members
            open_ones.pop(key, None)
        else:
            open_ones[key] = members, size
    for key, (members, size) in open_ones.items():
        if key in before and size < _LITTLE * min(limits):
            before[key] += members
            members.clear()
    return [members for _, members in found if members]


def limits_of(bucket_cap_mb: float | None) -> list[float]:
    """The limits of buckets in bytes: the first is small."""
    cap = 25.0 if bucket_cap_mb is None else bucket_cap_mb
    return [min(FIRST_BYTES, cap * MIB) if math.isfinite(cap) else FIRST_BYTES, cap * MIB]


def in_room(members: Sequence[Sequence[int]], parameters: Sequence[Tensor], group: Any) -> tuple[list[Bucket], Room | None]:
    """Buckets in memory that the ranks of a group have in common, and that memory, which must be kept; all ranks call it."""
    places, end = [], 0
    for numbers in members:
        places.append(end)
        end += -(-_bytes_of(numbers, parameters) // _ALIGNMENT) * _ALIGNMENT
    room = _room(group, end, parameters)
    if room is None:
        return [Bucket(numbers, parameters) for numbers in members], None

    def array(begin: int, numbers: Sequence[int]) -> Any:
        return room.own[begin : begin + _bytes_of(numbers, parameters)].view(parameters[numbers[0]]._array.dtype)

    return [Bucket(numbers, parameters, array(k, numbers)) for k, numbers in zip(places, members)], room


def _room(group: Any, nbytes: int, parameters: Sequence[Tensor]) -> Room | None:
    found = member(group, "all_gather_object")
    if found is None:
        return None
    engine = found.engine_of(parameters[0].device.type)
    if parameters[0].device.type != "cpu" or any(engine.reduced_as(p._array.dtype) != p._array.dtype for p in parameters):
        return None  # a copy is what is reduced

    def tell(text: str) -> list[str]:
        every: list[Any] = [None] * found.size()
        all_gather_object(every, text, found)
        return every

    return engine.room(tell, nbytes)


def _bytes_of(numbers: Sequence[int], parameters: Sequence[Tensor]) -> int:
    return sum(parameters[k].numel() * parameters[k].element_size() for k in numbers)


class GradBucket:
    """What a communication hook is given: the gradients of a bucket, and which one it is."""

    def __init__(self, bucket: Bucket, index: int, is_last: bool, flat: Tensor | None = None):
        self._bucket, self._index, self._is_last = bucket, index, is_last
        self._buffer = bucket.flat if flat is None else flat

    def index(self) -> int:
        """The number of the bucket, in the order in which they are reduced."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients of the bucket, flat."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Put another tensor in the buffer's place."""
        self._buffer = tensor

    def gradients(self) -> list[Tensor]:
        """The parts of the buffer that belong to each parameter, in their shapes."""
        return parts_of(self._buffer, self._bucket.parameters)

    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients these are."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether it is the last bucket of this backward."""
        return self._is_last


__all__ = ["FIRST_BYTES", "MIB", "Bucket", "GradBucket", "cut", "in_room", "limits_of", "parts_of"]
