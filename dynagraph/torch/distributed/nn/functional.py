"""``torch.distributed.nn.functional``: collectives that give new tensors, through which gradients pass.

The gradient of each is another one, which all ranks of the group call as well: backward must run in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.autograd.function import Function
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed import collectives as plain
from dynagraph.torch.distributed.groups import member_of, place_of
from dynagraph.torch.distributed.reduce_ops import ReduceOp
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]


def _empty(like: Tensor) -> Tensor:
    """A new dense tensor of the same shape and dtype, in C order."""
    return _torch["empty"](like.shape, dtype=like.dtype, device=like.device)  # type: ignore[no-any-return]


def _dense(x: Tensor) -> Tensor:
    """A copy in C order."""
    copy = _empty(x)
    copy.copy_(x)
    return copy


def _is_here(group: Any, rank: int) -> bool:
    found = member_of(group)
    return found is not None and place_of(found, rank) == found.rank()


def _count(group: Any) -> int:
    found = member_of(group)
    return 1 if found is None else found.size()


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, x: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        x = _dense(x)
        plain.broadcast(x, src, group)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        total = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, g)
        return None, None, total if _is_here(ctx.group, ctx.src) else total * 0


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, x: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        x = _dense(x)
        plain.reduce(x, dst, op, group)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, g)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, x: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        x = _dense(x)
        plain.all_reduce(x, op, group)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, g)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, x: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        gathered = [_torch["zeros_like"](x) for _ in range(_count(group))]
        plain.gather(x, gathered if _is_here(group, dst) else None, dst, group)
        return tuple(gathered)

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *gs)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *xs: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        if any(x.shape != xs[0].shape for x in xs):
            raise ValueError("scatter: all tensors must have the same shape")
        part = _empty(xs[0])
        plain.scatter(part, list(xs) if _is_here(group, src) else None, src, group)
        return part

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.group, g)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, output: Tensor, *xs: Tensor) -> Tensor:
        ctx.group = group
        part = _empty(output)
        plain.reduce_scatter(part, list(xs), op, group)
        return part

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, None, *_AllGather.apply(ctx.group, g)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, x: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        gathered = [_empty(x) for _ in range(_count(group))]
        plain.all_gather(gathered, x, group)
        return tuple(gathered)

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, gs[0], *gs)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: Sequence[Tensor], *xs: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = group, [_empty(x) for x in xs]
        received = [_empty(output) for output in outputs]
        plain.all_to_all(received, list(xs), group)
        return tuple(received)

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *gs)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, output: Tensor, output_sizes: Any, input_sizes: Any, x: Tensor) -> Tensor:
        ctx.group, ctx.like, ctx.sizes = group, _empty(x), (input_sizes, output_sizes)
        received = _empty(output)
        plain.all_to_all_single(received, x, output_sizes, input_sizes, group)
        return received

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, ctx.like, *ctx.sizes, g)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank `src`.  Its gradient is the sum of all ranks'."""
    return _Broadcast.apply(src, group, tensor)  # type: ignore[no-any-return]


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The ranks' tensors, at rank `dst`; zeros elsewhere."""
    return _Gather.apply(dst, group, tensor)  # type: ignore[no-any-return]


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This rank's of the tensors of rank `src`.  All ranks give tensors, so that there are shapes."""
    return _Scatter.apply(src, group, *tensors)  # type: ignore[no-any-return]


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the ranks' tensors at rank `dst`; elsewhere the tensor itself."""
    return _Reduce.apply(dst, op, group, tensor)  # type: ignore[no-any-return]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors that the ranks' lists have for this one.  `output` says the shape."""
    return _ReduceScatter.apply(op, group, output, *input_list)  # type: ignore[no-any-return]


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The ranks' tensors."""
    return _AllGather.apply(group, tensor)  # type: ignore[no-any-return]


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """What each rank's list has for this one.  `output_tensor_list` says the shapes."""
    return _AllToAll.apply(group, output_tensor_list, *input_tensor_list)  # type: ignore[no-any-return]


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Any = None,
) -> Tensor:  # fmt: skip
    """The rows that each rank has for this one.  `output` says the shape."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)  # type: ignore[no-any-return]


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the ranks' tensors.  Its gradient is the sum of the ranks' gradients."""
    return _AllReduce.apply(op, group, tensor)  # type: ignore[no-any-return]


__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip
