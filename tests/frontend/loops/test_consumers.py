"""Generator expressions and lists that builtins go through, in native loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

from .test_lists import check, outcome


def dots(x, n):
    return [sum(x[i] * x[k] for i in range(k)) for k in range(n)], n


def sums_of_floats(values, n):
    total = 0.0
    for k in range(n):
        total += sum(v * k for v in values)
    return total, sum(values), sum(v for v in values if v < 0)


def sums_of_ints_and_floats(n):
    out = []
    for k in range(n):
        out.append(sum(i if i < k else 0.1 * i for i in range(n)) + 0.0)
    return out


def sums_of_scalars(x, n):
    s = 0.0
    for k in range(n):
        s = s + sum(v * k for v in x)
    return s


def sum_from_a_float(x, n):
    out = []
    for k in range(n):
        out.append(sum((v for v in range(k)), 0.5))
    return out


def sum_of_complex(n):
    s = 0j
    for k in range(n):
        s += sum(i * 1j for i in range(k))
    return s


def anys(x, limit, n):
    found = 0
    for k in range(n):
        if any(v > limit + k for v in x):
            found += 1
        if all(v > k - limit for v in x):
            found += 100
    return found


def primes(n):
    found = []
    for k in range(2, n):
        if all(k % p for p in found if p * p <= k):
            found.append(k)
    return found


def extremes(items, n):
    out = []
    for k in range(n):
        out.append(max(v * (k % 5 - 2) for v in items) - min(v + k for v in items))
    return out, max(items), min(items)


def extremes_of_scalars(x, n):
    m = 0.0
    for k in range(n):
        m = max(m, max(x[i] - k for i in range(len(x))))
    return m


def lists_of_generators(n):
    out = []
    for k in range(n):
        row = list(i * k for i in range(k))  # noqa: C400
        out.append(row)
    return out


def queens(n):
    solutions, stack = 0, [[0 for _ in range(0)]]
    while stack:
        at = stack.pop()
        row = len(at)
        if row == n:
            solutions += 1
            continue
        for column in range(n):
            if all(column != c and abs(column - c) != row - k for k, c in enumerate(at)):
                stack.append(at + [column])
    return solutions


def products_by_a_local_function(n):
    def weight(i, j):
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    u = [1.0] * n
    for _ in range(2):
        t = [sum(weight(i, j) * u[j] for j in range(n)) for i in range(n)]
        u = [sum(weight(j, i) * t[j] for j in range(n)) for i in range(n)]
    return u


def sums_by_a_local_function(n):
    def weight(i, j):
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    u, t = [1.0] * n, []
    for k in range(2 * n):
        t.append(sum(weight(k, j) * u[j] for j in range(n)))
    return t


def local_function_that_leaves(n, m):
    def quotient(i, j):
        return (i + 1) / (j - m)

    total = 0.0
    for k in range(2):
        total += sum(sum(quotient(i, j) for j in range(n)) for i in range(k, n))
    return total, quotient(1, 2)


def local_function_that_changes(n):
    by = 1

    def times(i):
        return i * by

    out = []
    for k in range(n):
        out.append([times(i) for i in range(k)])
        by = k
    return out


NAN, INF = float("nan"), float("inf")
ODD = [0.1] * 10 + [1e16, 1.0, -1e16, 1e-20, -0.0]
CASES: list[tuple[Callable, list[tuple]]] = [
    (dots, [(np.linspace(0.1, 3, 20), 20), (np.ones(3), 3)]),
    (sums_of_floats, [(ODD, 20), ([-0.0], 2), ([INF, 1.0, -INF], 3), ([1e308, 1e308, -1e308], 2), ([NAN, -1.0], 9), ([1.0], 0)]),
    (sums_of_ints_and_floats, [(0,), (1,), (30,)]),
    (sums_of_scalars, [(np.array(ODD), 9), (np.float32(ODD[:10]), 9), (np.arange(5), 9), (np.array([True, False]), 9)]),
    (sum_from_a_float, [(1, 20), (1, 0)]),
    (sum_of_complex, [(9,), (0,)]),
    (anys, [(np.linspace(0, 9, 10), 5.0, 20), (np.zeros(0), 1.0, 20), (np.full(3, np.nan), 1.0, 20)]),
    (primes, [(100,), (0,)]),
    (extremes, [([3, -1, 4], 20), ([2.5, NAN, -1.0], 20), ([NAN, 1.0], 20), ([0.0, -0.0], 20), ([7], 20)]),
    (extremes_of_scalars, [(np.linspace(-1, 3, 9), 9)]),
    (lists_of_generators, [(12,), (0,)]),
    (queens, [(6,), (5,), (1,)]),
    (products_by_a_local_function, [(40,), (0,), (1,), (90,)]),
    (sums_by_a_local_function, [(40,), (0,), (1,), (90,)]),
    (local_function_that_leaves, [(30, 100), (30, 20), (0, 5), (30, 2)]),
    (local_function_that_changes, [(12,), (1,), (0,)]),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_as_python_runs_it(function: Callable, calls: list) -> None:
    check(function, *calls)


@pytest.mark.parametrize("function", [primes, queens, extremes, sums_of_floats, sums_by_a_local_function])
def test_are_native_at_once(function: Callable) -> None:
    calls = next(calls for f, calls in CASES if f is function)
    compiled = dg.compile(function, backend="c")
    compiled(*calls[0])
    compiled(*calls[0])
    assert compiled.stats.compiles == 1 and not compiled.stats.breaks


def test_no_items() -> None:
    def least(values, n):
        s = 0
        for k in range(n):
            s += max(v for v in values if v < 100 - k)
        return s

    check(least, ([5, 7], 50), ([99], 50), ([200], 3))


def test_an_error_within() -> None:
    def quotients(x, n):
        s = 0.0
        for k in range(n):
            s += sum(1.0 / v for v in x if v != k)
        return s

    check(quotients, ([1.0, 2.0], 5), ([1.0, 0.0], 5))


def test_ints_beyond_64_bits_within() -> None:
    def powers(n):
        out = []
        for k in range(n):
            out.append(sum(3**i for i in range(k)) % 1000)
        return out

    check(powers, (30,), (60,))


KEPT = []


def sum_of_users(values):
    KEPT.append(values)
    return 1


def test_a_function_of_the_users_that_keeps_the_generator() -> None:
    def keeps(n):
        s, by = 0, 1
        for k in range(n):
            by = k + 1
            s += sum(i * by for i in range(3))
        return s

    keeps = type(keeps)(keeps.__code__, {"sum": sum_of_users, "range": range}, "keeps")
    compiled, found = dg.compile(keeps, backend="c"), []
    for function in (keeps, compiled, compiled):
        KEPT.clear()
        assert outcome(function, (5,)) == ("int", "5")
        found.append([list(g) for g in KEPT])
    assert found[0] == found[1] == found[2] == [[0, 5, 10]] * 5


def test_a_generator_that_is_kept() -> None:
    def keeps(n):
        s, by, kept = 0, 1, []
        for _ in range(n):
            s += sum(i * by for i in range(3))
            kept.append(i * by for i in range(3))
            by += 1
        return s, [list(g) for g in kept]

    check(keeps, (4,), (20,))


def test_lists_are_unpacked_and_extended() -> None:
    def moved(bodies, n):
        log = [0.0]
        for _ in range(n):
            for x, v in bodies:
                log += [x + v]
            for i, body in enumerate(bodies):
                x, v = body
                body[0] = x + v * i
        return log

    check(moved, ([[1.0, 0.5], [2.0, 0.25], [-1.0, 3.0]], 30), ([[1.0, 0.5], [2.0]], 30), ([], 3))
