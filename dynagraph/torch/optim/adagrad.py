"""``torch.optim.adagrad``: steps by sums of squared gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_fused, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed
from dynagraph.torch.optim.sparse_rows import Rows, number_of, scaled
from dynagraph.torch.optim.states import filled


def adagrad(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str) -> tuple[Any, ...]:
    """Formula of Adagrad: the parameter, and the sum of the gradient's squares."""
    p, g, total = arrays
    decaying, eps, size = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    total = total + g * g
    return p - g / (xp.sqrt(total) + eps) * size, total


class Adagrad(PerElement):
    """Adagrad (J. Duchi, E. Hazan and Y. Singer, 2011): gradients, sparse ones too, over the root of the sum of their squares."""

    formula = adagrad
    _added_options: ClassVar[dict[str, Any]] = {"maximize": False, "foreach": None, "differentiable": False, "fused": None}

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        check_not_negative(lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value)
        check_not_negative(epsilon=eps)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)
        for group in self.param_groups:
            for param in group["params"]:
                self._make_state(group, param, self.state[param])

    def share_memory(self) -> None:
        """Accepted: states are in the memory of this process."""

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("sum",)

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group)

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        self._make_counter(group, param, state)
        value = self.defaults["initial_accumulator_value"]
        state["sum"] = filled(param, complex(value, value) if param.is_complex() else value)

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr = hyper(group["lr"], group.get("differentiable", False))
        return (counters[0] + 1,), (decay_number(group, lr), group["eps"], lr / (1 + counters[0] * group["lr_decay"]))

    def _has_sparse_states(self, group: dict[str, Any]) -> bool:
        return True

    def _step_sparse(self, group: dict[str, Any], param: Any, grad: Any, state: dict[str, Any]) -> None:
        if decay_of(group):
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        rows = Rows(-grad if group["maximize"] else grad)
        state["step"] += 1
        size = hyper(group["lr"]) / (1 + (number_of(state["step"]) - 1) * group["lr_decay"])
        values = rows.values
        rows.add(state["sum"], values * values)
        rows.add(param, scaled(values / (rows.of(state["sum"]).sqrt() + group["eps"]), -size))


__all__ = ["Adagrad", "adagrad"]
