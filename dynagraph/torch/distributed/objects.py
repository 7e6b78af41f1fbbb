"""Collectives of Python's objects, as pickles.  A pickle can run code: ranks trust each other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from dynagraph.torch.distributed.groups import ProcessGroup
from dynagraph.torch.distributed.transfers import member, place_in, run, start

_TAG = 31999


def _pickled(value: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def _gathered_sizes(group: ProcessGroup, size: int) -> np.ndarray:
    sizes = np.empty(group.size(), np.int64)
    run(group, group._engine, "all_gather", np.array([size]), sizes)
    return sizes


def _padded(data: np.ndarray, size: int) -> np.ndarray:
    buffer = np.zeros(size, np.uint8)
    buffer[: data.size] = data
    return buffer


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put the ranks' objects in a list that is as long as the group, in each of them."""
    found = member(group, "all_gather_object")
    if found is None:
        return
    _check_length("object_list", object_list, found)
    data = _pickled(obj)
    sizes = _gathered_sizes(found, data.size)
    every = np.empty((found.size(), int(sizes.max())), np.uint8)
    run(found, found._engine, "all_gather", _padded(data, every.shape[1]), every)
    for k, size in enumerate(sizes):
        object_list[k] = pickle.loads(every[k, :size])


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Put the ranks' objects in a list at rank `dst`, 0 by default."""
    found = member(group, "gather_object")
    if found is None:
        return
    root = place_in(found, None if group_dst is not None else 0 if dst is None else dst, group_dst, "gather_object")
    here = root == found.rank()
    if here:
        if not object_gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        _check_length("object_gather_list", object_gather_list, found)
    elif object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data = _pickled(obj)
    sizes = _gathered_sizes(found, data.size)
    width = int(sizes.max())
    every = np.empty((found.size(), width), np.uint8) if here else None
    run(found, found._engine, "gather", _padded(data, width), every, root)
    if every is not None and object_gather_list is not None:
        for k, size in enumerate(sizes):
            object_gather_list[k] = pickle.loads(every[k, :size])


def _check_length(name: str, values: Any, group: ProcessGroup) -> None:
    if not isinstance(values, list) or len(values) < group.size():
        raise ValueError(f"{name} must be a list of at least {group.size()} elements, one for each rank")


def _shared(group: ProcessGroup, data: np.ndarray | None, root: int) -> np.ndarray:
    """The root's bytes, in each rank."""
    size = np.array([0 if data is None else data.size])
    run(group, group._engine, "broadcast", size, root)
    buffer = np.empty(int(size[0]), np.uint8) if data is None else data
    run(group, group._engine, "broadcast", buffer, root)
    return buffer


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Put the objects of rank `src`'s list, 0 by default, in the lists of all; all are as long."""
    found = member(group, "broadcast_object_list")
    if found is None:
        return
    root = place_in(found, None if group_src is not None else 0 if src is None else src, group_src, "broadcast_object_list")
    here = root == found.rank()
    values = pickle.loads(_shared(found, _pickled(object_list) if here else None, root))
    if here:
        return
    if len(values) != len(object_list):
        raise RuntimeError(f"object_list has {len(object_list)} elements, and that of the source rank {len(values)}")
    object_list[:] = values


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None,
    group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Put an object of rank `src`'s list, 0 by default, in the first place of the output list of each."""
    found = member(group, "scatter_object_list")
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = place_in(found, None if group_src is not None else 0 if src is None else src, group_src, "scatter_object_list")
    sizes = np.empty(found.size(), np.int64)
    source = None
    pieces: list[np.ndarray] = []
    if root == found.rank():
        if scatter_object_input_list is None or len(scatter_object_input_list) != found.size():
            raise ValueError(f"source rank must provide a list of {found.size()} objects: one for each rank")
        pieces = [_pickled(value) for value in scatter_object_input_list]
        sizes[:] = [piece.size for piece in pieces]
    run(found, found._engine, "broadcast", sizes, root)
    width = int(sizes.max())
    if root == found.rank():
        source = np.concatenate([_padded(piece, width) for piece in pieces])
    target = np.empty(width, np.uint8)
    run(found, found._engine, "scatter", source, target, root)
    scatter_object_output_list[0] = pickle.loads(target[: sizes[found.rank()]])


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
    use_batch: bool = False,
) -> None:  # fmt: skip
    """Send the objects of a list to rank `dst`."""
    found = member(group, "send_object_list")
    if found is None:
        return
    to = place_in(found, dst, group_dst, "send_object_list")
    if to == found.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    data = _pickled(object_list)
    run(found, found._engine, "send", np.array([data.size]), to, _TAG)
    run(found, found._engine, "send", data, to, _TAG)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
    use_batch: bool = False,
) -> int:  # fmt: skip
    """Receive objects into a list, from rank `src` or whichever sends first; the sender's rank among all."""
    found = member(group, "recv_object_list")
    if found is None:
        return -1
    origin = None if src is None and group_src is None else place_in(found, src, group_src, "recv_object_list")
    size = np.zeros(1, np.int64)
    request = _received(found, size, origin)
    data = np.empty(int(size[0]), np.uint8)
    _received(found, data, request.source)
    values = pickle.loads(data)
    if len(values) != len(object_list):
        raise RuntimeError(f"object_list has {len(object_list)} elements, and that of the source rank {len(values)}")
    object_list[:] = values
    return found._ranks[request.source]


def _received(group: ProcessGroup, buffer: np.ndarray, origin: int | None) -> Any:
    work = start(group, group._engine, "receive", (buffer, origin, _TAG))
    request = work._request
    work.wait()
    return request


__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list", "send_object_list",
]  # fmt: skip
