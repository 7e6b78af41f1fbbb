"""Lazy loading of the compiler with the first call that needs it, so that importing dynagraph is quick.

The one place that imports upward, and within a function.  A program has had time to change what imports depend on since dynagraph
was imported, and other threads, signals and forks may come in between; so the compiler is loaded as it would have been then, whole
or not at all.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from dynagraph import originals
from dynagraph._core import _dispatch
from dynagraph.driver import budget, deadline
from dynagraph.driver.signals import is_of_signal
from dynagraph.errors import CompilerError
from dynagraph.location import warn_caller
from dynagraph.markers import is_compiling, thread

PACKAGE = __name__.partition(".")[0]
FORK_WAITS = 10.0  # seconds, at most, for another thread that is loading
PATIENCE = 10.0  # the same of calls that may take any time to compile

_log = logging.getLogger("dynagraph.capture")
_lock = threading.Lock()  # held while the compiler is loaded
_path = [os.path.abspath(entry) for entry in sys.path]
_ours: dict[str, ModuleType] = {}
_compiler: Any = None
failure: Exception | None = None  # why it cannot be loaded: it is not tried again


def compiler() -> Any:
    """The module `dynagraph.driver.compiler`.  Waits where another thread is loading it.

    Raises CompilerError where it cannot be loaded, or is being loaded by this thread: in a signal's handler, or a finalizer.
    """
    if _compiler is None:
        if is_compiling():
            raise CompilerError("dynagraph is loading its compiler, and cannot be used in what interrupts that: call it later")
        with _lock:
            _load()
    if _compiler is None:
        raise CompilerError(f"dynagraph's compiler cannot be loaded: {failure!r}") from failure
    return _compiler


def compiler_at_hand(patience: float = 0.0) -> Any | None:
    """The same, for calls that can run eagerly: None where it cannot be loaded now, RecursionError where the stack has no room.

    Waits no longer than `patience`, in seconds, for another thread: that might be waiting for an import that this one is in.
    """
    lock = _lock  # another one in a child that is forked meanwhile
    if _compiler is None and failure is None and not is_compiling() and not sys.is_finalizing() and lock.acquire(timeout=patience):
        try:
            _load()
        finally:
            lock.release()
    return _compiler


def loaded() -> Any | None:
    """The same where it is loaded."""
    return _compiler


@functools.cache
def warn_of_failure() -> None:
    """Once."""
    warn_caller(
        f"dynagraph's compiler cannot be loaded, and compiled functions run as plain Python: {failure!r}; "
        "`import dynagraph.driver.compiler` says more",
        RuntimeWarning,
    )


def remember_modules() -> None:
    """The modules of this package that are loaded belong together: the compiler is to join them, whatever is imported later."""
    _ours.update(_of_package())


def _load() -> None:
    global _compiler, failure
    if _compiler is not None or failure is not None:
        return
    start = time.perf_counter()
    thread.compiling = True
    try:
        _compiler = _imported()
    except RecursionError:  # there may be room later
        raise
    except MemoryError:
        pass
    except Exception as error:
        if is_of_signal(error):
            raise
        failure = error
    finally:
        thread.compiling = False
        took = time.perf_counter() - start
        _log.info("the compiler took %.0f ms to load", 1e3 * took)
        budget.PROCESS.spent += took
        _dispatch.note_compiling(took)


def _imported() -> Any:
    with ExitStack() as stack:
        for state in (
            originals.in_place(), _own_modules(), _own_path(), warnings.catch_warnings(), np.errstate(all="ignore"),
            deadline.within(None),
        ):  # fmt: skip
            stack.enter_context(state)  # type: ignore[arg-type]
        warnings.simplefilter("ignore")
        before = set(sys.modules)
        try:
            from dynagraph.driver import compiler
        except BaseException:  # also a KeyboardInterrupt: half of the tables may be filled
            _forget(set(sys.modules) - before)
            raise
        return compiler


def _forget(names: set[str]) -> None:
    """Have modules of this package be imported anew the next time."""
    for name in names:
        if name.startswith(f"{PACKAGE}."):
            module = sys.modules.pop(name)
            parent, _, own = name.rpartition(".")
            holder = sys.modules.get(parent, _ours.get(parent))
            if getattr(holder, own, None) is module:
                delattr(holder, own)


def _of_package() -> dict[str, ModuleType]:
    return {name: module for name, module in list(sys.modules.items()) if name.split(".")[0] == PACKAGE}


@contextmanager
def _own_modules() -> Iterator[None]:
    """Where ``sys.modules`` was purged, and this package perhaps imported again: have imports find the modules that are running."""
    others = _of_package()
    if all(others.get(name) is module for name, module in _ours.items()):
        yield
        return
    _replace(others, _ours)
    try:
        yield
    finally:
        _replace(_of_package(), others)


def _replace(those: dict[str, ModuleType], these: dict[str, ModuleType]) -> None:
    for name in those:
        sys.modules.pop(name, None)
    sys.modules.update(these)


@contextmanager
def _own_path() -> Iterator[None]:
    """What was found when dynagraph was imported is found still."""
    missing = [entry for entry in _path if entry not in sys.path]
    sys.path.extend(missing)
    try:
        yield
    finally:
        for entry in missing:
            if entry in sys.path:
                sys.path.remove(entry)


# -- forks: a child in which another thread was loading would wait for ever for the locks of half-imported modules ---------------

_waited = threading.local()


def _before_fork() -> None:
    _waited.holds = _compiler is None and not is_compiling() and _lock.acquire(timeout=FORK_WAITS)


def _after_fork_in_parent() -> None:
    if _waited.holds:
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, failure
    held = _lock.locked() and not _waited.holds
    _lock = threading.Lock()
    if held and not is_compiling() and _compiler is None:
        failure = CompilerError("this process was forked while another thread was loading dynagraph's compiler")


# hooks before a fork run in the reverse order: logging's, which takes a lock that the load wants, has to come after this one
if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

__all__ = ["compiler", "compiler_at_hand", "loaded", "remember_modules", "warn_of_failure"]
