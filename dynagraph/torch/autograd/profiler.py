"""``torch.autograd.profiler``: `torch.profiler`'s profile and regions."""

from __future__ import annotations

from typing import Any

from dynagraph.torch import profiler as _profiler
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.profiler import EventList, FunctionEvent, FunctionEventAvg, record_function


class profile(_profiler.profile):
    """A profile of what runs within it; `enabled`: whether it is one.  Other arguments are those of `torch.profiler.profile`."""

    def __init__(self, enabled: bool = True, *, use_kineto: bool = False, use_device: Any = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.enabled = enabled

    def start(self) -> None:
        """Begin, if it is enabled."""
        if self.enabled:
            super().start()

    def stop(self) -> None:
        """End, if it is enabled."""
        if self.enabled:
            super().stop()


__getattr__ = getattr_of(__name__)
__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]
