"""``torch.optim.radam``: Adam whose first steps do without the average of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, betas_of, check_betas, check_eps, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def radam(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of RAdam: the parameter, and the averages of the gradient and its square."""
    p, g, m, v = arrays
    decaying, new, beta2, new2, eps, size, rectified = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    m = m + (g - m) * new
    v = v * beta2 + g * g * new2
    adapted = xp.where(rectified > 0, rectified / (xp.sqrt(v) + eps), 1)
    return p - m * size * adapted, m, v


class RAdam(PerElement):
    """RAdam (L. Liu et al., 2020): Adam with a factor for how much the average of squares varies, and without it at first."""

    formula = radam
    _added_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False, "decoupled_weight_decay": False,
    }  # fmt: skip

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_eps(eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, (beta1, beta2) = hyper(group["lr"], group.get("differentiable", False)), betas_of(group)
        step = counters[0] + 1
        power = beta2**step
        left, most = 1 - power, 2 / (1 - beta2) - 1
        length = most - 2 * step * power / left  # of the average that would vary as much
        used = np.maximum(length, 5.0)
        factor = ((used - 4) * (used - 2) * most / ((most - 4) * (most - 2) * used) * left) ** 0.5
        rectified = np.where(length > 5.0, factor, 0.0)
        size = lr / (1 - beta1**step)
        return (step,), (decay_number(group, lr), 1 - beta1, beta2, 1 - beta2, group["eps"], size, rectified)


__all__ = ["RAdam", "radam"]
