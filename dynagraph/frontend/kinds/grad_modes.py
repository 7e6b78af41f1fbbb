"""The modes of dynagraph.torch in captured code: guarded as they are outside, set outside where the capture ends.

That a mode is set and set back is no effect: nothing that effects call can see it in between.  `casts` (what autocast has cast in a
region) is a dict that only captured code of this call sees: the casts of a region that began outside are made again.  `backward`
(what runs now) is an object that only captured code sees, too.
"""

from __future__ import annotations

from typing import Any

from dynagraph._core._dispatch import GradModes
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.guards import Returns
from dynagraph.frontend.kinds.aliasing import STORING
from dynagraph.frontend.kinds.lookup import ATTRIBUTES_IN_C
from dynagraph.frontend.kinds.slots import plain, truth
from dynagraph.frontend.kinds.values import Const, Object, Value

OF_CAPTURES = ("backward", "casts", "pairs")
MODES = GradModes()
OUTSIDE = MODES.flags


def mode_of(frame: Frame, name: str) -> Any:
    """What a mode is where the captured code is now."""
    set_here = frame.ex.grad_modes.get(name)
    return _outside(frame, name) if set_here is None else set_here


def _get(frame: Frame, value: Object, name: str) -> Value:
    if name in OF_CAPTURES:
        return frame.ex.grad_modes.get(name, Const(None))
    return Const(mode_of(frame, name))


def _set(frame: Frame, value: Object, name: str, new: Any) -> None:
    if name in OF_CAPTURES:
        outside: Any = None
    else:
        outside = _outside(frame, name)
        new = Const(truth(frame, new) if type(outside) is bool else plain(frame, new))
    frame.ex.grad_modes[name] = new if name in OF_CAPTURES else new.value
    effects = frame.ex.effects
    effects[:] = [e for e in effects if not (e[0] is set_mode and isinstance(e[1][0], Const) and e[1][0].value == name)]
    if not isinstance(new, Const) or new.value is not outside:
        frame.ex.effect(set_mode, Const(name), new)


def _outside(frame: Frame, name: str) -> Any:
    frame.ex.guards.require(Returns(OUTSIDE, OUTSIDE(), called="the state of dynagraph.torch's autograd"))
    return getattr(MODES, name)


def set_mode(name: str, value: Any) -> None:
    setattr(MODES, name, value)


STORING.append(set_mode)
ATTRIBUTES_IN_C[GradModes] = _get, _set

__all__ = ["OF_CAPTURES", "mode_of", "set_mode"]
