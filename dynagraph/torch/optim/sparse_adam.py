"""``torch.optim.sparse_adam``: Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import ParamsT, check_betas, hyper
from dynagraph.torch.optim.per_tensor import PerTensor
from dynagraph.torch.optim.sparse_rows import Rows, scaled
from dynagraph.torch.optim.states import filled


def counted(state: dict[str, Any]) -> int:
    """The number of this step, which a state counts; in captured code a number that the program is given."""
    state["step"] += 1
    return state["step"]  # type: ignore[no-any-return]


def number_after(state: dict[str, Any], steps: int) -> float:
    """The number of the step after so many others."""
    return float(state["step"] + steps + 1)


class SparseAdam(PerTensor):
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

    def _check(self, param: Tensor, grad: Tensor) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        state.update(step=0, exp_avg=filled(param, 0), exp_avg_sq=filled(param, 0))

    def _step_tensor(self, group: dict[str, Any], param: Any, grad: Any, state: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        rows = Rows(-grad if group.get("maximize", False) else grad)
        step = counted(state)
        values = rows.values
        if not values.numel():
            return
        m, v = rows.of(state["exp_avg"]), rows.of(state["exp_avg_sq"])
        change_m, change_v = (values - m) * (1 - beta1), (values * values - v) * (1 - beta2)
        rows.add(state["exp_avg"], change_m)
        rows.add(state["exp_avg_sq"], change_v)
        size = hyper(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        rows.add(param, scaled((m + change_m) / ((v + change_v).sqrt() + group["eps"]), -size))


__all__ = ["SparseAdam", "counted", "number_after"]
