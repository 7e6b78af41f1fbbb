"""Operations that all processes of a group call: in the same order, with tensors of the same shapes."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor, check_cast, wrap
from dynagraph.torch.distributed.effects import (
    OPERATIONS,
    captured,
    nothing,
    runs_plainly,
    started_where_it_lies,
)
from dynagraph.torch.distributed.engines import Engine
from dynagraph.torch.distributed.groups import ProcessGroup
from dynagraph.torch.distributed.reduce_ops import RedOpType, ReduceOp, supports_complex
from dynagraph.torch.distributed.transfers import (
    empty_beside,
    ended,
    engine_for,
    joined,
    list_given,
    member,
    parts_of,
    place_in,
    read_from,
    run,
    same_dtypes,
    start,
    tensor_given,
    write_to,
)  # fmt: skip
from dynagraph.torch.distributed.work import Several, Work

_BITWISE = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)


def _reduction(op: Any, tensor: Tensor, engine: Engine, operation: str) -> tuple[str, np.dtype]:
    """How an engine reduces: its operation, and the dtype that it adds up in."""
    if not isinstance(op, RedOpType):
        raise TypeError(f"{operation}: op must be a ReduceOp, such as ReduceOp.SUM, not {op!r}")
    dtype = tensor._array.dtype
    if dtype.kind == "c" and not supports_complex(op):
        raise ValueError(f"{operation} does not support RedOpType.{op.name} on complex tensors")
    if op in _BITWISE and dtype.kind not in "iub":
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if op is RedOpType.PREMUL_SUM:
        raise RuntimeError(f"{operation}: ReduceOp.PREMUL_SUM is not supported")
    if op is RedOpType.AVG and dtype.kind in "iub":
        check_cast(dtypes.get_default_dtype(), tensor.dtype)
    return "SUM" if op is RedOpType.AVG else op.name, engine.reduced_as(dtype)


def _divisor(op: Any, engine: Engine) -> int:
    """By what a sum is divided."""
    return engine.size if op is RedOpType.AVG else 1


def _about(*tensors: Tensor) -> str:
    return ", ".join(f"{t.dtype} {list(t._array.shape)}" for t in tensors)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Put the sum of the ranks' tensors, or what `op` says, in each of them.

    With `async_op` the result is there after the returned Work's `wait`; until then the tensor must not be used.
    """
    tensor_given(tensor, "tensor")
    found = member(group, "all_reduce")
    if found is None:
        return None
    if is_compiling():
        array = tensor._array
        _reduction(op, tensor, engine_for(found, tensor), "all_reduce")
        return captured("all_reduce", found, array, array.shape, [tensor], async_op, op.name)  # type: ignore[no-any-return]
    return ended(_all_reduced(found, tensor, op), async_op)


def _all_reduced(group: ProcessGroup, tensor: Tensor, op: Any, divisor: int | None = None) -> Work:
    engine = engine_for(group, tensor)
    name, dtype = _reduction(op, tensor, engine, "all_reduce")
    by = _divisor(op, engine) if divisor is None else divisor
    buffer, finish = write_to(tensor, engine, True, dtype)
    about = f"{_about(tensor)} {op.name}" + ("" if divisor is None else f" by {divisor}")
    return start(group, engine, "all_reduce", (buffer, name, by), finish, [tensor], about)  # type: ignore[no-any-return]


def start_average(tensor: Tensor, group: Any, divisor: int) -> Work:
    """Begin to put the sum of the ranks' tensors, divided by a number that all of them give, in each of them."""
    found = member(group, "all_reduce")
    assert found is not None
    return _all_reduced(found, tensor, ReduceOp.SUM, divisor)


def captured_average(parts: Sequence[Tensor], group: Any, divisor: int, place: str) -> Any:
    """As `start_average` in captured code, of tensors that lie one after the other in the memory that has a name: a number for
    `finished_part`."""
    found = member(group, "all_reduce")
    assert found is not None
    details = (ReduceOp.SUM.name, divisor)
    return started_where_it_lies("all_reduce", found.group_name, place, details, *[part._array for part in parts])


