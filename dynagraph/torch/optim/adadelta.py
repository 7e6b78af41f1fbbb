"""``torch.optim.adadelta``: steps in the units of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def adadelta(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of Adadelta: the parameter, and the averages of the squares of the gradient and of its changes."""
    p, g, square, change = arrays
    decaying, rho, new, eps, lr = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    square = square * rho + g * g * new
    delta = xp.sqrt(change + eps) / xp.sqrt(square + eps) * g
    return p - delta * lr, square, change * rho + delta * delta * new


class Adadelta(PerElement):
    """Adadelta (M. Zeiler, 2012): gradients by the root of the ratio of average squares, of changes and of gradients."""

    formula = adadelta

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable,
            "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "square_avg", "acc_delta"

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, rho = hyper(group["lr"], group.get("differentiable", False)), group["rho"]
        return (counters[0] + 1,), (decay_number(group, lr), rho, 1 - rho, group["eps"], lr)


__all__ = ["Adadelta", "adadelta"]
