"""Schedulers of rates that go up and down, and of momentum against them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from dynagraph.torch.optim.optimizer import Optimizer
from dynagraph.torch.optim.schedules.base import LRScheduler, check_optimizer, for_each_group, set_value, state_of_functions


def _set_momentum(scheduler: Any, group: dict[str, Any], momentum: Any) -> None:
    if scheduler.use_beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _cycle_momentum(scheduler: Any, optimizer: Optimizer, base: Any, most: Any, last_epoch: int) -> tuple[list[Any], list[Any]]:
    """Begin to change the momentum, from the most; what it goes between, for each group."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    scheduler.use_beta1 = "betas" in optimizer.defaults
    bases, mosts = for_each_group("base_momentum", optimizer, base), for_each_group("max_momentum", optimizer, most)
    if last_epoch == -1:
        for low, high, group in zip(bases, mosts, optimizer.param_groups, strict=True):
            _set_momentum(scheduler, group, high)
            group["max_momentum"], group["base_momentum"] = high, low
    return bases, mosts


class CyclicLR(LRScheduler):
    """Between two rates, up in `step_size_up` steps and down in `step_size_down` (L. Smith, 2017).

    `mode`: "triangular", "triangular2" (half the height each time) or "exp_range" (the height times ``gamma**step``); or
    `scale_fn`, a function of the number of cycles, or with ``scale_mode="iterations"`` of steps.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float], step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        rates = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(rates, optimizer.param_groups, strict=True):
                set_value(group, "lr", rate)
        self.max_lrs = for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            found = _cycle_momentum(self, optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = found
        super().__init__(optimizer, last_epoch)
        self.base_lrs = rates

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is None:
            self._scale_fn_ref, self.scale_mode = {
                "triangular": (_full, "cycle"), "triangular2": (_halved, "cycle"),
                "exp_range": (functools.partial(pow, self.gamma), "iterations"),
            }[self.mode]  # fmt: skip

    def scale_fn(self, x: float) -> float:
        """How high a cycle is, of 1."""
        return self._scale_fn_ref(x) if self._scale_fn_custom is None else self._scale_fn_custom(x)

    def get_lr(self) -> list[Any]:
        """The rates of this step; sets the momentum, too."""
        self._warn_outside_of_step()
        cycle = (1 + self.last_epoch / self.total_size) // 1.0  # a float, which compiled programs need not know
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        if self._scale_fn_custom is not None:
            cycle = int(cycle)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            pairs = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in pairs:
                _set_momentum(self, group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer and functions."""
        found = super().state_dict()
        found.pop("_scale_fn_ref", None)
        function = found.pop("_scale_fn_custom")
        found["_scale_fn_custom"] = None if function is None else state_of_functions([function])[0]
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict`; the function stays that of this scheduler."""
        kept = state_dict["_scale_fn_custom"]
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        if kept is not None:
            self._scale_fn_custom.__dict__.update(kept)
        self._init_scale_fn()


def _full(_: float) -> float:
    return 1.0


def _halved(cycle: float) -> float:
    return float(1 / 2.0 ** (cycle - 1))


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down to far below the first rate in `total_steps` steps (L. Smith and N. Topin, 2018)."""

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85, max_momentum: float | list[float] = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        most = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for rate, group in zip(most, optimizer.param_groups):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _cycle_momentum(self, optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, group: dict[str, Any], phase: dict[str, Any], what: str, done: float) -> Any:
        start, end = group[phase[f"start_{what}"]], group[phase[f"end_{what}"]]
        if self._anneal_func_type == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        """The rates of this step; sets the momentum, too."""
        self._warn_outside_of_step()
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        phases = self._schedule_phases
        k = next((k for k, phase in enumerate(phases) if self.last_epoch <= phase["end_step"]), len(phases) - 1)
        start = phases[k - 1]["end_step"] if k else 0.0
        done = (self.last_epoch - start) / (phases[k]["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group, phases[k], "lr", done))
            if self.cycle_momentum:
                _set_momentum(self, group, self._between(group, phases[k], "momentum", done))
        return rates


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    given = {"total_steps": total} if total is not None else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    if any(value is None for value in given.values()):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(given.values())


def _phases(total: int, part: Any, three: bool) -> list[dict[str, Any]]:
    """When each phase ends, and which options of groups it begins and ends with."""
    first = float(part * total) - 1
    ends = [(first, "max_lr", "base_momentum"), (total - 1, "min_lr", "max_momentum")]
    if three:
        ends.insert(1, (float(2 * part * total) - 2, "initial_lr", "max_momentum"))
    found, start = [], ("initial_lr", "max_momentum")
    for end_step, *end in ends:
        found.append({
            "end_step": end_step, "start_lr": start[0], "end_lr": end[0], "start_momentum": start[1], "end_momentum": end[1],
        })  # fmt: skip
        start = (end[0], end[1])
    return found


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` as half a cosine, again and again: the first time in `T_0` steps, then in `T_mult` times as many."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of this step."""
        self._warn_outside_of_step()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (rate - self.eta_min) * height / 2 for rate in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Set the rates of the next step, or of a given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._set_lrs(self._rates())


__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]
