"""Averages gradients over ranks while backward computes the next ones.

Every parameter has a hook that runs when its gradient is there. It copies the gradient into its bucket; a bucket that is full
leaves as one all-reduce, in the order of the buckets, which is the same on all ranks. MPI moves messages only while it is
called, so each hook calls it. When backward ends, its last act is to wait for all, and to hand the averages out.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.markers import graph_break, is_compiling
from dynagraph.torch import distributed as dist
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.engine import accumulates_all, notes, queue_callback, reached, will_run
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor, written
from dynagraph.torch.distributed.buckets import Bucket, GradBucket, cut, in_room, parts_of
from dynagraph.torch.distributed.collectives import captured_average, start_average
from dynagraph.torch.distributed.effects import advanced, finished_part, store
from dynagraph.torch.distributed.transfers import member
from dynagraph.torch.distributed.work import advance
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]
_numbers = itertools.count(1)
UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module "
    "has parameters that were not used in producing loss. Pass `find_unused_parameters=True` to "
    "`torch.nn.parallel.DistributedDataParallel` if that is meant, and make sure that all outputs of `forward` take part in the "
    "loss. Parameters which did not receive grad for rank {rank}: {names} (indices {numbers})."
)
TWICE = (
    "Expected to mark a variable ready only once. Parameter {name} (index {number}) has received its gradient twice in one "
    "iteration. Either it is used outside of the module's `forward`, or backward runs within backward (reentrant checkpoints), or "
    "twice for one forward; `static_graph=True` allows for the last two."
)


class _InCapture:
    """How far a backward in captured code is.

    `pending`: how many gradients of each bucket are to come; `ready`, `counts`: of each gradient whether all of it has come, and
    how often some has; `sent`: what waits for the buckets that have been sent, a number or what a hook has given.
    """

    def __init__(self, pending: list[int], count: int):
        self.pending, self.ready, self.counts = pending, [False] * count, [0] * count
        self.sent: list[Any] = []


class Reducer:
    """The buckets of a module's parameters, and how far they are.

    `names`: of the parameters.  `limits`: of buckets in bytes.  `as_views`: gradients are the parts of buckets themselves.
    """

    def __init__(
        self, parameters: Sequence[Tensor], names: Sequence[str], group: Any, limits: Sequence[float], find_unused: bool,
        as_views: bool, static: bool,
    ) -> None:  # fmt: skip
        self.parameters, self.names, self.group, self.limits = list(parameters), list(names), group, limits
        self.find_unused, self.as_views, self.static = find_unused and not static, as_views, static
        self.ranks = dist.get_world_size(group)
        self.divisor = self.ranks  # by what the sums are divided; the same on all ranks
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.order: list[int] = []  # parameters as their gradients came in the first backward
        self.rebuilt = False
        self.is_plain = all(p.is_contiguous() for p in self.parameters)  # whether parts lie as flattened parameters do
        self.finished = 0  # backwards that have been reduced
        self.bucket_of: list[Bucket] = []
        self.part_of: list[Tensor] = []
        self.room: Any = None  # of the memory of buckets
        self.number = next(_numbers)  # among all reducers
        found = member(group, "DistributedDataParallel")
        self.goes_on = found is None or found.engine_of(self.parameters[0].device.type).goes_on
        self._build(range(len(parameters) - 1, -1, -1))
        self.times = [1] * len(parameters)  # how often each gradient comes in a backward; `static` counts
        self._reset()
        self.used_over_ranks: Any = None
        self.begin_handles: list[Any] = []
        me = weakref.ref(self)
        self.handles = [p.register_post_accumulate_grad_hook(_hook(me, k)) for k, p in enumerate(parameters)]

    def __del__(self) -> None:
        for handle in self.__dict__.get("handles", ()):
            handle.remove()

    # -- buckets --

    def _build(self, order: Sequence[int], together: bool = False) -> None:
        """`together`: all ranks do it now."""
        members = cut(self.parameters, order, self.limits)
        if together:
            self.buckets, self.room = in_room(members, self.parameters, self.group)
        else:
            self.buckets = [Bucket(numbers, self.parameters) for numbers in members]
        count = len(self.parameters)
        self.bucket_of, self.part_of = [self.buckets[0]] * count, [self.buckets[0].flat] * count
        self.number_of = [0] * count  # the number of each parameter's bucket
        for number, bucket in enumerate(self.buckets):
            for k, part in zip(bucket.numbers, bucket.views):
                self.bucket_of[k], self.part_of[k], self.number_of[k] = bucket, part, number

    def _rebuild(self) -> None:
        """Once, at the end of the first backward: put the gradients into buckets in the order in which they came on rank 0.

        Where some may not come, the order stays that of parameters from the last one on.
        """
        self.rebuilt = True
        with no_grad():
            came = () if self.find_unused else self.order
            rest = [k for k in range(len(self.parameters) - 1, -1, -1) if k not in set(came)]
            order = _torch["tensor"]([*came, *rest], dtype=dtypes.int64)
            dist.broadcast(order, first_of(self.group), group=self.group)
            before = [bucket.flat for bucket in self.buckets]
            self._build(order.tolist(), True)
            if self.as_views:
                self._move_views(before)
        self._reset()

    def _move_views(self, before: Sequence[Tensor]) -> None:
        storages = {id(flat._storage) for flat in before}
        for parameter, part in zip(self.parameters, self.part_of):
            grad = parameter._grad
            if grad is not None and id(grad._storage) in storages:
                part.copy_(grad)
                parameter.grad = part

    # -- a backward --

    def _reset(self) -> None:
        """Before a backward: nothing has come."""
        for bucket in self.buckets:
            bucket.pending, bucket.work = len(bucket.numbers), None
        self.next = 0  # the bucket that leaves next
        self.ready = bytearray(len(self.parameters))
        self.counts = [0] * len(self.parameters)
        self.expects = False  # whether the next backward is reduced
        self.started = False  # whether it has begun
        self.ends = False  # whether its end has been asked for

    def prepare(self, outputs: Any) -> None:
        """Before a backward whose gradients are reduced; `outputs`: the tensors that forward gives.  Captures follow it."""
        self.expects = True
        if not self.rebuilt:  # programs of the first step, which is not captured whole, are for it alone
            self.order = []
        if is_compiling():
            self._prepare_in_capture(list(outputs))
            return
        if self.find_unused or (self.static and not self.finished):
            self._remove_begin()
            self.begin_handles = [t.register_hook(self._begin_at_output) for t in outputs if t.requires_grad]

    def _prepare_in_capture(self, outputs: Sequence[Tensor]) -> None:
        """Hooks of outputs would keep them: a backward that comes to a parameter begins there."""
        if self.find_unused and not any(p in reached(outputs) for p in self.parameters):
            graph_break()

    def forget(self) -> None:
        """Before a backward whose gradients stay on this rank."""
        self.expects = False

    def unfinished(self) -> RuntimeError:
        """The error of a backward that has begun and was not reduced, with the names of the parameters that it waits for."""
        missing = [k for k, done in enumerate(self.ready) if not done]
        self._reset()
        return RuntimeError(UNFINISHED.format(
            rank=dist.get_rank(self.group), names=", ".join(self.names[k] for k in missing), numbers=" ".join(map(str, missing))
        ))  # fmt: skip

    def _remove_begin(self) -> None:
        for handle in self.begin_handles:
            handle.remove()
        self.begin_handles = []

    def _begin_at_output(self, grad: Tensor) -> None:
        if self.expects and not self.ends and not is_compiling():
            self._begin()

    def _begin(self) -> None:
        """The first event of a backward whose end does not show by itself: some gradients may not come."""
        self.ends = self.started = True
        self._remove_begin()
        queue_callback(self._end)
        if self.find_unused:
            comes: Sequence[Any] = will_run(self.parameters)
        elif self.finished:
            comes = self.times
        else:
            return
        for k, some in enumerate(comes):
            if not some:
                self._mark(k)
        self._send_full()

    def place(self, k: int, grad: Any) -> Tensor | None:
        """Put the gradient of a parameter that has no `grad` into its bucket, if that is where it will be: the part."""
        if not (self.expects and self.as_views) or self.ready[k]:
            return None
        part = self.part_of[k]
        array = part._array
        if not (type(grad) is type(array) is np.ndarray and grad.dtype == array.dtype and grad.shape == array.shape):
            return None
        array[...] = grad
        written(part)
        return part

    def arrived(self, k: int) -> None:
        """The gradient of a parameter is there."""
        if not self.expects:
            return
        if is_compiling():
            self._arrived_in_capture(k)
            return
        if not self.rebuilt and not self.finished:
            self.order.append(k)
        if (self.find_unused or self.static) and not self.ends:
            self._begin()
        self.started = True
        self.counts[k] += 1
        if self.static and (not self.finished or self.counts[k] < self.times[k]):  # the first backward is reduced at its end
            return
        if self.ready[k]:
            raise RuntimeError(TWICE.format(name=self.names[k], number=k))
        self._mark(k)
        if self.bucket_of[k].pending == 0:
            self._send_full()
        advance()

    # -- a backward in captured code --

    def _arrived_in_capture(self, k: int) -> None:
        """As `arrived`, as a part of a program: the same messages, since other ranks may run the same step plainly.

        What is known when the program is made is counted then: which gradients come, and how often.
        """
        state = notes().get(self.number)
        if state is None:
            state = notes()[self.number] = self._begin_in_capture()
        state.counts[k] += 1
        if self.static and state.counts[k] < self.times[k]:
            return
        if state.ready[k]:
            graph_break()  # which is an error
        state.ready[k] = True
        state.pending[self.number_of[k]] -= 1
        if state.sent and state.pending[self.number_of[k]] and not self.goes_on:  # a bucket that leaves gets on with the others
            advanced(self.parameters[k]._grad._array)  # type: ignore[union-attr]
        self._send_in_capture(state)

    def _begin_in_capture(self) -> _InCapture:
        if not (self.rebuilt and self.is_plain) or not accumulates_all():
            graph_break()
        state = _InCapture([len(bucket.numbers) for bucket in self.buckets], len(self.parameters))
        comes: Sequence[Any] = self.times
        if self.find_unused:
            comes = will_run(self.parameters)
        for k, some in enumerate(comes):
            if not some:
                if self.parameters[k]._grad is None:
                    graph_break()  # whether there will be one depends on other ranks
                state.ready[k] = True
                state.pending[self.number_of[k]] -= 1
        queue_callback(lambda: self._end_in_capture(state))
        return state

    def _send_in_capture(self, state: _InCapture) -> None:
        pending, sent = state.pending, state.sent
        while len(sent) < len(pending) and pending[len(sent)] == 0:
            bucket = self.buckets[len(sent)]
            if self.hook is None:
                with no_grad():
                    for parameter, part in zip(bucket.parameters, bucket.views):
                        part.copy_(parameter._grad.detach())  # type: ignore[union-attr]
                sent.append(captured_average(bucket.views, self.group, self.divisor, bucket.place))
            else:
                flat = _torch["cat"]([p._grad.detach().reshape(-1) for p in bucket.parameters])  # type: ignore[union-attr]
                given = GradBucket(bucket, len(sent), len(sent) + 1 == len(pending), flat)
                sent.append(self.hook(self.hook_state, given))

    def _end_in_capture(self, state: _InCapture) -> None:
        if len(state.sent) < len(self.buckets):
            graph_break()  # what has not come is found out, or is an error
        used = None
        if self.find_unused or not all(self.times):
            used = _torch["tensor"]([min(n, 1) for n in state.counts], dtype=dtypes.int64)
            dist.all_reduce(used, group=self.group)
        for bucket, work in zip(self.buckets, state.sent):
            if self.hook is None:
                averages = []
                for number, part in enumerate(bucket.views):
                    store(finished_part(work, part._array, number), [part])
                    averages.append(part)
            else:
                averages = parts_of(work.wait(), bucket.parameters)
            self._hand_out_in_capture(bucket, averages, state, used)
        self.expects = False

    def _hand_out_in_capture(
        self, bucket: Bucket, averages: Sequence[Tensor], state: _InCapture, used: Tensor | None
    ) -> None:  # fmt: skip
        with no_grad():
            for k, parameter, part, average in zip(bucket.numbers, bucket.parameters, bucket.views, averages):
                if not state.counts[k]:  # on no rank: its gradient stays what it was
                    average = _torch["where"](used[k] > 0, average, parameter._grad)  # type: ignore[index]
                if self.as_views:
                    if average is not part:
                        part.copy_(average)
                    parameter.grad = part
                else:
                    parameter._grad.detach().copy_(average)  # type: ignore[union-attr]

    # -- what both do --

    def _mark(self, k: int) -> None:
        """Put a parameter's gradient, or zeros where it has none, into its bucket."""
        self.ready[k] = 1
        bucket, part, grad = self.bucket_of[k], self.part_of[k], self.parameters[k]._grad
        with no_grad():
            if grad is None:
                part.zero_()
            elif grad is not part:
                part.copy_(grad)
                if self.as_views:
                    self.parameters[k].grad = part
        bucket.pending -= 1

    def _send_full(self) -> None:
        buckets = self.buckets
        while self.next < len(buckets) and buckets[self.next].pending == 0:
            bucket = buckets[self.next]
            self.next += 1
            if self.hook is None:
                bucket.work = start_average(bucket.flat, self.group, self.divisor)
            else:
                bucket.work = self.hook(self.hook_state, GradBucket(bucket, self.next - 1, self.next == len(buckets)))
        if self.next == len(buckets) and not self.ends:
            self.ends = True
            queue_callback(self._end)

    def _end(self) -> None:
        """The end of backward: wait for all averages, and hand them out."""
        first = self.static and not self.finished
        if first:
            self.times = list(self.counts)
        if first or self.find_unused:  # what has not come by now does not come
            for k, done in enumerate(self.ready):
                if not done:
                    self._mark(k)
            self._send_full()
        if self.next < len(self.buckets):  # the graph was to be static: the next forward says what has not come
            return
        used = self._used_anywhere() if self.find_unused or self.static else None
        for bucket in self.buckets:
            self._hand_out(bucket, used)
        self._finish()

    def _finish(self) -> None:
        self._reset()
        self.finished += 1
        if not self.rebuilt:
            self._rebuild()

    def _used_anywhere(self) -> list[int] | None:
        """For each parameter on how many ranks it has got a gradient; None where nobody has to know."""
        if self.static and self.finished and all(self.times):
            return None
        counts = _torch["tensor"]([min(n, 1) for n in self.counts], dtype=dtypes.int64)
        dist.all_reduce(counts, group=self.group)
        return counts.tolist()

    def _hand_out(self, bucket: Bucket, used: Sequence[int] | None) -> None:
        work = bucket.work
        result = work.wait()
        bucket.work = None
        with no_grad():
            if self.hook is not None and result._array is not bucket.flat._array:
                bucket.flat.copy_(result)
            for k, parameter, part in zip(bucket.numbers, bucket.parameters, bucket.views):
                if used is not None and not used[k]:
                    continue  # on no rank: its gradient stays what it was
                grad = parameter._grad
                if self.as_views:
                    if grad is not part:
                        parameter.grad = part
                elif grad is None:
                    parameter.grad = part.clone()
                else:
                    grad.detach().copy_(part)

    # -- ranks without inputs --

    def answer(self) -> None:
        """The all-reduces of a backward of ranks that have inputs; this one adds nothing."""
        with no_grad():
            works = []
            for k, bucket in enumerate(self.buckets):
                bucket.flat.zero_()
                if self.hook is None:
                    works.append(start_average(bucket.flat, self.group, self.divisor))
                else:
                    works.append(self.hook(self.hook_state, GradBucket(bucket, k, k + 1 == len(self.buckets))))
            for work in works:
                work.wait()
            if self.find_unused or (self.static and not (self.finished and all(self.times))):
                counts = _torch["zeros"](len(self.parameters), dtype=dtypes.int64)
                dist.all_reduce(counts, group=self.group)
        self._finish()


