"""What changes while a call is captured is no failure of the compiler, and what a failure leaves behind holds no arguments."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.reference import reference

STEPS = "."


@pytest.fixture
def stepping() -> Iterator[None]:
    """A handler of signals that changes a global."""

    def step(number: int, frame: Any) -> None:
        global STEPS
        STEPS += "."

    before = signal.signal(signal.SIGUSR1, step)
    yield
    signal.signal(signal.SIGUSR1, before)


def compiled_with(interrupt: Any, times: int) -> tuple[Any, list[int]]:
    """A function of STEPS, and a backend during whose first calls something comes between."""
    calls: list[int] = []

    def backend(graph: Any, examples: Any) -> Any:
        calls.append(len(STEPS))
        if len(calls) <= times:
            interrupt()
        return reference(graph)

    return dg.compile(lambda x: x * len(STEPS) + 1, backend=backend), calls


def signalled() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def in_a_thread() -> None:
    def work() -> None:
        global STEPS
        STEPS += "."

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.usefixtures("stepping")
@pytest.mark.parametrize("interrupt", [signalled, in_a_thread])
@pytest.mark.parametrize("times", [1, 2, 1000])
def test_a_global_that_changes_while_a_call_is_captured(interrupt: Any, times: int) -> None:
    f, calls = compiled_with(interrupt, times)
    x = np.arange(3.0)
    np.testing.assert_array_equal(f(x), x * len(STEPS) + 1)
    assert f.stats.fallbacks == 0 and f.stats.last_error is None
    assert len(calls) == min(times, 2) + 1 and f.stats.entries == (times < 3)


def failing(graph: Any, examples: Any) -> Any:
    raise ZeroDivisionError("what is wrong")


def chained(graph: Any, examples: Any) -> Any:
    try:
        failing(graph, examples)
    except ZeroDivisionError as error:
        raise KeyError("another thing") from error


class Uncopyable(Exception):
    def __init__(self, one: int, two: int):
        super().__init__(f"{one} and {two}")


def uncopyable(graph: Any, examples: Any) -> Any:
    raise Uncopyable(1, 2)


@pytest.mark.parametrize("backend, kind, says", [
    (failing, ZeroDivisionError, ["what is wrong", "in failing"]),
    (chained, KeyError, ["what is wrong", "another thing", "direct cause", "in chained"]),
    (uncopyable, dg.CompilerError, ["1 and 2", "in uncopyable"]),
])  # fmt: skip
def test_a_failure_holds_no_arguments(backend: Any, kind: type, says: list[str]) -> None:
    x = np.arange(100_000.0)
    dead = weakref.ref(x)
    f = dg.compile(lambda x: x * 2, backend=backend)
    logging.disable(logging.CRITICAL)  # pytest keeps what is logged
    try:
        f(x)
    finally:
        logging.disable(logging.NOTSET)
    del x
    gc.collect()
    assert dead() is None
    error = f.stats.last_error
    assert type(error) is kind and error.__traceback__ is error.__context__ is None
    text = str(error) + "".join(error.__notes__)
    assert all(part in text for part in says)


def test_calls_of_all_kinds_let_go_of_their_arguments() -> None:
    def callee(x: np.ndarray) -> np.ndarray:
        return x + np.sin(x)

    def broken(x: np.ndarray, k: Any) -> np.ndarray:
        dg.graph_break()
        return next(map(callee, [x * 2]))

    def refused(x: np.ndarray, k: Any) -> np.ndarray:
        return x[np.array([k * 10])]

    def element(x: np.ndarray, i: int) -> Any:
        return x[i] if i < len(x) else None

    def native(x: np.ndarray, k: Any) -> Any:
        total = 0.0
        for i in range(5 * k):
            total += element(x, i)  # leaves within the call, or behind it
        return x, total

    def left_in_python(x: np.ndarray, k: Any) -> np.ndarray:
        for _ in range(200 * k):
            x = np.sort(x) * 0.5
        return x

    loops = (native, left_in_python)
    functions = [dg.compile(f) for f in (lambda x, k: x * k, lambda x, k: x[k:], broken, refused, *loops)]
    for f in functions:
        for k in (1, 2, 1.5, "no", 3, 4):
            x = np.arange(20.0)
            dead = weakref.ref(x)
            try:
                f(x, k)
            except (TypeError, IndexError, np.exceptions.DTypePromotionError):
                pass
            del x
            assert dead() is None, (f, k)
