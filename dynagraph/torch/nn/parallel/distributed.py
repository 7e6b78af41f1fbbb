"""A module that every rank has, each with inputs of its own: gradients are averaged over ranks."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.core.parameter import is_lazy
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.algorithms.ddp_comm_hooks.default_hooks import compressed
from dynagraph.torch.distributed.algorithms.join import Join, Joinable, JoinHook
from dynagraph.torch.distributed.buckets import GradBucket, limits_of
from dynagraph.torch.distributed.reducer import Reducer, broadcast_coalesced, first_of
from dynagraph.torch.func.functional_call import functional_call
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.parallel.scatter_gather import scatter_kwargs
from dynagraph.torch.utils._pytree import tree_map

_torch = NAMESPACES["torch"]


@dataclasses.dataclass
class _MixedPrecision:
    """What DistributedDataParallel computes in: dtypes, or None for those of the module.

    param_dtype: of parameters and inputs in forward and backward; parameters and their gradients themselves keep their dtype.
    reduce_dtype: in which gradients are exchanged, `param_dtype` by default.  buffer_dtype: of buffers.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


def _cast(dtype: Any, values: Any) -> Any:
    return tree_map(lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v, values)


def _tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in what a forward gives."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors_of(each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors_of(getattr(value, field.name))


class _DDPJoinHook(JoinHook):
    """What a rank without inputs does for the module."""

    def __init__(self, ddp: DistributedDataParallel, divide_by_initial_world_size: bool) -> None:
        self.ddp = ddp
        ddp._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        ddp = self.ddp
        if ddp._buffers_are_sent():
            ddp._sync_buffers(has_inputs=False)
        syncs = ddp.require_forward_param_sync = ddp._some_rank_syncs(False)
        if syncs:
            by_all = ddp._divide_by_initial_world_size or not ddp._join_config.is_first_joinable
            ddp._divide_by(ddp.reducer.ranks if by_all else ddp._active_ranks)
            ddp.reducer.answer()

    def post_hook(self, is_last_joiner: bool) -> None:
        self.ddp._sync_final_model(is_last_joiner)


