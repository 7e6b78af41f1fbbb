"""Loops that have a fast copy: nests whose first turns are written out before, indices that fall, loops of few turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg


def windows(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    out = np.zeros(n)
    for i in range(n):
        total = 0.0
        for j in range(w.shape[0]):
            for k in range(w.shape[1]):
                total += x[i + j, k] * w[j, k]
        out[i] = total
    return out


def sweeps(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    error, turns = 1.0, 0
    while error > 1e-3 and turns < 30:
        error = 0.0
        for i in range(1, n):
            for j in range(1, w.shape[1] - 1):
                new = (x[i, j - 1] + x[i, j + 1]) / 2
                error = max(error, abs(new - x[i, j]))
                x[i, j] = new
        turns += 1
    return turns, error


def reversed_dots(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    out = []
    for k in range(n + 1):
        total = 0.0
        for i in range(k):
            total += x[k - i - 1, 0] * w[0, -1 - i]
        out.append(total)
    return out


def rows_until(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    best, at = -np.inf, (0, 0)
    for i in range(n):
        for j in range(x.shape[1]):
            if x[i, j] != x[i, j]:
                continue
            if x[i, j] > best:
                best, at = x[i, j], (i, j)
            if best > 0.999:
                break
    return best, at


def outcome(function: Callable, x: np.ndarray, w: np.ndarray, n: int) -> Any:
    x = x.copy()
    try:
        return repr(function(x, w, n)), x.tobytes()
    except (IndexError, ZeroDivisionError) as error:
        return repr(error), x.tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [windows, sweeps, reversed_dots, rows_until])
def test_as_python_has_it(function: Callable) -> None:
    compiled, rng = dg.compile(function), np.random.default_rng(0)
    for rows, columns, n in ((40, 30, 30), (40, 3, 30), (9, 5, 8), (6, 40, 9), (30, 40, 29), (3, 2, 2), (0, 4, 0), (12, 12, 13)):
        for kernel in ((3, 3), (1, columns), (5, 12), (2, 0)):
            x, w = rng.random((rows, columns)), rng.random(kernel)
            for strided in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
                assert outcome(compiled, strided, w, n) == outcome(function, strided, w, n)
    assert compiled.stats.fallbacks == 0


@pytest.mark.parametrize("function", [windows, sweeps, reversed_dots])
def test_innermost_loops_have_copies_without_checks(function: Callable) -> None:
    compiled = dg.compile(function)
    compiled(np.ones((30, 30)), np.ones((4, 30)), 25)
    innermost = compiled.programs[0].loops[-1]
    assert "fast copy without checks" in innermost and "how often" not in innermost


def goes_round(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[(i + 1) % x.shape[0], (j - 1) % x.shape[1]] * x[(2 * i) % n, j]
        total -= x[(i * n) % len(x), 0] + x[(i - n) % n, 0]
    return total


def test_indices_that_go_round() -> None:
    compiled, rng = dg.compile(goes_round), np.random.default_rng(0)
    for shape in ((20, 30), (20, 1), (9, 9), (1, 12), (0, 4), (4, 0)):
        x = rng.random(shape)
        for n in (1, 5, 9, 20, 21, -3, -20, 0):
            assert outcome(compiled, x, x, n) == outcome(goes_round, x, x, n), (shape, n)
    assert compiled.stats.fallbacks == 0


def ring(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    seen = 0
    for i in range(n):
        x[i, 0] = x[(i - 1) % n, 0] + 2 * x[(i + 1) % n, 1] - x[(i + 4) % n, 0]
        seen = (i + 3) % n
    return seen


def ring_of_another_length(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    total, at = 0.0, 0
    for i in range(-3, len(x) + 5):
        total = total * 0.5 + x[(i + 1) % n, 1]
        x[at, 0] = total
        at = (i + 2) % n
    return total, at


@pytest.mark.parametrize("function", [ring, ring_of_another_length])
def test_neighbours_that_go_round(function: Callable) -> None:
    compiled, rng = dg.compile(function), np.random.default_rng(0)
    for rows in (20, 9, 5, 4, 3, 1, 0):
        x = rng.random((rows, 2))
        for n in (20, 9, 5, 4, 3, 2, 1, 0, -1, -20, 2**62, 2**63 - 1):
            if abs(n) < 2**50 or function is not ring:
                assert outcome(compiled, x, x, n) == outcome(function, x, x, n), (rows, n)
    assert compiled.stats.fallbacks == 0
    assert "fast copy without checks" in compiled.programs[0].loops[0]


def test_remainders_of_all_signs() -> None:
    def plain(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(a)):
            for j in range(len(b)):
                out[i, j] = int(a[i]) % int(b[j])

    most = 2**63 - 1
    a = np.array([0, 1, -1, 5, -5, 7, 100, most, most - 1, -most, -most - 1, 2**62, -(2**62)])
    b = np.array([1, -1, 2, 3, -3, 5, 7, most, -most, -most - 1, 2**62, 2**62 + 1])
    want, got = np.zeros((len(a), len(b)), dtype=np.int64), np.zeros((len(a), len(b)), dtype=np.int64)
    plain(a, b, want)
    dg.compile(plain)(a, b, got)
    np.testing.assert_array_equal(got, want)


def knapsack(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    best = np.zeros((len(w) + 1, n + 1), dtype=np.int64)
    for i in range(1, len(w) + 1):
        weight, value = w[i - 1], x[i - 1]
        for c in range(n + 1):
            best[i, c] = best[i - 1, c]
            if weight <= c and best[i - 1, c - weight] + value > best[i, c]:
                best[i, c] = best[i - 1, c - weight] + value
    return best


def shifted(x: np.ndarray, w: np.ndarray, n: int) -> Any:
    """Indices are NumPy's ints, which a branch keeps within bounds on both sides, on one, or on neither."""
    total = np.int64(0)
    for by in w:
        for i in range(n):
            if i - by >= 0 and i - by < len(x):
                total = total * 3 + x[i - by]
            elif n - i > by:
                total += x[n - i - by - 1]
            if i > 3:
                total -= x[i - 4]
            x[i] = total & 7
    return total


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("function", [knapsack, shifted])
def test_branches_keep_numpys_ints_within_bounds(function: Callable) -> None:
    compiled, rng = dg.compile(function), np.random.default_rng(0)
    odd = np.array([0, 5, -1, -7, 40, 2**63 - 1, -(2**63), 2**62, 3])
    for n in (30, 12, 5, 0):
        for w in (rng.integers(1, 9, 9), odd, odd[[0, 3, 1]], odd[[5]], odd[[6]]):
            for x in (rng.integers(0, 50, 30), rng.integers(0, 50, 9)):
                assert outcome(compiled, x, w, n) == outcome(function, x, w, n), (n, w, len(x))
    if function is knapsack:
        assert "fast copy without checks" in compiled.programs[-1].loops[-1]
