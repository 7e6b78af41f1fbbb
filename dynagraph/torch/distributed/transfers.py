"""What all operations on tensors share: checks, ranks, buffers in the form that engines take, starting and waiting.

Engines take contiguous arrays.  Where a tensor is one, the engine reads and writes its memory; otherwise (gaps, an order of its
own, halves, a GPU whose tensors go by way of the host) a buffer is filled before, and copied back once the operation has ended.
"""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import devices
from dynagraph.torch.core.tensor import Tensor, written
from dynagraph.torch.distributed.effects import runs_plainly
from dynagraph.torch.distributed.engines import Engine
from dynagraph.torch.distributed.groups import ProcessGroup, get_rank, member_of, place_of
from dynagraph.torch.distributed.work import Work, failure

Finish = Callable[[], None] | None
_FINGERPRINT = 256  # bytes


class DebugLevel(enum.Enum):
    """How much is checked: DETAIL compares what the ranks call, before each collective."""

    OFF, INFO, DETAIL = range(3)


def _level_of_environment() -> DebugLevel:
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, not {name}")
    return DebugLevel[name]


class _Settings:
    level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """How much is checked; the environment variable TORCH_DISTRIBUTED_DEBUG unless `set_debug_level` has been called."""
    if _Settings.level is None:
        _Settings.level = _level_of_environment()
    return _Settings.level


def set_debug_level(level: DebugLevel) -> None:
    """Set how much is checked, in this process; all ranks must agree."""
    _Settings.level = level


def set_debug_level_from_env() -> None:
    """Read TORCH_DISTRIBUTED_DEBUG again."""
    _Settings.level = _level_of_environment()


# -- checks -----------------------------------------------------------------------------------------------------------


def member(group: Any, operation: str) -> ProcessGroup | None:
    """The group that an operation is called for; None, and a warning, where this process is not in it."""
    found = member_of(group)
    if found is None:
        warnings.warn(f"Running {operation} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3)
    return found


def tensor_given(value: Any, name: str) -> Tensor:
    """TypeError where an argument must be a tensor and is none."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)}")
    return value


def list_given(value: Any, name: str) -> list[Tensor]:
    """TypeError where an argument must be a list of tensors and is none."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(t, Tensor) for t in value):
        of = {type(t).__name__ for t in value} if isinstance(value, (list, tuple)) else ""
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(value)} "
            f"{f'with elements of type {sorted(of)} ' if of else ''}instead."
        )
    return list(value)


def same_dtypes(*tensors: Tensor) -> None:
    """ValueError where tensors have different dtypes."""
    first = tensors[0]
    for other in tensors[1:]:
        if other._array.dtype != first._array.dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes Found {other.dtype} and {first.dtype}")


def place_in(group: ProcessGroup, global_rank: int | None, group_rank: int | None) -> int:
    """The rank in a group that is named by its rank among all, or by that in the group."""
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        if not 0 <= group_rank < group.size():
            raise RuntimeError(f"invalid rank {group_rank}: the group has {group.size()} ranks, from 0 on")
        return group_rank
    if global_rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return place_of(group, global_rank)


# -- buffers ----------------------------------------------------------------------------------------------------------


def engine_for(group: ProcessGroup, tensor: Tensor) -> Engine:
    """What serves a tensor."""
    return group.engine_of("cpu" if type(tensor._array) is np.ndarray else devices.of_array(tensor._array).type)


def _there(array: Any, engine: Engine) -> Any:
    """An array where an engine takes it."""
    return array if type(array) is np.ndarray or engine.device != "cpu" else array.get()


def read_from(tensor: Tensor, engine: Engine, dtype: np.dtype | None = None) -> Any:
    """A contiguous array of what a tensor holds, which may be its own."""
    array = tensor._array
    if array.flags.c_contiguous and dtype in (None, array.dtype) and (type(array) is np.ndarray or engine.device != "cpu"):
        return array
    return _there(array, engine).astype(array.dtype if dtype is None else dtype, order="C", copy=False)


