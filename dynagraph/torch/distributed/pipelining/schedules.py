"""The order in which micro-batches go through the stages.

A process has one stage, and the others are other ranks'; or it has all of them, on several devices.  Then it does one after the
other what ranks would do at the same time: on GPUs kernels are only started, so that devices do compute at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.groups import get_rank
from dynagraph.torch.distributed.objects import recv_object_list, send_object_list
from dynagraph.torch.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from dynagraph.torch.distributed.pipelining.stage import PipelineStage, as_tuple
from dynagraph.torch.distributed.point_to_point import isend, recv
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]
FORWARD, BACKWARD = "F", "B"


class Action(NamedTuple):
    """A forward or a backward of a micro-batch in a stage."""

    stage: int
    kind: str
    microbatch: int


class Inside:
    """What goes between the stages of one process."""

    def __init__(self) -> None:
        self.there: dict[Action, Sequence[Any]] = {}

    def send(self, action: Action, values: Sequence[Any]) -> None:
        """Leave what an action needs."""
        self.there[action] = values

    def receive(self, action: Action) -> Sequence[Any]:
        """What an action needs."""
        return self.there.pop(action)

    def finish(self) -> None:
        """Nothing is under way."""


class Between:
    """What goes between ranks: for each message a description, then the tensors."""

    def __init__(self, stage: PipelineStage):
        self.stage, self.works = stage, deque[Any]()

    def send(self, action: Action, values: Sequence[Any]) -> None:
        """Send what another rank's action needs, and do not wait."""
        about = [(tuple(v.shape), v.dtype) if isinstance(v, Tensor) else (None, v) for v in values]
        send_object_list([about], group=self.stage.group, group_dst=action.stage)
        for value in values:
            if isinstance(value, Tensor):
                self.works.append(isend(value.detach().contiguous(), group=self.stage.group, group_dst=action.stage))

    def receive(self, action: Action) -> Sequence[Any]:
        """Wait for what an action needs."""
        origin = action.stage - 1 if action.kind == FORWARD else action.stage + 1
        described: list[Any] = [None]
        recv_object_list(described, group=self.stage.group, group_src=origin)
        values: list[Any] = []
        for shape, what in described[0]:
            if shape is None:
                values.append(what)
                continue
            values.append(_torch["empty"](shape, dtype=what, device=self.stage.device))
            recv(values[-1], group=self.stage.group, group_src=origin)
        return values

    def finish(self) -> None:
        """Wait until all has been sent."""
        while self.works:
            work = self.works.popleft()
            if work is not None:
                work.wait()


