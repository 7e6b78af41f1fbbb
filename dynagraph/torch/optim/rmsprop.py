"""``torch.optim.rmsprop``: steps by averages of squared gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def rmsprop(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str, has_momentum: bool, centered: bool) -> tuple[Any, ...]:
    """Formula of RMSprop: the parameter, the average of the gradient's square, the buffer of its momentum, and its average."""
    p, g, square, *others = arrays
    decaying, alpha, new, eps, momentum, lr = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    square = square * alpha + g * g * new
    kept: tuple[Any, ...] = ()
    variance = square
    if centered:
        average = others[-1] + (g - others[-1]) * new
        kept, variance = (average,), square - average * average
    change = g / (xp.sqrt(variance) + eps)
    if has_momentum:
        change = others[0] * momentum + change
        kept = (change, *kept)
    return p - change * lr, square, *kept


class RMSprop(PerElement):
    """RMSprop (G. Hinton, 2012): gradients over the root of the average of their squares.

    `centered`: over their standard deviation.
    """

    formula = rmsprop
    _added_options: ClassVar[dict[str, Any]] = {
        "momentum": 0, "centered": False, "foreach": None, "maximize": False, "differentiable": False, "capturable": False,
    }  # fmt: skip

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        momentum = ("momentum_buffer",) if group["momentum"] > 0 else ()
        return ("square_avg", *momentum, *(("grad_avg",) if group["centered"] else ()))

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group), group["momentum"] > 0, group["centered"]

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr, alpha = hyper(group["lr"], group.get("differentiable", False)), group["alpha"]
        return (counters[0] + 1,), (decay_number(group, lr), alpha, 1 - alpha, group["eps"], group["momentum"], lr)


__all__ = ["RMSprop", "rmsprop"]
