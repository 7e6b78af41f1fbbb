"""``ZeroRedundancyOptimizer``: every rank steps some of the parameters, and has the states of these alone (ZeRO, stage 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.algorithms.join import Join, Joinable, JoinHook
from dynagraph.torch.distributed.buckets import parts_of
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.optim.optimizer import Optimizer, called

_torch = NAMESPACES["torch"]


class _ZeROJoinHook(JoinHook):
    """A rank without inputs goes on to step its parameters, by the gradients that the module's hook leaves."""

    def __init__(self, zero: ZeroRedundancyOptimizer):
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer of which each rank has a part: its step changes this rank's parameters, then all ranks get those of all others.

    optimizer_class: of the optimizer whose parts these are; `defaults`: its options.  Each parameter, whole, goes to the rank that
    has least.  process_group: the ranks; None: all.  parameters_as_bucket_view: a rank's parameters lie side by side in memory, so
    that one message carries them.  Gradients must be the same on all ranks, as DistributedDataParallel leaves them.
    """

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: Any = None, parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False, **defaults: Any,
    ) -> None:  # fmt: skip
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported")
        self._ready = False
        Joinable.__init__(self)
        self.process_group = process_group
        self.world_size, self.rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        self.global_rank = dist.get_rank()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self._gathered: dict[int, Any] | None = None
        Optimizer.__init__(self, params, dict(defaults))
        self._ready = True
        self._divide()
        self.optim = optimizer_class(self._groups_of(self.rank), **defaults)
        for own, theirs in zip(self.param_groups, self.optim.param_groups):  # the defaults of the class
            for name, value in theirs.items():
                own.setdefault(name, value)

    # -- who has which parameters --

    def _divide(self) -> None:
        """Choose a rank for each parameter: the largest first, each to the rank that has least."""
        sizes = [0] * self.world_size
        self._rank_of: dict[int, int] = {}
        for group in self.param_groups:
            for param in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
                rank = sizes.index(min(sizes))
                self._rank_of[id(param)] = rank
                sizes[rank] += param.numel()
        self._flat: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        if self.parameters_as_bucket_view:
            for rank in range(self.world_size):
                self._flat[rank] = self._side_by_side(self._params_of(rank))

    def _params_of(self, rank: int) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if self._rank_of[id(p)] == rank]

    def _groups_of(self, rank: int) -> list[dict[str, Any]]:
        return [
            {**group, "params": [p for p in group["params"] if self._rank_of[id(p)] == rank]} for group in self.param_groups
        ]  # fmt: skip

    def _side_by_side(self, params: list[Tensor]) -> list[Tensor]:
        kinds: dict[Any, list[Tensor]] = {}
        for param in params:
            kinds.setdefault((param.dtype, str(param.device)), []).append(param)
        found = []
        with no_grad():
            for some in kinds.values():
                count = sum(p.numel() for p in some)
                flat: Tensor = _torch["empty"](count, dtype=some[0].dtype, device=some[0].device)
                for param, part in zip(some, parts_of(flat, some)):
                    part.copy_(param)
                    param.data = part
                found.append(flat)
        return found

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; whole parameters may get other ranks, before the first step alone."""
        super().add_param_group(param_group)
        if self._ready:
            before = {id(p) for p in self._params_of(self.rank)} if self.optim.state else None
            self._divide()
            if before is not None and not before <= {id(p) for p in self._params_of(self.rank)}:
                raise RuntimeError("ZeroRedundancyOptimizer: the parameters of ranks change; add groups before the first step")
            self.optim.param_groups = self._groups_of(self.rank)

    # -- steps --

    def _share_options(self, source: Any, target: Any) -> None:
        for given, own in zip(source, target):
            own.update((name, value) for name, value in given.items() if name != "params")

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step this rank's parameters, and take those of the other ranks."""
        Join.notify_join_context(self)
        loss = called(closure)
        self._share_options(self.param_groups, self.optim.param_groups)
        self.optim.step(**kwargs)
        self._share_options(self.optim.param_groups, self.param_groups)
        self._exchange()
        self._gathered = None
        return loss

    def _exchange(self) -> None:
        group = self.process_group
        works: list[Any] = []
        with no_grad():
            for rank in range(self.world_size):
                source = rank if group is None else dist.get_global_rank(group, rank)
                for tensor in self._flat[rank] or self._params_of(rank):
                    works.append(dist.broadcast(tensor.detach(), source, group=group, async_op=True))
            for work in works:
                work.wait()

    # -- dicts of states --

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the states of all ranks on one rank of the group, whose `state_dict` has them then; all ranks call it."""
        own = self.optim.state_dict()["state"]
        numbers = {id(p): k for k, p in enumerate(p for group in self.param_groups for p in group["params"])}
        mine = [p for group in self.optim.param_groups for p in group["params"]]
        named = {numbers[id(mine[k])]: value for k, value in own.items()}
        target = to if self.process_group is None else dist.get_global_rank(self.process_group, to)
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        dist.gather_object(named, found, dst=target, group=self.process_group)
        self._gathered = None
        if found is not None:
            merged = {k: value for each in found for k, value in each.items()}
            self._gathered = dict(sorted(merged.items()))

    def state_dict(self) -> dict[str, Any]:
        """That of an optimizer of all parameters; `consolidate_state_dict` must have been called."""
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        self._share_options(self.optim.param_groups, self.param_groups)
        found = super().state_dict()
        found["state"] = dict(self._gathered)
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of the states of all parameters."""
        params = [p for group in self.param_groups for p in group["params"]]
        mine = {id(p): k for k, p in enumerate(p for group in self.optim.param_groups for p in group["params"])}
        states = {
            mine[id(params[k])]: value for k, value in state_dict["state"].items() if value is not None and id(params[k]) in mine
        }  # fmt: skip
        own = self.optim.state_dict()
        for given, group in zip(state_dict["param_groups"], own["param_groups"]):
            group.update((name, value) for name, value in given.items() if name != "params")
        self.optim.load_state_dict({"state": states, "param_groups": own["param_groups"]})
        self._share_options(self.optim.param_groups, self.param_groups)
        self._gathered = None

    # -- uneven inputs --

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without inputs does: `Join` calls it."""
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group


__all__ = ["ZeroRedundancyOptimizer"]
