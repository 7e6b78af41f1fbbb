"""``torch.optim.asgd``: gradient descent, with the average of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_lr, check_not_negative, hyper, scalar_dtype
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed
from dynagraph.torch.optim.states import filled, number_state


def asgd(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of ASGD: the parameter, and the average of what it has been."""
    p, g, average = arrays
    decaying, kept, eta, mu = numbers
    _, g = decayed(p, g, decaying, maximize, decay)
    p = p * kept - g * eta
    return p, xp.where(mu == 1, p, average + (p - average) * mu)


class ASGD(PerElement):
    """Averaged SGD (B. Polyak and A. Juditsky, 1992): ever shorter steps, and the average of the parameters from step `t0` on."""

    formula = asgd
    _counters = ("step", "eta", "mu")

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("ax",)

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        for name, value in (("step", 0.0), ("eta", float(hyper(group["lr"], keeps=True))), ("mu", 1.0)):
            state[name] = number_state(value, scalar_dtype(), param)
        state["ax"] = filled(param, 0)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, lambd = hyper(group["lr"], group.get("differentiable", False)), group["lambd"]
        step, eta, mu = counters[0] + 1, counters[1], counters[2]
        numbers = (decay_number(group, lr), 1 - lambd * eta, eta, mu)
        return (step, lr / (1 + lambd * lr * step) ** group["alpha"], 1 / np.maximum(1.0, step - group["t0"])), numbers


__all__ = ["ASGD", "asgd"]
