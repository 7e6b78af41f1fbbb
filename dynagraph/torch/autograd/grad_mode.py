"""``torch.autograd.grad_mode``: contexts that say whether operations are recorded."""

from __future__ import annotations

from dynagraph.torch.core.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
