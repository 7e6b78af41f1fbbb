"""``torch.amp``: computing in halves what gains by it, and scaling losses so that gradients of halves do not vanish."""

from __future__ import annotations

from dynagraph.torch.amp.autocast_mode import autocast as autocast
from dynagraph.torch.amp.autocast_mode import custom_bwd as custom_bwd
from dynagraph.torch.amp.autocast_mode import custom_fwd as custom_fwd
from dynagraph.torch.amp.autocast_mode import is_autocast_available as is_autocast_available
from dynagraph.torch.amp.grad_scaler import GradScaler as GradScaler
from dynagraph.torch.missing import getattr_of as _getattr_of

__getattr__ = _getattr_of(__name__)
