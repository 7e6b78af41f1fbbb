"""Variables that only what follows a loop reads, and sums: what they hold, bound or not, and that loops stay within one another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg


def product(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    for i in range(n):
        for j in range(m):
            s = 0.0
            for k in range(p):
                s += a[i, k] * a[k, j]
            c[i, j] = s
    return s, i, j, k


def summed(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    total = 0.0
    for i in range(n):
        for j in range(m):
            d = 0.0
            for k in range(p):
                t = a[i, k] - a[j, k]
                d += t * t
            total += d**0.5
            c[i, j] = d
    return total, d / 2, type(total), type(d)


def last_of_several_types(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    last, kept = None, 1
    for i in range(n):
        for j in range(m):
            last = i + j
            if last > p:
                kept = a[i, j]
        kept = float(i) if kept is None else kept
    return last, kept, type(kept)


def left_to_another_loop(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    s = 0.5
    for i in range(n):
        s = a[i, 0]
    for j in range(m):
        s -= a[0, j]
    for i in range(p):
        c[i, 0] = i
    return s, i, j


def handled(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple | str:
    try:
        for i in range(n):
            for j in range(m):
                s = a[i, j]
                r = 1 / (p - j)
    except ZeroDivisionError:
        try:
            return i, j, s, r
        except UnboundLocalError as error:
            return str(error)
    return r, s


def of_row(a: np.ndarray, m: int) -> tuple:
    for j in range(m):
        t = a[j, 7] if j > 3 else a[j, 0]
    return t, j


def in_calls(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    for i in range(n):  # noqa: B007
        x = of_row(a, m)
    return x, i


def deleted(a: np.ndarray, c: np.ndarray, n: int, m: int, p: int) -> tuple:
    for i in range(n):
        for j in range(m):
            v = a[i, j]
            if j == p:
                break
        else:
            w = i
    del i
    return v, w, j


PROGRAMS = [product, summed, last_of_several_types, left_to_another_loop, handled, in_calls, deleted]


def outcome(function: Callable, *args: Any) -> tuple:
    c = np.zeros((6, 6))
    try:
        found = function(*args[:1], c, *args[1:])
        return repr(found), [type(x) for x in found], c.tobytes()
    except Exception as error:
        return type(error), str(error), c.tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", PROGRAMS)
def test_as_python_has_them(function: Callable) -> None:
    compiled, a = dg.compile(function), np.random.default_rng(0).random((6, 6))
    for n, m, p in itertools.product((0, 1, 5), (0, 1, 5, 7), (0, 1, 3)):
        assert outcome(compiled, a, n, m, p) == outcome(function, a, n, m, p), (n, m, p)


@pytest.mark.parametrize("function", [product, summed])
def test_loops_stay_within_one_another(function: Callable) -> None:
    compiled = dg.compile(function)
    compiled(np.ones((5, 5)), np.ones((5, 5)), 5, 5, 5)
    loops = compiled.programs[0].loops
    assert "fast copy of the whole nest" in loops[0]
    if function is product:
        assert "in parallel" in loops[0] and "as lanes of vectors" in loops[1]


def test_turns_on_threads_leave_what_the_last_one_sets() -> None:
    compiled = dg.compile(product)
    for n, m, p in ((64, 70, 64), (70, 70, 0), (70, 0, 3)):
        a, c, d = np.random.default_rng(0).random((70, 70)), np.zeros((70, 70)), np.zeros((70, 70))
        for _ in range(3):
            got, want = (call_with(f, a, out, n, m, p) for f, out in ((compiled, c), (product, d)))
            assert got == want and np.array_equal(c, d)


def call_with(function: Callable, *args: Any) -> str:
    try:
        return repr(function(*args))
    except UnboundLocalError as error:
        return str(error)


def added_first(x: np.ndarray) -> tuple:
    """The first instruction of a turn reads the sum."""
    parts = []
    for k in range(len(x)):
        parts.append(x[k])
    last = 0.0
    while len(parts) > 3 and parts.pop(0) < 20:
        last += parts[0]
    return last, len(parts)


def test_sums_that_a_turn_reads_first() -> None:
    compiled = dg.compile(added_first)
    for n in (12, 3, 40):
        got, want = compiled(np.arange(float(n))), added_first(np.arange(float(n)))
        assert got == want and type(got[0]) is type(want[0])
