"""``torch.optim.swa_utils``: averages of a model's parameters over many steps."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.creation import tensor
from dynagraph.torch.functions.ternary import where
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.optim.optimizer import Optimizer
from dynagraph.torch.optim.schedules.base import LRScheduler, for_each_group

Tensors = list[Tensor] | tuple[Tensor, ...]


def _without_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    return no_grad()(function)


def _average(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of this module's that averages: it only computes."""
    made = _without_grad(function)
    made.only_computes = True  # type: ignore[attr-defined]
    return made


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _is_inexact(params: Tensors) -> bool:
    return params[0].is_floating_point() or params[0].is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """What moves lists of averages towards parameters, so that each step counts `decay` times as much as the one after it."""
    _check_decay(decay)

    @_average
    def ema_update(ema_param_list: Tensors, current_param_list: Tensors, _: Any) -> None:
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            if _is_inexact(ema_param_list):
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """What moves lists of averages towards parameters, so that all steps count as much."""

    @_average
    def swa_update(averaged_param_list: Tensors, current_param_list: Tensors, num_averaged: Any) -> None:
        part = 1 / (num_averaged + 1)
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            if _is_inexact(averaged_param_list):
                average.lerp_(current, part.to(average.dtype) if isinstance(part, Tensor) else part)
            else:
                average.copy_(average + (current - average) / (num_averaged + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Tensor]:
    """As `get_ema_multi_avg_fn`, of one parameter, whose new average it gives."""
    _check_decay(decay)

    @_average
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Tensor]:
    """As `get_swa_multi_avg_fn`, of one parameter, whose new average it gives."""

    @_average
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


_equally = get_swa_avg_fn()


class AveragedModel(Module):
    """A copy of a model with averages of its parameters: `update_parameters` adds what they are now.

    `avg_fn` or `multi_avg_fn`: how, by default with equal weights; `use_buffers`: buffers are averaged, too, not just copied.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Callable[..., Tensor] | None = None,
        multi_avg_fn: Callable[..., None] | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        assert avg_fn is None or multi_avg_fn is None, "Only one of avg_fn and multi_avg_fn should be provided"
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model with the averages gives."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of a model into the averages; the first time they become these."""
        own = [t.detach() for t in self._averaged(self.module)]
        given = [t.detach().to(average.device) for t, average in zip(self._averaged(model), own)]
        if is_compiling() and getattr(self.multi_avg_fn or self.avg_fn or _equally, "only_computes", False):
            self._update(own, given)
            for average, current in zip(own, given):
                average.copy_(where(self.n_averaged.to(average.device) == 0, current, average))
        elif self.n_averaged == 0:
            for average, current in zip(own, given):
                average.copy_(current)
        else:
            self._update(own, given)
        if not self.use_buffers:
            for buffer, current in zip(self.module.buffers(), model.buffers(), strict=True):
                buffer.detach().copy_(current.detach().to(buffer.device))
        self.n_averaged += 1

    def _update(self, own: list[Tensor], given: list[Tensor]) -> None:
        if self.multi_avg_fn is not None:
            for averages, currents in _by_kind(own, given):
                self.multi_avg_fn(averages, currents, self.n_averaged.to(averages[0].device))
            return
        update = self.avg_fn or _equally
        for average, current in zip(own, given):
            average.copy_(update(average, current, self.n_averaged.to(average.device)))

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()


def _by_kind(own: list[Tensor], given: list[Tensor]) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Pairs of lists of one device and dtype each."""
    found: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for average, current in zip(own, given):
        pair = found.setdefault((average.device, average.dtype), ([], []))
        pair[0].append(average)
        pair[1].append(current)
    return found.values()


@_without_grad
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of a model's batch norms anew, from batches of inputs, or of tuples that begin with them."""
    norms = [m for m in model.modules() if any(kind.__name__ == "_BatchNorm" for kind in type(m).__mro__)]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # all batches count as much
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if device is None else inputs.to(device))
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the rate as it is to `swa_lr`, in `anneal_epochs` steps, and then that."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1
    ) -> None:
        for rate, group in zip(for_each_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._set_anneal_func(anneal_strategy)
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _set_anneal_func(self, anneal_strategy: str) -> None:
        self._anneal_strategy = anneal_strategy
        self.anneal_func = _cosine if anneal_strategy == "cos" else _linear

    def get_lr(self) -> list[Any]:
        """The rates of this step."""
        self._warn_outside_of_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self.anneal_func(max(0, min(1, k / max(1, self.anneal_epochs)))) for k in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            last, rate = group["swa_lr"], group["lr"]
            first = last if before == 1 else (rate - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer and the function."""
        return {name: value for name, value in super().state_dict().items() if name != "anneal_func"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`."""
        self.__dict__.update(state_dict)
        self._set_anneal_func(self._anneal_strategy)


def _linear(part: float) -> float:
    return part


def _cosine(part: float) -> float:
    return (1 - math.cos(math.pi * part)) / 2


__getattr__ = getattr_of(__name__)
__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip
