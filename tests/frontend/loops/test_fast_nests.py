"""Nests of loops that have a copy without checks behind one guard: triangles, kernels, edges, errors, signals."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_interrupts import Handled, on_alarm


def convolve(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(out.shape[1]):
            s = 0.0
            for k in range(w.shape[0]):
                for m in range(w.shape[1]):
                    s += x[i + k, j + m] * w[k, m]
            out[i, j] = s


def with_edges(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> None:
    rows, columns = w.shape
    for i in range(n):
        for j in range(n):
            for k in range(rows):
                for m in range(columns):
                    at, to = i + k - rows // 2, j + m - columns // 2
                    if 0 <= at < n and 0 <= to < n:
                        out[i, j] += x[at, to] * w[k, m]


def triangles(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            total += x[i, j] - x[j - i, i]
            out[j, i] = total
        for j in range(i):
            out[i - j - 1, j] -= x[i, i - 1 - j]
        for j in range(i, -1, -1):
            out[i, j] += w[0, 0]
    return total


def steps(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> int:
    found = 0
    for i in range(n - 1, -1, -2):
        for j in range(1, n, 3):
            out[i, j] += x[i, j - 1] + x[-1, j] * i
        found += i
    return found


def largest(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> tuple:
    best, p, q = 0.0, 0, 0
    for i in range(n):
        for j in range(i + 1, n):
            if abs(x[i, j]) > best:
                best, p, q = abs(x[i, j]), i, j
        out[i, p] = best
    return best, p, q


def clipped(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> None:
    for i in range(n):
        for j in range(n):
            for k in range(max(i - 2, 0), min(i + 3, n)):
                out[i, j] += x[k, min(max(j + k - i, 0), n - 1)] / (1 + (i - k) * (i - k))


def gathered(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(n):
            at = int(x[j, i] * 3)
            total += x[i, at]
            if 0 <= at < n:
                out[i, at] += x[at, j] * total
    return total


def changes_its_bounds(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> int:
    at, most = 0, n
    for i in range(n):
        for j in range(most):
            out[i, at] += x[at, j]
            at = j
        at = i // 2
        if x[i, at] > 0.9:
            most -= 1
    return most


def counts_down(x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> int:
    i = n
    while i > 0:
        i -= 1
        j = 0
        while j < i:
            out[i, j] = x[j, i - j]
            j += 1
    return i


FUNCTIONS = [convolve, with_edges, triangles, steps, largest, clipped, gathered, changes_its_bounds, counts_down]
COPIED = [convolve, with_edges, triangles, steps, largest]


def outcome(function: Callable, x: np.ndarray, w: np.ndarray, out: np.ndarray, n: int) -> Any:
    try:
        return repr(function(x, w, out, n)), out.tobytes()
    except (IndexError, ZeroDivisionError, ValueError, OverflowError) as error:
        return repr(error), out.tobytes()


def layouts(rng: np.random.Generator, rows: int, columns: int) -> list[np.ndarray]:
    x = rng.standard_normal((rows, columns))
    return [x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x[::-1, ::-1]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_python_has_it(function: Callable) -> None:
    compiled, rng = dg.compile(function, dynamic=True), np.random.default_rng(0)
    for rows, columns in ((9, 9), (9, 4), (5, 9), (3, 5)):
        for x, kernel in itertools.product(layouts(rng, rows, columns)[: 4 if columns == 9 else 1], ((3, 3), (2, 5))):
            w = np.round(rng.random(kernel), 2)
            for n in (9, 6, 5, 4, 3, 1, 0, -2):
                want, got = np.zeros((rows, 9)), np.zeros((rows, 9))
                assert outcome(compiled, x, w, got, n) == outcome(function, x, w, want, n), (x.shape, x.strides, w.shape, n)


def test_empty_kernels() -> None:
    for function in (convolve, with_edges):
        compiled = dg.compile(function)
        for rows, kernel in ((5, (0, 3)), (5, (3, 0)), (0, (2, 2))):
            x, want, got = np.ones((rows, 5)), np.ones((rows, 5)), np.ones((rows, 5))
            for n in (0, 3, 5, 6):
                assert outcome(compiled, x, np.ones(kernel), got, n) == outcome(function, x, np.ones(kernel), want, n)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_arrays_that_overlap_and_other_types(function: Callable) -> None:
    compiled, rng = dg.compile(function, dynamic=True), np.random.default_rng(0)
    for dtype in (np.float32, np.int64, np.uint8, np.bool_):
        for shift in (0, 1):
            a, b = (2 * np.random.default_rng(1).random((8, 9)) for _ in range(2))
            a[2, 3], a[4, 4], b[2, 3], b[4, 4] = np.nan, -0.0, np.nan, -0.0
            w = rng.random((3, 3)).astype(dtype)
            with np.errstate(all="ignore"):
                got = outcome(compiled, a[:, : 9 - shift], w, a[:, shift:], 7)
                assert got == outcome(function, b[:, : 9 - shift], w, b[:, shift:], 7), (dtype, shift)


@pytest.mark.parametrize("function", COPIED)
def test_one_guard_stands_before_the_nest(function: Callable) -> None:
    compiled = dg.compile(function)
    compiled(np.ones((12, 12)), np.ones((2, 2)) / 4, np.zeros((9, 9)), 7)
    assert any("fast copy of the whole nest" in loop for loop in compiled.programs[0].loops)


def test_read_only_arrays() -> None:
    compiled, out = dg.compile(convolve), np.zeros((5, 5))
    compiled(np.ones((9, 9)), np.ones((2, 2)), out, 4)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled(np.ones((9, 9)), np.ones((2, 2)), out, 4)


def test_signals_wait_for_few_turns() -> None:
    def many(x: np.ndarray, n: int, m: int) -> None:
        for _ in range(n):
            for j in range(m):
                x[j] += 1.0

    compiled, x = dg.compile(many), np.zeros(70_000)
    for m in (3, 4, 5):
        compiled(x, 100, m)
    for m in (4, 60_000, 70_000):
        done = 0.0
        while done <= 100:  # on a busy machine the alarm may ring before the loop begins
            x[:] = 0
            with pytest.raises(Handled), on_alarm():
                compiled(x, 2**40, m)
            done = x[0]
            assert set(x[:m]) <= {done, done - 1}
    assert signal.getsignal(signal.SIGALRM) != Handled


def shortest(d: np.ndarray) -> None:
    for k in range(len(d)):
        for i in range(len(d)):
            for j in range(len(d)):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]


def spreads(d: np.ndarray) -> None:
    """Each turn of k writes what later turns of j read."""
    for k in range(len(d)):
        for j in range(len(d)):
            d[k, j] = d[k, j] * 0.5 + d[k, k]


def spreads_to_two(d: np.ndarray) -> None:
    for k in range(len(d)):
        for j in range(1, len(d)):
            d[k, j] = d[k, k] - d[j, k] + d[k, 2]


@pytest.mark.parametrize("function", [shortest, spreads, spreads_to_two])
def test_elements_that_are_read_at_one_place_and_written_in_one_turn(function: Callable) -> None:
    compiled, rng = dg.compile(function, dynamic=True), np.random.default_rng(0)
    for n in (1, 3, 5, 24):
        for way in (np.asarray, np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1, ::-1]):
            got = way(rng.integers(-1, 9, (n, n)) / 4)
            want = got.copy()
            compiled(got), function(want)
            assert np.array_equal(got, want), n
    buffer, again = (np.random.default_rng(1).random(40) for _ in range(2))
    folded, other = (np.lib.stride_tricks.as_strided(b, (9, 9), (24, 8)) for b in (buffer, again))
    compiled(folded), function(other)
    assert np.array_equal(buffer, again)


def test_sums_of_squares_fit() -> None:
    """Neither has bounds of its own as a polynomial: each factor has."""

    def near(x, out):
        n, m = x.shape
        for i in range(n):
            for j in range(m):
                total = 0.0
                for k in range(max(i - 2, 0), min(i + 3, n)):
                    for p in range(max(j - 2, 0), min(j + 3, m)):
                        total += x[k, p] * -((i - k) ** 2 + (j - p) ** 2)
                out[i, j] = total

    x, compiled = np.random.default_rng(0).random((9, 7)), dg.compile(near)
    plain, native = np.zeros((2, 9, 7))
    near(x, plain)
    compiled(x, native)
    np.testing.assert_array_equal(native, plain)
    assert "fast copy of the whole nest" in compiled.programs[0].loops[0]
