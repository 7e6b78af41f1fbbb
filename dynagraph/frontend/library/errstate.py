"""NumPy's floating-point error state: np.errstate, np.geterr and np.seterr in captured code.

Captured code is silent, which is what "ignore" asks for and what "warn" puts up with.  A state that asks for more ends the capture,
so that what follows finds it set and runs eagerly.  That a state was entered and left again is no effect, unless something in
between could see it.
"""

from __future__ import annotations

import io
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.frontend.executor.calls import Arguments, Keywords, call
from dynagraph.frontend.executor.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import load_cell
from dynagraph.frontend.guards.guards import Is, Returns
from dynagraph.frontend.kinds.lookup import own_attribute
from dynagraph.frontend.kinds.slots import plain
from dynagraph.frontend.kinds.values import Const, Dict, Function, Object, Value
from dynagraph.frontend.library.registry import meaning

KINDS = ("divide", "over", "under", "invalid")
HARMLESS = ("ignore", "warn")
UNSEEING = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)  # methods of C types
NONE = Const(None)
UNSET: Any = getattr(__import__("numpy._core._ufunc_config", fromlist=["_"]), "_Unspecified", None)


@dataclass(eq=False)
class ErrorState(Object):
    """An np.errstate made by the captured code."""

    modes: dict[str, str | None] = field(default_factory=dict)  # as it was called
    before: dict[str, str] | None = None  # the state that leaving it restores, once it was entered
    place: int = -1  # of its entering among the effects
    born: int = 0

    def remade(self) -> tuple[Any, tuple[Value, ...]]:
        if self.before is not None and self.place < 0:
            refuse("UNSUPPORTED_RESULT", "an np.errstate that was used")
        return errstate_of, (Const(tuple(self.modes.items())),)


def errstate_of(modes: tuple[tuple[str, Any], ...]) -> np.errstate:
    return np.errstate(**dict(modes))


@meaning(np.errstate)
def _errstate(frame: Frame, **modes: Any) -> Value:
    return ErrorState(np.errstate, modes=_modes(frame, modes), born=frame.ex.steps)


def _modes(frame: Frame, given: dict[str, Any]) -> dict[str, str | None]:
    if not set(given) <= {"all", *KINDS}:
        refuse("UNSUPPORTED_ARGUMENT", "np.errstate() with a function to call")
    return {name: plain(frame, mode) for name, mode in given.items()}


def _set(frame: Frame, modes: dict[str, str | None]) -> None:
    """From here on the state is what it was, with these changes."""
    for mode in modes.values():
        if mode is not None and mode not in HARMLESS:
            refuse("FLOATING_POINT_ERRORS", f"np.errstate of {mode!r}")
    everywhere = modes.get("all")
    new = {} if everywhere is None else dict.fromkeys(KINDS, everywhere)
    new.update({kind: mode for kind in KINDS if (mode := modes.get(kind)) is not None})
    frame.ex.error_state = {**frame.ex.error_state, **new}


@meaning(np.errstate.__enter__)
def _enter(frame: Frame, state: Any) -> Value:
    state = frame.ex.resolve(state)
    if not isinstance(state, ErrorState):
        refuse("UNSUPPORTED_FUNCTION", "np.errstate.__enter__ of an object of the caller's")
    if state.before is not None:
        throw(TypeError("Cannot enter `np.errstate` twice."))
    before = frame.ex.error_state
    _set(frame, state.modes)
    state.before, state.place = before, len(frame.ex.effects)
    frame.ex.effect(np.errstate.__enter__, state)
    return NONE


@meaning(np.errstate.__exit__)
def _leave(frame: Frame, state: Any, *error: Any) -> Value:
    state = frame.ex.resolve(state)
    if not isinstance(state, ErrorState) or state.before is None:
        refuse("UNSUPPORTED_FUNCTION", "np.errstate.__exit__ of an object of the caller's")
    effects = frame.ex.effects
    if all(isinstance(function, UNSEEING) for function, _ in effects[state.place + 1 :]):
        del effects[state.place]
        state.place = -1
    else:
        frame.ex.effect(np.errstate.__exit__, state, NONE, NONE, NONE)
    frame.ex.error_state = state.before
    return NONE


DECORATED = [
    c for c in np.errstate.__call__.__code__.co_consts if isinstance(c, types.CodeType) and set(c.co_freevars) == {"self", "func"}
]


@meaning(*DECORATED)
def _decorated(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> Value:
    """A call of a function that np.errstate decorates."""
    cells = dict(zip(function.code.co_freevars, function.closure))
    state, inner = load_cell(frame.ex, cells["self"]), load_cell(frame.ex, cells["func"])
    if not isinstance(state, Object) or isinstance(state, ErrorState):
        return refuse("UNSUPPORTED_FUNCTION", "a function that np.errstate decorates")
    given = {name: own_attribute(frame, state, f"_{name}", in_slot=True) for name in ("call", "all", *KINDS)}
    function_to_call = given.pop("call")
    if not isinstance(function_to_call, Object) or function_to_call.value is not UNSET or function_to_call.source is None:
        return refuse("UNSUPPORTED_ARGUMENT", "np.errstate() with a function to call")
    frame.ex.guards.require(Is(function_to_call.source, UNSET, called="not set"))
    made = ErrorState(np.errstate, modes=_modes(frame, {k: v for k, v in given.items() if v is not None}))
    _enter(frame, made)
    try:
        result = call(frame, inner, list(args), kwargs)
    except Raised:
        _leave(frame, made)
        raise
    _leave(frame, made)
    return result


def _state_outside() -> dict[str, str]:
    state: Any = np.geterr()  # to type checkers a TypedDict, whose keys cannot be variables
    return state


class Outside(io.IOBase):
    """Tells NumPy's state by ``tell``, a builtin without arguments, as guards take one."""

    def seek(self, *args: Any) -> Any:
        return " ".join(_state_outside()[kind] for kind in KINDS)


STATE_OUTSIDE = Outside().tell


@meaning(np.geterr)
def _geterr(frame: Frame) -> Value:
    """The state outside, which is guarded, and what the captured code has changed."""
    outside: dict[str, str] = {}
    if not all(kind in frame.ex.error_state for kind in KINDS):
        frame.ex.guards.require(Returns(STATE_OUTSIDE, STATE_OUTSIDE(), called="np.geterr"))
        outside = _state_outside()
    return Dict({kind: Const(mode) for kind, mode in {**outside, **frame.ex.error_state}.items()})


@meaning(np.seterr)
def _seterr(frame: Frame, all: Any = NONE, divide: Any = NONE, over: Any = NONE, under: Any = NONE, invalid: Any = NONE) -> Value:
    before = _geterr(frame)
    given = (all, divide, over, under, invalid)
    _set(frame, _modes(frame, dict(zip(("all", *KINDS), given))))
    frame.ex.effect(np.seterr, *given)
    return before


__all__ = ["ErrorState"]
