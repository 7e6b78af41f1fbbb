"""Messages between two processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.distributed.effects import OPERATIONS, captured, nothing, runs_plainly
from dynagraph.torch.distributed.engines import DistBackendError
from dynagraph.torch.distributed.groups import ProcessGroup, get_rank, world
from dynagraph.torch.distributed.transfers import ended, engine_for, member, place_in, read_from, start, tensor_given, write_to
from dynagraph.torch.distributed.work import Work


class _Received(Work):
    """The Work of `irecv`."""

    __slots__ = ("_receiving",)

    def source_rank(self) -> int:
        """The rank in the group that the message came from."""
        return int(self._receiving.source)

    _source_rank = source_rank


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Start sending a tensor to rank `dst`.  It must not change until the Work has ended."""
    return _sent(tensor, dst, group, tag, group_dst, True)


def _sent(tensor: Tensor, dst: int | None, group: Any, tag: int, group_dst: int | None, async_op: bool) -> Work | None:
    tensor_given(tensor, "tensor")
    found = member(group, "isend")
    if found is None:
        return None
    to = place_in(found, dst, group_dst)
    if to == found.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    engine = engine_for(found, tensor)
    if is_compiling():
        return captured("send", found, tensor._array, (0,), [], async_op, to, tag)  # type: ignore[no-any-return]
    return ended(start(found, engine, "send", (read_from(tensor, engine), to, tag), None, [tensor]), async_op)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Start receiving into a tensor from rank `src`, or from whichever sends first with this tag."""
    tensor_given(tensor, "tensor")
    found = member(group, "irecv")
    if found is None:
        return None
    origin = None if src is None and group_src is None else place_in(found, src, group_src)
    if origin == found.rank():
        raise ValueError("Invalid source rank: source rank should not be the same as the rank of the current process.")
    engine = engine_for(found, tensor)
    if is_compiling():
        if origin is None:
            runs_plainly("who has sent a message is known when it has come: name the source rank")
        array = tensor._array
        coming = captured("receive", found, nothing(array.dtype), array.shape, [tensor], True, origin, tag)
        coming._origin = origin
        return coming  # type: ignore[no-any-return]
    buffer, copy_back = write_to(tensor, engine, False)

    def finish() -> None:
        receiving = work._receiving
        if receiving.nbytes != buffer.nbytes:
            raise DistBackendError(
                f"[Rank {engine.rank}] {work._what}: a message of {receiving.nbytes} bytes came from rank "
                f"{found._ranks[receiving.source]} for a tensor of {buffer.nbytes} bytes: shapes or dtypes differ"
            )
        if copy_back is not None:
            copy_back()

    work = start(found, engine, "receive", (buffer, origin, tag), finish, [tensor], kind=_Received)
    work._receiving = work._request
    return work


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to rank `dst`, which receives with the same `tag`."""
    _sent(tensor, dst, group, tag, group_dst, False)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into a tensor from rank `src`, or from whichever sends first; the sender's rank, -1 outside the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return (world() if group is None else group)._ranks[work.source_rank()]  # type: ignore[no-any-return]


class P2POp:
    """A message of `batch_isend_irecv`: ``P2POp(torch.distributed.isend, tensor, peer)``, or irecv."""

    def __init__(
        self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
        group_peer: int | None = None,
    ):  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        tensor_given(tensor, "tensor")
        self.group = world() if group is None else group
        self.group_peer = place_in(self.group, peer, group_peer)
        self.op, self.tensor, self.tag, self.peer = op, tensor, tag, self.group._ranks[self.group_peer]

    def __repr__(self) -> str:
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={get_rank(self.group)}, "
            f"group_dst={self.group_peer}, {self.tensor.dtype}, {list(self.tensor.shape)})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start all messages of a list; their Works."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if not p2p_op_list:
        raise ValueError("p2p_op_list must not be empty")
    if any(op.group._backend != p2p_op_list[0].group._backend for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    for op in p2p_op_list:
        about = {"group_dst" if op.op is isend else "group_src": op.group_peer}
        works.append(op.op(op.tensor, group=op.group, tag=op.tag, **about))
    return [work for work in works if work is not None]


# what compiled programs call: with arrays, the target's new
OPERATIONS.update({
    "send": lambda group, x, target, to, tag: isend(wrap(x), None, group, tag, group_dst=to),
    "receive": lambda group, x, target, origin, tag: irecv(wrap(target), None, group, tag, group_src=origin),
})  # fmt: skip

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]
