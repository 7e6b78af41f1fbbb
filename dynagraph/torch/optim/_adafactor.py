"""``torch.optim._adafactor``: adaptive steps whose state takes a row and a column of each matrix."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.dtypes import finfo
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_lr, hyper, scalar_dtype
from dynagraph.torch.optim.per_tensor import PerTensor
from dynagraph.torch.optim.states import filled, number_state


class Adafactor(PerTensor):
    """Adafactor (N. Shazeer and M. Stern, 2018): squared gradients averaged by rows and columns; steps in proportion to parameters.

    `eps`: the least of averages (None: the dtype's), and of a parameter's root mean square.  `d`: the most that a change's is.
    """

    _counters = ("step",)

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_lr(lr, "Learning rate should be >= 0 but is")
        checks = (
            (beta2_decay <= 0, "beta2_decay should be <= 0", beta2_decay),
            (eps[0] is None or eps[0] >= 0, "epsilon1 should be >= 0", eps[0]),
            (eps[1] >= 0, "epsilon2 should be >= 0", eps[1]),
            (d >= 1, "Clipping threshold d should be >= 1", d),
            (weight_decay >= 0, "weight_decay should be >= 0", weight_decay),
        )
        for holds, text, value in checks:
            if not holds:
                raise ValueError(f"{text} but is: {value}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        state["step"] = number_state(0.0, scalar_dtype())
        if param.dim() > 1:
            sizes = list(param.shape)
            state["row_var"] = param.new_zeros([*sizes[:-1], 1])
            state["col_var"] = param.new_zeros([*sizes[:-2], 1, sizes[-1]])
        else:
            state["variance"] = filled(param, 0)

    def _step_tensor(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        lr, (least, least_root) = hyper(group["lr"], keeps=True), group["eps"]
        least = finfo(param.dtype).eps if least is None else least
        if group["maximize"]:
            grad = -grad
        state["step"] += 1
        step = state["step"].double()
        new = step ** group["beta2_decay"]
        size = (step**-0.5).clamp(max=lr) if not isinstance(lr, Tensor) else (step**-0.5).minimum(lr)
        size = (param.norm(2) / param.numel() ** 0.5).double().clamp(min=least_root) * size
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            row, column = state["row_var"], state["col_var"]
            row.add_((grad.square().mean(-1, keepdim=True) - row) * new)
            column.add_((grad.square().mean(-2, keepdim=True) - column) * new)
            variance = (row @ column) / row.mean(-2, keepdim=True).clamp(min=least)
        else:
            variance = state["variance"].add_((grad * grad - state["variance"]) * new)
        change = variance.clamp(min=least * least).rsqrt() * grad
        ratio = (change.norm(2) / (change.numel() ** 0.5 * group["d"])).double().clamp(min=1.0)
        param.sub_(change * (size / ratio))


__all__ = ["Adafactor"]