class _Schedule(ABC):
    """What the schedules have in common.

    stage: this rank's, or a list of all stages, in which case no other process takes part.  n_microbatches: into how many parts a
    batch is divided.  loss_fn: of the last stage's results and the target; None: forward only.  scale_grads: divide the gradients
    by the number of parts, so that they are those of the mean over the batch.  Chunk specs say in which dimensions arguments are
    divided, and output_merge_spec in which results are joined.
    """

    def __init__(
        self, stage: PipelineStage | Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True,
    ):  # fmt: skip
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches is {n_microbatches}, and should be at least 1")
        self.stages = [stage] if isinstance(stage, PipelineStage) else list(stage)
        self.num_stages = self.stages[0].num_stages
        if len(self.stages) > 1 and [each.stage_index for each in self.stages] != list(range(self.num_stages)):
            raise ValueError("a list of stages has all of them, in their order")
        self.n_microbatches, self.loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self.args_chunk_spec, self.kwargs_chunk_spec, self.output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self.has_backward = loss_fn is not None
        if len(self.stages) < self.num_stages and get_rank(self.stages[0].group) != self.stages[0].stage_index:
            raise ValueError(
                f"rank {get_rank(self.stages[0].group)} of the group has stage {self.stages[0].stage_index}, not that of its "
                "own number"
            )
        self.history: list[Action] = []  # what the last step did, in order

    @abstractmethod
    def order(self, stage: int) -> Iterator[Action]:
        """What a stage does."""

    def step(
        self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """A batch forward and backward: gradients add up in the parameters.

        args and kwargs: of the first stage; target: of the loss.  Where the last stage is: its results, joined, and the losses of
        micro-batches in `losses`; elsewhere None.
        """
        n, last = self.n_microbatches, self.stages[-1]
        if last.is_last and self.has_backward and target is None:
            raise ValueError("the last stage needs a target for its loss")
        batches, named = split_args_kwargs_into_chunks(args, kwargs, n, self.args_chunk_spec, self.kwargs_chunk_spec)
        targets = None if target is None else [part[0] for part in split_args_kwargs_into_chunks((target,), None, n)[0]]
        for stage in self.stages:
            stage.clear_runtime_states()
        run = _Run(self, batches, named, targets, loss_kwargs or {})
        for action in self.interleaved():
            run.do(action)
        run.link.finish()
        self.history = run.done
        if self.has_backward and self.scale_grads:
            self.scale()
        if losses is not None and last.is_last:
            losses[:] = [last.losses[k] for k in sorted(last.losses)]
        return merge_chunks(run.outputs, self.output_merge_spec) if return_outputs and run.outputs else None

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """As `step`, without backward."""
        before, self.has_backward = self.has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self.has_backward = before

    def scale(self) -> None:
        """Divide the gradients by the number of micro-batches."""
        for parameter in {id(p): p for stage in self.stages for p in stage.submod.parameters()}.values():
            if parameter.grad is not None:
                parameter.grad.div_(self.n_microbatches)

    def interleaved(self) -> Iterable[Action]:
        """The actions of this process's stages: at each tick those that can, one of each stage, as if all ran at the same time."""
        orders = {stage.stage_index: deque(self._actions(stage.stage_index)) for stage in self.stages}
        if len(self.stages) < self.num_stages:
            return orders[self.stages[0].stage_index]
        return self._ticks(orders)

    def _actions(self, stage: int) -> Iterator[Action]:
        return (action for action in self.order(stage) if self.has_backward or action.kind == FORWARD)

    def _ticks(self, orders: dict[int, deque[Action]]) -> Iterator[Action]:
        done: set[Action] = set()
        while any(orders.values()):
            ready = [waiting[0] for waiting in orders.values() if waiting and self._needs(waiting[0]) <= done]
            for action in ready:
                orders[action.stage].popleft()
                yield action
            done.update(ready)

    def _needs(self, action: Action) -> set[Action]:
        """What must be done before."""
        if action.kind == FORWARD:
            return set() if action.stage == 0 else {action._replace(stage=action.stage - 1)}
        return {action._replace(kind=FORWARD)} if action.stage == self.num_stages - 1 else {action._replace(stage=action.stage + 1)}


class _Run:
    """One step."""

    def __init__(self, schedule: _Schedule, batches: Any, named: Any, targets: Any, loss_kwargs: dict[str, Any]):
        self.schedule, self.batches, self.named, self.targets, self.loss_kwargs = schedule, batches, named, targets, loss_kwargs
        self.stages = {stage.stage_index: stage for stage in schedule.stages}
        is_whole = len(self.stages) == schedule.num_stages
        self.link: Any = Inside() if is_whole else Between(schedule.stages[0])
        self.outputs: list[Any] = []
        self.done: list[Action] = []

    def do(self, action: Action) -> None:
        """A forward or backward."""
        stage = self.stages[action.stage]
        self.forward(stage, action) if action.kind == FORWARD else self.backward(stage, action)
        self.done.append(action)

    def forward(self, stage: PipelineStage, action: Action) -> None:
        """Of a micro-batch, from the stage before to the one after."""
        k = action.microbatch
        args = self.batches[k] if stage.is_first else self.link.receive(action)
        # ranks other than the first are given keyword arguments of their own; one process has those of its first stage
        named = self.named[k] if stage is self.schedule.stages[0] else {}
        output = stage.forward_one_chunk(k, args, named, self.schedule.has_backward)
        if not stage.is_last:
            self.link.send(action._replace(stage=action.stage + 1), as_tuple(output))
            return
        self.outputs.append(output.detach() if isinstance(output, Tensor) else output)
        if self.schedule.loss_fn is not None and self.targets is not None:
            target = self.targets[k]
            placed = target.to(stage.device) if isinstance(target, Tensor) else target
            stage.losses[k] = self.schedule.loss_fn(output, placed, **self.loss_kwargs)

    def backward(self, stage: PipelineStage, action: Action) -> None:
        """Of a micro-batch, from the stage after to the one before."""
        k = action.microbatch
        if stage.is_last:
            gradients = stage.backward_one_chunk(k, loss=stage.losses[k])
            stage.losses[k] = stage.losses[k].detach()
        else:
            gradients = stage.backward_one_chunk(k, self.link.receive(action))
        if not stage.is_first:
            self.link.send(action._replace(stage=action.stage - 1), gradients)


class ScheduleGPipe(_Schedule):
    """All micro-batches forward, then all backward: a stage keeps what all of them have left."""

    __doc__ = f"{__doc__}\n{_Schedule.__doc__}"

    def order(self, stage: int) -> Iterator[Action]:
        """What a stage does."""
        for kind in (FORWARD, BACKWARD):
            for k in range(self.n_microbatches):
                yield Action(stage, kind, k)


class Schedule1F1B(_Schedule):
    """As soon as the last stage can, backward: a stage keeps no more than as many as there are stages from it to the last."""

    __doc__ = f"{__doc__}\n{_Schedule.__doc__}"

    def __init__(
        self, stage: PipelineStage | Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, scale_grads: bool = True,
    ):  # fmt: skip
        super().__init__(stage, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if n_microbatches < self.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages "
                f"({self.num_stages})."
            )

    def order(self, stage: int) -> Iterator[Action]:
        """What a stage does."""
        ahead = min(self.n_microbatches, self.num_stages - stage)
        for k in range(ahead):
            yield Action(stage, FORWARD, k)
        for k in range(self.n_microbatches):
            yield Action(stage, BACKWARD, k)
            if ahead + k < self.n_microbatches:
                yield Action(stage, FORWARD, ahead + k)


__all__ = ["Schedule1F1B", "ScheduleGPipe"]
