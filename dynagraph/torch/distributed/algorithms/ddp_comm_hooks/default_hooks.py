"""Communication hooks: the average of a bucket, in its own dtype or in one of half the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.buckets import GradBucket
from dynagraph.torch.futures import Future

Hook = Callable[[Any, GradBucket], Future[Tensor]]


def _average(group: Any, tensor: Tensor) -> Future[Tensor]:
    work: Any = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average over ranks, as without a hook."""
    return _average(process_group, bucket.buffer())


def compressed(dtype: dtypes.dtype, group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average in another dtype."""
    buffer = bucket.buffer()
    return _average(group, buffer.to(dtype)).then(lambda done: buffer.copy_(done.value()))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average in float16: half the bytes of float32."""
    return compressed(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Tensor]:
    """The average in bfloat16: float32's range in half the bytes."""
    return compressed(dtypes.bfloat16, process_group, bucket)


def _wrapper(hook: Hook, dtype: dtypes.dtype) -> Hook:
    def compressing(state: Any, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda done: buffer.copy_(done.value()))

    return compressing


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, which is given the bucket in float16."""
    return _wrapper(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, which is given the bucket in bfloat16."""
    return _wrapper(hook, dtypes.bfloat16)


__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]
