"""``torch.optim._muon``: momentum made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from dynagraph.torch.core.dtypes import bfloat16
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.products import addmm
from dynagraph.torch.optim.optimizer import ParamsT, all_params, check_lr, hyper
from dynagraph.torch.optim.per_tensor import PerTensor
from dynagraph.torch.optim.states import filled


class Muon(PerTensor):
    """Muon (K. Jordan et al., 2024): the momentum of matrices, all singular values made about 1 by Newton and Schulz's iteration.

    `adjust_lr_fn`: how steps depend on the matrix: "original" (the default) or "match_rms_adamw", for the learning rates of AdamW.
    """

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr, "Learning rate should be >= 0 but is")
        for name, value in (("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        assert bfloat16.numpy is not None  # its library is loaded: captures cannot
        for param in all_params(self):
            if param.ndim != 2:
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}")

    def _is_ready(self, group: dict[str, Any], state: Any) -> bool:
        return state is not None and "momentum_buffer" in state

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        state["momentum_buffer"] = filled(param, 0)

    def _step_tensor(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        if grad.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        lr, momentum = hyper(group["lr"], keeps=True), group["momentum"]
        buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        change = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        change = orthogonal(change, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = param.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            size = lr * (0.2 * math.sqrt(max(rows, columns)))
        else:
            size = lr * math.sqrt(max(1, rows / columns))
        param.mul_(1 - lr * group["weight_decay"])
        param.sub_(change.to(param.dtype) * size)


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, in bfloat16, by Newton and Schulz's iteration of fifth order."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    first, third, fifth = coefficients
    x = matrix.bfloat16()
    is_tall = matrix.size(0) > matrix.size(1)
    if is_tall:
        x = x.T
    x = x / x.float().square().sum((0, 1), keepdim=True).sqrt().clamp(min=eps).bfloat16()
    for _ in range(steps):
        gram = x @ x.T
        x = _rounded_once(x, _rounded_once(gram, gram, gram, third, fifth), x, first, 1)
    return x.T if is_tall else x


def _rounded_once(given: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float) -> Tensor:
    return addmm(given.float(), left.float(), right.float(), beta=beta, alpha=alpha).bfloat16()


__all__ = ["Muon"]
