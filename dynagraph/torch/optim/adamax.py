"""``torch.optim.adamax``: Adam by greatest gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, betas_of, check_betas, check_eps, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def adamax(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of Adamax: the parameter, the average of the gradient, and its fading maximum."""
    p, g, m, u = arrays
    decaying, new, beta2, eps, size = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    m = m + (g - m) * new
    u = xp.maximum(u * beta2, xp.abs(g) + eps)
    return p - m / u * size, m, u


class Adamax(PerElement):
    """Adamax (D. Kingma and J. Ba, 2015): Adam with a fading maximum of the gradient in place of the average of its square."""

    formula = adamax

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_eps(eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_inf"

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, (beta1, beta2) = hyper(group["lr"], group.get("differentiable", False)), betas_of(group)
        step = counters[0] + 1
        return (step,), (decay_number(group, lr), 1 - beta1, beta2, group["eps"], lr / (1 - beta1**step))


__all__ = ["Adamax", "adamax"]
