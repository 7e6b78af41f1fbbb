"""Functions that call themselves, as machine code that calls itself."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check, described

COUNTS = (3, 1, 2)


def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


def queens(n, columns, left, right):
    if columns == (1 << n) - 1:
        return 1
    count = 0
    free = ((1 << n) - 1) & ~(columns | left | right)
    while free:
        bit = free & -free
        free ^= bit
        count += queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return count


def power(x, n):
    if n == 0:
        return 1.0
    half = power(x, n // 2)
    return half * half * x if n % 2 else half * half


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def parities(n):
    return [is_even(k) for k in range(n)], is_odd(n)


def sums(numbers, i, target):
    if target == 0:
        return 1
    if i == len(numbers) or target < 0:
        return 0
    return sums(numbers, i + 1, target - numbers[i]) + sums(numbers, i + 1, target)


def sorted_(items):
    if len(items) <= 1:
        return items
    pivot = items[len(items) // 2]
    less = [x for x in items if x < pivot]
    same = [x for x in items if x == pivot]
    more = [x for x in items if x > pivot]
    return sorted_(less) + same + sorted_(more)


def extremes(x, low, high):
    if high - low == 1:
        return x[low], x[low]
    middle = (low + high) // 2
    a, b = extremes(x, low, middle)
    c, d = extremes(x, middle, high)
    return min(a, c), max(b, d)


def ways(amount, depth=2):
    if amount == 0:
        return 1
    return sum(ways(amount - c, depth) for c in COUNTS if c <= amount) if depth else 0


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def inverse_sum(n):
    return 1 / n + inverse_sum(n - 1)


def moves(n, a, b, c, out):
    if n:
        moves(n - 1, a, c, b, out)
        out.append((a, c))
        moves(n - 1, b, a, c, out)


def of_a_loop(n):
    s = 0
    for k in range(n):
        s += fibonacci(k)
    return s


def nim(a, b, mine):
    if a + b == 0:
        return -1 if mine else 1
    best = -1 if mine else 1
    for pile in range(2):
        for left in range((a, b)[pile]):
            value = nim(left, b, not mine) if pile == 0 else nim(a, left, not mine)
            best = max(best, value) if mine else min(best, value)
            if best == (1 if mine else -1):
                return best
    return best


def bumpy(n):
    """A result of several types."""
    if n == 0:
        return 0.5
    if n == 1:
        return 1
    return bumpy(n - 2)


CASES: list[tuple[Callable, list[tuple]]] = [
    (fibonacci, [(15,), (1,), (0,), (9.0,), (True,)]),
    (queens, [(6, 0, 0, 0), (1, 0, 0, 0)]),
    (power, [(1.5, 9), (2, 5), (0.0, 0)]),
    (parities, [(9,), (0,)]),
    (sums, [([3, 5, 2, 8, 1], 0, 8), ([], 0, 1), ([1.5, 0.5], 0, 2.0)]),
    (sorted_, [([3, 1, 2, 3, 0],), ([2.5, float("nan"), 1.0],), ([1],), ([],), ([5, 4, 3, 2, 1] * 9,)]),
    (extremes, [(np.array([3.0, -1.0, 7.0, 2.0]), 0, 4), (np.arange(9), 2, 9)]),
    (ways, [(9,), (0,), (9, 0)]),
    (factorial, [(20,), (25,), (5,)]),
    (inverse_sum, [(5,), (1,)]),
    (moves, [(4, 0, 1, 2, []), (0, 0, 1, 2, [])]),
    (of_a_loop, [(15,), (0,)]),
    (nim, [(3, 4, True), (0, 0, False)]),
    (bumpy, [(9,), (8,), (0,)]),
]


@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [fibonacci, queens, power, parities, sums, sorted_, nim, of_a_loop, ways])
def test_one_program(function: Callable) -> None:
    compiled = dg.compile(function, backend="c")
    args = next(calls[0] for f, calls in CASES if f is function)
    for _ in range(2):
        compiled(*args)
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks, dict(compiled.stats.breaks)


def decorated(function: Callable) -> Any:
    """The function, which calls itself as it is compiled."""
    made = type(function)(function.__code__, dict(function.__globals__), function.__name__)
    compiled = made.__globals__[function.__name__] = dg.compile(made, backend="c")
    return compiled


@pytest.mark.parametrize("function", [fibonacci, queens, sums, factorial])
def test_functions_that_call_themselves_compiled(function: Callable) -> None:
    compiled = decorated(function)
    for args in next(calls for f, calls in CASES if f is function):
        assert described(compiled(*args)) == described(function(*args))


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def at_depth(function: Callable, n: int) -> str:
    try:
        return str(function(n))
    except RecursionError as error:
        return type(error).__name__


def test_calls_are_as_deep_as_in_python() -> None:
    compiled = dg.compile(depth, backend="c")
    assert compiled(100) == 100
    found: list[str] = []

    def look() -> None:
        limit = sys.getrecursionlimit()
        found.extend(at_depth(function, limit - k) for k in range(-3, 12, 2) for function in (compiled, depth))
        found.extend(at_depth(function, 10**6) for function in (compiled, depth))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[-2:] == ["RecursionError"] * 2
    assert "RecursionError" in found[:2] and found[-4] == found[-3] != "RecursionError"
    # Python code that dynagraph runs on the way may need a frame
    assert all(a == b or a == "RecursionError" for a, b in zip(found[::2], found[1::2]))


def test_a_small_c_stack_is_enough() -> None:
    compiled, before = dg.compile(depth, backend="c"), sys.getrecursionlimit()
    assert compiled(10) == 10
    try:
        sys.setrecursionlimit(30_000)
        assert compiled(20_000) == 20_000
    finally:
        sys.setrecursionlimit(before)


class Alarm(Exception):
    pass


@pytest.mark.parametrize("make", [dg.compile, decorated])
def test_signals(make: Callable) -> None:
    def handler(*_: Any) -> None:
        raise Alarm

    compiled = make(fibonacci)
    assert compiled(10) == 55
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.perf_counter()
    try:
        with pytest.raises(Alarm) as info:
            compiled(80)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - start < 5
    assert info.traceback[-2].name == "fibonacci"


def test_its_short_calls_do_not_decide_for_the_others():
    def ackermann(m, n):
        if m == 0:
            return n + 1
        if n == 0:
            return compiled(m - 1, 1)
        return compiled(m - 1, compiled(m, n - 1))

    with dg.config.override(stay_eager=True):
        compiled = dg.compile(ackermann)
        for n in (1, 2, 3) * 20:
            assert compiled(2, n) == 2 * n + 3
    assert compiled.stats.compiles and compiled.stats.stayed_eager == 0
