"""The base of all schedulers, and what they do with the options of groups."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import Optimizer, hyper

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed form is used "
    "instead of the new chainable form, where available. Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)
_ORDER = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """An option of all groups; tensors are copied."""
    return [copied(group[name]) for group in optimizer.param_groups]


def copied(value: Any) -> Any:
    """A number as it is, a tensor's copy."""
    return value.clone() if isinstance(value, Tensor) else value


def passed_of(milestones: Iterable[int], epoch: int) -> int:
    """How many of some epochs are over, or begin."""
    return sum([1 for milestone in milestones if milestone <= epoch])


def set_value(group: dict[str, Any], name: str, value: Any) -> None:
    """Set an option of a group; one that is a tensor stays that tensor."""
    held = group[name]
    if isinstance(held, Tensor):
        held.fill_(hyper(value, keeps=True))
    else:
        group[name] = value


def for_each_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """A value for each group: the same for all, or those of a list."""
    n = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * n
    elif len(value) != n:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {n}."
        )
    return [copied(item) for item in value]


def check_optimizer(optimizer: Any) -> None:
    """TypeError where this is none."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """Sets the learning rates of an optimizer's groups; `step` is called after the optimizer's.

    `last_epoch`: how many steps there were before (-1: this is a new run).  Subclasses have `get_lr`, the rates of this step, and
    perhaps `_get_closed_form_lr`, the same by `base_lrs` and the number of steps alone.
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{k}] when resuming scheduler with last_epoch >= 0.\n"
                    "This typically happens when:\n"
                    "1. You're trying to resume training from a checkpoint but haven't properly loaded the optimizer state\n"
                    "2. You're using last_epoch >= 0 for a fresh training run (not recommended)"
                )
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the first rates."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that the last step has set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of this step."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next step, or of a given one (which is deprecated)."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, make "
                f"sure to call `optimizer.step()` before `lr_scheduler.step()`. See more details at {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call "
                "them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result in "
                f"PyTorch skipping the first value of the learning rate schedule. See more details at {_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if epoch is not None and hasattr(self, "_get_closed_form_lr"):
            self._set_lrs(self._get_closed_form_lr())
        else:
            self._set_lrs(self._rates())

    def _rates(self) -> list[Any]:
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _set_lrs(self, rates: list[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_value(group, "lr", rate)
        self._last_lr = values_of(self.optimizer, "lr")

    def _warn_outside_of_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", UserWarning, stacklevel=3
            )


class _LRScheduler(LRScheduler):
    """The base's earlier name."""


class Chainable(LRScheduler):
    """A scheduler whose step multiplies the rates by a factor, whatever else changes them."""

    def _factor(self) -> float | None:
        """This step's factor; None: rates stay as they are."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        """The rates of this step."""
        self._warn_outside_of_step()
        factor = self._factor()
        if factor is None:
            return values_of(self.optimizer, "lr")
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def _note_steps(optimizer: Optimizer) -> None:
    """Have the optimizer's steps leave a mark, by which schedulers see that they come after the first one."""
    step: Any = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    reference, function = weakref.ref(optimizer), step.__func__

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        own: Any = reference()
        own._opt_called = True
        return function(own, *args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted  # type: ignore[method-assign]


def state_of_functions(functions: list[Callable[..., Any]]) -> list[Any]:
    """What functions of the user's keep: attributes of objects that are called; None of functions."""
    return [None if hasattr(function, "__code__") else function.__dict__.copy() for function in functions]


__all__ = [
    "EPOCH_DEPRECATION_WARNING", "Chainable", "LRScheduler", "check_optimizer", "copied", "for_each_group", "set_value",
    "state_of_functions", "values_of",
]  # fmt: skip
