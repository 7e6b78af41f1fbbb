"""``torch.optim.sparse_adam``: Adam for sparse gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.sparse import coo
from dynagraph.torch.optim.optimizer import Optimizer, ParamsT, called, check_betas, hyper, without_grad
from dynagraph.torch.optim.states import filled


class SparseAdam(Optimizer):
    """Adam of the places that a sparse gradient has: averages and parameters elsewhere stay as they are."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [(k, j, param) for k, group in enumerate(self.param_groups) for j, param in enumerate(group["params"])]
        sparse = [[k, j] for k, j, param in places if param.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        complex_ones = [[k, j] for k, j, param in places if param.is_complex()]
        if complex_ones:
            raise ValueError(f"Complex params at indices {complex_ones}: SparseAdam does not support complex parameters")

    @without_grad
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; `closure` computes the loss anew, with its gradients."""
        loss = called(closure)
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if not grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                grad = (-grad if group.get("maximize", False) else grad).coalesce()
                state = self._states[param]
                if not state:
                    state.update(step=0, exp_avg=filled(param, 0), exp_avg_sq=filled(param, 0))
                state["step"] += 1
                _step(group, param, grad, state)
        return loss


def _step(group: dict[str, Any], param: Any, grad: Any, state: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    places, values, shape = grad.indices(), grad.values(), tuple(grad.shape)
    if not values.numel():
        return
    m, v = (state[name].sparse_mask(grad).values() for name in ("exp_avg", "exp_avg_sq"))
    change_m, change_v = (values - m) * (1 - beta1), (values * values - v) * (1 - beta2)
    state["exp_avg"].add_(coo(places, change_m, shape, True))
    state["exp_avg_sq"].add_(coo(places, change_v, shape, True))
    step = state["step"]
    size = hyper(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    param.add_(coo(places, (m + change_m) / ((v + change_v).sqrt() + group["eps"]) * -size, shape, True))


__all__ = ["SparseAdam"]
