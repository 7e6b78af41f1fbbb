"""Functions that call themselves, as machine code that calls itself."""

from __future__ import annotations

import copy
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check, described, outcome

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


def quicksort(a, low, high):
    if low >= high:
        return
    pivot, i, j = a[(low + high) // 2], low, high
    while i <= j:
        while a[i] < pivot:
            i += 1
        while a[j] > pivot:
            j -= 1
        if i <= j:
            a[i], a[j] = a[j], a[i]
            i += 1
            j -= 1
    quicksort(a, low, j)
    quicksort(a, i, high)


def mergesort(a, room, low, high):
    if high - low < 2:
        return
    middle = (low + high) // 2
    mergesort(a, room, low, middle)
    mergesort(a, room, middle, high)
    i, j = low, middle
    for k in range(low, high):
        if j == high or (i < middle and a[i] <= a[j]):
            room[k] = a[i]
            i += 1
        else:
            room[k] = a[j]
            j += 1
    for k in range(low, high):
        a[k] = room[k]


def fill(grid, i, j, old, new):
    """How many it has filled; out of bounds where no wall is around the grid."""
    if grid[i, j] != old:
        return 0
    grid[i, j] = new
    return 1 + sum(fill(grid, i + di, j + dj, old, new) for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)))


def permutations(a, k, seen):
    if k == len(a):
        seen[0] += a[0] * 3 + a[-1]
        return 1
    count = 0
    for i in range(k, len(a)):
        a[k], a[i] = a[i], a[k]
        count += permutations(a, k + 1, seen)
        a[k], a[i] = a[i], a[k]
    return count


