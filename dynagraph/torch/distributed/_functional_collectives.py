"""``torch.distributed._functional_collectives``: collectives that give new tensors, by names of operations and dimensions.

PyTorch gives an `AsyncCollectiveTensor`, which waits when it is used. Here the results are there when a function gives them: they
are plain tensors, and `wait_tensor` gives its argument.  Gradients pass through all of them, as collectives that backward calls in
all ranks; through `broadcast` and `permute_tensor` too, whose gradients PyTorch leaves on their rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.autograd.function import Function
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed import collectives as plain
from dynagraph.torch.distributed.device_mesh import DeviceMesh
from dynagraph.torch.distributed.groups import ProcessGroup, group_named, group_of_ranks, world
from dynagraph.torch.distributed.nn import functional as differentiable
from dynagraph.torch.distributed.reduce_ops import RedOpType, ReduceOp
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]

REDUCE_OP_TO_STR = {op: op.name.lower() for op in RedOpType if op is not RedOpType.PREMUL_SUM}
_OF_NAMES = {name: op for op, name in REDUCE_OP_TO_STR.items()}


class AsyncCollectiveTensor(Tensor):
    """PyTorch's result of a collective that has not ended.  No tensor here is one: there is nothing to wait for."""

    def __new__(cls, elem: Tensor) -> Tensor:  # type: ignore[misc]
        return elem


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, whose values are there."""
    return tensor


def _group_of(group: Any) -> ProcessGroup:
    """The group that is meant: a ProcessGroup, its name, its ranks, a mesh of one dimension, or a mesh and a dimension."""
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, str):
        return group_named(group)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    if isinstance(group, tuple):
        if len(group) == 2 and isinstance(group[0], DeviceMesh) and isinstance(group[1], int):
            return group[0].get_group(group[1])
        raise ValueError("Invalid tuple for group must be (DeviceMesh, int)")
    if isinstance(group, list):
        return group_of_ranks(group)
    raise ValueError(f"Unsupported group type: {type(group)}, {group}")


def _operation(name: str) -> Any:
    found = _OF_NAMES.get(name.lower())
    if found is None:
        raise RuntimeError(f"Unrecognized reduce_op: {name}")
    return found


def _check_differentiable(who: str, op: Any) -> None:
    if op is not ReduceOp.SUM:
        raise RuntimeError(f"{who} backward only supports 'sum' reduction, got '{REDUCE_OP_TO_STR[op]}'")


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, x: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        x = _dense(x)
        plain.all_reduce(x, op, group)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _check_differentiable("all_reduce", ctx.op)
        return None, None, _AllReduce.apply(ctx.op, ctx.group, g)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, x: Tensor) -> Tensor:
        ctx.group = group
        whole = _torch["empty"]((group.size() * x.size(0), *x.shape[1:]), dtype=x.dtype, device=x.device)
        plain.all_gather_into_tensor(whole, x, group)
        return whole  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, g)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, x: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        part = _torch["empty"]((x.size(0) // group.size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
        plain.reduce_scatter_tensor(part, x, op, group)
        return part  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        _check_differentiable("reduce_scatter_tensor", ctx.op)
        return None, None, _AllGather.apply(ctx.group, g)


def _dense(x: Tensor) -> Tensor:
    copy = _torch["empty"](x.shape, dtype=x.dtype, device=x.device)
    copy.copy_(x)
    return copy  # type: ignore[no-any-return]


def _moved(x: Tensor, count: int, origin: int, dim: int) -> Tensor:
    """A tensor of `count` parts along one dimension, with these along another one."""
    return _torch["cat"](_torch["chunk"](x, count, dim=origin), dim=dim)  # type: ignore[no-any-return]


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of rank `src`."""
    return differentiable.broadcast(self, src, _group_of(group))


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The sum of the ranks' tensors, or what `reduceOp` names: avg, product, min, max, band, bor, bxor.

    RuntimeError in the backward of all but sums.
    """
    return _AllReduce.apply(_operation(reduceOp), _group_of(group), self)  # type: ignore[no-any-return]


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The ranks' tensors, joined along a dimension."""
    found = _group_of(group)
    whole = _AllGather.apply(found, self)
    return whole if gather_dim == 0 else _moved(whole, found.size(), 0, gather_dim)  # type: ignore[no-any-return]


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This rank's part, along a dimension, of the sum of the ranks' tensors, or of what `reduceOp` names."""
    found, op = _group_of(group), _operation(reduceOp)
    size, ranks = self.size(scatter_dim), found.size()
    if size % ranks:
        raise AssertionError(f"input dimension {scatter_dim} ({size} must be a multiple of group_size {ranks})")
    source = self if scatter_dim == 0 else _moved(self, ranks, scatter_dim, 0)
    return _ReduceScatter.apply(op, found, source)  # type: ignore[no-any-return]


def all_to_all_single(
    self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None, group: Any, tag: str = ""
) -> Tensor:
    """The rows that each rank has for this one; as many for each, or as the sizes say."""
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError(
            "output_split_sizes and input_split_sizes must either be specified together or both set to None"
        )  # fmt: skip
    rows = self.size(0) if output_split_sizes is None else sum(output_split_sizes)
    received = _torch["empty"]((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    return differentiable.all_to_all_single(received, self, output_split_sizes, input_split_sizes, _group_of(group))


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any, tag: str = "") -> Tensor:
    """The tensor of the rank that sends to this one: rank `k` sends to rank ``src_dst[k]`` of the group."""
    found = _group_of(group)
    if sorted(src_dst) != list(range(found.size())):
        raise ValueError(f"permute_tensor: src_dst should name each rank of the group once, not {list(src_dst)}")
    rank, ranks, rows = found.rank(), range(found.size()), self.size(0)
    outward = [rows if k == src_dst[rank] else 0 for k in ranks]
    inward = [rows if src_dst[k] == rank else 0 for k in ranks]
    return all_to_all_single(self, inward, outward, found)


# -- of several tensors -----------------------------------------------------------------------------------------------


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    """`all_reduce` of each."""
    found = _group_of(group)
    return [all_reduce(x, reduceOp, found) for x in self]


def all_gather_into_tensor_coalesced(self: Sequence[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """`all_gather_tensor` of each, along the first dimension."""
    found = _group_of(group)
    return [all_gather_tensor(x, 0, found) for x in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: Sequence[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """`reduce_scatter_tensor` of each, along a dimension for each."""
    found = _group_of(group)
    if len(scatter_dim) != len(inputs):
        raise AssertionError(f"scatter_dim names {len(scatter_dim)} dimensions of {len(inputs)} tensors")
    return [reduce_scatter_tensor(x, reduceOp, dim, found) for x, dim in zip(inputs, scatter_dim)]


# -- into tensors that are given --------------------------------------------------------------------------------------


def _at_once(async_op: bool) -> None:
    if async_op:
        raise AssertionError("Can't remap async version of inplace op to functional collective")


def _given(group: Any) -> Any:
    return world() if group is None else group


def all_reduce_inplace(tensor: Tensor, op: str = "sum", group: Any = None, async_op: bool = False, tag: str = "") -> Tensor:
    """Put what `all_reduce` gives in the tensor; the tensor."""
    _at_once(async_op)
    return tensor.copy_(all_reduce(tensor, op, _given(group)))  # type: ignore[no-any-return]


def all_gather_tensor_inplace(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False, tag: str = "", gather_dim: int = 0
) -> Tensor:
    """Put what `all_gather_tensor` gives in a tensor; this tensor."""
    _at_once(async_op)
    return output_tensor.copy_(all_gather_tensor(input_tensor, gather_dim, _given(group)))  # type: ignore[no-any-return]


def reduce_scatter_tensor_inplace(
    output: Tensor, input: Tensor, op: str = "sum", group: Any = None, async_op: bool = False, scatter_dim: int = 0, tag: str = ""
) -> Tensor:
    """Put what `reduce_scatter_tensor` gives in a tensor; this tensor."""
    _at_once(async_op)
    return output.copy_(reduce_scatter_tensor(input, op, scatter_dim, _given(group)))  # type: ignore[no-any-return]


def all_to_all_inplace(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None,
    async_op: bool = False, tag: str = "",
) -> Tensor:  # fmt: skip
    """Put what `all_to_all_single` gives in a tensor; this tensor."""
    _at_once(async_op)
    found = all_to_all_single(input, output_split_sizes, input_split_sizes, _given(group))
    return output.copy_(found)  # type: ignore[no-any-return]


def all_gather_inplace(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False, tag: str = ""
) -> list[Tensor]:
    """Put the ranks' tensors in those of a list; the list."""
    _at_once(async_op)
    plain.all_gather(tensor_list, tensor, _given(group))
    return tensor_list


all_gather_single, all_gather_tensor_autograd, all_gather_single_autograd = (all_gather_tensor,) * 3
reduce_scatter_single, reduce_scatter_tensor_autograd, reduce_scatter_single_autograd = (reduce_scatter_tensor,) * 3
all_to_all_single_autograd = all_to_all_single
all_gather_single_coalesced, reduce_scatter_single_coalesced = all_gather_into_tensor_coalesced, reduce_scatter_tensor_coalesced

__all__ = [
    "REDUCE_OP_TO_STR", "AsyncCollectiveTensor", "all_gather_inplace", "all_gather_into_tensor_coalesced", "all_gather_single",
    "all_gather_single_autograd", "all_gather_single_coalesced", "all_gather_tensor", "all_gather_tensor_autograd",
    "all_gather_tensor_inplace", "all_reduce", "all_reduce_coalesced", "all_reduce_inplace", "all_to_all_inplace",
    "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_single",
    "reduce_scatter_single_autograd", "reduce_scatter_single_coalesced", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_inplace", "wait_tensor",
]  # fmt: skip
