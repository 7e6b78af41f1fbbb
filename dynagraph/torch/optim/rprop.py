"""``torch.optim.rprop``: steps by the gradients' signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_lr, hyper
from dynagraph.torch.optim.per_element import PerElement
from dynagraph.torch.optim.states import filled


def rprop(xp: Any, arrays: Any, numbers: Any, maximize: bool) -> tuple[Any, ...]:
    """Formula of Rprop: the parameter, the gradient before (0 after a change of sign), and the size of steps."""
    p, g, before, size = arrays
    shorter, longer, least, most = numbers
    if maximize:
        g = -g
    turn = g * before
    size = xp.where(turn > 0, size * longer, xp.where(turn < 0, size * shorter, size))
    size = xp.minimum(xp.maximum(size, least), most)
    g = xp.where(turn < 0, 0, g)
    return p - xp.where(g > 0, size, xp.where(g < 0, -size, 0)), g, size


class Rprop(PerElement):
    """Rprop (M. Riedmiller and H. Braun, 1993): steps of a size for each element, which grows until the gradient's sign changes."""

    formula = rprop

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return "prev", "step_size"

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return (group["maximize"],)

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        self._make_counter(group, param, state)
        lr = hyper(group["lr"], keeps=True)
        lr = float(lr)
        state["prev"], state["step_size"] = filled(param, 0), filled(param, complex(lr, lr) if param.is_complex() else lr)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        return (counters[0] + 1,), (*group["etas"], *group["step_sizes"])


__all__ = ["Rprop", "rprop"]
