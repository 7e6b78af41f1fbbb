"""``torch.cuda.amp``: `torch.amp` for GPUs, by the names of before."""

from __future__ import annotations

from dynagraph.cuda.state import state as _state
from dynagraph.torch.amp.named import DEFAULTS, autocast_of, decorators_of, scaler_of
from dynagraph.torch.missing import getattr_of

autocast = autocast_of("cuda", DEFAULTS["cuda"])
GradScaler = scaler_of("cuda")
custom_fwd, custom_bwd = decorators_of("cuda")


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU."""
    return _state.cupy is None or not _state.count


__getattr__ = getattr_of(__name__)
__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