def write_to(tensor: Tensor, engine: Engine, read: bool, dtype: np.dtype | None = None) -> tuple[Any, Finish]:
    """A contiguous array for a tensor to be written to (and read), and what is left to do when it has been."""
    array = tensor._array
    flags = array.flags
    direct = type(array) is np.ndarray or engine.device != "cpu"
    written(tensor)
    if direct and flags.c_contiguous and dtype in (None, array.dtype) and getattr(flags, "writeable", True):
        return array, None
    if any(s == 0 and n > 1 for n, s in zip(array.shape, array.strides)) and array.size:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please "
            "clone() the tensor before performing the operation."
        )
    wanted = array.dtype if dtype is None else dtype
    there = _there(array, engine)
    if not read:
        buffer = np.empty_like(there, wanted, order="C")
    else:
        buffer = there.astype(wanted, order="C")  # a copy always

    def copy_back() -> None:
        array[...] = buffer if type(buffer) is type(array) else devices.place(buffer, devices.of_array(array))

    return buffer, copy_back


def parts_of(target: Any, tensors: Sequence[Tensor]) -> Callable[[], None]:
    """What copies the parts of an array into tensors."""
    for tensor in tensors:
        written(tensor)

    def copy_parts() -> None:
        start = 0
        flat = target.reshape(-1)
        for tensor in tensors:
            array = tensor._array
            part = flat[start : start + array.size].reshape(array.shape)
            array[...] = part if type(part) is type(array) else devices.place(part, devices.of_array(array))
            start += array.size

    return copy_parts


def joined(tensors: Sequence[Tensor], engine: Engine, dtype: np.dtype | None = None) -> Any:
    """One array of what tensors hold, one behind the other."""
    arrays = [read_from(t, engine, dtype).reshape(-1) for t in tensors]
    return np.concatenate(arrays)


def empty_beside(array: Any, size: int) -> Any:
    """A new array of so many elements where another one is."""
    return np.empty_like(array, shape=(size,), order="C")


# -- starting ---------------------------------------------------------------------------------------------------------


def start(
    group: ProcessGroup, engine: Engine, operation: str, arguments: Sequence[Any], finish: Finish = None,
    result: Sequence[Tensor] = (), about: str | None = None, kind: Any = Work,
) -> Any:  # fmt: skip
    """Have an engine start an operation: the Work, of a class `kind`.

    `about` (shapes, dtypes): what all ranks must agree on; None of messages between two.
    """
    if is_compiling():
        runs_plainly(f"{operation} as a part of something that programs have no op for")
    group._started += 1
    what = f"{operation} (number {group._started} of group {group.group_name}, {group.group_desc})"
    if about is not None and get_debug_level() is DebugLevel.DETAIL:
        _compare(group, engine, f"{operation}: {about}")
    try:
        request = getattr(engine, operation)(*arguments)
    except engine.errors as error:
        raise failure(what, engine, error) from error
    return kind(engine, request, arguments, finish, result, what, group._timeout)


def run(group: ProcessGroup, engine: Engine, operation: str, *arguments: Any) -> None:
    """Have an engine do something with arrays, and wait for it."""
    start(group, engine, operation, arguments).wait()


def ended(work: Work, async_op: bool) -> Work | None:
    """What an operation gives: the Work if it was asked for; None after waiting for it otherwise."""
    if async_op:
        return work
    work.wait()
    return None


def _compare(group: ProcessGroup, engine: Engine, text: str) -> None:
    """RuntimeError in all ranks where they call different things."""
    own = np.zeros(_FINGERPRINT, np.uint8)
    encoded = np.frombuffer(text.encode()[:_FINGERPRINT], np.uint8)
    own[: encoded.size] = encoded
    every = np.empty((group.size(), _FINGERPRINT), np.uint8)
    host = group._engine
    try:
        request = host.all_gather(own, every)
    except host.errors as error:
        raise failure(text, host, error) from error
    Work(host, request, (own, every), None, (), f"comparing what the ranks call ({text})", group._timeout).wait()
    texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]
    if any(other != texts[0] for other in texts):
        calls = "; ".join(f"rank {group._ranks[k]} calls {other}" for k, other in enumerate(texts))
        raise RuntimeError(f"Detected mismatch between collectives on ranks: {calls}")


__all__ = [
    "DebugLevel", "empty_beside", "ended", "engine_for", "get_debug_level", "joined", "list_given", "member", "parts_of",
    "place_in", "read_from", "run", "same_dtypes", "set_debug_level", "set_debug_level_from_env", "start", "tensor_given",
    "write_to",
]  # fmt: skip
