"""The modes of dynagraph.torch's autograd in captured code: guarded as they are outside, set outside where the capture ends.

That a mode is set and set back is no effect: nothing that effects call can see it in between.
"""

from __future__ import annotations

from typing import Any

from dynagraph._core._dispatch import GradModes
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.guards import Returns
from dynagraph.frontend.kinds.lookup import ATTRIBUTES_IN_C
from dynagraph.frontend.kinds.slots import truth
from dynagraph.frontend.kinds.values import Const, Object, Value

MODES = GradModes()
OUTSIDE = MODES.flags


def mode_of(frame: Frame, name: str) -> bool:
    """What a mode is where the captured code is now."""
    set_here = frame.ex.grad_modes.get(name)
    return _outside(frame, name) if set_here is None else set_here


def _get(frame: Frame, value: Object, name: str) -> Value:
    return Const(mode_of(frame, name))


def _set(frame: Frame, value: Object, name: str, new: Any) -> None:
    on = truth(frame, new)
    outside = _outside(frame, name)
    frame.ex.grad_modes[name] = on
    effects = frame.ex.effects
    effects[:] = [e for e in effects if not (e[0] is set_mode and isinstance(e[1][0], Const) and e[1][0].value == name)]
    if on is not outside:
        frame.ex.effect(set_mode, Const(name), Const(on))


def _outside(frame: Frame, name: str) -> bool:
    frame.ex.guards.require(Returns(OUTSIDE, OUTSIDE(), called="the state of dynagraph.torch's autograd"))
    return bool(getattr(MODES, name))


def set_mode(name: str, on: bool) -> None:
    setattr(MODES, name, on)


ATTRIBUTES_IN_C[GradModes] = _get, _set

__all__ = ["mode_of", "set_mode"]