def reduce(
    tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """As `all_reduce`, with the result in the tensor of rank `dst` alone; the others keep theirs."""
    tensor_given(tensor, "tensor")
    found = member(group, "reduce")
    if found is None:
        return None
    root = place_in(found, dst, group_dst)
    engine = engine_for(found, tensor)
    name, dtype = _reduction(op, tensor, engine, "reduce")
    if is_compiling():
        array, targets = tensor._array, [tensor] if root == engine.rank else []
        return captured("reduce", found, array, array.shape, targets, async_op, root, op.name)  # type: ignore[no-any-return]
    if root == engine.rank:
        buffer, finish = write_to(tensor, engine, True, dtype)
    else:
        buffer, finish = read_from(tensor, engine, dtype), None
    about, arguments = f"{_about(tensor)} {op.name} to {root}", (buffer, name, root, _divisor(op, engine))
    return ended(start(found, engine, "reduce", arguments, finish, [tensor], about), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Put the tensor of rank `src` in that of each."""
    tensor_given(tensor, "tensor")
    found = member(group, "broadcast")
    if found is None:
        return None
    root = place_in(found, src, group_src)
    engine = engine_for(found, tensor)
    if is_compiling():
        array = tensor._array
        return captured("broadcast", found, array, array.shape, [tensor], async_op, root)  # type: ignore[no-any-return]
    if root == engine.rank:
        buffer, finish = read_from(tensor, engine), None
    else:
        buffer, finish = write_to(tensor, engine, False)
    about = f"{_about(tensor)} from {root}"
    return ended(start(found, engine, "broadcast", (buffer, root), finish, [tensor], about), async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Put the ranks' tensors in the tensors of a list, in each of them."""
    tensors = list_given(tensor_list, "tensor_list")
    tensor_given(tensor, "tensor")
    found = member(group, "all_gather")
    if found is None:
        return None
    same_dtypes(tensor, *tensors)
    _check_list("all_gather", "output", tensors, tensor, found)
    engine = engine_for(found, tensor)
    if is_compiling():
        array = tensor._array
        shape = (engine.size, *array.shape)
        return captured("all_gather", found, array, shape, tensors, async_op)  # type: ignore[no-any-return]
    source = read_from(tensor, engine)
    target = empty_beside(source, source.size * engine.size)
    finish = parts_of(target, tensors)
    return ended(start(found, engine, "all_gather", (source, target), finish, tensors, _about(tensor)), async_op)


def _check_list(operation: str, which: str, tensors: Sequence[Tensor], like: Tensor, group: ProcessGroup) -> None:
    if len(tensors) != group.size():
        raise RuntimeError(f"{operation}: invalid {which} tensor list (expected length {group.size()}, got {len(tensors)})")
    for k, tensor in enumerate(tensors):
        if tensor._array.shape != like._array.shape:
            raise RuntimeError(
                f"{operation}: invalid tensor size at index {k} (expected {like._array.shape}, got {tensor._array.shape})"
            )


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Put the ranks' tensors, one behind the other, in one that has the elements of all, in each of them."""
    tensor_given(output_tensor, "output_tensor"), tensor_given(input_tensor, "input_tensor")
    found = member(group, "all_gather_into_tensor")
    if found is None:
        return None
    same_dtypes(output_tensor, input_tensor)
    _check_whole("all_gather_into_tensor", "output", output_tensor, "input", input_tensor, found)
    engine = engine_for(found, input_tensor)
    if is_compiling():
        array = input_tensor._array
        shape = (engine.size, *array.shape)
        return captured("all_gather", found, array, shape, [output_tensor], async_op)  # type: ignore[no-any-return]
    source = read_from(input_tensor, engine)
    target, finish = write_to(output_tensor, engine, False)
    return ended(start(found, engine, "all_gather", (source, target), finish, [output_tensor], _about(input_tensor)), async_op)


def _check_whole(operation: str, large: str, whole: Tensor, small: str, part: Tensor, group: ProcessGroup) -> None:
    if whole._array.size != part._array.size * group.size():
        raise ValueError(
            f"{operation}: {large} tensor size must be equal to world_size times {small} tensor size: "
            f"{list(whole._array.shape)} is not {group.size()} times {list(part._array.shape)}"
        )


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Put in each rank's tensor the sum, over the ranks, of the tensor that their lists have at its rank."""
    tensor_given(output, "output")
    tensors = list_given(input_list, "input_list")
    found = member(group, "reduce_scatter")
    if found is None:
        return None
    same_dtypes(output, *tensors)
    if len(tensors) != found.size():
        raise RuntimeError("invalid input tensor list size, must be world size")
    _check_list("reduce_scatter", "input", tensors, output, found)
    return _reduced_and_scattered(found, output, tensors, op, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Put in each rank's tensor its part of the sum of the ranks' inputs; an input has the elements of all parts."""
    tensor_given(output, "output"), tensor_given(input, "input")
    found = member(group, "reduce_scatter_tensor")
    if found is None:
        return None
    same_dtypes(output, input)
    _check_whole("reduce_scatter_tensor", "input", input, "output", output, found)
    return _reduced_and_scattered(found, output, [input], op, async_op)


def _reduced_and_scattered(group: ProcessGroup, output: Tensor, inputs: Sequence[Tensor], op: Any, async_op: bool) -> Work | None:
    engine = engine_for(group, output)
    name, dtype = _reduction(op, output, engine, "reduce_scatter")
    if is_compiling():
        whole = inputs[0]._array if len(inputs) == 1 else np.stack([t._array for t in inputs])
        shape = output._array.shape
        return captured("reduce_scatter", group, whole, shape, [output], async_op, op.name)  # type: ignore[no-any-return]
    source = read_from(inputs[0], engine, dtype) if len(inputs) == 1 else joined(inputs, engine, dtype)
    target, finish = write_to(output, engine, False, dtype)
    arguments = (source, target, name, _divisor(op, engine))
    return ended(start(group, engine, "reduce_scatter", arguments, finish, [output], f"{_about(output)} {op.name}"), async_op)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send a part of `input` to each rank, and put what came in `output`, in the order of ranks.

    Parts are rows (of the first dimension): as many for each, or as `output_split_sizes` and `input_split_sizes` say.
    """
    tensor_given(output, "output"), tensor_given(input, "input")
    found = member(group, "all_to_all_single")
    if found is None:
        return None
    same_dtypes(output, input)
    outward = _counts(input, input_split_sizes, found)
    inward = _counts(output, output_split_sizes, found)
    engine = engine_for(found, input)
    if is_compiling():
        array, about = input._array, (tuple(outward), tuple(inward))
        return captured("all_to_all", found, array, output._array.shape, [output], async_op, *about)  # type: ignore[no-any-return]
    source = read_from(input, engine)
    target, finish = write_to(output, engine, False)
    arguments = (source, outward, target, inward)
    return ended(start(found, engine, "all_to_all", arguments, finish, [output], str(input.dtype)), async_op)


def _counts(tensor: Tensor, sizes: Sequence[int] | None, group: ProcessGroup) -> list[int]:
    """How many elements of a tensor each rank has."""
    shape = tensor._array.shape
    rows = shape[0] if shape else 1
    of_row = tensor._array.size // rows if rows else 0
    if not sizes:
        if rows % group.size():
            raise RuntimeError(f"Tensor's dim 0 does not divide equally across group size: {rows} rows, {group.size()} ranks")
        return [rows // group.size() * of_row] * group.size()
    if len(sizes) != group.size():
        raise RuntimeError(f"Number of tensor splits not equal to group size: {len(sizes)} sizes, {group.size()} ranks")
    if sum(sizes) != rows or min(sizes) < 0:
        raise RuntimeError(f"Split sizes doesn't match total dim 0 size: {list(sizes)} of {rows} rows")
    return [int(n) * of_row for n in sizes]


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Send a tensor of a list to each rank, and put what came in the tensors of another, in the order of ranks."""
    outputs, inputs = list_given(output_tensor_list, "output_tensor_list"), list_given(input_tensor_list, "input_tensor_list")
    found = member(group, "all_to_all")
    if found is None:
        return None
    for which, tensors in (("output", outputs), ("input", inputs)):
        if len(tensors) != found.size():
            raise RuntimeError(f"all_to_all: invalid {which} tensor list (expected length {found.size()}, got {len(tensors)})")
    same_dtypes(*outputs, *inputs)
    engine = engine_for(found, inputs[0])
    outward, inward = [t._array.size for t in inputs], [t._array.size for t in outputs]
    if is_compiling():
        flat, counts = _flat(inputs), (tuple(outward), tuple(inward))
        return captured("all_to_all", found, flat, (sum(inward),), outputs, async_op, *counts)  # type: ignore[no-any-return]
    source = joined(inputs, engine)
    target = empty_beside(source, sum(inward))
    finish = parts_of(target, outputs)
    about = str(inputs[0].dtype)
    return ended(start(found, engine, "all_to_all", (source, outward, target, inward), finish, outputs, about), async_op)


def _flat(tensors: Sequence[Tensor]) -> Any:
    """In captured code: the elements of tensors, one behind the other."""
    return np.concatenate([t._array.reshape(-1) for t in tensors])


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Put the ranks' tensors in the tensors of a list at rank `dst`, 0 by default; the others give no list."""
    tensor_given(tensor, "tensor")
    tensors = list_given(gather_list, "gather_list") if gather_list else []
    found = member(group, "gather")
    if found is None:
        return None
    root = place_in(found, None if group_dst is not None else 0 if dst is None else dst, group_dst)
    engine = engine_for(found, tensor)
    here = root == engine.rank
    if here:
        if not tensors:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        same_dtypes(tensor, *tensors)
        _check_list("gather", "output", tensors, tensor, found)
    elif tensors:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if is_compiling():
        array = tensor._array
        shape = (engine.size, *array.shape) if here else (0,)
        return captured("gather", found, array, shape, tensors, async_op, root)  # type: ignore[no-any-return]
    source = read_from(tensor, engine)
    target = empty_beside(source, source.size * engine.size) if here else None
    finish = parts_of(target, tensors) if here else None
    about = f"{_about(tensor)} to {root}"
    return ended(start(found, engine, "gather", (source, target, root), finish, tensors, about), async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Put a tensor of a list of rank `src`, 0 by default, in the tensor of each; the others give no list."""
    tensor_given(tensor, "tensor")
    tensors = list_given(scatter_list, "scatter_list") if scatter_list else []
    found = member(group, "scatter")
    if found is None:
        return None
    root = place_in(found, None if group_src is not None else 0 if src is None else src, group_src)
    engine = engine_for(found, tensor)
    here = root == engine.rank
    if here:
        if not tensors:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        same_dtypes(tensor, *tensors)
        _check_list("scatter", "input", tensors, tensor, found)
    elif tensors:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if is_compiling():
        array = tensor._array
        given = _flat(tensors) if here else nothing(array.dtype)
        return captured("scatter", found, given, array.shape, [tensor], async_op, root)  # type: ignore[no-any-return]
    source = joined(tensors, engine) if here else None
    target, finish = write_to(tensor, engine, False)
    about = f"{_about(tensor)} from {root}"
    return ended(start(found, engine, "scatter", (source, target, root), finish, [tensor], about), async_op)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: datetime.timedelta | None = None
) -> Work | None:
    """Wait until all ranks of the group have come here."""
    found = member(group, "barrier")
    if found is None:
        return None
    if is_compiling():
        if timeout is not None:
            runs_plainly("a barrier with a timeout of its own")
        return captured("barrier", found, nothing(), (0,), [], async_op)  # type: ignore[no-any-return]
    work = start(found, found._engine, "barrier", (), about="")
    if timeout is not None:
        work._timeout = timeout.total_seconds()
    return ended(work, async_op)


def monitored_barrier(group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """As `barrier`; rank 0 names the rank (`wait_all_ranks`: all ranks) that did not come within `timeout`: RuntimeError."""
    found = member(group, "monitored_barrier")
    if found is None:
        return
    if is_compiling():
        runs_plainly("monitored_barrier sees which ranks have come")
    engine = found._engine
    seconds = found._timeout if timeout is None else timeout.total_seconds()
    token = np.zeros(1, np.uint8)
    if engine.rank:
        run(found, engine, "send", token, 0, _BARRIER_TAG)
        start(found, engine, "receive", (token, 0, _BARRIER_TAG)).wait(datetime.timedelta(seconds=seconds))
        return
    coming = [start(found, engine, "receive", (token.copy(), k, _BARRIER_TAG)) for k in range(1, engine.size)]
    late: list[int] = []
    for k, work in enumerate(coming, 1):
        try:
            work.wait(datetime.timedelta(seconds=seconds if not late else 1e-3))
        except RuntimeError:
            late.append(found._ranks[k])
            if not wait_all_ranks:
                break
    if late:
        text = f"Ranks {', '.join(map(str, late))}" if len(late) > 1 else f"Rank {late[0]}"
        raise RuntimeError(f"[Rank {found._ranks[0]}]: {text} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms")
    for k in range(1, engine.size):
        run(found, engine, "send", token, k, _BARRIER_TAG)


_BARRIER_TAG = 32000  # below the least bound of tags that MPI allows


# -- what compiled programs call: with arrays, the target's new ------------------------------------------------------------


def _copied(x: Any, target: Any) -> Tensor:
    if x is not target:
        np.copyto(target, x)
    return wrap(target)


def _parts_exchanged(group: ProcessGroup, x: Any, target: Any, outward: Sequence[int], inward: Sequence[int]) -> Work:
    tensor = wrap(x)
    engine = engine_for(group, tensor)
    arguments = (read_from(tensor, engine), outward, target, inward)
    return start(group, engine, "all_to_all", arguments, about=str(tensor.dtype))  # type: ignore[no-any-return]


def _array_gathered(group: ProcessGroup, x: Any, target: Any, root: int) -> Work:
    tensor = wrap(x)
    engine = engine_for(group, tensor)
    arguments = (read_from(tensor, engine), target if root == engine.rank else None, root)
    return start(group, engine, "gather", arguments, about=f"{_about(tensor)} to {root}")  # type: ignore[no-any-return]


def _array_scattered(group: ProcessGroup, x: Any, target: Any, root: int) -> Work:
    tensor = wrap(target)
    engine = engine_for(group, tensor)
    arguments = (read_from(wrap(x), engine) if root == engine.rank else None, target, root)
    return start(group, engine, "scatter", arguments, about=f"{_about(tensor)} from {root}")  # type: ignore[no-any-return]


OPERATIONS.update({
    "all_reduce": lambda group, x, target, op, *by: _all_reduced(group, _copied(x, target), RedOpType[op], *by),
    "reduce": lambda group, x, target, root, op: reduce(
        _copied(x, target), None, RedOpType[op], group, True, group_dst=root
    ),
    "broadcast": lambda group, x, target, root: broadcast(_copied(x, target), None, group, True, group_src=root),
    "all_gather": lambda group, x, target: all_gather_into_tensor(wrap(target), wrap(x), group, True),
    "reduce_scatter": lambda group, x, target, op: reduce_scatter_tensor(wrap(target), wrap(x), RedOpType[op], group, True),
    "all_to_all": _parts_exchanged,
    "gather": _array_gathered,
    "scatter": _array_scattered,
    "barrier": lambda group, x, target: barrier(group, True),
})  # fmt: skip


# -- older names, and lists -------------------------------------------------------------------------------------------


def all_reduce_coalesced(tensors: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`all_reduce` of each tensor."""
    found = member(group, "all_reduce_coalesced")
    if found is None:
        return None
    given = [tensors] if isinstance(tensors, Tensor) else list_given(tensors, "tensors")
    same_dtypes(*given)
    return ended(Several([_started(all_reduce(t, op, found, True)) for t in given], given), async_op)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_gather` of each tensor; the lists are by rank."""
    found = member(group, "all_gather_coalesced")
    if found is None:
        return None
    given = list_given(input_tensor_list, "input_tensor_list")
    works = [_started(all_gather([row[k] for row in output_tensor_lists], t, found, True)) for k, t in enumerate(given)]
    return ended(Several(works, [t for row in output_tensor_lists for t in row]), async_op)


def _started(work: Work | None) -> Work:
    assert work is not None
    return work


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The older name of `all_gather_into_tensor`."""
    warnings.warn("torch.distributed._all_gather_base is a private function and will be deprecated.", FutureWarning, 2)
    return all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def _reduce_scatter_base(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The older name of `reduce_scatter_tensor`."""
    warnings.warn("torch.distributed._reduce_scatter_base is a private function and will be deprecated.", FutureWarning, 2)
    return reduce_scatter_tensor(output, input, op, group, async_op)


all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced",
    "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
]  # fmt: skip