def halves(a, d):
    """By views of the array; an error deep inside where d becomes zero."""
    a[0] += 1 / d
    if len(a) > 1:
        halves(a[: len(a) // 2], d - 1)
        halves(a[len(a) // 2 :], d - 1)


def scale(a, n):
    """Whole arrays, and one that may overlap with what it is made of."""
    if n:
        a *= 2
        scale(a, n - 1)
        a[1:] = a[:-1] + 1


def down(a, n):
    a[n] = n
    if n:
        down(a, n - 1)
    a[n] += 1


def up(a, n):
    if n == len(a):
        return
    a[n] = n
    down(a, n)
    up(a, n + 1)


def ups(a, m):
    """A call with effects within a comprehension."""
    return sum([up_to(a, k) for k in range(m)])


def up_to(a, n):
    a[n] += n
    return a[n] if n == 0 else a[n] + up_to(a, n - 1)


def made(n):
    """An array of its own, which it writes to."""
    a = np.zeros(3)
    a[0] = n
    return a[0] if n == 0 else a[0] + made(n - 1)


def grid_of(rows):
    return np.array([[ord(c) for c in row] for row in rows])


WALLED = grid_of(("######", "#..#.#", "#.##.#", "#....#", "######"))
OPEN = grid_of(("######", "#..#.#", "#.##..", "#....#", "######"))
READ_ONLY = np.arange(5.0)
READ_ONLY.flags.writeable = False
SHUFFLED = np.random.default_rng(3).permutation(200)
KINDS = ("uint8", "float16", "float32", "complex128", "bool", "int16")


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
    (quicksort, [(SHUFFLED, 0, 199), (SHUFFLED[::-2] * 0.5, 0, 99), (SHUFFLED.astype("uint8"), 0, 199), (SHUFFLED, 5, 300)]),
    (quicksort, [(np.array([2.0, np.nan, 1.0, -0.0, 0.0]), 0, 4), ([3, 1, 2], 0, 2), (READ_ONLY, 0, 4), (READ_ONLY, 3, 3)]),
    (mergesort, [(SHUFFLED, SHUFFLED.copy(), 0, 200), (SHUFFLED, np.zeros(100), 0, 200)]),
    (mergesort, [(SHUFFLED, np.zeros(200, "int8"), 0, 200), (SHUFFLED[:90], SHUFFLED[7:97], 0, 90)]),
    (fill, [(WALLED, 1, 1, 46, 7), (OPEN, 1, 1, 46, 7), (WALLED.astype("uint8"), 3, 4, 46, 300), (WALLED.T, 3, 3, 46, 1.5)]),
    (permutations, [(np.arange(5), 0, np.zeros(1)), (np.arange(4.0), 0, np.zeros(1, int)), (np.arange(0), 0, np.zeros(1))]),
    *[(permutations, [(np.arange(4).astype(kind), 0, np.zeros(1, kind))]) for kind in KINDS],
    (halves, [(np.ones(16), 9), (np.ones(16), 4), (np.ones(16, int), 3), (np.ones((4, 2)), 9)]),
    (scale, [(np.arange(6.0), 3), (np.arange(6), 0), (np.arange(12.0)[::2], 2)]),
    (up, [(np.zeros(9), 0), (np.zeros(9, "complex64"), 0), (np.zeros(9), 10)]),
    (ups, [(np.zeros(9), 8), (np.zeros(9), 12)]),
    (made, [(3,)]),
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


ONE_PROGRAM = [
    fibonacci, queens, power, parities, sums, sorted_, nim, of_a_loop, ways, quicksort, mergesort, permutations, up,
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", ONE_PROGRAM)
def test_one_program(function: Callable) -> None:
    compiled = dg.compile(function, backend="c")
    args = next(calls[0] for f, calls in CASES if f is function)
    for _ in range(2):
        compiled(*(a.copy() if isinstance(a, np.ndarray) else a for a in args))
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks, dict(compiled.stats.breaks)


def decorated(function: Callable) -> Any:
    """The function, which calls itself as it is compiled."""
    made = type(function)(function.__code__, dict(function.__globals__), function.__name__)
    compiled = made.__globals__[function.__name__] = dg.compile(made, backend="c")
    return compiled


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [fibonacci, queens, sums, factorial, quicksort, mergesort, permutations, halves, scale])
def test_functions_that_call_themselves_compiled(function: Callable) -> None:
    compiled = decorated(function)
    for args in (args for f, calls in CASES if f is function for args in calls):
        plainly, given = copy.deepcopy(args), copy.deepcopy(args)
        assert outcome(compiled, given) == outcome(function, plainly)
        assert described(given) == described(plainly)


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


def endless(a, n):
    """All that it has done is undone again and again: Python makes the calls one by one."""
    a[n % len(a)] += 1
    return 0 if n == 0 else endless(a, n - 1) + endless(a, n - 1)


@pytest.mark.parametrize("make", [dg.compile, decorated])
def test_a_signal_finds_arrays_as_python_has_them(make: Callable) -> None:
    seen: list[float] = []
    a = np.zeros(7)

    def handler(*_: Any) -> None:
        seen.append(float(a.sum()))
        raise Alarm

    compiled = make(endless)
    assert compiled(np.zeros(7), 9) == 0
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Alarm) as info:
            compiled(a, 60)
    finally:
        signal.signal(signal.SIGALRM, before)
    calls = sum(entry.name == "endless" for entry in info.traceback)
    assert calls and seen == [a.sum()] and seen[0] >= calls


def test_more_is_kept_than_there_is_room_for() -> None:
    compiled, n = decorated(quicksort), 150_000
    for a in (np.arange(n)[::-1] % 1000, np.random.default_rng(0).random((n, 3))[:, 1], np.arange(n, dtype="uint8")):
        compiled(a, 0, n - 1)
        assert (a[1:] >= a[:-1]).all()


def test_beside_another_thread() -> None:
    compiled, done = decorated(quicksort), threading.Event()
    compiled(np.arange(9), 0, 8)
    a, counts = np.random.default_rng(0).random(100_000), [0]

    def count() -> None:
        while not done.is_set():
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        compiled(a, 0, len(a) - 1)
    finally:
        done.set()
        thread.join()
    assert (a[1:] >= a[:-1]).all()


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