class DistributedDataParallel(Module, Joinable):
    """A copy of `module` on each rank: after `backward` all ranks have the average of their gradients.

    The parameters and buffers of the first rank are taken by all at the start; with `broadcast_buffers` buffers also before each
    forward.  Gradients leave in buckets of `bucket_cap_mb` MiB (25; the first 1) while backward computes the next ones.

    process_group: the ranks; None: all.  find_unused_parameters: some parameters get no gradient in some iterations.
    static_graph: the same parameters get gradients in all iterations, each as often; what the first one shows holds.
    gradient_as_bucket_view: ``grad`` is a part of a bucket, which saves a copy and memory.  init_sync: False leaves the parameters
    as they are.  device_ids: one GPU to which inputs are moved.  device_mesh: a mesh of one dimension, in place of a group.
    mixed_precision: in which dtypes it computes and exchanges gradients (`_MixedPrecision`).
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool | None = None, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False, delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None, mixed_precision: Any = None, device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False, forward_sync_buffers: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        Joinable.__init__(self)
        for name, given in (
            ("delay_all_reduce_named_params", delay_all_reduce_named_params),
            ("param_to_hook_all_reduce", param_to_hook_all_reduce),
        ):  # fmt: skip
            if given is not None:
                raise NotImplementedError(f"DistributedDataParallel: {name} is not supported")
        if not isinstance(mixed_precision, _MixedPrecision | None):
            raise TypeError(
                "DistributedDataParallel: mixed_precision must be a torch.nn.parallel.distributed._MixedPrecision, or None, not "
                f"{mixed_precision!r}"
            )
        self.mixed_precision = _MixedPrecision() if mixed_precision is None else mixed_precision
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(mesh_dim=0)
        self.process_group, self.device_mesh = process_group, device_mesh
        self.module, self.dim = module, dim
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._check(device_ids, output_device)
        self.broadcast_buffers = forward_sync_buffers if broadcast_buffers is None else broadcast_buffers
        if self.broadcast_buffers is None:
            self.broadcast_buffers = True
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.bucket_limits = (
            limits_of(bucket_cap_mb) if bucket_cap_mb_list is None else [each * (1 << 20) for each in bucket_cap_mb_list]
        )
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._divide_by_initial_world_size = True
        if init_sync:
            self._check_shapes()
            self._sync_states(first_of(process_group))
        if self.mixed_precision.buffer_dtype is not None:
            for buffer in self._buffers_of():
                buffer.data = _cast(self.mixed_precision.buffer_dtype, buffer)
        self._make_reducer()

    def _check(self, device_ids: Any, output_device: Any) -> None:
        parameters = self._reduced()
        if not parameters:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        if any(is_lazy(p) for _, p in parameters):
            raise RuntimeError(
                "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward pass to "
                "correctly initialize the modules"
            )
        kinds = {p.device.type for _, p in parameters}
        if len(kinds) != 1:
            raise ValueError(
                "DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate "
                f"in {kinds}."
            )
        self.device, self.device_type = parameters[0][1].device, next(iter(kinds))
        if self.device_type == "cpu" and (device_ids or output_device):
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU "
                f"modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module parameters "
                f"{ {p.device for _, p in parameters} }."
            )
        self.device_ids = list(device_ids) if device_ids else None
        self.output_device = self.device_ids[0] if output_device is None and self.device_ids else output_device

    # -- what is reduced and sent --

    def _reduced(self) -> list[tuple[str, Tensor]]:
        ignored = self.parameters_to_ignore
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad and name not in ignored]

    def _make_reducer(self) -> None:
        named = self._reduced()
        self.reducer = Reducer(
            [p for _, p in named], [name for name, _ in named], self.process_group, self.bucket_limits,
            self.find_unused_parameters, self.gradient_as_bucket_view, self.static_graph,
        )  # fmt: skip
        policy = self.mixed_precision
        exchanged = policy.param_dtype if policy.reduce_dtype is None else policy.reduce_dtype
        if exchanged is not None:
            self.register_comm_hook(self.process_group, functools.partial(compressed, exchanged))

    def _check_shapes(self) -> None:
        """RuntimeError, on all ranks, where a rank has other parameters."""
        rank = dist.get_rank(self.process_group)
        own = [list(p.shape) for _, p in self._reduced()]
        shapes: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(shapes, own, group=self.process_group)
        for other, theirs in enumerate(shapes):
            if len(theirs) != len(own):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank {rank} has {len(own)} params, while rank {other} has "
                    f"inconsistent {len(theirs)} params."
                )
        for other, theirs in enumerate(shapes):
            for k, (mine, first) in enumerate(zip(theirs, shapes[0])):
                if mine != first:
                    raise RuntimeError(
                        f"[{other}]: params[{k}] in this process with sizes {mine} appears not to match sizes of the same param in "
                        f"process 0: {first}."
                    )

    def _buffers_of(self) -> list[Tensor]:
        return [b for name, b in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _sync_states(self, source: int) -> None:
        ignored = self.parameters_to_ignore
        parameters = [p for name, p in self.module.named_parameters() if name not in ignored]
        broadcast_coalesced([*parameters, *self._buffers_of()], self.process_group, source)

    def _buffers_are_sent(self) -> bool:
        return self.require_forward_param_sync and bool(self.broadcast_buffers) and bool(self._buffers_of())

    def _sync_buffers(self, has_inputs: bool = True) -> None:
        group = self.process_group
        source = self._common_rank(has_inputs) if self._join_config.enable else first_of(group)
        broadcast_coalesced(self._buffers_of(), group, source)

    def _common_rank(self, is_candidate: bool) -> int:
        """The last rank that says that it is one, by its number among all."""
        found = _torch["tensor"]([dist.get_rank(self.process_group) if is_candidate else -1], dtype=dtypes.int64)
        found = found.to(self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self.process_group)
        rank = int(found.item())
        return rank if self.process_group is None else dist.get_global_rank(self.process_group, rank)

    def _some_rank_syncs(self, syncs: bool) -> bool:
        """Whether backward is followed by a reduction: ranks with inputs tell those without."""
        flag = _torch["ones" if syncs else "zeros"](1, device=self.device)
        dist.all_reduce(flag, group=self.process_group)
        return bool(flag.item())

    # -- calls --

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._before_forward(inputs, kwargs)
        return self._after_forward(self._called(inputs, kwargs))

    def _called(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dtype = self.mixed_precision.param_dtype
        if dtype is None:
            return self.module(*inputs, **kwargs)
        ignored = self.parameters_to_ignore
        cast = {name: _cast(dtype, p) for name, p in self.module.named_parameters() if name not in ignored}
        return functional_call(self.module, cast, _cast(dtype, inputs), _cast(dtype, kwargs))

    def _before_forward(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        reducer = self.reducer
        if reducer.started and is_grad_enabled() and self.require_backward_grad_sync:
            raise reducer.unfinished()
        active = Join.notify_join_context(self)
        if active is not None:
            active.wait()
        by_all = active is None or self._divide_by_initial_world_size
        self._divide_by(reducer.ranks if by_all else active.active)
        if self._buffers_are_sent():
            self._sync_buffers()
        if self._join_config.enable:
            self._some_rank_syncs(self.require_backward_grad_sync)
        if self.device_ids:
            positional, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
            return positional[0], named[0]
        return inputs, kwargs

    def _divide_by(self, divisor: int) -> None:
        if self.reducer.divisor != divisor:
            self.reducer.divisor = divisor

    def _after_forward(self, output: Any) -> Any:
        if not is_grad_enabled():
            self.require_forward_param_sync = False
            return output
        self.require_forward_param_sync = self.require_backward_grad_sync
        if self.require_backward_grad_sync:
            self.reducer.prepare(_tensors_of(output))
        else:
            self.reducer.forget()
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context whose gradients stay on each rank, where they add up: the next backward outside averages their sums.

        The forward must be in the context, too.
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        return self

    # -- uneven inputs --

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:  # fmt: skip
        """A context for ranks that have unequally many inputs; at its end all have the model of the last one.

        Gradients are divided by the number of all ranks, or else of those that still have inputs.
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )  # fmt: skip

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _sync_final_model(self, is_last_joiner: bool) -> None:
        self._sync_states(self._common_rank(is_last_joiner))

    # -- communication hooks --

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Reduce buckets by ``hook(state, bucket)``, which gives a future of the bucket's tensor; once at most.

        `torch.distributed.algorithms.ddp_comm_hooks.default_hooks` has some.  What the hook gives is not divided.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        annotation = inspect.signature(hook).parameters["bucket"].annotation
        if not isinstance(annotation, str) and annotation not in (inspect.Parameter.empty, GradBucket):
            raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Any) -> None:
        """Have wrappers made later leave some parameters and buffers, by name, alone."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore  # type: ignore[assignment]

    # -- files --

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None:
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have "
                "called init_process_group and have not passed process_group argument to DDP constructor"
            )
        state = dict(super().__getstate__())
        del state["reducer"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._make_reducer()


__all__ = ["DistributedDataParallel"]
