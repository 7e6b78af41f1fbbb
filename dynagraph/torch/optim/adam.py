"""``torch.optim.adam``: steps by averages of gradients and of their squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_betas, check_eps, check_fused, check_lr, check_not_negative, hyper
from dynagraph.torch.optim.per_element import PerElement, decay_number, decay_of, decayed


def adam(xp: Any, arrays: Any, numbers: Any, maximize: bool, decay: str, amsgrad: bool) -> tuple[Any, ...]:
    """Formula of Adam: the parameter, the averages of the gradient and its square, and the most that the latter was."""
    p, g, m, v = arrays[:4]
    decaying, new, beta2, new2, root2, eps, size = numbers
    p, g = decayed(p, g, decaying, maximize, decay)
    m = m + (g - m) * new
    v = v * beta2 + g * g * new2
    if not amsgrad:
        return p - m / (xp.sqrt(v) * root2 + eps) * size, m, v
    most = xp.maximum(arrays[4], v)
    return p - m / (xp.sqrt(most) * root2 + eps) * size, m, v, most


class Adam(PerElement):
    """Adam (D. Kingma and J. Ba, 2015): averages of the gradient over the root of averages of its square.

    `amsgrad`: over the most that these averages have been.  `decoupled_weight_decay`: weights decay by themselves, as in AdamW.
    """

    formula = adam
    _sparse_text = "Adam does not support sparse gradients, please consider SparseAdam instead"  # of its kin, too
    _added_options: ClassVar[dict[str, Any]] = {
        "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False, "fused": None,
    }  # fmt: skip

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_lr(lr)
        check_eps(eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        if not (all(isinstance(b, float) for b in betas) or all(isinstance(b, Tensor) for b in betas)):
            raise ValueError("betas must be either both floats or both Tensors")
        for k, beta in enumerate(betas):
            if isinstance(beta, Tensor):
                if foreach and not capturable:
                    raise ValueError(f"betas[{k}] as a Tensor is not supported for capturable=False and foreach=True")
                if beta.numel() != 1:
                    raise ValueError(f"Tensor betas[{k}] must be 1-element")
        defaults = {
            "lr": lr, "betas": tuple(hyper(beta, keeps=True) for beta in betas), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return group["maximize"], decay_of(group), group["amsgrad"]

    def _numbers(self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any) -> tuple[Any, Any]:
        keeps = group.get("differentiable", False)
        lr, beta1, beta2 = hyper(group["lr"], keeps), hyper(group["betas"][0], keeps), hyper(group["betas"][1], keeps)
        step = counters[0] + 1
        root2, size = (1 - beta2**step) ** -0.5, lr / (1 - beta1**step)
        return (step,), (decay_number(group, lr), 1 - beta1, beta2, 1 - beta2, root2, group["eps"], size)


__all__ = ["Adam", "adam"]
