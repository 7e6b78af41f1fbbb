"""Long loops of functions that compiled functions call: machine code begins with the call, or Python does the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check, outcome

X = np.linspace(0.1, 2.0, 400)


def weights(x, n):
    w = np.empty(n)
    w[0] = x[0]
    for i in range(1, n):
        w[i] = (i - x[1]) / (i + 1) * w[i - 1]
    return w


def in_a_call(x, n):
    return weights(x * 2, n) + x[:n]


def smoothed(w, by):
    s = 0.0
    for v in w:
        s = s * by + v
    return s


def before_a_loop(x, n):
    w = weights(x, n)
    out = np.zeros(n)
    for t in range(n):
        out[t] = smoothed(w[: t + 1], 0.5)
    return out


def in_a_call_of_a_call(x, n):
    return in_a_call(x, n) * 2


def in_several_calls(x, n):
    return smoothed(x[:n], 0.5) + smoothed(x[:n], 0.25), smoothed(x[::2], 1)


def scaled(x, k):
    return sum(v * k for v in x) + k


def generators_in_calls(x, n):
    out = []
    for k in range(n):
        out.append(scaled(x, k))
    return out


def shifted(x, by):
    by = by + 1
    return [v + by for v in x]


def comprehensions_in_calls(x, n):
    total = 0.0
    for k in range(n):
        total += sum(shifted(x, k))
    return total


def unset(x, k):
    if k > 3:
        by = k
    return sum(v * by for v in x)


def a_cell_that_is_not_set(x, n):
    s = 0.0
    for k in range(n):
        try:
            s += unset(x, k)
        except NameError:
            s += 1000.0
    return s


def overflowing(x, k):
    h = k * 3**38
    return sum(h % 7 * v for v in x)


def ints_beyond_64_bits_in_a_call(x, n):
    return [overflowing(x, k) for k in range(n)]


def raising(x, n):
    s = 0.0
    for i in range(n):
        s += x[i] + sum(x[i] for _ in range(2))
    return s


def an_error_in_a_call(x, n):
    return raising(x, n)


def loop_behind_what_python_does(x, n):
    y = np.linalg.solve(np.diag(x), x)  # what comes before the loop is done by itself
    s = 0.0
    for i in range(n):
        s += y[i] * i
    return s


def python_does_the_call(x, n):
    return loop_behind_what_python_does(x, n) * 2


CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (in_a_call, [(X, 300), (X, 200), (X, 10)]),
    (before_a_loop, [(X, 300), (X, 100), (X, 1)]),
    (in_a_call_of_a_call, [(X, 300), (X, 299)]),
    (in_several_calls, [(X, 300), (X[:350], 299)]),
    (generators_in_calls, [(list(X), 40), (X, 40), ([], 3)]),
    (comprehensions_in_calls, [(list(X), 40), ([1, 2], 40), (X, 40)]),
    (a_cell_that_is_not_set, [(list(X[:5]), 30)]),
    (ints_beyond_64_bits_in_a_call, [([1, 2, 3], 12)]),
    (an_error_in_a_call, [(X, 300), (X, 500), (X, 400)]),
    (python_does_the_call, [(X, 300), (X, 200)]),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [in_a_call, before_a_loop, in_a_call_of_a_call, in_several_calls])
def test_they_are_not_unrolled(function: Callable[..., Any]) -> None:
    with dg.config.override(unroll_limit=100):
        compiled = check(function, (X, 300), (X, 301), (X, 302))
    assert compiled.stats.compiles <= 2 and not compiled.stats.breaks  # one program for all lengths


@pytest.mark.parametrize("function", [generators_in_calls, comprehensions_in_calls])
def test_cells_of_functions_that_are_called_are_variables(function: Callable[..., Any]) -> None:
    compiled = check(function, (list(X), 40))
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks and not compiled.stats.side_exits


def test_what_python_does_before_the_loop_is_a_break() -> None:
    compiled = check(python_does_the_call, (X, 300))
    assert any("that is called has a long loop" in str(reason) for reason in compiled.stats.breaks)


def test_short_loops_stay_in_the_graph() -> None:
    compiled = check(in_a_call, (X, 6))
    assert compiled.stats.compiles == 1 and [seen.way for seen in loops_of(compiled)] == []


def loops_of(compiled: Any) -> list[Any]:
    return [seen for program in compiled.programs for seen in program.loops]


def test_without_breaks_they_are_unrolled() -> None:
    compiled = dg.compile(in_a_call, fullgraph=True)
    assert outcome(compiled, (X, 100)) == outcome(in_a_call, (X, 100))
    assert compiled.stats.compiles == 1 and loops_of(compiled) == []


KEPT: list[Any] = []


def kept(values):
    KEPT.append(values)
    return 1


def scaled_by_users(x, k):
    k = k + 1
    return sum(v * k for v in x)


def test_a_function_of_the_users_that_keeps_the_generator_of_a_call() -> None:
    inner = type(scaled_by_users)(scaled_by_users.__code__, {"sum": kept}, "scaled_by_users")

    def keeps(x, n):
        s = 0
        for k in range(n):
            s += inner(x, k)
        return s

    compiled, found = dg.compile(keeps, backend="c"), []
    for function in (keeps, compiled, compiled):
        KEPT.clear()
        assert outcome(function, ([1, 2], 5)) == ("int", "5")
        found.append([list(g) for g in KEPT])
    assert found[0] == found[1] == found[2] == [[k + 1, 2 * k + 2] for k in range(5)]
