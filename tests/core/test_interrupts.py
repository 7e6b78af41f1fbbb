"""Signals stop native code before it has done anything that anybody sees, and are handled then."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dynagraph._core import _dispatch, _frame_hook
from dynagraph._core._dispatch import CompiledFunction, Entry, NativePlan, Tail

from .native import address, library

_dispatch.set_pending_signals(_frame_hook.pending_signals())  # as the compiler does
F8 = np.dtype(float)
RUNS, VALUE, IS_LONG = range(3)  # what the arrays mean to the native entry "waits"


def long_call() -> np.ndarray:
    return np.array([0.0, 7.0, 1.0])


def entry(n_steps: int = 0, release_gil: bool = True, recipe: Any = ("out", 0)) -> Entry:
    prologue = tuple((("memo", k, ("call", len, (("const", ()),))),) for k in range(n_steps))
    plan = NativePlan(address("waits"), library(), 1, ((F8, (), True),), 0, recipe, release_gil, 0, prologue=prologue)
    return Entry((("array", 0, 0, F8, 1, (3,), None, True),), 1, plan)


def compiled(function: Callable[..., Any], made: Entry | None = None) -> CompiledFunction:
    result = CompiledFunction(function, lambda *_: pytest.fail("an entry serves it"))
    result.add_entry(made or entry())
    return result


def plain(a: Any) -> str:
    return "plainly"


class Handled(Exception):
    pass


@contextlib.contextmanager
def on_alarm(handler: Any, after: float = 0.05, interval: float = 0.0) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def raises(*_: Any) -> None:
    raise Handled


@pytest.mark.parametrize("release_gil", [False, True])
def test_what_a_handler_raises_is_raised_at_once_by_the_plain_function(release_gil: bool) -> None:
    f, a = compiled(plain, entry(release_gil=release_gil)), long_call()
    start = time.perf_counter()
    with on_alarm(raises), pytest.raises(Handled) as raised:
        f(a)
    assert time.perf_counter() - start < 0.9
    assert a[RUNS] == 1 and f.counters()["refusals"] == 1
    assert plain.__code__ in [frame.f_code for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    a[IS_LONG] = 0
    assert f(a) == 7


def test_a_keyboard_interrupt() -> None:
    f, a = compiled(plain), long_call()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            f(a)
    finally:
        signal.signal(signal.SIGINT, before)
    assert a[RUNS] == 1


def test_the_call_begins_anew_where_the_handler_raises_nothing() -> None:
    f, a = compiled(plain), long_call()

    def handler(*_: Any) -> None:
        a[VALUE], a[IS_LONG] = 8, 0

    with on_alarm(handler):
        assert f(a) == 8
    assert a[RUNS] == 2 and f.counters()["hits"] == 1 and f.counters()["refusals"] == 0


def test_guards_are_checked_again() -> None:
    f, a = compiled(plain), long_call()

    def handler(*_: Any) -> None:
        a.flags.writeable = False

    with on_alarm(handler):
        assert f(a) == "plainly"
    assert a[RUNS] == 1


def test_signals_that_come_again_and_again_do_not_keep_a_call_from_ending() -> None:
    f, a, calls = compiled(plain), long_call(), []
    with on_alarm(lambda *_: calls.append(1), 0.01, 0.01):
        assert f(a) == 7
    assert a[RUNS] == 3 and len(calls) >= 2


def test_a_handler_calls_the_function() -> None:
    f, a, b, given = compiled(plain), long_call(), long_call(), []
    b[IS_LONG] = 0

    def handler(*_: Any) -> None:
        given.append(f(b))
        a[IS_LONG] = 0

    with on_alarm(handler):
        assert f(a) == 7
    assert given == [7] and a[RUNS] == 2 and b[RUNS] == 1


def test_a_handler_drops_the_entry() -> None:
    f, a = compiled(plain), long_call()

    def handler(*_: Any) -> None:
        f.clear()
        gc.collect()
        a[IS_LONG] = 0

    with on_alarm(handler):
        assert f(a) == 7
    assert a[RUNS] == 2


def test_other_threads_go_on() -> None:
    f, a, given = compiled(plain), long_call(), []
    thread = threading.Thread(target=lambda: given.append(f(a)))
    with on_alarm(raises), pytest.raises(Handled):
        thread.start()
        time.sleep(5)
    deadline = time.monotonic() + 30
    while not given and time.monotonic() < deadline:  # what a signal ends `join` of, that takes for ended on 3.11
        time.sleep(0.01)
    assert given == [7] and a[RUNS] == 1


def test_calls_that_have_begun_with_other_steps_go_on() -> None:
    """Steps before the program, such as draws of random numbers, cannot be made again."""
    f, a = compiled(plain, entry(n_steps=1)), long_call()
    with on_alarm(raises), pytest.raises(Handled):
        assert f(a) == 7
        pytest.fail("the handler is called behind the call")
    assert a[RUNS] == 1


def test_arguments_live_until_the_program_has_ended_and_no_longer() -> None:
    class Token:
        pass

    recipe = ("call", lambda value, ref: (value, ref() is None), (("out", 0), ("arg", 2)))
    plan = NativePlan(address("waits"), library(), 1, ((F8, (), True),), 0, recipe, True, 0)
    guards = (("array", 0, 0, F8, 1, (3,), None, True),)
    f = CompiledFunction(lambda a, token, ref: ("plainly", token), lambda *_: pytest.fail("an entry serves it"))
    f.add_entry(Entry(guards, 3, plan))

    def start(a: Any) -> Any:
        token = Token()
        return Tail(f, a, token, weakref.ref(token))

    starts = CompiledFunction(start, lambda cf, args, kwargs: start(*args))
    a = long_call()
    a[IS_LONG] = 0
    assert starts(a) == (7, True)  # released before what comes behind the program
    a[IS_LONG] = 1

    def handler(*_: Any) -> None:
        a.flags.writeable = False

    with on_alarm(handler):
        result = starts(a)
    assert result[0] == "plainly" and isinstance(result[1], Token)


def test_no_flag_no_stops() -> None:
    f, a = compiled(plain), long_call()
    _dispatch.set_pending_signals(0)
    try:
        with on_alarm(raises), pytest.raises(Handled):
            assert f(a) == 7
            pytest.fail("the handler is called behind the call")
    finally:
        _dispatch.set_pending_signals(_frame_hook.pending_signals())
    assert a[RUNS] == 1
