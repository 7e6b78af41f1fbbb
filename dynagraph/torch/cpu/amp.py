"""``torch.cpu.amp``: `torch.amp` for the CPU, by the names of before."""

from __future__ import annotations

from dynagraph.torch.amp.named import DEFAULTS, autocast_of, scaler_of
from dynagraph.torch.missing import getattr_of

autocast = autocast_of("cpu", DEFAULTS["cpu"])
GradScaler = scaler_of("cpu")

__getattr__ = getattr_of(__name__)
__all__ = ["GradScaler", "autocast"]
