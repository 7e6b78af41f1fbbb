"""``torch.optim.nadam``: Adam with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, betas_of, check_betas, check_eps, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def nadam(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of NAdam: the parameter, and the averages of the gradient and its square."""
    p, g, m, v = arrays
    decaying, new, beta2, new2, root2, eps, of_gradient, of_average = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    m = m + (g - m) * new
    v = v * beta2 + g * g * new2
    return p - (g * of_gradient + m * of_average) / (xp.sqrt(v) * root2 + eps), m, v


class NAdam(PerElement):
    """NAdam (T. Dozat, 2016): Adam with Nesterov's momentum, whose factor grows with the steps."""

    formula = nadam
    _counters = ("step", "mu_product")
    _added_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False, "decoupled_weight_decay": False,
    }  # fmt: skip

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_eps(eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "exp_avg", "exp_avg_sq"

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        self._make_counter(group, param, state)
        self._make_counter(group, param, state, "mu_product", 1.0)
        self._make_tensors(group, param, state)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, (beta1, beta2), decay = hyper(group["lr"], group.get("differentiable", False)), betas_of(group), group["momentum_decay"]
        step, product = counters[0] + 1, counters[1]
        mu, after = beta1 * (1 - 0.5 * 0.96 ** (step * decay)), beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = rounded(product * rounded(mu))
        of_gradient, of_average = lr * (1 - mu) / (1 - product), lr * after / (1 - product * after)
        root2 = (1 - beta2**step) ** -0.5
        numbers = (decay_number(group, lr), 1 - beta1, beta2, 1 - beta2, root2, group["eps"], of_gradient, of_average)
        return (step, product), numbers


__all__ = ["NAdam", "nadam"]
