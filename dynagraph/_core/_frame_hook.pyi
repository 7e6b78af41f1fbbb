from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar

R = TypeVar("R")

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

SKIP: Final[str]

def set_watcher(callback: Callable[[FunctionType, CodeType, tuple[Any, ...]], CodeType | str | None] | None, /) -> None:
    """What frames are offered to, in all threads: it gives None, the code that the frame runs instead, or `SKIP`.

    `SKIP` marks the frame's code; None runs the frame as it is. The callback itself runs unwatched; its exception is the frame's.
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

def is_active() -> bool:
    """Whether a thread waits for its frame to start, or watches."""

def counters() -> dict[str, int]:
    """Since the process started: `captured` frames, of these `swapped` ones and those `without_room` for the new code.

    `offered`: frames that the watcher was asked about.
    """
