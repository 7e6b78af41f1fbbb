"""Settings for all compiled functions: `disable`, `stance`, `reset`, and the tools' `collecting`."""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.driver.scopes import Scopes

_all_compiled: "weakref.WeakSet[Any]" = weakref.WeakSet()
_collectors: list[list[Any]] = []
_disabled = 0


def is_disabled() -> bool:
    return _disabled > 0


def current_stance() -> str:
    return str(_stances["stance"])


def register(compiled: Any) -> None:
    """A new compiled function is under control."""
    _all_compiled.add(compiled)
    for collected in _collectors:
        collected.append(compiled)


def reset() -> None:
    """Forget every compiled program of the process, and give the memory pool back to the system."""
    for compiled in list(_all_compiled):
        compiled.reset()
    _dispatch.pool_trim(0)


@contextmanager
def collecting() -> Iterator[list[Any]]:
    """Collects the compiled functions that are made meanwhile, and keeps them alive: for tools that run a script."""
    collected: list[Any] = []
    _collectors.append(collected)
    try:
        yield collected
    finally:
        _collectors.remove(collected)


@contextmanager
def _disabling() -> Iterator[None]:
    global _disabled
    _disabled += 1
    _enable()
    try:
        yield
    finally:
        _disabled -= 1
        _enable()


def _enable() -> None:
    """Have compiled functions serve calls, or run as plain Python, as `disable` and `stance` want it."""
    wanted = not _disabled and current_stance() != "force_eager"
    for compiled in list(_all_compiled):
        compiled.enabled = wanted and not compiled.decorated.refused


def disable(fn: Any = None) -> Any:
    """``with dg.disable():`` runs compiled functions as plain Python.

    ``dg.disable(f)`` gives the plain function of a compiled `f`; on a plain function it keeps captures from inlining it, so
    that what calls it runs eagerly.
    """
    if fn is None:
        return _disabling()
    if isinstance(fn, _dispatch.CompiledFunction):
        return fn.__wrapped__
    plain = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(plain, types.FunctionType):
        raise TypeError(f"disable: expected a function written in Python, or nothing (a context manager), got {fn!r}; to keep what "
                        "calls it from being captured, disable the Python function that does")
    plain.__dynagraph_disabled__ = True  # type: ignore[attr-defined]
    return fn


STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")
_stances = Scopes({"stance": "default"})


class stance:
    """What calls that no program serves do, in all compiled functions; as a statement, or in a with block.

    "default" compiles them; "force_eager" runs every call as plain Python, "eager_on_recompile" only those of functions that have a
    program already; "fail_on_recompile" raises CaptureError for these, naming the guard that failed.

    >>> import dynagraph as dg
    >>> with dg.stance("fail_on_recompile"):
    ...     pass
    """

    def __init__(self, name: str):
        if name not in STANCES:
            raise ValueError(f"stance: {name!r}: expected {', '.join(map(repr, STANCES))}")
        self.name, self._before = name, current_stance()
        _stances["stance"] = name
        _enable()

    def __enter__(self) -> "stance":
        _stances["stance"] = self._before  # no statement, after all: it ends with the block
        self._scope = _stances.enter({"stance": self.name})
        return self

    def __exit__(self, *error: Any) -> None:
        _stances.leave(self._scope)
        _enable()
