"""``torch.optim.adamw``: Adam with weights that decay by themselves."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.adam import Adam, adam
from dynagraph.torch.optim.optimizer import ParamsT

adamw = adam


class AdamW(Adam):
    """AdamW (I. Loshchilov and F. Hutter, 2019): Adam whose weight decay does not go through the averages."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


__all__ = ["AdamW", "adamw"]
