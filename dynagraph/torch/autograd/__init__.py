"""``torch.autograd``: backward and gradients of recorded operations."""

from __future__ import annotations

from dynagraph.torch.core.engine import backward as backward
from dynagraph.torch.core.engine import grad as grad
from dynagraph.torch.core.grad_mode import enable_grad as enable_grad
from dynagraph.torch.core.grad_mode import inference_mode as inference_mode
from dynagraph.torch.core.grad_mode import no_grad as no_grad
from dynagraph.torch.core.grad_mode import set_grad_enabled as set_grad_enabled
