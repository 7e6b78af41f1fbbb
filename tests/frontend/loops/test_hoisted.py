"""Functions of what a loop does not change are called once for all turns of a fast copy; their errors come as ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.sampling import some


def scaled(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    for i in range(len(x)):
        out[i] = x[i] * a**2.5 + math.exp(b)
    return i if len(x) else None


def nested(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += x[j] * math.exp(-(a**3) * b) % (a // b) + math.pow(b, a)
        out[i] = total
    return total


def in_an_arm(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    for i in range(len(x)):
        if x[i] > 0.5:
            out[i] = math.log(a) ** b
        else:
            out[i] = -1.0
    return a


def after_effects(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    n = 0
    for i in range(len(x)):
        out[i] = i
        n += 1
        out[i] += math.sqrt(a) + math.log(b) + int(a * 3.5) % int(b)
    return n


def changed_inside(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    for i in range(len(x)):
        out[i] = a**1.7 + b % 3.0
        if i == 20:
            a = a + 1.0
    return a


def outcome(function: Callable, x: np.ndarray, a: Any, b: Any) -> Any:
    out = np.full(len(x), -3.0)
    try:
        result = repr(function(x, out, a, b))
    except (ValueError, OverflowError, ZeroDivisionError, TypeError) as error:
        result = repr(error)
    return result, np.where(np.isnan(out), np.nan, out).tobytes()  # a NaN's sign is nobody's promise


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("function", [scaled, nested, in_an_arm, after_effects, changed_inside])
def test_as_python_has_it(function: Callable, threads: int) -> None:
    numbers = [1.5, -1.25, 0.0, 710.0, math.nan, np.float64(-2.5), 3]
    with dg.config.override(threads=threads, entry_limit=1000):
        compiled = dg.compile(function)
        for n in (40, 2):
            x = np.random.default_rng(n).random(n)
            for a in numbers:
                for b in some(numbers, 4, (function.__name__, n, repr(a))):
                    with np.errstate(all="ignore"):
                        assert outcome(compiled, x, a, b) == outcome(function, x, a, b), (n, a, b)
        assert compiled.stats.fallbacks == 0


def test_turns_on_threads() -> None:
    def plain(x: np.ndarray, out: np.ndarray, a: float) -> None:
        for i in range(len(x)):
            out[i] = math.sin(x[i]) * a**2.5

    x = np.random.default_rng(0).random(200_000)
    want, got = np.empty_like(x), np.empty_like(x)
    plain(x, want, 1.25)
    with dg.config.override(threads=2):
        compiled = dg.compile(plain)
        for _ in range(3):
            compiled(x, got, 1.25)
    np.testing.assert_array_equal(got, want)


def of_rows(x: np.ndarray, out: np.ndarray, a: float, b: float) -> Any:
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += x[j] * math.exp(i * b)
        out[i] = total
    return total


def test_what_a_nest_does_not_change_is_computed_in_front_of_it() -> None:
    compiled = dg.compile(nested)
    compiled(np.ones(9), np.ones(9), 2.0, 3.0)
    assert "fast copy of the whole nest" in compiled.programs[0].loops[0]


def test_nests_leave_loops_that_call_functions_to_their_own_guards() -> None:
    compiled, x = dg.compile(of_rows), np.random.default_rng(0).random(9)
    assert outcome(compiled, x, 2.0, 0.25) == outcome(of_rows, x, 2.0, 0.25)
    loops = compiled.programs[0].loops
    assert any("fast copy" in loop for loop in loops) and not any("whole nest" in loop for loop in loops)