def _hook(me: Any, k: int) -> Callable[[Tensor], None]:
    def arrived(_: Tensor) -> None:
        reducer = me()
        if reducer is not None:
            reducer.arrived(k)

    def place(grad: Any) -> Tensor | None:
        reducer = me()
        return None if reducer is None else reducer.place(k, grad)

    arrived.place = place  # type: ignore[attr-defined]
    return arrived


def broadcast_coalesced(tensors: Sequence[Tensor], group: Any, source: int) -> None:
    """Give all ranks what a rank of the group has: one message for all tensors of a dtype and device."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, str(tensor.device)), []).append(tensor.detach())
    with no_grad():
        for some in kinds.values():
            if len(some) == 1 and some[0].is_contiguous():
                dist.broadcast(some[0], source, group=group)
                continue
            flat = _torch["cat"]([tensor.reshape(-1) for tensor in some])
            dist.broadcast(flat, source, group=group)
            start = 0
            for tensor in some:
                stop = start + tensor.numel()
                tensor.copy_(flat[start:stop].view(tensor.shape))
                start = stop


def first_of(group: Any) -> int:
    """The first rank of a group, by its number among all."""
    return 0 if group is None else dist.get_global_rank(group, 0)


__all__ = ["Reducer", "broadcast_coalesced", "first_of"]
