"""Signals in native loops: handled within 0.2 s, at the user's line, within the user's try blocks, with the state of that turn."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

LONG = 2**31 - 10  # turns: far more than are done
AFTER, LATE = 0.05, 0.2


class Handled(Exception):
    pass


def raises(*_: Any) -> None:
    raise Handled


@contextlib.contextmanager
def on_alarm(handler: Any = raises, after: float = AFTER, interval: float = 0.0, at_work: bool = False) -> Iterator[None]:
    """`at_work`: after so many seconds of this process's own work, whatever else the machine does."""
    number, timer = (signal.SIGVTALRM, signal.ITIMER_VIRTUAL) if at_work else (signal.SIGALRM, signal.ITIMER_REAL)
    before = signal.signal(number, handler)
    signal.setitimer(timer, after, interval)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


def where(error: BaseException) -> list[tuple[str, str]]:
    """The frames of this file below the test's, each with the text of its line."""
    found = [(f.name, f.line or "") for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    return [f for f in found if not f[0].startswith("test_")]


def warm(loop: Callable[..., Any], size: int = 3) -> Any:
    """It is compiled, for all n."""
    compiled = dg.compile(loop)
    for n in (100, 101, 102):
        compiled(np.zeros(size), n)
    return compiled


# -- loops: each writes k, k + 1, k + 2 in its turn, or what is said ----------------------------------------------------


def counts(x, n):
    for k in range(n):
        x[0] = k
        x[1] = k + 1
        x[2] = k + 2


def waits(x, n):
    k = 0
    while k < n:
        x[0] = k
        x[1] = k + 1
        x[2] = k + 2
        k += 1


def by_helper(x, n):
    for _ in range(100):
        counts(x, n)


def in_strips(x, n):
    for k in range(n):
        x[0] = k
        for j in range(1, len(x)):
            x[j] = x[0] + j


def with_dots(x, n):
    y = np.zeros(300_000)
    y[0] = 1
    for k in range(n):
        x[0] = k
        x[1] = k + y @ y
        x[2] = k + 2


def into_list(x, n):
    found = [0]
    for k in range(n):
        found[0] = k
        x[0] = k
        x[1] = found[0] + 1
        x[2] = k + 2


LOOPS: list[Callable[..., Any]] = [counts, waits, by_helper, in_strips, with_dots, into_list]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_what_a_handler_raises_is_raised_in_the_loop(loop: Callable[..., Any]) -> None:
    compiled = warm(loop, 5)
    for _ in range(3):  # what comes after the exit is made once
        x, after = np.zeros(5), 0.5 if loop is with_dots else AFTER
        start = time.perf_counter()
        with on_alarm(after=after), pytest.raises(Handled) as raised:
            compiled(x, LONG)
        assert time.perf_counter() - start < after + LATE + 0.3  # for machines that are busy
        frames = where(raised.value)
        assert [name for name, _ in frames] == [loop.__name__, *["counts"] * (loop is by_helper), "raises"]
        assert not frames[-2][1].startswith("def"), frames
        assert x[0] > 0 and x[1] in (x[0] + 1, x[0])  # within the inner loop of the next turn
        assert loop is in_strips or x[:3].tolist() == [x[0], x[0] + 1, x[0] + 2]
    assert compiled.stats.last_error is None


def test_a_keyboard_interrupt() -> None:
    compiled = warm(counts)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        x = np.zeros(3)
        start = time.perf_counter()
        threading.Timer(AFTER, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt) as raised:
            compiled(x, LONG)
        assert time.perf_counter() - start < AFTER + LATE + 0.3
        assert where(raised.value)[0][0] == "counts" and x[2] == x[0] + 2 > 100
    finally:
        signal.signal(signal.SIGINT, before)


# -- try blocks ---------------------------------------------------------------------------------------------------------


def caught_around(x, n):
    try:
        for k in range(n):
            x[0] = k
            x[1] = k
    except Handled:
        x[2] += 1
    return x[2]


def caught_in_helper(x, n):
    total = 0.0
    for _ in range(50):
        total += caught_around(x, n)
        n = 100
    return total


def at_last(x, n):
    try:
        for k in range(n):
            x[0] = k
    except Handled:
        return "caught"
    finally:
        x[1] = k
    return "ended"


def not_in_the_body(x, n):
    """The back edge is outside of the body's try block, as in Python."""
    for k in range(n):
        try:
            x[0] = k
        except Handled:
            return "caught"
    return "ended"


def locked(x, n, lock):
    with lock:
        for k in range(n):
            x[0] = k


def calls_now_and_then(depth, n):
    total = 0
    for k in range(n):
        total += calls_now_and_then(depth - 1, n) if depth > 0 and k % 1000 == 7 else k & 1
    return total


def calls_in_each_turn(depth, n):
    total = n
    for _ in range(4):
        if depth > 0:
            total ^= calls_in_each_turn(depth - 1, n)
    return total


@pytest.mark.parametrize("function", [calls_now_and_then, calls_in_each_turn], ids=lambda f: f.__name__)
def test_functions_that_call_themselves(function: Callable[..., Any]) -> None:
    compiled = dg.compile(function)
    for n in (3, 5, 2000):
        assert compiled(2, n) == function(2, n)
    start = time.perf_counter()
    with on_alarm(), pytest.raises(Handled):
        compiled(40, 1_000_000)
    assert time.perf_counter() - start < AFTER + LATE + 0.3


def test_the_loop_is_in_the_users_try_block() -> None:
    for loop, want in ((caught_around, 1.0), (caught_in_helper, None), (at_last, "caught")):
        compiled = warm(loop)
        for _ in range(2):
            x = np.zeros(3)
            with on_alarm():
                got = compiled(x, LONG)
            assert x[1] == x[0]
            assert x[2] == 1 and got >= 1 if want is None else got == want


def test_the_back_edge_is_not_in_the_bodys_try_block() -> None:
    compiled = dg.compile(not_in_the_body)
    assert compiled(np.zeros(3), 100) == "ended"
    with on_alarm(), pytest.raises(Handled):
        compiled(np.zeros(3), LONG)


def test_a_with_block_is_left() -> None:
    compiled, lock = dg.compile(locked), threading.Lock()
    compiled(np.zeros(3), 100, lock)
    with on_alarm(), pytest.raises(Handled):
        compiled(np.zeros(3), LONG, lock)
    assert not lock.locked()


# -- handlers that return -----------------------------------------------------------------------------------------------


def until_told(x, n):
    for k in range(n):
        x[0] = k
        if x[1] > 0:
            return k
    return -1


def test_signals_that_come_again_and_again() -> None:
    """The loop goes on after each, and sees what the handler wrote."""
    compiled, calls, x = warm(until_told), [], np.zeros(3)

    def handler(*_: Any) -> None:
        calls.append(x[0])
        x[1] = len(calls) >= 8

    with on_alarm(handler, 0.01, 0.01):
        got = compiled(x, LONG)
    assert len(calls) >= 8 and calls == sorted(calls) and got == x[0] >= calls[7]
    assert compiled.stats.side_exits


stopped = False


def until_stopped(x):
    while not stopped:
        x[0] += 1
    return x[0]


def test_a_handler_changes_a_global_variable() -> None:
    global stopped
    compiled, x = dg.compile(until_stopped), np.zeros(3)

    def handler(*_: Any) -> None:
        global stopped
        stopped = x[0] > 1000

    for _ in range(2):
        stopped = False
        x[0] = 0
        with on_alarm(handler, 0.05, 0.05):
            assert compiled(x) == x[0] > 1000


def test_a_handler_resizes_the_array_and_the_loop_raises() -> None:
    """What it does to the array is seen as in plain Python."""
    compiled, x = warm(until_told), np.zeros(3)

    def handler(*_: Any) -> None:
        x.resize(1, refcheck=False)

    with on_alarm(handler), pytest.raises(IndexError, match="index 1 is out of bounds"):
        compiled(x, LONG)


# -- threads ------------------------------------------------------------------------------------------------------------


def test_signals_are_the_main_threads() -> None:
    """A loop in another thread goes on, and lets the main thread run."""
    compiled, x, seen = warm(until_told), np.zeros(3), []

    def handler(*_: Any) -> None:
        seen.append(threading.current_thread() is threading.main_thread() and x[0])
        x[1] = len(seen) >= 3

    thread = threading.Thread(target=compiled, args=(x, LONG))
    with on_alarm(handler, 0.02, 0.02):
        thread.start()
        thread.join(20)
    assert not thread.is_alive() and len(seen) >= 3 and all(seen[1:])
    assert not compiled.stats.side_exits


def test_both_threads_run_loops() -> None:
    compiled, mine, others = warm(until_told), np.zeros(3), np.zeros(3)
    thread = threading.Thread(target=compiled, args=(others, LONG))
    thread.start()
    try:
        with on_alarm(), pytest.raises(Handled):
            compiled(mine, LONG)
        assert thread.is_alive() and others[0] > 100
    finally:
        others[1] = 1
        thread.join(20)
    assert not thread.is_alive()
