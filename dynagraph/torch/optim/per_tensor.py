"""Optimizers whose step is some operations of tensors for each parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import Optimizer, called, without_grad
from dynagraph.torch.optim.per_element import prepared


class PerTensor(Optimizer):
    """An optimizer that steps one parameter after the other."""

    def _step_tensor(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        """A step of one parameter."""
        raise NotImplementedError

    @without_grad
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; `closure` computes the loss anew, with its gradients."""
        loss = called(closure)
        for number, group in enumerate(self.param_groups):
            params = group["params"]
            chosen = [k for k, param in enumerate(params) if param.grad is not None]
            for k in chosen:
                self._check(params[k], params[k].grad)
            if is_compiling() and chosen:
                states = prepared(self, number, chosen)[1]
                for k in chosen:
                    self._step_tensor(group, params[k], params[k].grad, states[k])
                continue
            for k in chosen:
                state = self._states[params[k]]
                if not self._is_ready(group, state):
                    self._make_state(group, params[k], state)
                self._step_tensor(group, params[k], params[k].grad, state)
        return loss

    def _check(self, param: Tensor, grad: Tensor) -> None:
        if param.is_complex():
            raise RuntimeError(f"{type(self).__name__} does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")


__all__ = ["PerTensor"]
