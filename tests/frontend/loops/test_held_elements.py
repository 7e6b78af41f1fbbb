"""Elements that a fast copy holds in variables: bits, arrays that overlap, errors and signals in the middle, other types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_interrupts import Handled, on_alarm


def adds(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for i in range(n):
        y[k] += x[i]
        y[k] *= 0.75


def weighs(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for t in range(k, n):
        for i in range(k):
            y[t] += x[i] * x[t - i - 1]


def in_some_turns(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for i in range(n):
        if x[i] > 1.0:
            y[k] -= x[i]


def two(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for i in range(n):
        y[k] += x[i]
        y[k + 1] = y[k] - y[k + 1]


def ends_early(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for i in range(n):
        y[k] += x[i]
        if y[k] > 20.0:
            break


def moves(y: np.ndarray, x: np.ndarray, n: int, k: int) -> None:
    for i in range(n):
        y[k] += x[i]
        k += int(x[i] > 1.5)


FUNCTIONS = [adds, weighs, in_some_turns, two, ends_early, moves]


def outcome(function: Callable, y: np.ndarray, x: np.ndarray, n: int, k: int, all_of: np.ndarray) -> Any:
    try:
        function(y, x, n, k)
    except IndexError as error:
        return repr(error), all_of.tobytes()
    return all_of.tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_arrays_that_overlap(function: Callable) -> None:
    compiled = dg.compile(function, dynamic=True)
    for by, backwards in ((0, False), (3, False), (17, True), (40, False), (60, True)):
        memory = [2 * np.random.default_rng(3).random(120) for _ in range(2)]
        memory[0][33] = memory[1][33] = np.nan
        for n, k in ((20, 5), (9, 0), (3, 2), (20, -1), (41, 19), (20, 90), (0, 3)):
            made = []
            for call, m in zip((compiled, function), memory):
                x = m[40::-1] if backwards else m[:40]
                made.append(outcome(call, m[by : by + 20 + 40], x, n, k, m))
            assert made[0] == made[1], (by, backwards, n, k)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float64])
def test_other_types(function: Callable, dtype: Any) -> None:
    compiled, x = dg.compile(function), (2 * np.random.default_rng(0).random(40)).round().astype(dtype)
    for kind in (np.float64, dtype):
        want, got = np.ones(50, dtype=kind), np.ones(50, dtype=kind)
        for call, y in ((function, want), (compiled, got)):
            try:
                with np.errstate(all="ignore"):
                    call(y, x, 30, 4)
            except (TypeError, OverflowError) as error:
                assert np.dtype(kind).kind in "iu", error
        assert want.tobytes() == got.tobytes()


def test_more_turns_than_a_strip_and_signals() -> None:
    compiled, x = dg.compile(adds), np.random.default_rng(0).random(9000)
    for n in (4095, 4096, 4097, 9000):
        want, got = np.zeros(4), np.zeros(4)
        adds(want, x, n, 1)
        compiled(got, x, n, 1)
        assert want.tobytes() == got.tobytes()

    def counts(y: np.ndarray, n: int) -> None:
        for _ in range(n):
            y[1] += 1.0

    compiled, y = dg.compile(counts), np.zeros(3)
    for n in (50, 60, 70):
        compiled(y, n)
    y[:] = 0
    with pytest.raises(Handled), on_alarm():
        compiled(y, 2**40)
    assert y[1] > 1000 and y[1] == int(y[1]) and y[0] == y[2] == 0
