from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

def call_captured(
    function: FunctionType,
    callback: Callable[[FunctionType, CodeType, tuple[Any, ...]], CodeType | None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    /,
) -> Any:
    """``function(*args, **kwargs)``, with a look at the frame as it starts.

    `callback(function, code, values)` is called once, in this thread, with the bound parameters in order of
    `co_varnames`. It
    returns None, or the code object that the frame runs instead, with the same parameters and free variables. Its exception
    is the frame's. Generators and coroutines just run.
    """

def is_active() -> bool:
    """Whether a thread waits for its frame to start."""

def counters() -> dict[str, int]:
    """Since the process started: `captured` frames, of these `swapped` ones and those `without_room` for the new code."""
