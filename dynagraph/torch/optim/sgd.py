"""``torch.optim.sgd``: gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_fused, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed
from dynagraph.torch.optim.sparse_rows import add_scaled, chosen_afterwards
from dynagraph.torch.optim.states import filled


def sgd(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str, has_momentum: bool, nesterov: bool) -> tuple[Any, ...]:
    """Formula of SGD: the parameter, and the buffer of its momentum."""
    p, g = arrays[:2]
    decaying, lr = numbers[:2]
    p, g = decayed(p, g, decaying, maximize, decay)
    if not has_momentum:
        return (p - g * lr,)
    momentum, undamped = numbers[2:]
    buffer = arrays[2] * momentum + g * undamped
    return p - (g + buffer * momentum if nesterov else buffer) * lr, buffer


class SGD(PerElement):
    """Stochastic gradient descent, with momentum (Polyak's or Nesterov's).

    The buffer of the momentum begins as the first gradient, whatever the dampening.

    >>> from dynagraph import torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.5)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    formula = sgd
    _counters = ()
    _added_options: ClassVar[dict[str, Any]] = {
        "nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False,
    }  # fmt: skip

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float | Tensor = 0, nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (("learning rate", lr), ("momentum value", momentum), ("weight_decay value", weight_decay)):
            if value < 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group), group["momentum"] != 0, group["nesterov"]

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        lr = hyper(group["lr"], group.get("differentiable", False))
        numbers = [decay_number(group, lr), lr]
        if group["momentum"] != 0:
            numbers += [group["momentum"], 1 - group["dampening"]]
        return (), numbers

    def _is_ready(self, group: dict[str, Any], state: Any) -> bool:
        return group["momentum"] == 0 or (state is not None and state.get("momentum_buffer") is not None)

    def _can_prepare(self, group: dict[str, Any]) -> bool:
        return bool(group["dampening"] == 0)  # then zeros become the first gradient by themselves

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        if group["momentum"] != 0:
            state["momentum_buffer"] = filled(param, 0)

    def _make_first(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> bool:
        self._make_state(group, param, state)
        self._states.changed()
        if group["dampening"] == 0:
            return False
        self._step_plainly({**group, "params": [param], "dampening": 0})
        return True

    def _first_captured(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        undamped = {**group, "dampening": 0}
        buffer = filled(param, 0)
        grad: Any = param.grad
        self._store_captured(sgd, self._flags(group), [[param, grad, buffer]], self._numbers(undamped, float)[1])
        state["momentum_buffer"] = buffer

    def _has_sparse_states(self, group: dict[str, Any]) -> bool:
        return bool(group["momentum"] != 0)

    def _step_sparse(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        lr = hyper(group["lr"])
        if group["maximize"]:
            grad = -grad
        if decay_of(group):
            grad = grad.add(param, alpha=hyper(group["weight_decay"]))
        if group["momentum"] != 0:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
            chosen_afterwards(buffer)
            grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        add_scaled(param, grad, -lr)


__all__ = ["SGD", "sgd"]
