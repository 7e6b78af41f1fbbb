"""``torch.distributed.algorithms.join``: ranks with fewer inputs answer the others' collectives until these have no more."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]
_MANY = 1000  # turns without inputs after which there is a warning


class JoinHook:
    """What a rank without inputs does in place of an object: a subclass for each kind of object."""

    def main_hook(self) -> None:
        """Answer the collectives of one turn of the ranks that have inputs."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when no rank has inputs; `is_last_joiner`: whether this one had some in the last turn."""


@dataclass(frozen=True, slots=True)
class _JoinConfig:
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """That of objects outside of any `Join`."""
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """An object with collectives in each turn, such as a module: what `Join` asks of it."""

    @abstractmethod
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._join_config = _JoinConfig.construct_disabled_join_config()
        self._active_ranks = 0  # how many have inputs in this turn, where this one has none
        super().__init__(*args, **kwargs)

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook that answers this object's collectives; `kwargs` are those of `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where the tensors of the context's own collectives are."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of the context's own collectives."""


class Join:
    """A context for training with more inputs on some ranks than on others.

    joinables: the objects with collectives, such as a DistributedDataParallel and a ZeroRedundancyOptimizer.  enable: False where
    inputs are known to be even.  throw_on_early_termination: RuntimeError on all ranks as soon as one has no more inputs.  Other
    arguments go to the objects' hooks.
    """

    def __init__(
        self, joinables: Sequence[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:  # fmt: skip
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throw_on_early_termination = joinables, enable, throw_on_early_termination
        self._join_hooks = [each.join_hook(**kwargs) for each in joinables]
        for k, each in enumerate(joinables):
            each._join_config = _JoinConfig(enable, throw_on_early_termination, k == 0)
        groups = [each.join_process_group for each in joinables]
        if any(group != groups[0] for group in groups):
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group, self._device = groups[0], joinables[0].join_device
        self._rank = dist.get_rank(self._process_group)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not self._enable or kind is not None:
            return
        turns, is_last = 0, True
        while others := self._others():
            if self._throw_on_early_termination:
                dist.all_reduce(_torch["ones"](1, device=self._device), group=self._process_group)
                raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")
            for each in self._joinables:
                each._active_ranks = others
            for hook in self._join_hooks:
                hook.main_hook()
            is_last = False
            turns += 1
            if turns == _MANY:
                warnings.warn(
                    f"Detected uneven input skew of greater than {_MANY}. This means that rank {self._rank} has at least {_MANY} "
                    "fewer inputs than other currently-active ranks. This level of skew could lead to performance degradation "
                    "during training.",
                    stacklevel=2,
                )
        for hook in self._join_hooks:
            hook.post_hook(is_last)
        for each in self._joinables:
            each._join_config = _JoinConfig.construct_disabled_join_config()

    def _others(self) -> int:
        """How many ranks have inputs in this turn."""
        count = _torch["zeros"](1, device=self._device)
        dist.all_reduce(count, group=self._process_group)
        return int(count.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tell ranks without inputs that this one has some, before an object's collectives of a turn.

        Gives the work of an all-reduce whose result is the number of ranks with inputs (`work.active`), None outside of contexts
        and for all objects of a context but the first.
        """
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        device, group = joinable.join_device, joinable.join_process_group
        active = _torch["ones"](1, device=device)
        work = dist.all_reduce(active, group=group, async_op=True)
        if config.throw_on_early_termination:
            ended = _torch["zeros"](1, device=device)
            dist.all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return _Active(work, active)


class _Active:
    """The work of counting ranks with inputs, with the count."""

    def __init__(self, work: Any, count: Any):
        self._work, self._count = work, count

    def wait(self, *args: Any) -> bool:
        """Wait for the count."""
        return self._work.wait(*args)

    def is_completed(self) -> bool:
        """Whether the count is there."""
        return self._work.is_completed()

    @property
    def active(self) -> int:
        """How many ranks have inputs."""
        self._work.wait()
        return int(self._count.item())


__all__ = ["Join", "JoinHook", "Joinable"]
