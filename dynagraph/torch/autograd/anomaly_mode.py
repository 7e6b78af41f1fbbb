"""Anomaly mode: errors of backward name the line of the forward computation, and NaN gradients are errors."""

from __future__ import annotations

import warnings
from typing import Any

from dynagraph.torch.core.grad_mode import mode


class detect_anomaly:
    """A context that finds the operation whose gradient failed, or gave NaN.

    Operations within keep where they were called; where their gradients raise, a warning shows it.  With `check_nan`, a gradient
    with NaN raises RuntimeError.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.before = mode.anomaly, mode.check_nan
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.before = mode.anomaly, mode.check_nan
        mode.anomaly, mode.check_nan = True, self.check_nan

    def __exit__(self, *_: Any) -> None:
        mode.anomaly, mode.check_nan = self.before


class set_detect_anomaly:
    """Set anomaly mode: at once, until the context that it is ends."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = _set(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        _set(*self.before)


def _set(on: bool, check_nan: bool) -> tuple[bool, bool]:
    before = mode.anomaly, mode.check_nan
    mode.anomaly, mode.check_nan = on, check_nan
    return before


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return mode.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN."""
    return mode.check_nan


__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]
