from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias, TypeVar

R = TypeVar("R")

SKIP: Final[str]

_Watcher: TypeAlias = Callable[[FunctionType, CodeType, tuple[Any, ...]], CodeType | tuple[CodeType, Any] | str | float | None]

def set_watcher(callback: _Watcher | None, /) -> _Watcher | None:
    """What frames are offered to, in all threads, as ``callback(function, code, values)``; the one before is returned.

    `values`: the bound parameters in order of `co_varnames`. The callback answers None: the frame runs as it is; `SKIP`: so do
    all frames of its code, which is marked; a float: so do they for as many seconds; or the code that the frame runs instead,
    with the same parameters and free variables; or ``(code, value)``: the value is put into the first
    local variable after the parameters. The callback itself runs unwatched; its exception is the frame's.
    """

def call_watched(function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """``function(*args, **kwargs)``; in its extent, in this thread, frames that start are offered to the watcher.

    Not those of `function` itself, of generators and coroutines, and of code that is marked.
    """

def call_unwatched(function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """``function(*args, **kwargs)``; in its extent nothing is offered."""

def skip(code: CodeType, deep: bool = False) -> None:
    """Marks a code object: its frames are never offered; where `deep`, nothing is in their extent."""

def skipped(code: CodeType, /) -> bool: ...
def watched() -> Callable[..., Any] | None:
    """The function whose call this thread watches; in the watcher's call, for whose sake it is asked."""

def monitoring_tools() -> int:
    """The address of the names of `sys.monitoring`'s tools; 0 before CPython 3.12.

    While there is a debugger or a coverage tool among them, or a trace function is set, nothing is offered.
    """

def pending_signals() -> int:
    """The address of an int32 that is not 0 while signals wait for their Python handlers."""

def is_active() -> bool:
    """Whether a thread watches."""

def counters() -> dict[str, int]:
    """Since the process started: frames `offered`, of these `swapped` ones and those `without_room` for the new code."""
